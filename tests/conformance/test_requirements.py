"""The requirements as data: which apply to which device, and which files are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from xsem.types import Capabilities, Feature, MemoryHandleType, OsHandleKind, SemaphoreHandleType, SemaphoreKind
from xsem_conformance import requirements
from xsem_conformance.expressions import parse
from xsem_conformance.requirements import Requirement, applies, handle_types, load
from xsem_host.device import CAPABILITIES as HOST

S, M = SemaphoreHandleType, MemoryHandleType
NOTHING = Capabilities()
SOME = Capabilities(
    semaphore_import=frozenset({S.TIMELINE_SEMAPHORE_FD, S.D3D12_FENCE}), memory_import=frozenset({M.OPAQUE_FD}),
    features=frozenset({Feature.RECORDING}), wait_before_signal=frozenset({S.TIMELINE_SEMAPHORE_FD}),
    resets_on_wait=True, independent_lists=4, max_pending=7,
)


def requirement(**fields: Any) -> Requirement:
    return Requirement(**{"id": "XSEM-BIN-001", "level": "MUST", "subject": "device", "text": "It does."} | fields)


# ---- expressions
@pytest.mark.parametrize(("text", "met"), [
    ("", True),
    ("  ", True),
    ("semaphore_import:timeline_semaphore_fd", True),
    ("semaphore_import:opaque_fd", False),
    ("memory_import:opaque_fd", True),   # the same text as the semaphore type
    ("semaphore_import:*", True),
    ("semaphore_export:*", False),
    ("wait_before_signal:timeline_semaphore_fd", True),
    ("wait_before_signal:d3d12_fence", False),
    ("feature:recording", True),
    ("feature:read_value", False),
    ("feature:*", True),
    ("independent_lists>=4", True),
    ("independent_lists>=5", False),
    ("max_pending>=7", True),
    ("max_pending>=8", False),
    ("max_value_difference>=2147483647", True),
    ("resets_on_wait", True),
    ("append_never_blocks", False),
    ("not resets_on_wait", False),
    ("not append_never_blocks", True),
    ("not feature:read_value and resets_on_wait", True),
    ("resets_on_wait and needs_handover", False),
    ("resets_on_wait or needs_handover", True),
    ("needs_handover and resets_on_wait or feature:recording", True),
    ("feature:recording or needs_handover and resets_on_wait", True),
    ("needs_handover and resets_on_wait or release_never_blocks", False),
])
def test_expression_evaluates_declared_capabilities(text: str, met: bool) -> None:
    assert parse(text)(SOME, None) is met


@pytest.mark.parametrize(("text", "type", "met"), [
    ("semaphore_import:$type", S.D3D12_FENCE, True),
    ("semaphore_import:$type", S.OPAQUE_FD, False),
    ("wait_before_signal:$type", S.D3D12_FENCE, False),
    ("import:$type", S.D3D12_FENCE, True),
    ("import:$type", S.OPAQUE_FD, False),
    ("import:$type", M.OPAQUE_FD, True),
    ("not import:$type", S.OPAQUE_FD, True),
    ("export:$type", M.OPAQUE_FD, False),
    ("import:$type and not wait_before_signal:$type", S.D3D12_FENCE, True),
    ("portable:$type", S.HOST_TIMELINE_FD, True),
    ("portable:$type", M.OPAQUE_FD, False),
])
def test_expression_about_a_type_is_met_by_that_type(
    text: str, type: SemaphoreHandleType | MemoryHandleType, met: bool
) -> None:
    assert parse(text)(SOME, type) is met


def test_unknown_number_is_less_than_any() -> None:
    assert not parse("max_pending>=1")(NOTHING, None)


@pytest.mark.parametrize("text", [
    "semaphore_import", "semaphore_import:", "semaphore_import:opaque", "semaphore_imports:opaque_fd", "opaque_fd",
    "feature:$type", "feature>=1", "import:*", "import:opaque_fd", "resets_on_wait>=1", "resets_on_wait:*",
    "independent_lists", "independent_lists>=", "independent_lists>=-1", "independent_lists>4", "and", "not",
    "resets_on_wait and", "or resets_on_wait", "not not resets_on_wait", "resets_on_wait not needs_handover",
    "(resets_on_wait)", "resets_on_wait needs_handover", "memory_import:timeline_semaphore_fd",
])
def test_malformed_expression_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"factor|called so"):
        parse(text)


@pytest.mark.parametrize(("text", "type"), [
    ("semaphore_import:$type", None), ("import:$type", None), ("memory_import:$type", S.OPAQUE_FD),
    ("semaphore_import:$type", M.OPAQUE_FD), ("portable:$type", None),
])
def test_expression_about_a_type_refuses_another_type(
    text: str, type: SemaphoreHandleType | MemoryHandleType | None
) -> None:
    with pytest.raises(ValueError, match="about a handle type"):
        parse(text)(SOME, type)


# ---- applicable requirements
def test_requirement_without_types_applies_by_its_expression() -> None:
    assert applies(requirement(), NOTHING)
    assert applies(requirement(capability="resets_on_wait"), SOME)
    assert not applies(requirement(capability="resets_on_wait"), NOTHING)
    assert handle_types(requirement(), SOME) == ()


def test_requirement_per_type_applies_to_declared_types() -> None:
    each = requirement(per=("semaphore", "memory"), capability="import:$type")
    assert handle_types(each, SOME) == (S.D3D12_FENCE, S.TIMELINE_SEMAPHORE_FD, M.OPAQUE_FD)
    assert applies(each, SOME)
    assert applies(each, SOME, M.OPAQUE_FD)
    assert not applies(each, SOME, S.OPAQUE_FD)
    assert not applies(each, SOME, M.DMABUF_FD)
    assert not applies(each, NOTHING)
    assert handle_types(each, NOTHING) == ()


def test_negated_requirement_applies_to_undeclared_types() -> None:
    each = requirement(per=("memory",), capability="not import:$type")
    assert set(handle_types(each, SOME)) == set(M) - {M.OPAQUE_FD}
    assert set(handle_types(each, NOTHING)) == set(M)


def test_candidates_match_kinds_and_os_handle_kinds() -> None:
    fds = (OsHandleKind.FD,)
    assert requirement(per=("semaphore",), kinds=(SemaphoreKind.TIMELINE,), os_handle_kinds=fds).candidates == (
        S.TIMELINE_SEMAPHORE_FD, S.HOST_TIMELINE_FD)
    # Only semaphores have a kind, so memory stays.
    assert requirement(per=("semaphore", "memory"), kinds=(SemaphoreKind.SYNC_FILE,),
                       os_handle_kinds=fds).candidates == (
        S.SYNC_FD, M.OPAQUE_FD, M.DMABUF_FD, M.HOST_MEMORY_FD)
    assert requirement(per=("semaphore", "memory"), os_handle_kinds=fds, portable=True).candidates == (
        S.HOST_TIMELINE_FD, M.HOST_MEMORY_FD)
    assert requirement(kinds=(SemaphoreKind.TIMELINE,)).candidates == ()
    assert not applies(requirement(per=("semaphore",), kinds=(SemaphoreKind.BINARY,), capability="import:$type"), SOME)


def test_candidates_are_distinguished_by_class() -> None:
    each = requirement(per=("semaphore",), capability="import:$type")
    assert not applies(each, Capabilities(semaphore_import=frozenset({S.OPAQUE_FD})), M.OPAQUE_FD)


def test_device_without_capabilities_gets_few_requirements() -> None:
    listed = load().requirements
    asked = {name for name, each in listed.items() if each.subject != "facade" and applies(each, NOTHING)}
    assert {"XSEM-CAP-002", "XSEM-CAP-003", "XSEM-CAP-004"} <= asked
    assert not {listed[name].area for name in asked} & {"IMP", "BIN", "TL", "BATCH", "ORD", "WBS", "STR", "KILL"}


def test_host_gets_requirements_of_every_device_area() -> None:
    listed = load().requirements.values()
    of_devices = {each.area for each in listed if each.subject == "device"}
    assert {each.area for each in listed if each.subject == "device" and applies(each, HOST)} == of_devices - {"MIP"}


# ---- reading
@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Mapping[str, Any]]]:
    """Replace the real files by two small ones."""
    files: dict[str, Mapping[str, Any]] = {
        "requirements.toml": {"XSEM-BIN-001": {"level": "MUST", "subject": "device", "text": "It does."}},
        "clauses.toml": {"a.txt": {"A-001": {"sha256": "0" * 16, "gist": "it does", "requirements": ["XSEM-BIN-001"]}}},
    }
    monkeypatch.setattr(requirements, "_read", lambda name: files[name])
    load.cache_clear()
    yield files
    load.cache_clear()


def test_files_are_read_into_frozen_records(planted: dict[str, Mapping[str, Any]]) -> None:
    planted["requirements.toml"]["XSEM-BIN-001"].update(
        per=["semaphore"], kinds=["binary"], os_handle_kinds=["fd"], directions=["in", "out"], clauses=["A-001"])
    catalogue = load()
    each = catalogue.requirements["XSEM-BIN-001"]
    assert each == requirement(per=("semaphore",), kinds=(SemaphoreKind.BINARY,), os_handle_kinds=(OsHandleKind.FD,),
                               directions=("in", "out"), clauses=("A-001",))
    assert each.area == "BIN"
    assert catalogue.clauses["A-001"] == requirements.Clause(
        id="A-001", source="a.txt", sha256="0" * 16, gist="it does", requirements=("XSEM-BIN-001",))
    assert load() is catalogue
    with pytest.raises(AttributeError):
        each.level = "MAY"  # type: ignore[misc]
    with pytest.raises(TypeError):
        catalogue.requirements["XSEM-BIN-002"] = each  # type: ignore[index]


@pytest.mark.parametrize(("fields", "said"), [
    ({"level": "WILL"}, "level is one of"),
    ({"subject": "driver"}, "subject is one of"),
    ({"per": ["event"]}, "per is one of"),
    ({"directions": ["up"]}, "directions is one of"),
    ({"needs": ["luck"]}, "needs is one of"),
    ({"kinds": ["trinary"]}, "trinary"),
    ({"os_handle_kinds": ["pigeon"]}, "pigeon"),
    ({"colour": "red"}, "colour"),
    ({"capability": "luck"}, "called so"),
    ({"exporter": "luck"}, "called so"),
    ({"capability": "import:$type"}, "about a handle type"),
    ({"per": ["semaphore", "memory"], "capability": "semaphore_import:$type"}, "about a handle type"),
])
def test_wrong_requirement_is_named(planted: dict[str, Mapping[str, Any]], fields: dict[str, Any], said: str) -> None:
    planted["requirements.toml"]["XSEM-BIN-001"].update(fields)
    with pytest.raises(ValueError, match=f"XSEM-BIN-001: .*{said}"):
        load()


def test_wrong_clause_is_named(planted: dict[str, Mapping[str, Any]]) -> None:
    planted["clauses.toml"]["a.txt"]["A-001"]["colour"] = "red"
    with pytest.raises(ValueError, match=r"A-001: .*colour"):
        load()


def test_files_are_read_from_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    load.cache_clear()
    assert len(load().requirements) > 100
