"""Every rule of the documents has a clause. Clauses and requirements name each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import clauses as extractor
import pytest
from support.paths import ROOT

from xsem_conformance.requirements import AREAS, Catalogue, load


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load()


@pytest.fixture(scope="module")
def documents() -> dict[str, list[str]]:
    """Return the normative sentences of each document, by file name."""
    folder = extractor.seeds_folder()
    if folder is None:
        pytest.skip("the documents are not here: XSEM_SEEDS names their folder, or they lie in ../shared/seeds")
    return {source: extractor.sentences(source, (folder / source).read_text(encoding="utf-8"))
            for source in extractor.SOURCES}


# ---- the documents and the clauses
@pytest.mark.parametrize("source", extractor.SOURCES)
def test_documents_and_clauses_agree(documents: dict[str, list[str]], catalogue: Catalogue, source: str) -> None:
    found = [extractor.digest(sentence) for sentence in documents[source]]
    recorded = [clause.sha256 for clause in catalogue.clauses.values() if clause.source == source]
    assert recorded == found, "python tools/clauses.py says which"


def test_documents_are_not_copied(documents: dict[str, list[str]], catalogue: Catalogue) -> None:
    theirs = {run for found in documents.values() for sentence in found for run in runs(sentence)}
    ours = {name: [each.text] for name, each in catalogue.requirements.items()}
    ours |= {name: [each.gist, each.not_testable] for name, each in catalogue.clauses.items()}
    assert {name: run for name, texts in ours.items() for text in texts for run in runs(text) if run in theirs} == {}


def runs(text: str, length: int = 5) -> Iterator[tuple[str, ...]]:
    """Return all sequences of `length` consecutive words."""
    words = re.findall(r"[\w']+", text.lower())
    return zip(*(words[start:] for start in range(length)), strict=False)


# ---- the two files
def test_ids_of_clauses_count_the_sentences_of_their_document(catalogue: Catalogue) -> None:
    for source, (prefix, _) in extractor.SOURCES.items():
        ids = [clause.id for clause in catalogue.clauses.values() if clause.source == source]
        assert ids
        assert ids == [f"{prefix}-{number:03d}" for number in range(1, len(ids) + 1)]


def test_every_clause_belongs_to_a_known_document(catalogue: Catalogue) -> None:
    assert {clause.source for clause in catalogue.clauses.values()} == set(extractor.SOURCES)


def test_ids_of_requirements_rise_within_their_area(catalogue: Catalogue) -> None:
    last: dict[str, int] = {}
    for name in catalogue.requirements:
        found = re.fullmatch(r"XSEM-([A-Z]+)-(\d{3})", name)
        assert found, name
        # The ids have gaps: an abandoned id is not reused.
        assert int(found[2]) > last.get(found[1], 0), name
        last[found[1]] = int(found[2])
    assert list(last) == list(AREAS)


def test_every_clause_has_requirements_or_a_reason(catalogue: Catalogue) -> None:
    wrong = [name for name, each in catalogue.clauses.items() if bool(each.requirements) == bool(each.not_testable)]
    assert wrong == []


def test_every_requirement_has_clauses_or_is_a_rule_of_xsem(catalogue: Catalogue) -> None:
    wrong = [name for name, each in catalogue.requirements.items()
             if bool(each.clauses) == bool(each.origin) or each.origin not in ("", "xsem")]
    assert wrong == []


def test_requirements_named_by_a_clause_name_it_back(catalogue: Catalogue) -> None:
    named = {(clause.id, name) for clause in catalogue.clauses.values() for name in clause.requirements}
    naming_back = {(clause, each.id) for each in catalogue.requirements.values() for clause in each.clauses}
    assert named == naming_back
    assert {clause for clause, _ in named} <= set(catalogue.clauses)
    assert {name for _, name in named} <= set(catalogue.requirements)


def test_nothing_is_named_twice(catalogue: Catalogue) -> None:
    lists = {name: each.clauses for name, each in catalogue.requirements.items()}
    lists |= {name: each.requirements for name, each in catalogue.clauses.items()}
    assert [name for name, names in lists.items() if len(set(names)) != len(names)] == []


def test_hashes_and_texts_are_well_formed(catalogue: Catalogue) -> None:
    for clause in catalogue.clauses.values():
        assert re.fullmatch(r"[0-9a-f]{16}", clause.sha256), clause.id
        assert 0 < len(clause.gist) <= 80, f"{clause.id}: a gist is a few words"
    texts = [each.text for each in catalogue.requirements.values()]
    assert len(set(texts)) == len(texts)
    for each in catalogue.requirements.values():
        assert re.fullmatch(r"[^\n]+\.", each.text), f"{each.id}: the text is one sentence"
        assert ". " not in each.text, f"{each.id}: the text is one sentence"


def test_every_subject_matches_its_number_of_cases(catalogue: Catalogue) -> None:
    for each in catalogue.requirements.values():
        multiplies = each.per or each.directions or each.capability or each.exporter or each.needs or each.quirk
        assert not (each.subject == "facade" and multiplies), f"{each.id}: xsem itself is asked once, on any device"
        assert not each.per or each.candidates, f"{each.id} is about no handle type"


# ---- the extractor, on documents of our own
DRIVER = """# Title
CUresult cuPaint ( CUwall wall )
     Paints a wall. This line is a synopsis.

### Functions

CUresult cuPaint ( CUwall wall )

Paints a wall. This line is a summary.

###### Parameters

`wall`
    \\- Must not be read.

###### Returns

CUDA_SUCCESS, CUDA_ERROR_WET

###### Description

Paints   a wall. It must be dry.

The structure CUDA_WALL is defined as follows:

            typedef struct CUDA_WALL_st {
                      union { int fd; } handle;
                      int side;
                  } CUDA_WALL;

where CUDA_WALL::side is a side. The kinds are defined as:

            typedef enum CUpaint_enum {
                      CU_PAINT_OIL = 1,
                      CU_PAINT_LIME      = 2
                  } CUpaint;

Note:

  * Lime bites.
  * Oil smells. For more information on smells, see below.

**See also:**

cuWash must not be read either
"""
RUNTIME = """Functions
__host__cudaError_t cudaPaint ( int wall )
Paints a wall.

__host__cudaError_t cudaPaint ( int wall )
Paints a wall.
Parameters
wall
- A wall
Description

Paints a wall. See cudaWash. cudaWall::side is a side.

Note:
  • Lime bites.

See also:

cudaWash
"""
PAGE = """# __host__cudaError_t cudaPaint (int wall)

Paints a wall.

##### Returns

cudaSuccess, cudaErrorWet

##### Description

Paints a wall that
is dry.


CUDA Runtime API vRelease Version  |  86


Modules


Lime bites.

See also:

cudaWash
"""
MANUAL = """NAME
   Functions
       CUresult cuPaint (int wall)
           Paints a wall.

Function Documentation

   CUresult cuPaint (int wall, const
       CUDA_WALL * side)
       Paints a wall that
       is dry.

       Parameters:
           wall - Must not be read.

       Returns:
           CUDA_SUCCESS, CUDA_ERROR_WET

       Note:
           Lime bites.

       See also:
           cuWash

   CUresult cuWash (int wall)
       Washes.

       Parameters:
           wall - A wall

       Returns:
           CUDA_SUCCESS

       Note:
           Water
           runs.

       See also:
           cuPaint

Author

       Must not be read.
"""
LEVEL_ZERO = """API
----
Must not be read.

External Semaphores
~~~~~~~~~~~~~~~~~~~
A wall
is painted.

Semantics and Behavior model
~~~~~~~~~~~~~~~~~~~~~~~~~~~~

1. Lime bites. Oil smells.
2. :ref:`zePaint` must be dry.

Following pseudo-code is not read:

.. parsed-literal::
    1. nothing
"""
OWN = {
    "cuda-driver-api.md": (DRIVER, [
        "cuPaint returns CUDA_SUCCESS", "cuPaint returns CUDA_ERROR_WET", "CUpaint: CU_PAINT_OIL = 1",
        "CUpaint: CU_PAINT_LIME = 2", "Paints a wall.", "It must be dry.", "where CUDA_WALL::side is a side.",
        "Lime bites.", "Oil smells."]),
    "cuda-runtime-api.txt": (RUNTIME, ["Paints a wall.", "cudaWall::side is a side.", "Lime bites."]),
    "cuda-runtime-import-memory.txt": (PAGE, [
        "cudaPaint returns cudaSuccess", "cudaPaint returns cudaErrorWet", "Paints a wall that is dry.",
        "Lime bites."]),
    "cuda-10.1-manual-page.txt": (MANUAL, [
        "cuPaint returns CUDA_SUCCESS", "cuPaint returns CUDA_ERROR_WET", "Paints a wall that is dry.", "Lime bites.",
        "cuWash returns CUDA_SUCCESS", "Washes.", "Water runs."]),
    "level-zero-external-semaphores.rst": (LEVEL_ZERO, [
        "A wall is painted.", "Lime bites.", "Oil smells.", ":ref:`zePaint` must be dry."]),
}


@pytest.mark.parametrize("source", extractor.SOURCES)
def test_extractor_finds_the_normative_sentences(source: str) -> None:
    text, expected = OWN[source]
    assert extractor.sentences(source, text) == expected


def test_digest_ignores_the_amount_of_white_space() -> None:
    assert extractor.digest(" Lime\n   bites. ") == extractor.digest("Lime bites.")
    assert extractor.digest("Lime bites.") != extractor.digest("Lime bites!")
    assert re.fullmatch("[0-9a-f]{16}", extractor.digest(""))


def test_differences_are_reported_in_both_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source, (text, _) in OWN.items():
        (tmp_path / source).write_text(text, encoding="utf-8")
    recorded = tmp_path / "clauses.toml"
    monkeypatch.setattr(extractor, "CLAUSES", recorded)
    recorded.write_text("".join(
        f'["{source}"]\n' + "".join(
            f'C{number} = {{ sha256 = "{extractor.digest(sentence)}" }}\n' for number, sentence in enumerate(expected))
        for source, (_, expected) in OWN.items()))
    assert list(extractor.differences(tmp_path)) == []
    (tmp_path / "cuda-runtime-api.txt").write_text(RUNTIME.replace("Lime bites.", "Lime stings."), encoding="utf-8")
    assert list(extractor.differences(tmp_path)) == [
        "cuda-runtime-api.txt: no clause for: Lime stings.", "cuda-runtime-api.txt: no sentence for C2"]


def test_documents_are_read_from_the_given_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSEM_SEEDS", str(tmp_path))
    assert extractor.seeds_folder() == tmp_path
    monkeypatch.setenv("XSEM_SEEDS", str(tmp_path / "none"))
    assert extractor.seeds_folder() is None
    monkeypatch.delenv("XSEM_SEEDS")
    beside = ROOT.parent / "shared" / "seeds"
    assert extractor.seeds_folder() == (beside if beside.is_dir() else None)
