"""Read the rules out of the documents that define the functionality: ``python tools/clauses.py [folder]``."""

# conformance/xsem_conformance/clauses.toml lists one clause for each normative sentence of a document, in the same
# order. The command prints the differences between the two, and its exit status is 1 if there are any. Its argument is
# the folder of the documents (default: $XSEM_SEEDS, or ../shared/seeds beside the checkout).
#
# It reads the description, the notes and each listed return code of functions, every enumerator with its number, and,
# of the page of Level Zero, the overview and the numbered rules. Synopses, tables of contents, lists of parameters,
# structure definitions, cross-references and example code are not read, because the descriptions repeat their
# statements on behaviour.
#
# Every sentence of this text is a clause, because a reference states what must hold. The exceptions (`_SAYS_NOTHING`)
# are introductions to a definition and pointers to other chapters. A repeated sentence is two clauses, because it
# applies to two functions or to two handle types.

from __future__ import annotations

import hashlib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

__all__ = ["CLAUSES", "SOURCES", "digest", "seeds_folder", "sentences"]

ROOT: Final = Path(__file__).parents[1]
CLAUSES: Final = ROOT / "conformance" / "xsem_conformance" / "clauses.toml"

_SAYS_NOTHING: Final = re.compile(r"^Note:$|defined as( follows)?:$|^For (further details|more information)\b|^See |"
                                  r"^The exact semantics of \w+ on a semaphore depends|^The exact semantics of \w+ a ")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=\S)")
_CODE: Final = re.compile(r"\b(?:CUDA_[A-Z_]+|cuda(?:Success|Error[A-Za-z]+))\b")
_ENUM: Final = re.compile(r"typedef enum (\w+?)_enum \{(.*?)\}", re.DOTALL)
_ENUMERATOR: Final = re.compile(r"(\w+)\s*=\s*(\d+)")
_DEFINITION: Final = re.compile(r"typedef (?:struct|enum) (\w+?)_(?:st|enum) \{.*?\} \1;", re.DOTALL)


def digest(sentence: str) -> str:
    """Return the first 16 hexadecimal digits of a sentence's SHA-256. Each run of white space counts as one blank."""
    return hashlib.sha256(" ".join(sentence.split()).encode()).hexdigest()[:16]


def sentences(source: str, text: str) -> list[str]:
    """Return the normative sentences of one document, in its order; `source` is its file name, a key of `SOURCES`."""
    return [" ".join(each.split()) for each in SOURCES[source][1](text)]


def _normative(paragraphs: Iterable[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
            if not _SAYS_NOTHING.search(sentence):
                yield sentence


def _paragraphs(text: str) -> list[str]:
    """Return the blocks between blank lines. Each item of a bulleted list is a block."""
    marked = re.sub(r"^[ \t]*[*•][ \t]+", "\n", text, flags=re.MULTILINE)
    return [block for block in re.split(r"\n[ \t]*\n", marked) if block.strip()]


def _enumerators(text: str) -> Iterator[str]:
    for enum in _ENUM.finditer(text):
        for name, number in _ENUMERATOR.findall(enum[2]):
            yield f"{enum[1]}: {name} = {number}"


def _function(name: str, description: str, codes: str) -> Iterator[str]:
    """Yield the clauses of one function: return codes, then enumerators, then the sentences of the description."""
    for code in _CODE.findall(codes):
        yield f"{name} returns {code}"
    yield from _enumerators(description)
    yield from _normative(_paragraphs(_DEFINITION.sub("\n", description)))


def _section(text: str, begin: str, end: str) -> str:
    """Return the text between two matching lines, or an empty string if the section is missing."""
    found = re.search(rf"^{begin}[ \t]*$(.*?)^{end}", text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def _cut(text: str, heading: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every function with its own section."""
    starts = list(re.finditer(heading, text, re.MULTILINE))
    ends = [each.start() for each in starts[1:]] + [len(text)]
    for start, end in zip(starts, ends, strict=True):
        yield start[1], text[start.end():end]


def _driver_api(text: str) -> Iterator[str]:
    for name, body in _cut(text, r"^CUresult (\w+) \(.*$"):
        yield from _function(name, _section(body, "###### Description", r"\*\*See also"),
                             _section(body, "###### Returns", "######"))


def _runtime_api(text: str) -> Iterator[str]:
    for name, body in _cut(text, r"^__host__cudaError_t (\w+) \(.*$"):
        yield from _function(name, _section(body, "Description", "See also"), _section(body, "Returns", "Description"))


def _runtime_page(text: str) -> Iterator[str]:
    # The text contains headers and footers of the printed pages.
    text = re.sub(r"^(CUDA Runtime API v.*\|.*|Modules)$", "", text, flags=re.MULTILINE)
    for name, body in _cut(text, r"^# __host__cudaError_t (\w+) \(.*$"):
        yield from _function(name, _section(body, "##### Description", "See also"),
                             _section(body, "##### Returns", "#####"))


def _manual_page(text: str) -> Iterator[str]:
    details = text.partition("\nFunction Documentation\n")[2]
    # A heading ends where its parenthesis is closed. The first part of a body has no heading.
    for name, body in _cut(details, r"^   CUresult (\w+) \([^)]*\)$"):
        description = _section("begin\n" + body, "begin", "       Parameters:")
        notes = _section(body, "       Note:", "       See also:")
        yield from _function(name, f"{description}\n\n{notes}", _section(body, "       Returns:", "       Note:"))


def _level_zero(text: str) -> Iterator[str]:
    overview = _section(text, "External Semaphores\n~+", "Semantics and Behavior model")
    yield from _normative(_paragraphs(overview))
    rules = _section(text, "Semantics and Behavior model\n~+", "Following pseudo-code")
    for rule in re.findall(r"^\d+\. (.+)$", rules, re.MULTILINE):
        yield from _SENTENCE_END.split(rule)


SOURCES: Final[dict[str, tuple[str, Callable[[str], Iterator[str]]]]] = {
    "cuda-driver-api.md": ("CUDA-D", _driver_api),
    "cuda-runtime-api.txt": ("CUDA-R", _runtime_api),
    "cuda-runtime-import-memory.txt": ("CUDA-RM", _runtime_page),
    "cuda-10.1-manual-page.txt": ("CUDA-10", _manual_page),
    "level-zero-external-semaphores.rst": ("L0", _level_zero),
}
"""Prefix of the clauses' ids, and the function that reads the document, by file name."""


def seeds_folder() -> Path | None:
    """Return the folder of the documents, or None if it is missing. They are not part of the project."""
    named = os.environ.get("XSEM_SEEDS")
    folder = Path(named) if named else ROOT.parent / "shared" / "seeds"
    return folder if folder.is_dir() else None


def differences(folder: Path) -> Iterator[str]:
    """Yield each sentence without a clause, and each clause without a sentence."""
    recorded = tomllib.loads(CLAUSES.read_text(encoding="utf-8")) if CLAUSES.exists() else {}
    for source in SOURCES:
        found = sentences(source, (folder / source).read_text(encoding="utf-8"))
        clauses = recorded.get(source, {})
        here, there = [digest(each) for each in found], [clause["sha256"] for clause in clauses.values()]
        for step, i, j, k, end in SequenceMatcher(a=here, b=there, autojunk=False).get_opcodes():
            if step != "equal":
                yield from (f"{source}: no clause for: {found[each]}" for each in range(i, j))
                yield from (f"{source}: no sentence for {name}" for name in list(clauses)[k:end])


if __name__ == "__main__":
    seeds = Path(sys.argv[1]) if len(sys.argv) > 1 else seeds_folder()
    if seeds is None:
        sys.exit("the documents are missing: pass their folder as an argument")
    left = list(differences(seeds))
    print("\n".join(left) or "every normative sentence has its clause, and every clause its sentence")
    sys.exit(1 if left else 0)
