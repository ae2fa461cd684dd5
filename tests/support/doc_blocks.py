"""The fenced blocks of README, CONTRIBUTING.md and docs, with the comments that say what a test does with a block.

A block is run as it stands, in a process and a folder of its own. A comment before the fence can set up
names from the text: ``<!-- given`` on a line, Python, ``-->``. A block that begins with "# needs a GPU" is
checked by mypy instead, with the stand-ins of tests/typing/stubs.

``<!-- file NAME -->`` before a block: the block is a program in the file NAME. It runs in a second process beside the
next block of the page, from its first line of output on. ``<!-- output -->`` before a block of text: the block is the
output of the program before it. ``<!-- output NAME -->`` is the same for the program in the file NAME, and
``<!-- output console -->`` for the commands before it. White space does not count, and ``...`` stands for any text.
``<!-- on cuda -->`` before a block, or ``on cuda`` behind the name of a file: the program runs on the stand-in for
libcuda.
"""

from __future__ import annotations

import doctest
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from support.paths import ROOT

__all__ = ["ALL", "COMMENT", "LANGUAGES", "PAGES", "START", "Block", "as_parameters", "as_shown", "blocks"]

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A block with any other spelling would never run.
LANGUAGES = {"python", "c", "cpp", "console", "toml", "yaml", "text"}
COMMENT = (r"<!-- (?:file (?P<file>[\w.]+)(?P<there> on cuda)?|(?P<output>output)(?: (?P<of>[\w.]+))?|on (?P<on>cuda))"
            r" -->")
_FENCE = re.compile(rf"(?:<!-- given\n(?P<given>.*?)-->\n+)?(?:{COMMENT}\n+)?"
                    r"^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<code>.*?)^ *```$", re.DOTALL | re.MULTILINE)
START = "# ---- the block\n"


@dataclass(frozen=True)
class Block:
    """A fenced block: its place, its language, its program, and the programs that run beside it."""

    where: str
    language: str
    program: str
    file: str = "block.py"
    stand_in: str = ""
    output: str | None = None
    beside: tuple[Block, ...] = ()

    @property
    def needs_gpu(self) -> bool:
        return self.program.partition(START)[2].startswith("# needs a GPU")


def blocks(text: str, name: str) -> list[Block]:
    found: list[Block] = []
    beside: dict[int, list[int]] = {}   # the programs in files, by the block that runs with them
    files: list[int] = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        given, code = match["given"] or "", textwrap.dedent(match["code"])
        block = Block(f"{name}:{line}", match["info"].strip(), given + START + code, match["file"] or "block.py",
                      "cuda" if match["on"] or match["there"] else "")
        if match["output"]:
            shown = [index for index, each in enumerate(found)
                     if (each.language == "console" if match["of"] == "console"
                         else (each.language, each.file) == ("python", match["of"] or "block.py"))]
            assert shown, f"{block.where} is the output of no program"
            found[shown[-1]] = replace(found[shown[-1]], output=code)
        elif match["file"]:
            files.append(len(found))
        elif block.language == "python":
            beside[len(found)], files = files, []
        found.append(block)
    assert not files, f"{name}: a program in a file needs a block that runs beside it"
    for index, others in beside.items():
        found[index] = replace(found[index], beside=tuple(found[other] for other in others))
    return found


_AGE = re.compile(r"[0-9]+\.[0-9] s old")   # a busy machine looks later


def as_shown(block: Block, said: str) -> bool:
    """Return whether the output of a block is the one that its page shows, at any age of a wait."""
    return block.output is None or doctest.OutputChecker().check_output(
        _AGE.sub("... s old", block.output), said, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


ALL = [block for page in PAGES for block in blocks(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))]


def as_parameters(several: Iterable[Block]) -> list[Any]:
    """Return the blocks as parameters of a test. Each push tests the pages that a newcomer reads first."""
    first = ("README.md", "docs/tutorial.md")
    return [pytest.param(each, id=each.where, marks=[] if each.where.startswith(first) else [pytest.mark.slow])
            for each in several]
