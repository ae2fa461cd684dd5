"""Refuse words that xsem does not use, and lines of documents beyond 100 columns: ``python tools/words.py``."""

# `docs/glossary.md` has the words that xsem uses.

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]

BANNED: Final = (
    # (pattern, what to write, start of the paths where it holds)
    (r"\b[Bb]ooks?\b", "queue, operations in flight", ""),
    (r"\b(plain_of|append_plain|PlainEntry|PlainFacts)\b|`Plain`", "PreparedAppend", ""),
    (r"\bnudge\w*\b", "wake", ""),
    (r"\bblame\w*\b", "annotate_error", ""),
    (r"\b(check|broken)_\w*promises?\b(?<!broken_promise)", "check_implements", ""),
    (r"\b[Cc]arriers?\b", "OS handle kind", ""),
    (r"\b(a|the|its|each|every|what|no) sort\b|\bsorts of\b|\bsort of\b", "kind", ""),
    # A time stamp is none of them.
    (r"\b(stamp(s|ed|_for)?|check_stamp)\b", "device identity", "xsem/ backends/ docs/ conformance/"),
    (r"\b(Bench|Side|Actor)\b", "CaseContext, Participant", "conformance/"),
    (r"\b([Nn]o|[Ss]ome|[Aa]ny)body\b|\b[Ww]hoever\b", "a noun", ""),
    (r"\b(is|are) no (?!longer|more)\w", "is not a, does not exist", ""),
    (r"\bthere (is|are) none\b", "a noun and a verb", ""),
    (r"\bhas not (a|the|any|what|that)\b", "lacks, does not have", ""),
    (r"\b(the|its) seeds?\b(?! (of|=|that the))", "the specification, by its name and clause",
     "xsem/ backends/ docs/ tools/"),
)
EXEMPT: Final = (
    "docs/glossary.md", "records/", "tools/words.py", "tests/project/test_words.py",
    "LICENSE", "CHANGELOG.md",
    "conformance/xsem_conformance/clauses.toml",   # the gists of others' sentences
)
TEXTS: Final = (".py", ".md", ".toml", ".c", ".h", ".def", ".txt", ".sh", ".yml", "Makefile", "run")
COLUMNS: Final = 100


def findings(root: Path, names: list[str]) -> Iterator[str]:
    """Yield a line for each banned word, and for each line of a document that is too long."""
    patterns = [(re.compile(pattern), instead, tuple(places.split())) for pattern, instead, places in BANNED]
    for name in names:
        if name.startswith(EXEMPT) or not name.endswith(TEXTS):
            continue
        fence = False
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            for pattern, instead, places in patterns:
                if (not places or name.startswith(places)) and (match := pattern.search(line)):
                    yield f"{name}:{number}: {match[0]!r}: write {instead}"
            fence ^= line.startswith("```")
            # A row of a table and a line of code cannot be wrapped.
            if name.endswith(".md") and len(line) > COLUMNS and not fence and not line.startswith(("|", "    ", "[")):
                yield f"{name}:{number}: {len(line)} columns, more than {COLUMNS}"


def tracked(root: Path) -> list[str]:
    """Return the paths of the tracked files."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (root / name).is_file()]


def main() -> int:
    """Print the findings; 1 if there is any."""
    found = list(findings(ROOT, tracked(ROOT)))
    print("\n".join(found) or "no banned word, no long line")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
