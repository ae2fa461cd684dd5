"""The plan: cases of a device and an exporter, missing capabilities, and requirements without a check."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, cast

import pytest

from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType
from xsem_conformance.case.quirks import QUIRKS
from xsem_conformance.case.refusals import undeclared
from xsem_conformance.checks import Check
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.requirements import Requirement, load
from xsem_conformance.run import session
from xsem_conformance.run.planning import Planned, Surroundings, no_common_type, only_portable, plan
from xsem_conformance.run.process import UnavailableError
from xsem_conformance.run.runner import Workers
from xsem_conformance.suite import all_checks
from xsem_host.device import CAPABILITIES as HOST

S, M = SemaphoreHandleType, MemoryHandleType
NOTHING = Capabilities()

_WINDOWS = "needs an exporter with names or KMT handles"
WITHOUT_CHECK: Mapping[str, str] = {
    "XSEM-IMP-006": _WINDOWS, "XSEM-IMP-007": _WINDOWS, "XSEM-IMP-008": "needs an NvSci exporter",
    "XSEM-ORD-009": "needs an exporter with keyed mutexes",
    "XSEM-ORD-010": "needs an NvSci exporter",
}


def nothing(context: Any, case: Case) -> None:
    """A check that does nothing."""


def requirement(**fields: Any) -> Requirement:
    return Requirement(**{"id": "XSEM-BIN-001", "level": "MUST", "subject": "device", "text": "It does."} | fields)


def planned(each: Requirement, capabilities: Capabilities = HOST, exporter: Capabilities = HOST,
            there: str = "") -> list[Planned]:
    surroundings = Surroundings("host", exporter, exporter_uuid=there == "exporter_uuid",
                                second_device=there == "second_device")
    return plan([each], {each.id: Check(each.id, nothing, 1.0)}, capabilities, surroundings)


# ---- every requirement
def test_requirement_of_devices_has_a_check_or_a_reason() -> None:
    asked = {each.id for each in load().requirements.values() if each.subject != "facade"}
    assert asked - all_checks().keys() == WITHOUT_CHECK.keys()
    assert all(WITHOUT_CHECK.values())


def test_every_check_belongs_to_a_device_requirement() -> None:
    asked = {each.id for each in load().requirements.values() if each.subject != "facade"}
    assert all_checks().keys() <= asked
    for name, each in all_checks().items():
        assert each.requirement == name
        assert each.run.__doc__, f"{name}: its docstring is shown to users"
        assert each.deadline_s > 0


def test_quirk_that_a_requirement_names_is_measured() -> None:
    named = {each.quirk for each in load().requirements.values() if each.quirk}
    assert named == QUIRKS.keys()


def test_every_case_of_the_host_has_a_key_of_its_own() -> None:
    around = Surroundings("host", HOST, exporter_uuid=False, second_device=False)
    for capabilities in (HOST, NOTHING):
        cases = [each.case for each in plan(load().requirements.values(), all_checks(), capabilities, around)]
        assert len({each.key for each in cases}) == len(cases) > 100
        for each in cases:
            assert Case.from_key(each.key) == each


def test_device_without_capabilities_must_refuse_everything() -> None:
    around = Surroundings("host", HOST, exporter_uuid=False, second_device=False)
    cases = plan(load().requirements.values(), all_checks(), NOTHING, around)
    asked = {each.case.key for each in cases if not each.undeclared}
    for kind, types in (("semaphore", S), ("memory", M)):
        for type in types:
            assert f"XSEM-CAP-002/{kind}.{type.value}/host/-" in asked
            assert f"XSEM-CAP-003/{kind}.{type.value}/host/-" in asked
    assert {each.split("/")[0].split("-")[1] for each in asked} <= {"DISC", "CAP", "BUF", "LIFE", "LIST"}


def test_refusals_are_asked_only_for_undeclared_capabilities() -> None:
    around = Surroundings("host", HOST, exporter_uuid=False, second_device=False)
    for capabilities in (HOST, NOTHING):
        can_be_asked = set(undeclared(capabilities))
        for each in plan(load().requirements.values(), all_checks(), capabilities, around):
            if each.undeclared.startswith(("semaphore_", "memory_", "feature:")) and " " not in each.undeclared:
                assert each.undeclared in can_be_asked or each.undeclared.endswith(":*")


# ---- the exporter
@pytest.mark.parametrize(("importer", "exporter", "said"), [
    (HOST, HOST, ""),
    (HOST, Capabilities(memory_export=frozenset({M.OPAQUE_FD})), ""),   # the other cases are BLOCKED
    (HOST, Capabilities(semaphore_export=frozenset({S.TIMELINE_SEMAPHORE_FD})), ""),
    (NOTHING, NOTHING, ""),   # a device without imports needs no exporter
    (Capabilities(semaphore_import=frozenset({S.SYNC_FD})), NOTHING,
     "it declares the export of no type, but the device imports semaphores sync_fd"),
    # opaque_fd is a semaphore type and a memory type.
    (Capabilities(semaphore_import=frozenset({S.OPAQUE_FD}), memory_import=frozenset({M.DMABUF_FD})),
     Capabilities(memory_export=frozenset({M.OPAQUE_FD})),
     "it declares the export of memory opaque_fd, but the device imports semaphores opaque_fd and memory dmabuf_fd"),
])
def test_exporter_needs_one_type_that_the_device_imports(
    importer: Capabilities, exporter: Capabilities, said: str
) -> None:
    assert no_common_type(importer, exporter) == said


# ---- one requirement
def test_case_for_each_type_and_direction() -> None:
    cases = planned(requirement(per=("semaphore",), directions=("in", "out"), capability="semaphore_import:$type"))
    assert len(cases) == 2 * len(S)
    assert [each.case.key for each in cases if not each.undeclared] == [
        "XSEM-BIN-001/opaque_fd/host/in", "XSEM-BIN-001/opaque_fd/host/out",
        "XSEM-BIN-001/timeline_semaphore_fd/host/in", "XSEM-BIN-001/timeline_semaphore_fd/host/out",
        "XSEM-BIN-001/host_timeline_fd/host/in", "XSEM-BIN-001/host_timeline_fd/host/out",
    ]


def test_case_about_no_type_is_one() -> None:
    (only,) = planned(requirement())
    assert only.case.key == "XSEM-BIN-001/-/host/-"
    assert (only.undeclared, only.blocked) == ("", "")


def test_case_of_another_system_is_not_applicable_and_not_met() -> None:
    (only,) = planned(requirement(systems=("nt" if os.name == "posix" else "posix",)))
    found = session.result(cast("Workers", None), only, {})   # no worker runs it
    assert (found.outcome, found.detail.partition(":")[0]) == (Outcome.UNSUPPORTED, "not applicable on this system")
    (here,) = planned(requirement(systems=(os.name,)))
    assert here.inapplicable == ""


def test_requirement_per_both_kinds_qualifies_the_type() -> None:
    cases = planned(requirement(per=("semaphore", "memory"), capability="import:$type"))
    assert [each.case.handle_type for each in cases if not each.undeclared] == [
        "semaphore.opaque_fd", "semaphore.timeline_semaphore_fd", "semaphore.host_timeline_fd", "memory.opaque_fd",
        "memory.host_memory_fd"]
    assert {each.undeclared for each in cases if each.case.handle_type == "memory.dmabuf_fd"} == {
        "memory_import:dmabuf_fd"}


@pytest.mark.parametrize(("fields", "declares", "named"), [
    ({"per": ("semaphore",), "capability": "semaphore_import:$type"}, {}, "semaphore_import:opaque_fd"),
    ({"per": ("semaphore",), "capability": "import:$type"}, {}, "semaphore_import:opaque_fd"),
    ({"per": ("semaphore",), "capability": "export:$type"}, {}, "semaphore_export:opaque_fd"),
    ({"per": ("memory",), "capability": "import:$type"}, {}, "memory_import:opaque_fd"),
    ({"per": ("semaphore",), "capability": "semaphore_import:$type and feature:read_value"}, {},
     "semaphore_import:opaque_fd"),
    # The missing capability is named, not the declared ones.
    ({"per": ("semaphore",), "capability": "semaphore_import:$type and feature:read_value"},
     {"semaphore_import": frozenset({S.OPAQUE_FD})}, "feature:read_value"),
    ({"per": ("semaphore",), "capability": "semaphore_import:$type and wait_before_signal:$type"},
     {"semaphore_import": frozenset({S.OPAQUE_FD})}, "wait_before_signal:opaque_fd"),
    ({"per": ("semaphore",), "capability": "semaphore_import:$type and resets_on_wait"},
     {"semaphore_import": frozenset({S.OPAQUE_FD})}, "resets_on_wait"),
    ({"capability": "semaphore_import:* and independent_lists>=2"}, {"independent_lists": 4}, "semaphore_import:*"),
    ({"capability": "feature:recording or feature:host_wait"}, {}, "feature:recording or feature:host_wait"),
    # No single capability is missing: any of two pairs suffices.
    ({"capability": "semaphore_import:* and append_never_blocks or semaphore_import:* and max_pending>=1"},
     {"semaphore_import": frozenset({S.OPAQUE_FD})},
     "semaphore_import:* and append_never_blocks or semaphore_import:* and max_pending>=1"),
])
def test_first_capability_that_is_missing_is_named(
    fields: dict[str, Any], declares: dict[str, Any], named: str
) -> None:
    first = planned(requirement(**fields), Capabilities(**declares))[0]
    assert first.case.handle_type in ("opaque_fd", "-")
    assert first.undeclared == named


def test_negated_capability_skips_declared_types() -> None:
    cases = planned(requirement(per=("semaphore",), capability="not semaphore_import:$type"))
    assert {each.case.handle_type for each in cases} == {each.value for each in S} - {
        "opaque_fd", "timeline_semaphore_fd", "host_timeline_fd"}
    assert not any(each.undeclared for each in cases)


def test_case_is_blocked_when_the_exporter_lacks_the_type() -> None:
    each = requirement(per=("semaphore",), capability="semaphore_import:$type", exporter="semaphore_export:$type")
    exporter = dataclasses.replace(HOST, semaphore_export=frozenset({S.OPAQUE_FD}))
    blocked = {one.case.handle_type: one.blocked for one in planned(each, exporter=exporter) if not one.undeclared}
    assert blocked == {"opaque_fd": "", **{
        each: f"the exporter does not declare semaphore_export:{each}"
        for each in ("timeline_semaphore_fd", "host_timeline_fd")}}


def test_another_device_shares_only_portable_types() -> None:
    around = Surroundings("host", only_portable(HOST), exporter_uuid=False, second_device=False, portable=True)
    each = requirement(per=("semaphore",), capability="semaphore_import:$type", exporter="semaphore_export:$type")
    cases = [one for one in plan([each], {each.id: Check(each.id, nothing, 1.0)}, HOST, around) if not one.undeclared]
    assert {one.case.handle_type: one.inapplicable for one in cases} == {"host_timeline_fd": "", **{
        type: f"not applicable to portable types alone: it needs {type} of the exporter"
        for type in ("opaque_fd", "timeline_semaphore_fd")}}
    for one in cases:
        if one.inapplicable:   # before the exporter's lack, which would make the case BLOCKED
            assert session.result(cast("Workers", None), one, {}).outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize("need", ["exporter_uuid", "second_device"])
def test_requirement_without_cases_is_left_out(need: str) -> None:
    assert planned(requirement(needs=(need,))) == []
    assert len(planned(requirement(needs=(need,)), there=need)) == 1


def test_requirements_of_the_facade_or_without_check_are_skipped() -> None:
    assert planned(requirement(subject="facade")) == []
    assert plan([requirement()], {}, HOST, Surroundings("host", HOST, exporter_uuid=True, second_device=True)) == []


# ---- outcomes
class _Workers:
    """Returns PASS for each case, or UNAVAILABLE if the device is gone."""

    def __init__(self, gone: bool = False) -> None:
        self.ran: list[tuple[str, float]] = []
        self._gone = gone

    def run(self, case: Case, deadline_s: float, *, spoils: bool) -> Result:
        assert not spoils
        if self._gone:
            raise UnavailableError("the device is gone")
        self.ran.append((case.key, deadline_s))
        return Result(case, Outcome.PASS)


def _came_of(workers: _Workers, refused: dict[str, Result], **fields: str) -> Result:
    each = requirement()
    one = Planned(Case(each.id), each, Check(each.id, nothing, 7.0), **fields)
    return session.result(workers, one, refused)  # type: ignore[arg-type]


def test_undeclared_is_unsupported_only_when_the_driver_refuses() -> None:
    name = f"feature:{Feature.RECORDING.value}"
    workers = _Workers()
    refused = {name: Result(Case(name), Outcome.UNSUPPORTED)}
    assert _came_of(workers, refused, undeclared=name).outcome is Outcome.UNSUPPORTED
    for outcome, expected in ((Outcome.FAIL, Outcome.FAIL), (Outcome.ERROR, Outcome.FAIL),
                              (Outcome.UNAVAILABLE, Outcome.UNAVAILABLE)):
        refused = {name: Result(Case(name), outcome, "it did it")}
        found = _came_of(workers, refused, undeclared=name)
        assert (found.outcome, found.detail) == (expected, "it did it")
    assert _came_of(workers, {}, undeclared="resets_on_wait").outcome is Outcome.UNSUPPORTED   # not tried
    assert workers.ran == []


def test_blocked_is_not_run_and_undeclared_comes_first() -> None:
    workers = _Workers()
    found = _came_of(workers, {}, blocked="the exporter does not declare x")
    assert (found.outcome, found.detail) == (Outcome.BLOCKED, "the exporter does not declare x")
    assert _came_of(workers, {}, blocked="x", undeclared="y").outcome is Outcome.UNSUPPORTED
    assert workers.ran == []


def test_case_runs_under_its_deadline_or_is_unavailable() -> None:
    workers = _Workers()
    assert _came_of(workers, {}).outcome is Outcome.PASS
    assert workers.ran == [("XSEM-BIN-001/-/-/-", 7.0)]
    found = _came_of(_Workers(gone=True), {})
    assert (found.outcome, found.detail) == (Outcome.UNAVAILABLE, "the device is gone")
