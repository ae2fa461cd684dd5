"""Read the rules out of the documents that define the functionality: ``python tools/clauses.py [folder]``.

`sentences` says what a normative sentence is; conformance/xsem_conformance/clauses.toml accounts for each of them, in
the order in which they come. The command prints what the two do not have in common, for the folder of the documents (by
default $XSEM_SEEDS, or ../shared/seeds beside the checkout), and ends 1 if there is anything.

What is read
------------
Of each function: its description and its notes, and each return code that is listed for it. Of each enumeration: every
enumerator with its number. Of Level Zero's page: the overview and the numbered rules. Synopses, tables of contents,
lists of parameters, structure definitions, cross-references and example code are not read: what they say of behaviour,
the descriptions say again.

What is kept
------------
Every sentence of that text: what a reference says of a function is what must hold of it. Left out is only what says
nothing by itself (`_SAYS_NOTHING`): words that lead up to a definition, and pointers to other chapters. A sentence that
comes twice is two clauses: it is said of two functions, or of two handle types.
"""

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
    """The first 16 hexadecimal digits of the SHA-256 of a sentence, each run of white space made one blank."""
    return hashlib.sha256(" ".join(sentence.split()).encode()).hexdigest()[:16]


def sentences(source: str, text: str) -> list[str]:
    """The normative sentences of one document, in its order.

    Parameters
    ----------
    source : str
        File name of the document, a key of `SOURCES`: every one has a layout of its own.
    text : str
        What is in it.

    Raises
    ------
    KeyError
        `source` is not known.
    """
    return [" ".join(each.split()) for each in SOURCES[source][1](text)]


def _normative(paragraphs: Iterable[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
            if not _SAYS_NOTHING.search(sentence):
                yield sentence


def _paragraphs(text: str) -> list[str]:
    """Blocks between blank lines; each item of a list with bullets is its own."""
    marked = re.sub(r"^[ \t]*[*•][ \t]+", "\n", text, flags=re.MULTILINE)
    return [block for block in re.split(r"\n[ \t]*\n", marked) if block.strip()]


def _enumerators(text: str) -> Iterator[str]:
    for enum in _ENUM.finditer(text):
        for name, number in _ENUMERATOR.findall(enum[2]):
            yield f"{enum[1]}: {name} = {number}"


def _function(name: str, description: str, codes: str) -> Iterator[str]:
    """One function: return codes, then enumerators, then the sentences of the description."""
    for code in _CODE.findall(codes):
        yield f"{name} returns {code}"
    yield from _enumerators(description)
    yield from _normative(_paragraphs(_DEFINITION.sub("\n", description)))


def _section(text: str, begin: str, end: str) -> str:
    """What is between two lines that match; empty where there is no such section."""
    found = re.search(rf"^{begin}[ \t]*$(.*?)^{end}", text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def _cut(text: str, heading: str) -> Iterator[tuple[str, str]]:
    """Name and text of every function that has a section of its own."""
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
    # Feet and heads of the printed pages lie in the text.
    text = re.sub(r"^(CUDA Runtime API v.*\|.*|Modules)$", "", text, flags=re.MULTILINE)
    for name, body in _cut(text, r"^# __host__cudaError_t (\w+) \(.*$"):
        yield from _function(name, _section(body, "##### Description", "See also"),
                             _section(body, "##### Returns", "#####"))


def _manual_page(text: str) -> Iterator[str]:
    details = text.partition("\nFunction Documentation\n")[2]
    # A heading goes on until its parenthesis is closed. The first part of a body has no heading of its own.
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
"""By file name: what its clauses' ids begin with, and how it is read."""


def seeds_folder() -> Path | None:
    """Where the documents are; None if they are not here. They are not part of the project."""
    named = os.environ.get("XSEM_SEEDS")
    folder = Path(named) if named else ROOT.parent / "shared" / "seeds"
    return folder if folder.is_dir() else None


def differences(folder: Path) -> Iterator[str]:
    """Each sentence without a clause, and each clause without a sentence."""
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
        sys.exit("the documents are not here: name their folder")
    left = list(differences(seeds))
    print("\n".join(left) or "every normative sentence has its clause, and every clause its sentence")
    sys.exit(1 if left else 0)
