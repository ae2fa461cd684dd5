"""tests/api.txt lists the public names. It changes in the commit that changes the code."""

from __future__ import annotations

import difflib
import importlib
import shutil
from pathlib import Path

import api
import pytest
from support.paths import ROOT

LISTED = (ROOT / "tests" / "api.txt").read_text(encoding="utf-8")


def test_listing_matches_the_code() -> None:
    now = list(api.lines())
    then = LISTED.splitlines()
    changed = "\n".join(difflib.unified_diff(then, now, "tests/api.txt", "the code", lineterm="", n=1))
    assert "\n".join(now).rstrip() == LISTED.rstrip(), (
        f"\n{changed}\nIf this is intended: python tools/api.py > tests/api.txt, and a line in CHANGELOG.md"
    )


@pytest.mark.parametrize("name", ["xsem", *(f"xsem.{each}" for each in api.BESIDES)])
def test_public_module_lists_its_exports(name: str) -> None:
    module = importlib.import_module(name)
    section = LISTED.partition(f"# {name}\n")[2].partition("\n# ")[0]
    for exported in module.__all__:
        assert hasattr(module, exported)
        assert any(exported in line for line in section.splitlines()), f"{name}.{exported}"


def test_every_public_attribute_has_a_type() -> None:
    """Enum members and constants have a value instead."""
    untyped = [line.strip() for line in LISTED.splitlines()
               if line.strip() and not any(mark in line for mark in (":", "(", " = ", "#"))]
    assert untyped == []


@pytest.mark.variants
@pytest.mark.parametrize(("old", "new", "difference"), [
    ("def create_event(self)", "def create_event(self, flags: int = 0)", "create_event(flags: int = 0)"),
    ("def create_event(self)", "def make_event(self)", "make_event"),
    ("in_order: bool = True", "in_order: bool = False", "in_order: bool = False"),
    ("def create_event(self)", "async def create_event(self)", "async def create_event"),
])
def test_changed_signature_is_detected(tmp_path: Path, old: str, new: str, difference: str) -> None:
    shutil.copytree(ROOT / "xsem", tmp_path / "xsem", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "xsem" / "facade" / "device.py"
    text = path.read_text()
    assert old in text
    before = list(api.lines(tmp_path))
    path.write_text(text.replace(old, new))
    assert any(difference in line for line in set(api.lines(tmp_path)) - set(before))


