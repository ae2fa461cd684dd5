"""Files for visitors of the repository: citation, security, conduct, issue forms."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from support.paths import ROOT

import xsem

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_citation_agrees_with_the_package() -> None:
    citation = load("CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)   # required by the format
    assert (citation["title"], str(citation["version"])) == (project["name"], xsem.__version__)
    assert citation["license"] == project["license"]
    assert citation["type"] == "software"


def test_forms_are_those_of_the_project() -> None:
    assert [path.stem for path in FORMS] == ["bug", "config", "feature", "report"]


@pytest.mark.parametrize("path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem)
def test_issue_form_is_valid(path: Any) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(form) == {"name", "description", "labels", "body"}
    ids = [each["id"] for each in form["body"] if each["type"] != "markdown"]
    assert len(ids) == len(set(ids)) > 0
    for each in form["body"]:
        assert each["type"] in {"markdown", "input", "textarea"}
        assert set(each) <= {"type", "id", "attributes", "validations"}
        assert each["attributes"].get("label" if each["type"] != "markdown" else "value")
    assert any(each.get("validations", {}).get("required") for each in form["body"])


@pytest.mark.parametrize("page", ["SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_links_of_a_page_exist(page: str) -> None:
    links = re.findall(r"\]\(([^()\s#]+)[^()\s]*\)", (ROOT / page).read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_limits_in_the_security_page_are_those_of_the_format() -> None:
    from xsem.ipc import wire

    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert f"{wire.MAX_DESCRIPTORS} descriptors and {wire.MAX_PAYLOAD_BYTES:,} bytes" in text
