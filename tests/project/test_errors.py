"""docs/errors.md lists every `reason` of an error, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import reasons


def test_page_has_every_reason() -> None:
    wrong = reasons.problems()
    assert wrong == [], "python tools/reasons.py --update adds the rows; describe them by hand"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a small tree with a correct page."""
    (tmp_path / "xsem").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "backends" / "acme" / "xsem_acme").mkdir(parents=True)
    (tmp_path / "xsem" / "some.py").write_text("""
class UnsupportedError:
    def __init__(self, **fields):
        fields.setdefault("reason", "unsupported")

def check(value, *, reason):
    raise BadArgumentError("no", reason=reason)

def deeper(value, *, reason):
    check(value, reason=reason)

def use(value):
    deeper(value, reason="deep")
    kind, reason = "a pipe", "by_name"
    if value:
        raise errors.BusyError("no", reason="this" if value > 1 else "that")
    for what, slug in (("value", "value_no"), ("key", "key_no")):
        raise BadHandleError(what, reason=slug)
    raise BadHandleError("no", reason=reason)
""")
    (tmp_path / "backends" / "acme" / "xsem_acme" / "driver.py").write_text(
        "raise ImportFailure(BadHandleError('no', reason='deep'), fate='left')\n")
    page = tmp_path / "docs" / "errors.md"
    page.write_text(f"Before.\n\n{reasons.HEAD}\nAfter.\n")
    reasons.update(tmp_path)
    page.write_text(page.read_text().replace(reasons.TO_BE_DESCRIBED, "It is so."))
    assert reasons.problems(tmp_path) == []
    return tmp_path


def test_reasons_are_found_wherever_they_are_written(tree: Path) -> None:
    assert reasons.written(tree) == {
        "by_name": ("BadHandleError", "It is so."),
        "deep": ("BadArgumentError, BadHandleError", "It is so."),
        "key_no": ("BadHandleError", "It is so."),
        "that": ("BusyError", "It is so."),
        "this": ("BusyError", "It is so."),
        "unsupported": ("UnsupportedError", "It is so."),
        "value_no": ("BadHandleError", "It is so."),
    }
    assert (tree / "docs" / "errors.md").read_text().endswith("|\n\nAfter.\n")


@pytest.mark.parametrize(("planted", "said"), [
    ("raise BusyError('no', reason='fresh')", "docs/errors.md lacks fresh (BusyError)"),
    ("raise BadError('no', reason='this')", "docs/errors.md says this is of BusyError; it is of BadError, BusyError"),
    ("raise BusyError('no', reason=f'{x}_no')", "xsem/planted.py:1: reason=f'{x}_no' is not a literal"),
    ("raise BusyError('no', reason='Not A Slug')", "'Not A Slug' of BusyError is not a snake_case slug"),
    ("def helper(reason): pass", "xsem/planted.py:1: make the parameter reason of helper keyword-only"),
])
def test_reason_that_is_not_on_the_page_is_reported(tree: Path, planted: str, said: str) -> None:
    (tree / "xsem" / "planted.py").write_text(planted + "\n")
    assert said in reasons.problems(tree)


def test_unused_row_is_reported_and_removed(tree: Path) -> None:
    (tree / "backends" / "acme" / "xsem_acme" / "driver.py").write_text("")
    path = tree / "xsem" / "some.py"
    path.write_text(path.read_text().replace('"this" if value > 1 else "that"', '"this"'))
    assert reasons.problems(tree) == [
        "docs/errors.md has that, which nothing raises",
        "docs/errors.md says deep is of BadArgumentError, BadHandleError; it is of BadArgumentError",
    ]
    reasons.update(tree)
    assert reasons.problems(tree) == []


def test_row_without_description_is_reported(tree: Path) -> None:
    (tree / "xsem" / "planted.py").write_text("raise BusyError('no', reason='fresh')\n")
    reasons.update(tree)
    assert reasons.problems(tree) == ["docs/errors.md does not describe fresh"]
