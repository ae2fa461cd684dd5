"""Failed cases with one probable cause are one entry: equal observations, hangs, deaths, and the cases of a root."""

from __future__ import annotations

import errno
import socket
import threading
from typing import Any

import pytest

from xsem.errors import BadHandleError, DriverError, WaitTimeoutError
from xsem_conformance.case.remote_participant import (
    ParticipantFailedError,
    RemoteParticipant,
    SecondFailedError,
    _serve,
)
from xsem_conformance.outcomes import (
    BrokenError,
    Call,
    Case,
    Failure,
    Frame,
    Outcome,
    Result,
    Symptom,
    symptom_of,
)
from xsem_conformance.run.causes import causes

SIGNAL, WAIT, COPY = (Call("device", f"append_{each}([#1], [value=1], [], [], False)", 0.1)
                      for each in ("signal", "wait", "copy"))
BINARY, TIMELINE = ("opaque_fd",), ("timeline_semaphore_fd",)
NOT_DONE, LOST, TWICE = Symptom.NOT_DONE, Symptom.HANDLE_LOST, Symptom.CLOSED_TWICE


def failed(key: str, detail: str = "", outcome: Outcome = Outcome.FAIL, symptom: Symptom | None = None,
           **evidence: Any) -> Result:
    return Result(Case.from_key(key), outcome, detail, failure=Failure(symptom=symptom, **evidence))


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
                   Outcome.ERROR, LOST) for n in range(5)]
    owner = failed("XSEM-OWN-004/semaphore.a/host/-", "the driver reports that it left the handle, but closed it")
    (only,) = causes([*lost, owner])
    assert only.results[0] is owner
    assert only.summary == owner.detail
    assert len(only.results) == 6
    (without,) = causes(lost)   # no check of ownership failed
    assert without.results[0] is lost[0]
    assert without.summary.startswith("a descriptor is probably closed by two owners: OSError")
    itself = failed("XSEM-OWN-006/semaphore.a/host/-", "OSError: [Errno 9] Bad file descriptor (acme.py:3)",
                    Outcome.ERROR, LOST, frames=(Frame("acme.py", 3, "release"),))
    hung = failed("XSEM-OWN-004/memory.a/host/-", "hangs: no result after 8 s", hung_in="exporter: forget")
    entries = causes([*lost, itself, hung])
    assert [(len(each.results), each.name != "") for each in entries] == [(1, False), (6, True)]
    assert entries[1].results[0] is itself
    by_handle = failed("XSEM-IMP-005/memory.a/host/-", "the number 0 is closed", symptom=TWICE)
    released = failed("XSEM-OWN-006/memory.a/host/-", "the release closed a file", symptom=TWICE)
    [only] = causes([by_handle, released, *lost])
    assert only.results[0] is released   # a check of ownership
    assert len(only.results) == 7


# ---- deaths
def died(key: str, *calls: Call) -> Result:
    return Result(Case.from_key(key), Outcome.FAIL, "the process died: SIGABRT", printed=f"dump {calls[-1].text}",
                  failure=Failure(calls, died=True))


def test_deaths_in_one_call_are_one_cause_with_those_outside_a_call() -> None:
    inside = [died(f"XSEM-TL-00{n}/a/host/in", Call("device", f"append_{what}(1)", None))
              for n, what in enumerate(("wait", "signal"))]
    imports = died("XSEM-IMP-001/a/host/in", Call("device", "import_memory(1)", None))
    outside = died("XSEM-TL-008/a/host/in", Call("exporter", "about()", 0.1))
    assert [len(each.results) for each in causes([outside, imports, *inside])] == [3, 1]
    assert [len(each.results) for each in causes([outside])] == [1]


# ---- roots
def lost_signals(*more: Result) -> list[Result]:
    head = failed("XSEM-IMP-001/semaphore.opaque_fd/host/-", "the signal is lost", symptom=Symptom.NOT_MET,
                  side="exporter", calls=(SIGNAL,), handle_types=BINARY)
    return [*more, head]


@pytest.mark.parametrize("symptom", [NOT_DONE, Symptom.BARRIER_NOT_DONE, Symptom.NOT_MET, Symptom.OTHER_VALUE])
def test_case_that_misses_a_result_follows_from_lost_signals(symptom: Symptom) -> None:
    results = lost_signals(failed("XSEM-TL-007/opaque_fd/host/-", "seen", symptom=symptom, calls=(SIGNAL,),
                                  handle_types=(*TIMELINE, *BINARY)))
    [only] = causes(results)
    assert only.results == [results[1], results[0]]   # first the case that shows the cause
    assert only.summary == "signals of the device do not meet waits of the exporter: the signal is lost"


@pytest.mark.parametrize("other", [
    failed("XSEM-EVT-001/-/host/-", "seen", symptom=NOT_DONE, calls=(WAIT,), handle_types=BINARY),   # it made no signal
    # Timelines of the exporter may have another fault.
    failed("XSEM-TL-001/timeline_semaphore_fd/host/out", symptom=NOT_DONE, calls=(SIGNAL,), handle_types=TIMELINE),
    failed("XSEM-BIN-003/opaque_fd/host/out", calls=(SIGNAL,), handle_types=BINARY),
    failed("XSEM-BIN-003/opaque_fd/host/out", symptom=LOST, calls=(SIGNAL,), handle_types=BINARY),
    failed("XSEM-BIN-004/opaque_fd/host/out", calls=(SIGNAL,), hung_in="device: append_signal"),
    failed("XSEM-BIN-005/opaque_fd/host/out", calls=(SIGNAL,), died=True),
    failed("XSEM-BIN-006/opaque_fd/host/out", "seen", Outcome.BLOCKED, NOT_DONE, calls=(SIGNAL,), handle_types=BINARY),
])
def test_case_with_another_symptom_call_or_type_is_an_entry_of_its_own(other: Result) -> None:
    assert sum(len(each.results) for each in causes(lost_signals(other))) == 2
    assert len(causes(lost_signals(other))) == 2


def test_log_that_left_out_calls_or_lacks_the_device_does_not_contradict() -> None:
    create = Call("exporter", "create_semaphore('opaque_fd', None, 0)", 0.1)
    compiled = failed("XSEM-BATCH-004/opaque_fd/host/out", symptom=NOT_DONE, calls=(create,), handle_types=BINARY)
    long = failed("XSEM-STR-003/-/host/-", symptom=NOT_DONE, calls=(WAIT,), left_out=7, handle_types=BINARY)
    assert [len(each.results) for each in causes(lost_signals(compiled, long))] == [3]


def test_without_the_basic_case_only_equal_observations_are_one_cause() -> None:
    results = lost_signals(failed("XSEM-BIN-002/opaque_fd/host/out", "one", symptom=NOT_DONE, calls=(SIGNAL,),
                                  handle_types=BINARY))[:1]
    results.append(failed("XSEM-LIFE-012/-/host/-", "other", symptom=NOT_DONE, calls=(SIGNAL,), handle_types=BINARY))
    assert [each.name for each in causes(results)] == ["", ""]


def test_side_that_misses_the_signal_tells_the_cause() -> None:
    other = failed("XSEM-IMP-001/semaphore.sync_fd/host/-", symptom=Symptom.NOT_MET, side="device", calls=(WAIT,))
    assert {each.name for each in causes(lost_signals(other))} == {
        "signals of the device do not meet waits of the exporter",
        "signals of the exporter do not meet waits of the device"}


def test_unreached_fences_explain_signals_and_waits_and_copies() -> None:
    [only] = causes(lost_signals(failed("XSEM-LIFE-007/-/host/-", symptom=Symptom.BARRIER_NOT_DONE),
                                 failed("XSEM-ORD-001/-/host/-", symptom=NOT_DONE, calls=(COPY,))))
    assert only.results[0].case.requirement == "XSEM-LIFE-007"
    assert (only.name, len(only.results)) == ("fences of the device are not reached", 3)


def test_unread_bytes_are_one_cause() -> None:
    head = failed("XSEM-IMP-001/memory.opaque_fd/host/-", "one", symptom=Symptom.OTHER_BYTES, calls=(COPY,))
    order = failed("XSEM-ORD-001/opaque_fd/host/in", "other", symptom=Symptom.OTHER_BYTES, calls=(COPY,))
    late = failed("XSEM-ORD-003/opaque_fd/host/in", symptom=NOT_DONE, calls=(COPY,))
    assert sorted(len(each.results) for each in causes([order, head, late])) == [1, 2]


# ---- symptoms
def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("error", "symptom"), [
    (BrokenError("seen", symptom=TWICE), TWICE),
    (WaitTimeoutError("list-1 is pending"), NOT_DONE),
    (OSError(errno.EBADF, "closed"), LOST),
    (OSError(errno.ENOTSOCK, "a file"), LOST),
    (OSError(errno.ENOENT, "no file"), None),
    (raised(BadHandleError("closed", reason="closed_fd"), OSError(errno.EBADF, "closed")), LOST),
    (ParticipantFailedError("exporter: list-1 is pending", reason="timeout", symptom=NOT_DONE), NOT_DONE),
    (raised(SecondFailedError("no answer"),
            raised(DriverError("sendmsg failed", reason="system_call_failed"), OSError(errno.EBADF, "closed"))), LOST),
    (raised(BrokenError("a thread failed"), WaitTimeoutError("list-1 is pending")), NOT_DONE),
    (BrokenError("Bad file descriptor: it was not done"), None),   # words say nothing
])
def test_symptom_of_an_exception_is_that_of_its_first_cause_with_one(
    error: BaseException, symptom: Symptom | None
) -> None:
    assert symptom_of(error)[0] is symptom


def test_symptom_crosses_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Participant:
        def new_list(self) -> int:
            raise WaitTimeoutError("list-1 is pending")

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(RemoteParticipant, "launch", lambda device: (ours, None))
    serving = threading.Thread(target=_serve, args=(theirs, Participant(), {}))
    serving.start()
    with theirs:
        with ours, pytest.raises(ParticipantFailedError) as caught:
            RemoteParticipant("acme:0").new_list()
        serving.join()
    assert (caught.value.symptom, caught.value.reason) == (NOT_DONE, "timeout")
