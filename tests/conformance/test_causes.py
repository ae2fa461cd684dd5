"""Failed cases with one probable cause are one entry: equal observations, hangs, deaths, and the cases of a root."""

from __future__ import annotations

from typing import Any

import pytest

from xsem_conformance.outcomes import Call, Case, Failure, Frame, Outcome, Result
from xsem_conformance.run.causes import causes

SIGNAL, WAIT, COPY = (Call("device", f"append_{each}([#1], [value=1], [], [], False)", 0.1)
                      for each in ("signal", "wait", "copy"))
BINARY, TIMELINE = (Call("exporter", f"create_semaphore('{each}', None, 0) -> [1, SemaphoreDesc({each})]", 0.1)
                    for each in ("opaque_fd", "timeline_semaphore_fd"))


def failed(key: str, detail: str = "", outcome: Outcome = Outcome.FAIL, **evidence: Any) -> Result:
    return Result(Case.from_key(key), outcome, detail, failure=Failure(**evidence))


def test_same_observation_of_several_types_is_one_cause() -> None:
    found = causes([
        failed("XSEM-TL-001/timeline_semaphore_fd/host/in", "device: timeline_semaphore_fd was not done 10 s after"),
        failed("XSEM-BIN-002/opaque_fd/host/in", "device: opaque_fd was not done 2.5 s after"),
        failed("XSEM-BIN-003/opaque_fd/host/in", "device: opaque_fd was met early"),
        Result(Case("XSEM-BIN-004"), Outcome.PASS, "device: opaque_fd was met early"),
    ])
    assert [[each.case.requirement for each in one.results] for one in found] == [
        ["XSEM-TL-001", "XSEM-BIN-002"], ["XSEM-BIN-003"]]


def test_line_of_the_backend_is_one_cause_whatever_was_seen() -> None:
    line = Frame("acme/queue.py", 7, "append_wait")
    found = causes([failed("XSEM-TL-001/a/host/in", "one", frames=(line,)),
                    failed("XSEM-BIN-002/b/host/in", "other", frames=(line,)),
                    failed("XSEM-BIN-003/b/host/in", "other", frames=(Frame("acme/queue.py", 8, "append_wait"),))])
    assert [len(each.results) for each in found] == [2, 1]


def test_hangs_in_appends_are_one_cause() -> None:
    found = causes([failed(f"XSEM-TL-00{n}/a/host/in", "hangs: no result", hung_in=f"device: append_{what}")
                    for n, what in enumerate(("wait", "signal", "wait"))]
                   + [failed("XSEM-TL-009/a/host/in", "hangs: no result", hung_in="exporter: wait")])
    assert [len(each.results) for each in found] == [3, 1]
    assert "append_wait" in found[0].summary
    assert "append_signal" in found[0].summary


def test_lost_descriptor_follows_from_a_failed_check_of_ownership() -> None:
    lost = [failed(f"XSEM-BIN-00{n}/a/host/in", "OSError: [Errno 9] Bad file descriptor (lists.py:7)",
                   Outcome.ERROR) for n in range(5)]
    owner = failed("XSEM-OWN-004/semaphore.a/host/-", "the driver reports that it left the handle, but closed it")
    (only,) = causes([*lost, owner])
    assert only.results[0] is owner
    assert only.summary == owner.detail
    assert len(only.results) == 6
    (without,) = causes(lost)   # no check of ownership failed
    assert without.results[0] is lost[0]
    assert without.summary.startswith("a descriptor is probably closed by two owners: OSError")
    itself = failed("XSEM-OWN-006/semaphore.a/host/-", "OSError: [Errno 9] Bad file descriptor (acme.py:3)",
                    Outcome.ERROR, frames=(Frame("acme.py", 3, "release"),))
    hung = failed("XSEM-OWN-004/memory.a/host/-", "hangs: no result after 8 s", hung_in="exporter: forget")
    entries = causes([*lost, itself, hung])
    assert [(len(each.results), each.name != "") for each in entries] == [(1, False), (6, True)]
    assert entries[1].results[0] is itself
    by_handle = failed("XSEM-IMP-005/memory.a/host/-", "the driver reports 'left', and closes the number a second time")
    released = failed("XSEM-OWN-006/memory.a/host/-", "the release closed the file of another owner")
    [only] = causes([by_handle, released, *lost])
    assert only.results[0] is released   # a check of ownership
    assert len(only.results) == 7


# ---- deaths
def died(key: str, *calls: Call) -> Result:
    return failed(key, "the process died: SIGABRT; it printed:\n" + key, died=True, calls=calls)


def test_deaths_in_one_call_are_one_cause_with_those_outside_a_call() -> None:
    inside = [died(f"XSEM-TL-00{n}/a/host/in", Call("device", f"append_{what}(1)", None))
              for n, what in enumerate(("wait", "signal"))]
    imports = died("XSEM-IMP-001/a/host/in", Call("device", "import_memory(1)", None))
    outside = died("XSEM-TL-008/a/host/in", Call("exporter", "about()", 0.1))
    assert [len(each.results) for each in causes([outside, imports, *inside])] == [3, 1]
    assert [len(each.results) for each in causes([outside])] == [1]


# ---- roots
def lost_signals(*more: Result) -> list[Result]:
    head = failed("XSEM-IMP-001/semaphore.opaque_fd/host/-", calls=(BINARY, SIGNAL), detail=
                  "exporter: a wait for the signal of device was not done 10 s after its signal")
    return [*more, head]


@pytest.mark.parametrize(("key", "detail"), [
    ("XSEM-BIN-002/opaque_fd/host/out", "exporter: a wait was not done 10 s after its signal"),
    ("XSEM-OWN-009/semaphore.opaque_fd/host/-", "WaitTimeoutError: acme:0/list-1 was not done within 10 s; pending"),
    ("XSEM-IMP-005/semaphore.opaque_fd/host/-", "the device's signal does not reach the exporter: host_wait"),
    ("XSEM-LIFE-012/-/host/-", "a fence is not reached"),
    ("XSEM-STR-003/-/host/-", "seed 20, round 0: an operation that is done in the model is not done"),
    ("XSEM-TL-003/timeline_semaphore_fd/host/-", "the device signalled 1, and the timeline is at 0"),
    ("XSEM-TL-007/timeline_semaphore_fd/host/-", "the device signalled 9, and the device reads 5"),
])
def test_case_that_misses_a_result_follows_from_lost_signals(key: str, detail: str) -> None:
    results = lost_signals(failed(key, detail, calls=(BINARY, SIGNAL)))
    [only] = causes(results)
    assert only.results == [results[1], results[0]]   # first the case that shows the cause
    assert only.summary == ("signals of the device do not meet waits of the exporter: exporter: a wait for the signal "
                            "of device was not done 10 s after its signal")


@pytest.mark.parametrize("other", [
    failed("XSEM-EVT-001/-/host/-", "a fence is not reached", calls=(BINARY, WAIT)),   # it made no signal
    failed("XSEM-TL-001/timeline_semaphore_fd/host/out", "exporter: a wait was not done 10 s after its signal",
           calls=(TIMELINE, SIGNAL)),   # timelines of the exporter may have another fault
    failed("XSEM-BIN-003/opaque_fd/host/out", "exporter: a wait passed before its signal", calls=(BINARY, SIGNAL)),
    failed("XSEM-BIN-004/opaque_fd/host/out", "hangs: append_signal, which was not done", calls=(BINARY, SIGNAL),
           hung_in="device: append_signal"),
    failed("XSEM-BIN-005/opaque_fd/host/out", "the process died: it was not done", calls=(BINARY, SIGNAL), died=True),
    failed("XSEM-BIN-006/opaque_fd/host/out", "a wait was not done", Outcome.BLOCKED, calls=(BINARY, SIGNAL)),
])
def test_case_with_another_symptom_call_or_type_is_an_entry_of_its_own(other: Result) -> None:
    assert sorted(len(each.results) for each in causes(lost_signals(other))) == [1, 1]


def test_log_that_left_out_calls_or_lacks_the_device_does_not_contradict() -> None:
    detail = "exporter: 64 waits was not done 10 s after its signal"
    compiled = failed("XSEM-BATCH-004/opaque_fd/host/out", detail, calls=(BINARY,))
    long = failed("XSEM-STR-003/-/host/-", detail, calls=(BINARY, WAIT), left_out=7)
    assert [len(each.results) for each in causes(lost_signals(compiled, long))] == [3]


def test_without_the_basic_case_only_equal_observations_are_one_cause() -> None:
    results = lost_signals(failed("XSEM-BIN-002/opaque_fd/host/out", "exporter: a wait was not done 10 s after",
                                  calls=(BINARY, SIGNAL)))[:1]
    results.append(failed("XSEM-LIFE-012/-/host/-", "a fence is not reached", calls=(BINARY, SIGNAL)))
    assert [each.name for each in causes(results)] == ["", ""]


def test_unreached_fences_explain_signals_and_waits_and_copies() -> None:
    [only] = causes(lost_signals(failed("XSEM-LIFE-007/-/host/-", "a barrier is not done"),
                                 failed("XSEM-ORD-001/-/host/-", "device: a copy was not done 10 s", calls=(COPY,))))
    assert only.results[0].case.requirement == "XSEM-LIFE-007"
    assert (only.name, len(only.results)) == ("fences of the device are not reached", 3)


def test_unread_bytes_are_one_cause() -> None:
    head = failed("XSEM-IMP-001/memory.opaque_fd/host/-", "device reads other bytes than exporter wrote", calls=(COPY,))
    order = failed("XSEM-ORD-001/opaque_fd/host/in", "device read 0000… behind its wait, not the bytes", calls=(COPY,))
    late = failed("XSEM-ORD-003/opaque_fd/host/in", "device: a wait was not done 10 s after its signal", calls=(COPY,))
    assert sorted(len(each.results) for each in causes([order, head, late])) == [1, 2]
