"""pending() and timeout errors: they name every stuck operation, and first the one that blocks the others."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeFence, FakeStream, binary, fake, open_fake, timeline
from support.fixtures import Opened, new_handle
from support.waiting import until

import xsem
from xsem import spi
from xsem.errors import DriverError, WaitTimeoutError
from xsem.facade.device import Device
from xsem.types import Feature, OwnedHandle, PendingOp, SemaphoreDesc, SemaphoreHandleType, Signaller, SignalParams


def imported(device: xsem.Device, label: str = "") -> xsem.Semaphore:
    with new_handle() as handle:
        return device.import_semaphore(SemaphoreDesc.timeline_fd(handle, device_uuid=None), label=label)


def short(pending: tuple[PendingOp, ...]) -> list[Any]:
    return [op.operation if op.value is None else (op.operation, op.value) for op in pending]


def at(driver: FakeDriver, sem: xsem.Semaphore, value: int) -> None:
    """Set the timeline's value, as any signaller could."""
    driver.values[sem._state.token] = value


def stuck(commands: xsem.CommandList) -> list[Any]:
    with pytest.raises(WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0)
    return short(caught.value.pending)


# ---- pending operations
def test_nothing_is_pending_on_an_idle_device(exporting: Opened) -> None:
    device, driver = exporting
    assert device.pending() == ()
    commands = device.create_command_list()
    assert device.pending() == ()
    commands.append_barrier()
    assert short(device.pending()) == ["barrier"]
    driver.lists[0].reach_all()
    assert device.pending() == ()


def test_all_lists_are_reported_oldest_first_each(exporting: Opened) -> None:
    device, driver = exporting
    own, borrowed = device.create_command_list(), device.command_list(FakeStream(0x70))
    sem = timeline(device, "frames")
    for value in (1, 2):
        own.append_signal(sem, value)
        borrowed.append_wait(sem, value)
    pending = device.pending()
    assert short(pending) == [("signal", 1), ("signal", 2), ("wait", 1), ("wait", 2)]
    assert [op.command_list for op in pending] == ["fake:0/list-1"] * 2 + ["fake:0/stream-0x70"] * 2
    assert [op.age_s for op in pending[:2]] == sorted((op.age_s for op in pending[:2]), reverse=True)
    driver.lists[0].reach_all()
    assert short(device.pending()) == [("wait", 1), ("wait", 2)]


def test_each_semaphore_of_a_batch_is_reported(exporting: Opened) -> None:
    device, _ = exporting
    commands = device.create_command_list()
    sems = [timeline(device, "a"), binary(device, "b")]
    commands.append_wait(sems, [7, None])
    assert [(op.semaphore, op.value) for op in device.pending()] == [
        ("timeline_semaphore_fd 'a'", 7), ("opaque_fd 'b'", None)]


def test_every_operation_has_its_name(exporting: Opened) -> None:
    device, _ = exporting
    commands = device.create_command_list()
    memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
    a, b = memory.map_buffer(0, 16), memory.map_buffer(16, 16)
    commands.append_work(lambda: None)
    commands.append_copy(a, b)
    commands.append_fill(a, b"0")
    commands.append_barrier()
    commands.append_wait(binary(device))
    commands.append_signal(binary(device))
    assert short(device.pending()) == ["work", "copy", "fill", "barrier", "wait", "signal"]
    assert device.pending()[0].semaphore is None


class WithHostMemory(FakeDriver, spi.HostMemory):
    def host_buffer(self, size: int) -> tuple[int, int]:
        self.staging = ctypes.create_string_buffer(size)
        return next(self.numbers), ctypes.addressof(self.staging)

    def release_host_buffer(self, buffer: int) -> None:
        del self.staging


def test_transfers_of_a_buffer_are_reported_too() -> None:
    driver = WithHostMemory()
    device = Device(INFO, driver)
    buffer = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096).map_buffer(0, 16)
    with pytest.raises(WaitTimeoutError) as caught:
        buffer.copy_to_host(timeout_s=0)
    assert short(caught.value.pending) == ["copy"]
    assert [op.command_list for op in device.pending()] == ["fake:0/transfer"]
    driver.finish()
    device.release()
    until(lambda: ("close",) in driver.log)


def test_failed_list_has_nothing_pending(exporting: Opened) -> None:
    device, driver = exporting
    commands = device.create_command_list()
    commands.append_barrier()
    device.pending()
    driver.lists[0].fences[0].error = DriverError("lost", reason="lost")
    assert device.pending() == ()


# ---- the operation that blocks the others
def test_operations_before_the_stuck_wait_are_done(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem, theirs = device.create_command_list(), timeline(device), timeline(device)
    for frame in range(5):
        commands.append_wait(theirs, frame + 1)
        commands.append_work(lambda: None)
        commands.append_signal(sem, frame + 1)
    at(driver, sem, 3)
    at(driver, theirs, 3)
    assert stuck(commands) == short(device.pending()) == [
        ("wait", 4), "work", ("signal", 4), ("wait", 5), "work", ("signal", 5)]


def test_one_timeline_used_both_ways_shows_the_stuck_wait_first(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)
    for frame in range(3):
        commands.append_wait(sem, 2 * frame + 1)
        commands.append_signal(sem, 2 * frame + 2)
    at(driver, sem, 2)
    assert stuck(commands)[0] == ("wait", 3)
    at(driver, sem, 3)   # signalled by the host: the wait is met, and the list's own signal is pending
    assert stuck(commands)[0] == ("signal", 4)


def test_work_that_hangs_behind_a_met_wait_is_first(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    commands.append_work(lambda: None)
    commands.append_signal(sem, 2)
    commands.append_wait(sem, 3)
    commands.append_work(lambda: None)
    commands.append_signal(sem, 4)
    at(driver, sem, 3)
    assert stuck(commands) == ["work", ("signal", 4)]


def test_value_from_elsewhere_hides_no_stuck_wait(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem, theirs = device.create_command_list(), timeline(device), timeline(device)
    commands.append_wait(theirs, 1)
    commands.append_signal(sem, 5)
    at(driver, sem, 10)   # the list is still stuck
    assert stuck(commands) == short(device.pending()) == [("wait", 1), ("signal", 5)]


def test_value_from_elsewhere_hides_no_stuck_binary_wait(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem, theirs = device.create_command_list(), timeline(device), binary(device)
    commands.append_wait(theirs)
    commands.append_signal(sem, 5)
    at(driver, sem, 10)
    assert stuck(commands) == short(device.pending()) == ["wait", ("signal", 5)]
    at(driver, sem, 5)   # only this list signals 5
    assert device.pending() == ()


def test_value_from_elsewhere_hides_no_stuck_event(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)
    native = FakeFence(1, "foreign")
    commands.append_barrier(wait_events=[device.event(native)])
    commands.append_signal(sem, 5)
    at(driver, sem, 10)
    assert stuck(commands) == ["barrier", ("signal", 5)]
    native.reached = True
    assert device.pending() == ()


def test_wait_with_an_event_is_met_when_both_are(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem, native = device.create_command_list(), timeline(device), FakeFence(1, "foreign")
    commands.append_wait(sem, 1, wait_events=[device.event(native)])
    commands.append_work(lambda: None)
    at(driver, sem, 1)
    assert stuck(commands) == [("wait", 1), "work"]
    native.reached = True
    assert stuck(commands) == ["work"]


def test_timeout_always_names_an_operation(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    commands.append_signal(sem, 2)
    at(driver, sem, 2)   # the values suggest that all is done, but the wait timed out
    assert device.pending() == ()
    assert stuck(commands) == [("signal", 2)]


def test_signal_with_allow_rewind_proves_no_progress(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_work(lambda: None)
    commands.append_signal(sem, SignalParams(value=5, allow_rewind=True))
    at(driver, sem, 5)
    assert short(device.pending()) == ["work", ("signal", 5)]


def test_reached_event_proves_all_earlier_operations_done(exporting: Opened) -> None:
    device, driver = exporting
    commands = device.create_command_list()
    events = [device.create_event() for _ in range(5)]
    for event in events:
        commands.append_work(lambda: None)
        commands.append_barrier(signal_event=event)
    for fence in driver.lists[0].fences[:3]:
        fence.reached = True
    with pytest.raises(WaitTimeoutError) as caught:
        events[3].wait(timeout_s=0)
    assert short(caught.value.pending) == ["work", "barrier"]
    assert short(device.pending()) == ["work", "barrier"] * 2


def test_values_are_read_once_per_report(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)
    for value in range(1, 300):
        commands.append_signal(sem, value)
        commands.append_wait(sem, 1000 + value)
    reads: list[int] = []
    original = driver.semaphore_value

    def read(token: int) -> int:
        reads.append(token)
        return original(token)

    driver.semaphore_value = read  # type: ignore[assignment,method-assign]
    assert len(device.pending()) == 598
    assert len(reads) == 1


def test_cost_of_a_report_is_linear_in_the_operations(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)

    def cost(count: int) -> int:
        for _ in range(count):
            commands.append_wait(sem, 1_000_000)
            commands.append_signal(sem, sem._state.last + 1)  # type: ignore[operator]
        lines = 0

        def trace(_frame: object, event: str, _arg: object) -> Any:
            nonlocal lines
            lines += event == "line"
            return trace

        sys.settrace(trace)
        try:
            pending = device.pending()
        finally:
            sys.settrace(None)
        assert len(pending) == 2 * count
        driver.lists[0].reach_all()   # with the marker that pending() appended
        assert device.pending() == ()
        return lines

    small, large = cost(100), cost(1000)
    assert large < 20 * small


def test_released_semaphore_still_has_its_value_in_the_report(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device, "frames")
    commands.append_wait(sem, 7)
    at(driver, sem, 5)
    sem.release()
    op, = device.pending()
    assert (op.semaphore, op.current_value) == ("timeline_semaphore_fd 'frames'", 5)


def test_value_is_unknown_when_reading_fails(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 7)

    def fail(_token: int) -> int:
        raise DriverError("no", reason="driver")

    driver.semaphore_value = fail  # type: ignore[assignment,method-assign]
    assert device.pending()[0].current_value is None


# ---- devices that cannot read values
BLIND = dataclasses.replace(ALL, features=ALL.features - {Feature.READ_VALUE})


@pytest.fixture
def blind() -> Iterator[Opened]:
    with fake(BLIND, dataclasses.replace(INFO, id="blind:0", backend="blind")) as (device, driver):
        def read(_token: int) -> int:
            raise AssertionError("it cannot")

        driver.semaphore_value = read  # type: ignore[assignment,method-assign]
        yield device, driver


def frames(device: xsem.Device, sem: xsem.Semaphore, count: int = 10) -> xsem.CommandList:
    commands = device.create_command_list()
    for frame in range(count):
        commands.append_wait(sem, 2 * frame + 1)
        commands.append_signal(sem, 2 * frame + 2)
    return commands


def test_exporter_in_this_process_tells_the_value(exporting: Opened, blind: Opened) -> None:
    (exporter, driver), (device, _) = exporting, blind
    theirs = timeline(exporter, "frames")
    with theirs.export() as desc:
        sem = device.import_semaphore(desc, label="frames")
    commands = frames(device, sem)
    at(driver, theirs, 18)
    assert stuck(commands) == short(device.pending()) == [("wait", 19), ("signal", 20)]
    op, _ = device.pending()
    assert (op.current_value, op.last_signalled_here) == (18, 20)
    with pytest.raises(WaitTimeoutError, match=r"pending first: wait .* >= 19 .now 18"):
        commands.synchronize(timeout_s=0)


@pytest.mark.parametrize("how", ["fails", "released", "device released", "collected", "by another number"])
def test_exporter_that_cannot_tell_leaves_the_value_unknown(exporting: Opened, blind: Opened, how: str) -> None:
    (exporter, driver), (device, _) = exporting, blind
    theirs = timeline(exporter)
    with theirs.export() as desc:
        assert isinstance(desc.handle, OwnedHandle)
        # A descriptor made by hand does not tell the origin of its number.
        by_hand = SemaphoreDesc.timeline_fd(desc.handle.fileno(), device_uuid=None)
        sem = device.import_semaphore(by_hand if how == "by another number" else desc)
    if how == "fails":
        def fail(_token: int) -> int:
            raise DriverError("no", reason="driver")

        driver.semaphore_value = fail  # type: ignore[assignment,method-assign]
    if how == "released":
        theirs.release()
        until(lambda: driver.released("release_semaphore"))
    if how == "device released":
        exporter.release()
        until(lambda: ("close",) in driver.log)
    if how == "collected":
        del theirs
        gc.collect()
        until(lambda: driver.released("release_semaphore"))
    frames(device, sem, 1)
    assert [op.current_value for op in device.pending()] == [None, None]


def test_single_wait_is_reported_when_its_state_is_unknown(blind: Opened) -> None:
    device, _ = blind
    commands = frames(device, timeline(device), 1)
    with pytest.raises(WaitTimeoutError, match=r"pending first: wait .* >= 1 .now unknown"):
        commands.synchronize(timeout_s=0)
    batch = device.create_command_list()
    batch.append_wait([timeline(device), binary(device)], [1, None])   # one operation, so it must be the stuck one
    with pytest.raises(WaitTimeoutError, match="pending first: wait"):
        batch.synchronize(timeout_s=0)


def test_no_wait_is_singled_out_when_nothing_is_known(blind: Opened) -> None:
    device, _ = blind
    sem = imported(device, "frames")
    commands = frames(device, sem)
    with pytest.raises(WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0)
    message, (cause,) = caught.value.message, caught.value.likely_causes
    assert "one of 20 operations is stuck, and blind:0 cannot tell which" in message
    assert "pending first" not in message
    for part in ("the first is wait timeline_semaphore_fd 'frames' >= 1", "the last wait is wait", ">= 19"):
        assert part in message
    assert cause.endswith("by: the exporter, or another importer of its handle")
    commands = device.create_command_list()   # the work may be done, and the wait behind it stuck
    commands.append_work(lambda: None)
    commands.append_wait(sem, 100)
    with pytest.raises(WaitTimeoutError, match="one of 2 operations is stuck"):
        commands.synchronize(timeout_s=0)
    alone = frames(device, timeline(device))
    with pytest.raises(WaitTimeoutError, match="append the signal first"):
        alone.synchronize(timeout_s=0)


def test_reached_markers_prove_operations_done(blind: Opened) -> None:
    device, driver = blind
    sem = timeline(device)
    commands = frames(device, sem, 2)
    device.pending()   # a marker
    commands.append_wait(sem, 5)
    event = device.create_event()
    commands.append_signal(sem, 6, signal_event=event)
    driver.lists[0].fences[0].reached = True
    with pytest.raises(WaitTimeoutError, match=r"pending first: wait .* >= 5") as caught:
        event.wait(timeout_s=0)
    assert short(caught.value.pending) == [("wait", 5), ("signal", 6)]


# ---- possible signallers
def signallers(device: xsem.Device) -> list[tuple[str, ...]]:
    return [op.possible_signallers for op in device.pending() if op.operation == "wait"]


def test_unexported_semaphore_has_no_possible_signaller(exporting: Opened) -> None:
    device, _ = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    assert signallers(device) == [()]
    with pytest.raises(WaitTimeoutError, match="no known signaller for"):
        commands.synchronize(timeout_s=0)


def test_signal_behind_its_own_wait_is_named_as_such(exporting: Opened) -> None:
    device, _ = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    commands.append_signal(sem, 1)
    assert signallers(device) == [("fake:0/list-1 (signal of 1 behind this very wait)",)]
    with pytest.raises(WaitTimeoutError, match="append the signal first"):
        commands.synchronize(timeout_s=0)


def test_signal_pending_on_another_list_is_named(exporting: Opened) -> None:
    device, _ = exporting
    commands, other, sem, mark = device.create_command_list(), device.create_command_list(), timeline(device), None
    other.append_signal(sem, 3)
    other.append_signal(sem, 8)
    commands.append_wait(sem, 7)
    commands.append_wait(sem, 9)
    assert signallers(device) == [("fake:0/list-2 (signal of 8 pending)",), ()]
    mark = binary(device)
    other.append_signal(mark)
    commands.append_wait(mark)
    assert signallers(device)[-1] == ("fake:0/list-2 (signal pending)",)


def test_signal_before_the_wait_on_its_own_list_is_pending(exporting: Opened) -> None:
    device, _ = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_work(lambda: None)
    commands.append_signal(sem, 1)
    commands.append_wait(sem, 1)
    assert signallers(device) == [("fake:0/list-1 (signal of 1 pending)",)]


def test_signallers_are_data_and_their_text_is_made_from_it(exporting: Opened) -> None:
    device, _ = exporting
    commands, other = device.create_command_list(), device.create_command_list()
    sem, mark, theirs = timeline(device), binary(device), imported(device, "theirs")
    sem.export().close()
    other.append_signal(sem, 8)
    commands.append_wait(sem, 7)
    commands.append_signal(sem, 9)
    commands.append_wait(mark)
    commands.append_signal(mark)
    commands.append_wait(theirs, 1)
    of_list = partial(Signaller, kind="list")
    assert [set(op.signallers) for op in device.pending() if op.operation == "wait"] == [
        {of_list(command_list="fake:0/list-2", value=8), Signaller(kind="importer"),
         of_list(command_list="fake:0/list-1", value=9, behind=True)},
        {of_list(command_list="fake:0/list-1", behind=True)},
        {Signaller(kind="exporter")},
    ]
    assert all(op.possible_signallers == tuple(map(str, op.signallers)) for op in device.pending())
    assert all(op.signallers == () for op in device.pending() if op.operation == "signal")


def test_first_of_many_signals_is_the_one_named(exporting: Opened) -> None:
    device, _ = exporting
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)
    for value in range(1, 200):
        other.append_signal(sem, value)
    other.append_signal(sem, SignalParams(value=3, allow_rewind=True))
    commands.append_wait(sem, 100)
    assert signallers(device) == [("fake:0/list-2 (signal of 100 pending)",)]


def test_exporter_of_an_imported_semaphore_is_named(exporting: Opened) -> None:
    device, _ = exporting
    commands, sem = device.create_command_list(), imported(device, "theirs")
    commands.append_wait(sem, 1)
    assert signallers(device) == [("the exporter, or another importer of its handle",)]
    assert device.pending()[0].last_signalled_here is None
    with pytest.raises(WaitTimeoutError, match=r"last signalled here nothing.*has not been submitted"):
        commands.synchronize(timeout_s=0)


def test_importer_of_an_exported_semaphore_is_named(exporting: Opened) -> None:
    device, _ = exporting
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    assert signallers(device) == [()]
    sem.export().close()
    assert signallers(device) == [("an importer of the exported handle",)]


def test_signaller_that_stopped_short_is_named(exporting: Opened) -> None:
    device, driver = exporting
    commands, sem = device.create_command_list(), imported(device)
    commands.append_wait(sem, 7)
    at(driver, sem, 5)
    with pytest.raises(WaitTimeoutError, match="the signaller stopped at 5, or counts differently"):
        commands.synchronize(timeout_s=0)


def test_causes_of_the_driver_need_a_pending_wait(exporting: Opened) -> None:
    device, driver = exporting
    driver.timeout_causes = ("the moon is full",)
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_barrier()
    with pytest.raises(WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0)
    assert "the moon is full" not in caught.value.likely_causes
    commands = device.create_command_list()
    commands.append_wait(sem, 1)
    waits: list[Callable[[], object]] = [partial(commands.synchronize, timeout_s=0),
                                         partial(sem.host_wait, 1, timeout_s=0)]
    for wait in waits:
        with pytest.raises(WaitTimeoutError, match="the moon is full") as caught:
            wait()
        assert caught.value.likely_causes[-1] == "the moon is full"


@pytest.mark.parametrize(("count", "said"), [(1, "a waiting list or stream stops all others of "),
                                             (8, "8 waiting lists or streams stop all others of ")])
def test_list_without_a_wait_names_the_waits_of_other_lists(count: int, said: str) -> None:
    with fake(dataclasses.replace(ALL, independent_lists=count)) as (device, _):
        commands, sem = device.create_command_list(), timeline(device)
        commands.append_barrier()
        with pytest.raises(WaitTimeoutError) as caught:
            commands.synchronize(timeout_s=0)
        assert caught.value.likely_causes[-1].startswith(said)
        commands = device.create_command_list()
        commands.append_wait(sem, 1)
        with pytest.raises(WaitTimeoutError) as caught:
            commands.synchronize(timeout_s=0)
        assert said not in str(caught.value)


def test_wait_of_a_device_that_needs_the_signal_first_names_the_rule() -> None:
    device, driver = open_fake(dataclasses.replace(ALL, wait_before_signal=frozenset()))
    driver.export_semaphore = lambda _: new_handle()  # type: ignore[assignment,method-assign]
    with device:
        commands, other = device.create_command_list(), device.create_command_list()
        sem = device.create_semaphore(SemaphoreHandleType.OPAQUE_FD, label="drawn")
        sem.export().close()   # an importer could signal it, so the wait is not refused
        commands.append_wait(sem)
        other.append_signal(sem)
        assert [op.signal_first for op in device.pending()] == [True, False]
        with pytest.raises(WaitTimeoutError) as caught:
            commands.synchronize(timeout_s=0)
        assert "opaque_fd 'drawn': this device takes a wait" in caught.value.likely_causes[0]
        assert "append the signal first" in caught.value.likely_causes[0]
        assert not any("not been submitted" in cause for cause in caught.value.likely_causes)
        for each in driver.lists:
            each.reach_all()


@pytest.mark.parametrize("kind", [SemaphoreHandleType.OPAQUE_FD, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD])
def test_rule_is_not_named_where_it_does_not_apply(exporting: Opened, kind: SemaphoreHandleType) -> None:
    device, _ = exporting
    commands, sem = device.create_command_list(), device.create_semaphore(kind)
    commands.append_wait(sem, 1 if kind is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD else None)
    assert [op.signal_first for op in device.pending()] == [False]
    with pytest.raises(WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0)
    assert not any("wait_before_signal" in cause for cause in caught.value.likely_causes)


# ---- threads and release
def test_pending_may_be_asked_while_others_append_and_release(exporting: Opened) -> None:
    device, driver = exporting
    driver.everything_is_done = True
    stop, errors = threading.Event(), []

    def append() -> None:
        try:
            while not stop.is_set():
                with device.create_command_list() as commands, timeline(device) as sem:
                    for value in range(1, 50):
                        commands.append_signal(sem, value)
                        commands.append_wait(sem, value)
        except BaseException as error:
            errors.append(error)

    each = [threading.Thread(target=append) for _ in range(3)]
    for thread in each:
        thread.start()
    deadline = time.monotonic() + 0.5
    asked = 0
    while time.monotonic() < deadline:
        device.pending()
        asked += 1
    stop.set()
    for thread in each:
        thread.join(20)
    assert errors == []
    assert asked > 1


def test_report_of_a_released_device_is_empty(exporting: Opened) -> None:
    from xsem.runtime.diagnostics.pending_operations import device_pending

    device, driver = exporting
    commands = device.create_command_list()
    commands.append_barrier()
    device.release()
    assert device_pending(device._queues) == ()
    assert driver.misuse == []


def test_value_that_fell_is_named(exporting: Opened) -> None:
    device, driver = exporting
    sem, first, second = timeline(device), device.create_command_list(), device.create_command_list()
    signalled = device.create_event()
    first.append_signal(sem, 4)
    second.append_signal(sem, 5, signal_event=signalled)
    with pytest.raises(WaitTimeoutError) as caught:
        sem.host_wait(5, timeout_s=0)
    assert "was done after" not in str(caught.value)   # both are pending
    assert not first.query()
    driver.lists[0].reach_all()
    driver.lists[1].reach_all()
    at(driver, sem, 4)
    assert first.query()
    assert signalled.query()
    second.append_wait(sem, 5)
    with pytest.raises(WaitTimeoutError, match="a signal of 4 was done after one of 5"):
        sem.host_wait(5, timeout_s=0)
    with pytest.raises(WaitTimeoutError, match="a signal of 4 was done after one of 5"):
        second.synchronize(timeout_s=0)
