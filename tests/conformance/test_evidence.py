"""The evidence of a failure: its calls, the lines of the backend, the stacks, and one entry for one cause."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import odd_backend

from xsem import spi
from xsem.types import Capabilities, SemaphoreHandleType, WaitParams
from xsem_conformance.outcomes import Call, Case, Failure, Frame, NotRunError, Outcome, Result
from xsem_conformance.run.call_log import SIZE, CallLog
from xsem_conformance.run.causes import causes
from xsem_conformance.run.frames import frames_in, frames_of, shortened
from xsem_conformance.run.hangs import Hangs
from xsem_conformance.run.recorder import Recorder
from xsem_host.device import HostDevice


@pytest.fixture
def log() -> Iterator[CallLog]:
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        made = CallLog(file.fileno())
        yield made
        made.close()


# ---- the log
def test_log_has_the_calls_in_order_and_the_one_that_has_not_returned(log: CallLog) -> None:
    log.end(log.begin("device", "create_queue()"), "device", "create_queue()", "Queue#1")
    log.begin("exporter", "signal(1, [2])")
    done, pending = log.calls()[0]
    assert (done.by, done.text) == ("device", "create_queue() -> Queue#1")
    assert done.seconds is not None
    assert pending == Call("exporter", "signal(1, [2])", None)
    assert pending.name == "exporter: signal"
    found = log.in_flight()
    assert found is not None
    assert found[0] == "exporter: signal"
    log.clear()
    assert (log.calls(), log.in_flight()) == (((), 0), None)


def test_equal_calls_in_a_row_are_one_entry(log: CallLog) -> None:
    for answer in ("False", "False", "True"):
        log.end(log.begin("device", "query_fence(1)"), "device", "query_fence(1)", answer)
    (only,), earlier = log.calls()
    assert (only.text, earlier) == ("query_fence(1) -> True, 3 times", 0)


def test_log_keeps_the_last_calls_and_those_that_have_not_returned(log: CallLog) -> None:
    log.begin("device", "append_wait(held)")
    for number in range(500):
        log.end(log.begin("device", f"call({number})"), "device", f"call({number})", "")
    calls, earlier = log.calls()
    assert calls[0] == Call("device", "append_wait(held)", None)
    assert calls[-1].text == "call(499)"
    assert earlier == 501 - len(calls) > 0


def test_long_calls_are_cut(log: CallLog) -> None:
    log.end(log.begin("device", "x" * 5000), "device", "x" * 5000, "y" * 5000)
    log.begin("device", "next()")
    first, second = log.calls()[0]
    assert 100 < len(first.text) < 256
    assert second.text == "next()"


# ---- the recorder
@pytest.fixture
def recorder(log: CallLog) -> Iterator[Recorder]:
    made = Recorder(log)
    yield made
    made.detach()


def test_recorder_writes_calls_in_short_and_keeps_the_classes(log: CallLog, recorder: Recorder) -> None:
    class Mine(HostDevice):
        pass

    recorder.wrap(Mine)
    driver = Mine()
    queue = driver.create_queue()
    token = driver.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, 3)
    driver.host_signal(token, 1 << 40)
    fence = queue.append_wait([token], [WaitParams(value=7)], (), (), True)
    assert fence is not None
    assert driver.wait_fence(fence, 10**10)
    driver.release_fence(fence)
    queue.close()
    driver.release_semaphore(token)
    driver.close()
    assert (type(driver), hasattr(HostDevice.create_queue, "__wrapped__")) == (Mine, False)   # the base is unchanged
    assert [each.text for each in log.calls()[0]][:4] == [
        "create_queue() -> HostQueue#1", "create_semaphore(timeline_semaphore_fd, 3) -> Timeline#2",
        "host_signal(Timeline#2, 0x10000000000)",
        "append_wait([Timeline#2], [value=7], [], [], True) -> HostFence#3"]


def test_call_inside_a_call_is_not_recorded(log: CallLog, recorder: Recorder) -> None:
    class Device(odd_backend.BareDevice):
        pass

    recorder.wrap(Device)
    assert Device().wait_fence(1, 0)   # its default asks query_fence
    assert [each.text for each in log.calls()[0]] == ["wait_fence(1, 0) -> True"]


def test_call_that_is_known_to_hang_is_not_made(log: CallLog, recorder: Recorder) -> None:
    made: list[int] = []

    class Device(odd_backend.BareDevice):
        def release_fence(self, fence: Any) -> None:
            made.append(fence)

    recorder.wrap(Device)
    told: list[bool] = []
    recorder.when_refused = lambda: told.append(True)
    recorder.skipped = {"device: release_fence": "it hung"}
    with pytest.raises(NotRunError, match="it hung"):
        Device().release_fence(1)
    assert (recorder.refused, made, told) == ("it hung", [], [True])
    recorder.new_case()
    assert recorder.refused == ""


def test_exception_of_the_driver_is_recorded_and_raised(log: CallLog, recorder: Recorder) -> None:
    class Device(odd_backend.BareDevice):
        def query_fence(self, fence: Any) -> bool:
            raise KeyError(fence)

    recorder.wrap(Device)
    with pytest.raises(KeyError):
        Device().query_fence(3)
    assert [each.text for each in log.calls()[0]] == ["query_fence(3) -> KeyError"]
    assert recorder.returned() == []


def test_backend_is_recorded_from_its_next_open(log: CallLog, recorder: Recorder) -> None:
    class Device(spi.DeviceDriver):
        capabilities = Capabilities()

        def create_queue(self) -> spi.QueueDriver:
            return odd_backend.BareList()

        def query_fence(self, fence: Any) -> bool:
            return True

        def release_fence(self, fence: Any) -> None: ...

        def close(self) -> None: ...

    class Backend(odd_backend.OddBackend):
        def open(self, index: int) -> spi.DeviceDriver:
            return Device()

    backend = Backend()
    recorder.attach(backend)
    backend.open(0).release_fence(5)
    recorder.detach()
    assert [each.text for each in log.calls()[0]] == ["release_fence(5)"]
    backend.open(0).release_fence(6)
    assert len(log.calls()[0]) == 1
    assert "open" not in vars(backend)


# ---- lines of the backend
def test_frames_are_those_of_the_package_and_of_the_first_cause() -> None:
    def driver() -> None:
        odd_backend._raise()

    with pytest.raises(ValueError, match="the facade's") as caught:
        try:
            driver()
        except RuntimeError as error:
            raise ValueError("the facade's") from error
    (found,) = frames_of(caught.value, "odd_backend")
    assert (found.function, Path(found.file).name) == ("_raise", "odd_backend.py")
    assert found.code.startswith("raise RuntimeError")
    assert frames_of(caught.value, "other_backend") == ()
    assert frames_of(caught.value, "") == ()


def test_stacks_lose_the_lines_of_the_runner_and_give_frames() -> None:
    dump = ('Current thread 0x1 (most recent call first):\n  File "/x/acme/queue.py", line 7 in inner\n'
            '  File "/x/acme/queue.py", line 3 in append_wait\n'
            '  File "xsem_conformance/run/recorder.py", line 118 in call\n'
            '  File "/x/suite/lists.py", line 9 in check\n')
    short = shortened(dump)
    assert "recorder" not in short
    assert "lists.py" in short
    assert frames_in(short, "acme") == (Frame("/x/acme/queue.py", 3, "append_wait"),
                                        Frame("/x/acme/queue.py", 7, "inner"))


# ---- hangs
def test_call_that_hangs_in_a_row_is_skipped_and_a_case_that_ends_breaks_the_row() -> None:
    hangs = Hangs(10.0, most=2)
    assert hangs.limit_s("device: append_wait") == 15.0
    assert hangs.limit_s("exporter: about") is None
    hangs.hung("device: append_wait", "a")
    assert hangs.limit_s("device: append_signal") == 3.0   # appends probably hang for one reason
    assert hangs.limit_s("second process: wait") == 3.0   # the same device
    assert hangs.limit_s("exporter: wait") == hangs.limit_s("device: release_fence") == 15.0
    hangs.ended(["device: append_wait"])
    hangs.hung("device: append_wait", "b")
    assert hangs.skipped() == {}
    hangs.hung("device: append_wait", "c")
    assert hangs.skipped() == {"device: append_wait": "it needs device, append_wait, which hung in 2 cases: b, c"}
    hangs.ended(["device: append_wait"])   # a case that began before
    assert hangs.skipped()


def test_without_a_limit_no_call_is_skipped() -> None:
    hangs = Hangs(0.25, most=0)
    for key in "abcdefgh":
        hangs.hung("device: append_wait", key)
    assert hangs.skipped() == {}
    assert hangs.limit_s("device: append_wait") == 3.0


# ---- causes
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
    assert [(len(each.results), each.lost) for each in entries] == [(1, False), (6, True)]
    assert entries[1].results[0] is itself


# ---- several threads
def test_call_of_an_earlier_case_changes_nothing(log: CallLog) -> None:
    begun, free, ended = (threading.Event() for _ in range(3))

    def late() -> None:
        slot = log.begin("device", "append_wait(old)")
        begun.set()
        free.wait()
        log.end(slot, "device", "append_wait(old)", "7")
        ended.set()

    thread = threading.Thread(target=late)
    thread.start()
    begun.wait()
    log.clear()
    slot = log.begin("device", "new()")
    free.set()
    thread.join()
    assert ended.is_set()
    assert log.calls()[0] == (Call("device", "new()", None),)
    log.end(slot, "device", "new()", "")
