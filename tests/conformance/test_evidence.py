"""The evidence of a failure: its calls, the lines of the backend, and the stacks."""

from __future__ import annotations

import inspect
import tempfile
import threading
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import odd_backend

from xsem import spi
from xsem.types import Capabilities, SemaphoreHandleType, WaitParams
from xsem_conformance.case.participant import LocalParticipant
from xsem_conformance.outcomes import Call, Frame, NotRunError
from xsem_conformance.report.failure_text import duration, failure_lines
from xsem_conformance.run.call_log import SIZE, CallLog
from xsem_conformance.run.frames import frames_in, frames_of, shortened
from xsem_conformance.run.hangs import Hangs
from xsem_conformance.run.recorder import TIMEOUTS, Recorder
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
    log.end(log.begin("device", "create_queue()"), "device", "Queue#1")
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
    assert (log.calls(), log.in_flight()) == (((), 0, 0), None)


def test_equal_calls_in_a_row_are_one_entry(log: CallLog) -> None:
    for answer in ("False", "False", "True"):
        log.end(log.begin("device", "query_fence(1)"), "device", answer)
    (only,), _, left_out = log.calls()
    assert (only.text, only.times, left_out) == ("query_fence(1) -> True", 3, 0)


def test_log_keeps_the_first_and_the_last_calls_and_those_that_have_not_returned(log: CallLog) -> None:
    for number in range(500):
        place = log.begin("device", f"call({number})")
        if number != 50:
            log.end(place, "device", "")
    calls, first, left_out = log.calls()
    numbers = [int(each.text.removeprefix("call(").removesuffix(")")) for each in calls]
    assert left_out == 500 - len(calls) > 0
    assert numbers[:first] == list(range(first))
    assert numbers[first:] == [50, *range(500 - len(calls) + first + 1, 500)]   # without a pending call, all are last
    assert [each.text for each in calls if each.seconds is None] == ["call(50)"]
    assert 10 < first < len(calls) - first


def test_log_is_whole_when_all_slots_are_used_once(log: CallLog) -> None:
    for number in range(96):
        log.end(log.begin("device", f"call({number})"), "device", "")
    calls, _, left_out = log.calls()
    assert ([each.text for each in calls], left_out) == ([f"call({number})" for number in range(96)], 0)


def test_more_calls_in_flight_than_slots_do_not_block_the_log(log: CallLog) -> None:
    for number in range(200):
        log.begin("device", f"call({number})")
    calls, _, left_out = log.calls()
    assert calls[-1].text == "call(199)"
    assert left_out == 200 - len(calls)


def test_long_calls_are_cut(log: CallLog) -> None:
    log.end(log.begin("device", "x" * 5000), "device", "y" * 5000)
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
    assert recorder.handle_types() == ["timeline_semaphore_fd"]
    recorder.new_case()
    assert recorder.handle_types() == []


class Compiled:
    """A method as Cython compiles it: it binds as a function does, and `inspect` does not take it for one."""

    __name__ = "query_fence"

    def __call__(self, driver: Any, fence: int) -> bool:
        return fence == 1

    def __get__(self, driver: Any, owner: type | None = None) -> Any:
        return self if driver is None else types.MethodType(self, driver)


def test_compiled_method_is_recorded(log: CallLog, recorder: Recorder) -> None:
    Device = type("Device", (odd_backend.BareDevice,), {"query_fence": Compiled()})  # noqa: N806
    recorder.wrap(Device)
    assert Device().query_fence(1)
    assert [each.text for each in log.calls()[0]] == ["query_fence(1) -> True"]


def test_call_inside_a_call_is_not_recorded(log: CallLog, recorder: Recorder) -> None:
    class Device(odd_backend.BareDevice):
        pass

    recorder.wrap(Device)
    assert Device().wait_fence(1, 0)   # its default asks query_fence
    assert [each.text for each in log.calls()[0]] == ["wait_fence(1, 0 ms) -> True"]


def test_waits_that_differ_only_in_the_timeout_are_one_entry(log: CallLog, recorder: Recorder) -> None:
    class Device(odd_backend.BareDevice):
        def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
            return timeout_ns < 10**7

        def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
            return False

    recorder.wrap(Device)
    driver = Device()
    for timeout_ns in (50_000_000, 49_999_123, 2_500_000):
        driver.wait_fence(1, timeout_ns)
    driver.wait_fence(2, 2_500_000)
    driver.host_wait(3, 7, 4)
    driver.host_wait(3, 7, timeout_ns=5)
    driver.host_wait(3, 8, 5_000_000_000)
    assert [(each.text, each.times) for each in log.calls()[0]] == [
        ("wait_fence(1, 2.5 ms) -> True", 3), ("wait_fence(2, 2.5 ms) -> True", 1),
        ("host_wait(3, 7, 0 ms) -> False", 2), ("host_wait(3, 8, 5000 ms) -> False", 1)]


def test_methods_with_a_timeout_are_those_of_the_interface() -> None:
    found = {}
    for cls in (*vars(spi).values(), LocalParticipant):
        for name, method in vars(cls).items() if inspect.isclass(cls) else ():
            places = [place for place, each in enumerate(inspect.signature(method).parameters)
                      if each in ("timeout_ns", "timeout_s")] if inspect.isfunction(method) else []
            if places:
                assert places == [len(inspect.signature(method).parameters) - 1], name   # `self` is the first
                found[name] = places[0] - 1
    assert found == TIMEOUTS


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


# ---- the calls of a failure as text
def shown(calls: Sequence[str | tuple[str, int]], most: int, *, first: int = 0, left_out: int = 0) -> list[str]:
    entries = [{"call": each} if isinstance(each, str) else {"call": each[0], "times": each[1]} for each in calls]
    case = {"failure": {
        "expected": "", "done": "", "seen": "", "frames": [], "stack": "", "repeat": "again", "first_calls": first,
        "earlier_calls": left_out, "calls": [each | {"by": "device", "seconds": 0.0021} for each in entries]}}
    lines = failure_lines(case, calls=most, stack=0)
    assert (lines[0], lines[-1]) == ("calls:", "repeat: again")
    return [each.strip().removeprefix("device: ").removesuffix("  (2.1 ms)") for each in lines[1:-1]]


def test_text_shows_the_first_calls_and_the_last_ones() -> None:
    calls = [f"c{number}()" for number in range(9)]
    assert shown(calls, 9) == shown(calls, 0) == calls
    assert shown(calls, 6) == ["c0()", "c1()", "… 3 calls …", "c5()", "c6()", "c7()", "c8()"]
    assert shown(calls, 8) == calls   # a marker would take the line of the call
    released = ["release_fence(#1)", "close()", "forget()"]
    assert shown([*calls, *released], 6)[-3:] == ["c7()", "c8()", "… 3 calls that release …"]
    assert shown([*calls, "release_fence(#1) -> DriverError(lost)"], 6)[-1] == "release_fence(#1) -> DriverError(lost)"
    assert shown([*calls, *released], 0)[-3:] == released
    # The log has left out calls, too: one marker for all.
    assert shown(calls, 0, first=4, left_out=7) == [*calls[:4], "… 7 calls …", *calls[4:]]
    assert shown(calls, 6, first=4, left_out=7) == ["c0()", "c1()", "… 10 calls …", *calls[5:]]
    assert shown(calls, 6, first=1, left_out=7)[:3] == ["c0()", "… 10 calls …", "c4()"]


@pytest.mark.parametrize("repeated", [("b() -> False", 40), "b() -> False, 40 times"])   # now, and in older reports
def test_text_counts_each_repeated_call_that_it_leaves_out(repeated: str | tuple[str, int]) -> None:
    assert shown(["a()", repeated, "c()", "d()", "e()"], 3) == ["a()", "… 41 calls …", "d()", "e()"]
    assert shown([repeated], 0) == ["b() -> False, 40 times"]


@pytest.mark.parametrize(("seconds", "text"), [
    (None, "does not return"), (0.0, "0 µs"), (0.000025, "25 µs"), (0.0021, "2.1 ms"), (10.04, "10.0 s")])
def test_duration_of_a_call_has_a_readable_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


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


# ---- several threads
def test_call_of_an_earlier_case_changes_nothing(log: CallLog) -> None:
    begun, free, ended = (threading.Event() for _ in range(3))

    def late() -> None:
        slot = log.begin("device", "append_wait(old)")
        begun.set()
        free.wait()
        log.end(slot, "device", "7")
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
    log.end(slot, "device", "")
