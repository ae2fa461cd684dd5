"""The words that xsem does not use are refused, and so are long lines of documents."""

from __future__ import annotations

from pathlib import Path

import pytest
import words


@pytest.mark.parametrize(("name", "line", "found"), [
    ("xsem/planted.py", "# the books of a queue", "'books'"),
    ("xsem/planted.py", "queue.append_plain(values)", "'append_plain'"),
    ("xsem/planted.py", "# nobody waits", "'nobody'"),
    ("xsem/planted.py", "# it is no semaphore", "'is no s'"),
    ("docs/planted.md", "The carrier of a handle.", "'carrier'"),
    ("docs/planted.md", "A list has not a fence.", "'has not a'"),
    ("docs/planted.md", "x" * 101, "101 columns"),
    ("conformance/planted.py", "class Bench:", "'Bench'"),
    ("tools/planted.py", "# a clause of the seeds", "'the seeds'"),
])
def test_banned_word_or_long_line_is_reported(tmp_path: Path, name: str, line: str, found: str) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(f"good\n{line}\n")
    (said,) = words.findings(tmp_path, [name])
    assert said.startswith(f"{name}:2: ")
    assert found in said


@pytest.mark.parametrize("line", [
    "it is no longer there", "it has not been released", "broken_promise", "| " + "x" * 200, "    " + "x" * 200,
])
def test_good_words_and_rows_of_tables_are_not_reported(tmp_path: Path, line: str) -> None:
    (tmp_path / "planted.md").write_text(f"{line}\n")
    assert list(words.findings(tmp_path, ["planted.md"])) == []
