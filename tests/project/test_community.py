"""Files for visitors of the repository: addresses, citation, security, conduct, issue forms."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import addresses
import pytest
import yaml
from support.paths import ROOT

import xsem

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


# ---- addresses
def project(text: str) -> dict[str, Any]:
    return tomllib.loads(text)["project"]   # type: ignore[no-any-return]


@pytest.mark.parametrize("url", ["Source", "Documentation"])
def test_address_of_the_project_stands_in_one_file(url: str) -> None:
    address = project(addresses.PROJECT.read_text(encoding="utf-8"))["urls"][url].removeprefix("https://")
    found = subprocess.run(["git", "grep", "--files-with-matches", "--fixed-strings", address], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout
    assert found.split() == ["pyproject.toml"]


def test_addresses_are_set_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = project(addresses.PROJECT.read_text(encoding="utf-8"))
    shutil.copy(addresses.PROJECT, tmp_path)
    monkeypatch.setattr(addresses, "PROJECT", tmp_path / "pyproject.toml")
    for owner, name in (("Owner", "name"), ("other", "new.name")):   # a repository can also move
        source = f"https://github.com/{owner}/{name}"
        monkeypatch.setattr(sys, "argv", ["addresses.py", source])
        assert addresses.main() == 0
        after = project(addresses.PROJECT.read_text(encoding="utf-8"))
        assert after.pop("urls") == {
            "Source": source, "Documentation": f"https://{owner.lower()}.github.io/{name}",
            "Changelog": f"{source}/blob/main/CHANGELOG.md", "Issues": f"{source}/issues"}
        assert set(before["classifiers"]) - set(after["classifiers"]) <= {"Private :: Do Not Upload"}
        assert "Private :: Do Not Upload" not in after["classifiers"]
        assert after | {"urls": 0, "classifiers": 0} == before | {"urls": 0, "classifiers": 0}


@pytest.mark.parametrize("argument", ["", "https://github.com/o", "http://github.com/o/n", "https://github.com/o/n/"])
def test_address_of_something_else_is_refused(
    argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(addresses, "PROJECT", tmp_path / "unwritten")
    monkeypatch.setattr(sys, "argv", ["addresses.py", argument])
    assert addresses.main() == 2
    assert "https://github.com/OWNER/NAME" in capsys.readouterr().err


# ---- citation, security, conduct, issue forms
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
