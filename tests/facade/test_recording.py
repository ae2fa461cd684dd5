"""Recordings: made once, replayed with new values, and not counted as work in flight."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeList, binary, fake, hold_next, timeline
from support.fixtures import Opened
from support.waiting import until

import xsem
import xsem.facade.device
import xsem.facade.recording
from xsem import spi
from xsem.errors import (
    BackendUnavailableError,
    BadArgumentError,
    BusyError,
    DriverError,
    ReleasedError,
    UnsupportedError,
    WaitTimeoutError,
    WouldBlockError,
    WrongDeviceError,
)
from xsem.types import Capabilities, DeviceInfo, Feature, SignalParams

RECORDS = dataclasses.replace(ALL, features=ALL.features | {Feature.RECORDING})


class RecordingList(FakeList, spi.RecordingQueue):
    """A list that records: `open` holds the operations appended meanwhile, and `calls` does not."""

    def __init__(self, driver: FakeDriver, key: int) -> None:
        super().__init__(driver, key)
        self.open: list[tuple[Any, ...]] | None = None
        self.replays: list[tuple[Any, Any]] = []
        self.forgotten: list[Any] = []
        self.fail_end: Exception | None = None

    def begin_recording(self) -> None:
        assert self.open is None
        self.open = []

    def end_recording(self) -> Any:
        made, self.open = self.open, None
        if self.closed:
            self.driver.complain("end_recording on a closed list")
        if self.fail_end is not None:
            raise self.fail_end
        return made

    def _issue(self, want: bool, *call: Any) -> Any:
        if self.open is None:
            return super()._issue(want, *call)
        self.open.append(call)
        return super()._issue(want, "recorded") if want else None

    def replay(self, recording: Any, values: Any) -> None:
        self._issue(False, "replay")
        self.replays.append((recording, list(values)))

    def release_recording(self, recording: Any) -> None:
        if self.inside:
            self.driver.complain("release_recording in the midst of an append")
        if self.closed:
            self.driver.complain("release_recording on a closed list")
        self.forgotten.append(recording)


class RecordingDriver(FakeDriver):
    def create_queue(self) -> FakeList:
        self._own("create_command_list")
        self.lists.append(RecordingList(self, 0x1000 + len(self.lists)))
        return self.lists[-1]


@pytest.fixture
def recording_fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    yield from recording_fakes(monkeypatch, RECORDS)


def recording_fakes(
    monkeypatch: pytest.MonkeyPatch, capabilities: Capabilities, info: DeviceInfo = INFO
) -> Iterator[Opened]:
    from support import fake_backend

    monkeypatch.setattr(fake_backend, "FakeDriver", RecordingDriver)
    with fake(capabilities, info) as (device, driver):
        yield device, driver


def first(driver: FakeDriver) -> RecordingList:
    made = driver.lists[0]
    assert isinstance(made, RecordingList)
    return made


def test_recording_needs_the_feature() -> None:
    with fake() as (device, _):
        commands = device.create_command_list()
        with pytest.raises(UnsupportedError) as caught:
            commands.record()
        assert caught.value.capability == "recording"


def test_list_without_the_declared_recording_is_refused() -> None:
    driver = FakeDriver(RECORDS)   # its lists implement no call of recordings
    with xsem.facade.device.Device(INFO, driver) as device, pytest.raises(BackendUnavailableError) as caught:
        device.create_command_list()
    assert caught.value.reason == "broken_promise"
    assert "RecordingQueue" in str(caught.value)
    until(lambda: ("close",) in driver.log)


def test_recorded_work_runs_when_it_is_replayed(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    with commands.record() as recording:
        commands.append_wait(sem, 1)
        commands.append_signal(sem, 2)
    assert driver.lists[0].calls == []
    assert device.pending() == ()
    recording.replay()
    recording.replay({sem: (3, 4)})
    recording.replay({sem: 6})
    token = sem._state.token
    assert [values for _, values in first(driver).replays] == [[], [(token, 3, 4)], [(token, 6, 6)]]
    assert [call[0] for call in first(driver).replays[0][0]] == ["wait", "signal"]
    assert [op.operation for op in device.pending()] == ["work"] * 3
    assert not commands.query()
    driver.lists[0].reach_all()
    assert commands.query()


def test_replay_updates_the_values_it_signals(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem, waited = device.create_command_list(), timeline(device), timeline(device)
    with commands.record() as recording:
        commands.append_wait(waited, 1)
        commands.append_signal(sem, 5)
    assert sem._state.last == 0   # nothing ran
    recording.replay()
    assert sem._state.last == 5
    for again in (None, {sem: 5}, {sem: (9, 4)}):
        with pytest.raises(BadArgumentError) as caught:
            recording.replay(again)
        assert caught.value.reason == "value_not_above_last"
    recording.replay({sem: 7, waited: 1})
    recording.replay({sem: 8, waited: 1})   # a value that is only waited for may repeat
    assert sem._state.last == 8
    assert waited._state.last == 0
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with pytest.raises(DriverError) as failure:
        recording.replay({sem: 9})
    assert failure.value.backend == "fake"
    assert sem._state.last == 8


def test_replay_may_rewind_when_the_recording_allows_it(recording_fake: Opened) -> None:
    device, _ = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    with commands.record() as recording:
        commands.append_signal(sem, SignalParams(value=5, allow_rewind=True))
    recording.replay()
    recording.replay()
    with pytest.raises(BadArgumentError) as caught:
        recording.replay({sem: 4})   # a value given to the replay
    assert caught.value.reason == "value_not_above_last"


def test_bad_values_of_a_replay_are_refused(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem, mark = device.create_command_list(), timeline(device), binary(device)
    with commands.record() as recording:
        commands.append_signal(sem, 5)
    released = timeline(device)
    released.release()
    cases: list[tuple[Any, str]] = [
        ({mark: 1}, "not_a_timeline"), ({sem: True}, "not_an_int"), ({sem: 1.0}, "not_an_int"),
        ({sem: (1, None)}, "not_an_int"), ({sem: (1, 2, 3)}, "not_an_int"), ({sem: -1}, "value_out_of_range"),
        ({sem: (1, 2**64)}, "value_out_of_range"), ({"sem": 1}, "not_a_semaphore"),
        ([1], "not_a_semaphore"), (5, "not_a_semaphore"), ([], "not_a_semaphore"),
    ]
    for values, reason in cases:
        with pytest.raises(BadArgumentError) as caught:
            recording.replay(values)
        assert caught.value.reason == reason
    with pytest.raises(ReleasedError):
        recording.replay({released: 1})
    with fake() as (other, _), pytest.raises(WrongDeviceError):
        recording.replay({timeline(other): 1})
    assert first(driver).replays == []


def test_recording_is_made_once_and_one_at_a_time(recording_fake: Opened) -> None:
    device, _ = recording_fake
    commands = device.create_command_list()
    recording, second = commands.record(), commands.record()
    with pytest.raises(BusyError) as caught:
        recording.replay()
    assert caught.value.reason == "recording"
    with recording:
        with pytest.raises(BusyError), second:
            raise AssertionError("entered")
        with pytest.raises(BusyError):
            recording.replay()
        commands.append_barrier()
    with pytest.raises(BusyError), recording:
        raise AssertionError("entered")
    with second:
        pass
    recording.replay()
    second.replay()


def test_no_marker_of_xsems_gets_into_a_recording(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    with commands.record() as recording:
        for value in range(1, 600):
            commands.append_signal(sem, value)
        for ask in (commands.query, lambda: commands.synchronize(timeout_s=5)):
            with pytest.raises(BusyError) as caught:
                ask()
            assert caught.value.reason == "capturing"
        device.pending()
    recording.replay()
    assert {call[0] for call in first(driver).replays[0][0]} == {"signal"}
    assert not commands.query()


def test_event_of_recorded_work_is_not_asked(recording_fake: Opened) -> None:
    device, _ = recording_fake
    commands, event = device.create_command_list(), device.create_event()
    with commands.record():
        commands.append_barrier(signal_event=event)
    with pytest.raises(BusyError) as caught:
        event.query()
    assert caught.value.reason == "capturing"


def test_objects_of_a_recording_live_with_it(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    with commands.record() as recording:
        commands.append_signal(sem, 1)
    sem.release()
    driver.finish()
    recording.replay()
    assert commands.query()
    other = timeline(device)
    other.release()   # by its end the releasing thread would also have freed the first semaphore
    until(lambda: driver.released("release_semaphore"))
    assert driver.released("release_semaphore") == [other._state.token]
    driver.log.clear()
    recording.release()
    until(lambda: driver.released("release_semaphore"))
    assert first(driver).forgotten   # before its semaphore


def has_no_operations(recording: xsem.Recording) -> bool:
    return recording._appends.operations == []


@pytest.mark.parametrize("operation", ["append_wait", "append_signal"])
@pytest.mark.parametrize("count", [1, 2])
def test_recordings_leave_nothing_in_their_semaphores(recording_fake: Opened, operation: str, count: int) -> None:
    device, driver = recording_fake
    driver.everything_is_done = True
    commands, sems = device.create_command_list(), [timeline(device) for _ in range(count)]
    used = sems[0] if count == 1 else sems
    for value in range(1, 41):
        with commands.record() as recording:
            getattr(commands, operation)(used, value if count == 1 else [value] * count)
        recording.replay(dict.fromkeys(sems, value))
        commands.synchronize(timeout_s=10)
        assert len(recording._appends.operations) == 1
        recording.release()
        until(functools.partial(has_no_operations, recording))   # the application may keep a released recording
    assert [list(each._state.lifetime.uses) for each in sems] == [[commands._queue]] * count


def test_objects_of_a_failed_recording_are_freed(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    driver.finish()
    recording = commands.record()
    first(driver).fail_end = DriverError("no", reason="driver")
    with pytest.raises(DriverError) as caught, recording:
        commands.append_signal(sem, 1)
    assert caught.value.backend == "fake"
    sem.release()
    assert driver.released("release_semaphore") == []
    recording.release()
    until(lambda: driver.released("release_semaphore"))


def test_failed_append_in_a_recording_does_not_keep_its_objects(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    driver.finish()
    with commands.record() as recording:
        first(driver).open = None   # the driver treats it as an ordinary append
        first(driver).fail_next = DriverError("no", reason="driver")
        with pytest.raises(DriverError):
            commands.append_signal(sem, 1)
        first(driver).open = []
    sem.release()
    recording.release()
    until(lambda: driver.released("release_semaphore"))


def test_released_device_frees_recordings_before_their_objects(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    with commands.record():
        commands.append_signal(sem, 1)
    driver.finish()
    device.release()
    until(lambda: ("close",) in driver.log)
    assert len(first(driver).forgotten) == 1
    assert len(driver.released("release_semaphore")) == 1


def test_error_of_the_block_is_raised_when_ending_fails(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands = device.create_command_list()
    recording = commands.record()
    first(driver).fail_end = DriverError("no", reason="driver")
    with pytest.raises(ZeroDivisionError), recording:
        raise ZeroDivisionError
    assert recording.released
    commands.append_barrier()


def test_value_for_an_unrecorded_semaphore_is_refused(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem, other = device.create_command_list(), timeline(device), timeline(device)
    with commands.record() as recording:
        commands.append_signal(sem, 1)
    with pytest.raises(BadArgumentError) as caught:
        recording.replay({sem: 2, other: 2})
    assert caught.value.reason == "not_recorded"
    assert first(driver).replays == []
    assert sem._state.last == 0


def test_pending_replay_names_its_wait_and_its_signallers(recording_fake: Opened) -> None:
    device, _ = recording_fake
    waiter, signaller = device.create_command_list(), device.create_command_list()
    drawn, filtered = timeline(device, "drawn"), timeline(device, "filtered")
    with waiter.record() as waiting:
        waiter.append_wait(drawn, 1)
        waiter.append_signal(filtered, 1)
    with signaller.record() as signalling:
        signaller.append_wait(filtered, 1)
        signaller.append_signal(drawn, 1)
    waiting.replay({drawn: 5})
    signalling.replay({drawn: (0, 6)})
    first_op, second_op = device.pending()
    assert (first_op.operation, first_op.semaphore, first_op.value) == ("work", drawn._state.described, 5)
    assert first_op.possible_signallers == (f"{signaller._queue.name} (signal of 6 pending)",)
    assert second_op.possible_signallers == (f"{waiter._queue.name} (signal of 1 pending)",)
    with pytest.raises(WaitTimeoutError) as caught:
        waiter.synchronize(timeout_s=0.01)
    assert "'drawn' >= 5" in str(caught.value)
    assert "its signal has not been submitted" in str(caught.value)


def test_signal_behind_a_waiting_replay_does_not_count_as_done(recording_fake: Opened) -> None:
    """Another signaller may have set the timeline's value, which does not prove the replay before it done."""
    device, driver = recording_fake
    commands, gate, sem = device.create_command_list(), binary(device), timeline(device)
    with commands.record() as recording:
        commands.append_wait(gate)
    recording.replay()
    commands.append_signal(sem, 1)
    driver.values[sem._state.token] = 2
    assert [op.operation for op in device.pending()] == ["work", "signal"]


def test_recording_is_forgotten_when_its_replays_are_done(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands = device.create_command_list()
    with commands.record() as recording:
        commands.append_barrier()
    recording.replay()
    recording.release()
    recording.release()
    with pytest.raises(ReleasedError):
        recording.replay()
    until(lambda: driver.lists[0].markers == 1)
    assert first(driver).forgotten == []
    driver.lists[0].reach_all()
    until(lambda: len(first(driver).forgotten) == 1)


def test_recording_is_forgotten_before_its_list_is_closed(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands = device.create_command_list()
    with commands.record() as recording:
        commands.append_barrier()
    recording.replay()
    commands.release()
    driver.finish()
    device.pending()
    assert not driver.lists[0].closed   # the recording holds it
    recording.release()
    until(lambda: driver.lists[0].closed)
    assert len(first(driver).forgotten) == 1


@pytest.mark.parametrize("release_never_blocks", [False, True])
def test_recording_is_forgotten_between_the_appends_of_others(
    monkeypatch: pytest.MonkeyPatch, release_never_blocks: bool
) -> None:
    capabilities = dataclasses.replace(RECORDS, release_never_blocks=release_never_blocks)
    for device, driver in recording_fakes(monkeypatch, capabilities):
        commands = device.create_command_list()
        with commands.record() as recording:
            commands.append_barrier()
        inside, leave = hold_next(driver.lists[0])
        appender = threading.Thread(target=commands.append_barrier)
        appender.start()
        assert inside.wait(10)
        recording.release()   # returns at once
        assert first(driver).forgotten == []
        leave.set()
        appender.join(10)
        driver.finish()
        forgotten = first(driver).forgotten
        until(lambda forgotten=forgotten: len(forgotten) == 1)  # type: ignore[misc]
        assert driver.misuse == []


def test_block_that_raises_releases_the_recording(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands, sem = device.create_command_list(), timeline(device)
    recording = commands.record()
    with pytest.raises(ZeroDivisionError), recording:
        commands.append_signal(sem, 1)
        raise ZeroDivisionError
    assert recording.released
    until(lambda: first(driver).forgotten)
    commands.append_signal(sem, 1)   # the list works again
    assert len(driver.lists[0].calls) == 1


def test_recording_that_cannot_be_ended_leaves_the_list_usable(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands = device.create_command_list()
    recording = commands.record()
    first(driver).fail_end = DriverError("no", reason="driver")
    with pytest.raises(DriverError), recording:
        commands.append_barrier()
    with pytest.raises(BusyError):
        recording.replay()
    commands.append_barrier()
    assert not commands._queue.state.recording


@pytest.mark.parametrize("what", ["list", "device"])
def test_release_inside_the_block_waits_for_its_end(recording_fake: Opened, what: str) -> None:
    device, driver = recording_fake
    commands = device.create_command_list()
    driver.finish()
    with commands.record():
        commands.append_barrier()
        (commands if what == "list" else device).release()
        for _ in range(20):   # the releasing thread looks several times
            device.releasing()
            time.sleep(0.005)
        assert not driver.lists[0].closed
    until(lambda: driver.lists[0].closed or what == "list")
    assert driver.misuse == []


def test_replay_with_waits_counts_as_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for device, _driver in recording_fakes(monkeypatch, dataclasses.replace(RECORDS, max_pending=10)):
        commands, sem = device.create_command_list(), timeline(device)
        with commands.record() as waiting:
            commands.append_wait(sem, 1)
        with commands.record() as working:
            commands.append_barrier()
        for _ in range(30):
            working.replay()
        with pytest.raises(WouldBlockError):
            for _ in range(30):
                waiting.replay()


def test_stopped_list_replays_nothing(recording_fake: Opened) -> None:
    device, driver = recording_fake
    commands = device.create_command_list()
    with commands.record() as recording:
        commands.append_barrier()
    with pytest.raises(ZeroDivisionError):
        commands.append_work(lambda: 1 / 0)
    with pytest.raises(DriverError) as caught:
        recording.replay()
    assert caught.value.reason == "work_failed"
    with pytest.raises(DriverError), commands.record():
        raise AssertionError("entered")
    assert first(driver).replays == []


def test_release_completes_an_interrupted_end_of_a_recording(
    recording_fake: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, the list is recording: the driver may still record, so an append would be lost."""
    device, driver = recording_fake
    commands = device.create_command_list()
    recording: Any = None

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(first(driver), "end_recording", interrupt)
        patched.setattr(xsem.facade.recording.Recording, "release", lambda self: None)
        with pytest.raises(KeyboardInterrupt), commands.record() as recording:
            commands.append_barrier()
        with pytest.raises(BusyError) as caught:
            commands.synchronize(timeout_s=1)
        assert caught.value.reason == "capturing"
    recording.release()
    until(lambda: commands._queue.state.recording is None)
    driver.everything_is_done = True
    commands.append_barrier()
    commands.synchronize(timeout_s=10)
