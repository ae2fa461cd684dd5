"""Backward jumps outside the exception table: ``python loop_jumps.py FOLDER …``, with CPython 3.12 or newer.

In CPython 3.12 to 3.14, the backward jump behind a condition lacks its entry in the exception table (cpython#148278).
KeyboardInterrupt can come at such a jump. A ``with`` or ``try`` block around the loop then ends without its release.
The program prints each such jump as PATH:LINE FUNCTION: BLOCK.
"""

from __future__ import annotations

import ast
import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any


def guarded(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """Return the first line, the last line and the head of each block with a release at its end."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            head = "with " + ", ".join(ast.unparse(each.context_expr) for each in node.items)
        elif isinstance(node, ast.Try) and node.finalbody:
            head = "try … finally"
        elif isinstance(node, ast.Try) and any(each.type is None or "BaseException" in ast.unparse(each.type)
                                               for each in node.handlers):
            head = "try … except BaseException"
        else:
            continue
        yield node.body[0].lineno, node.body[-1].end_lineno or 0, head


def codes(code: CodeType) -> Iterator[CodeType]:
    """Return a code object and those inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def uncovered(code: CodeType) -> Iterator[tuple[int, int]]:
    """Return the lines of the jump and of its target, for each backward jump out of all entries into one."""
    parse: Any = vars(dis)["_parse_exception_table"]
    entries = [range(each.start, each.end) for each in parse(code)]
    at = {each.offset: each for each in dis.get_instructions(code)}
    for jump in at.values():
        if (jump.opname == "JUMP_BACKWARD" and any(jump.argval in each for each in entries)
                and not any(jump.offset in each for each in entries)):
            places = jump.positions, at[jump.argval].positions
            lines = [place.lineno if place is not None and place.lineno is not None else 0 for place in places]
            yield lines[0], lines[1]


def found(path: Path) -> list[str]:
    """Return the descriptions of the jumps of one file."""
    source = path.read_text(encoding="utf-8")
    blocks = list(guarded(ast.parse(source)))
    jumps = [(*lines, code) for code in codes(compile(source, str(path), "exec")) for lines in uncovered(code)]
    # A function or generator expression inside the block has a frame of its own, outside the block.
    return sorted({f"{path}:{line} {code.co_qualname}: {head}" for line, target, code in jumps
                   for first, last, head in blocks
                   if first <= min(line, target) and max(line, target) <= last and code.co_firstlineno < first})


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for each in sorted(Path(name).rglob("*.py")):
            print(*found(each), sep="\n", end="\n" if found(each) else "")
