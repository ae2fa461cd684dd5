"""Quick appends: the compiled part makes the driver's call, and everything else is as in Python."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.at_once import in_thread
from support.fake_backend import ALL, batch, binary, last_of, timeline
from support.forked import in_child
from support.native_lists import (
    CALLS,
    STRIDE,
    NativeDriver,
    Prepared,
    Scene,
    blocking_signals,
    finalizer_inside,
    native,
    refusal,
)
from support.waiting import until

import xsem
from xsem import spi
from xsem.errors import BusyError, DriverError, ReleasedError, WouldBlockError, XsemError
from xsem.runtime.queues.room import MARK_EVERY
from xsem.runtime.quick import QuickAppend
from xsem.types import Feature, SignalParams

pytestmark = pytest.mark.skipif(not spi.compiled(), reason="xsem is not compiled here")


@pytest.fixture
def opened() -> Iterator[tuple[xsem.Device, NativeDriver]]:
    with native() as (device, driver):
        yield device, driver


@pytest.fixture(params=CALLS)
def scene(request: pytest.FixtureRequest, opened: tuple[xsem.Device, NativeDriver]) -> Scene:
    return Scene(*opened, request.param)


@pytest.fixture
def signals(opened: tuple[xsem.Device, NativeDriver]) -> Scene:
    return Scene(*opened)


# ---- appended operations
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", [3, 2**30, 2**32, 2**63, 2**64 - 1])
def test_value_is_written_and_the_operation_noted(
    opened: tuple[xsem.Device, NativeDriver], call: str, value: int
) -> None:
    scene = Scene(*opened, call)
    scene.append(value)
    assert scene.list.quick == 1
    assert scene.values() == [(1,), (2,), (value,)]
    assert [op.value for op in scene.device.pending()] == [1, 2, value]
    assert [(op.seq, op.operation) for op in scene.queue.pending()][2] == (3, call.removeprefix("append_"))
    assert last_of(scene.sems) == [value if call == "append_signal" else 0]
    assert scene.sems[0]._lifetime.uses[scene.queue] == scene.queue.lifetime.uses[scene.queue] == 3
    assert scene.queue.state.issued == scene.queue.last_seq == 3


@pytest.mark.parametrize("call", CALLS)
def test_values_of_a_batch_are_written_at_their_places(
    opened: tuple[xsem.Device, NativeDriver], call: str
) -> None:
    scene = Scene(*opened, call, count=3)
    values = [3, 2**64 - 1, 5]
    scene.append(values)
    values[:] = [97, 98, 99]   # the application may reuse its list
    scene.sems.pop(1)
    assert [op.value for op in scene.device.pending()][6:] == [3, 2**64 - 1, 5]
    getattr(scene.commands, call)(tuple(scene.sems), (6, 7))
    assert scene.list.quick == 1   # another batch
    assert scene.values() == [(1, 1, 1), (2, 2, 2), (3, 2**64 - 1, 5), (6, 7)]


def test_only_the_values_are_written(signals: Scene) -> None:
    signals.append(3)
    prepared = signals.commands._queue.prepared.signals[signals.sems[0]._state]._repeat
    assert isinstance(prepared, Prepared)
    assert prepared.values == (3).to_bytes(8, sys.byteorder) + b"\x77" * (STRIDE - 8)


def test_binary_semaphore_is_appended_without_a_value(opened: tuple[xsem.Device, NativeDriver]) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), binary(device)
    for _ in range(4):
        commands.append_signal(sem)
    assert driver.lists[0].quick == 2
    assert len(device.pending()) == 4
    assert refusal(lambda: commands.append_signal(sem, 1))[1] == "value_not_allowed"


def test_signals_of_two_lists_keep_one_order(signals: Scene) -> None:
    other = Scene(signals.device, signals.driver)
    other.sems = signals.sems
    for value in (3, 4, 5):
        other.append(value)
    signals.append(6)
    before = signals.unchanged()
    refusal(lambda: other.append(6))
    assert signals.unchanged() == before
    assert (signals.list.quick, other.list.quick) == (1, 1)


def test_other_threads_run_during_the_call(signals: Scene) -> None:
    unblock = blocking_signals(signals.list)
    signals.sems = batch(signals.device, 1)
    for value in (1, 2):
        signals.append(value)
    inside: list[bool] = []

    def other() -> None:
        until(lambda: not signals.queue.lock.acquire(blocking=False) or signals.queue.lock.release())
        inside.append(signals.queue.state.issuing)
        unblock()

    thread = threading.Thread(target=other)
    thread.start()
    signals.append(3)
    thread.join()
    assert inside == [True]
    assert signals.queue.state.issued == 5


# ---- refusals
NOT_VALUES = [True, -1, 2**64, 7.0, "7", None, np.bool_(True), 10**40]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("call", "value"), [
    *[("append_signal", each) for each in (2, 1, 0, *NOT_VALUES)], *[("append_wait", each) for each in NOT_VALUES]],
    ids=repr)
def test_parameter_is_treated_as_in_python(
    opened: tuple[xsem.Device, NativeDriver], call: str, value: Any, count: int
) -> None:
    scene = Scene(*opened, call, count=count)
    before = scene.unchanged()
    python = scene.device.create_command_list()   # it has nothing prepared
    params = value if count == 1 else [value, 9]
    used: Any = scene.sems[0] if count == 1 else scene.sems
    told = refusal(lambda: getattr(python, call)(used, params))
    assert refusal(lambda: scene.append(params)) == told
    assert scene.unchanged() == before
    scene.append(3 if count == 1 else [3, 3])
    assert scene.list.quick == 1


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("value", [np.int64(7), np.uint64(2**64 - 1)], ids=repr)
def test_int_of_numpy_is_appended_as_an_int(
    opened: tuple[xsem.Device, NativeDriver], value: Any, count: int
) -> None:
    scene = Scene(*opened, count=count)
    scene.append(value if count == 1 else [value, 9])
    assert last_of(scene.sems) == [int(value), 9][:count]
    assert type(scene.sems[0]._state.last) is int


@pytest.mark.parametrize("values", [[3], [3, 3, 3], [], (), 3, None, {3, 4}, [3, None], [3, 2], [[3], 3]],
                         ids=repr)
def test_parameters_of_a_batch_are_treated_as_in_python(
    opened: tuple[xsem.Device, NativeDriver], values: Any
) -> None:
    scene = Scene(*opened, count=2)
    before, python = scene.unchanged(), scene.device.create_command_list()
    told = refusal(lambda: python.append_signal(scene.sems, values))
    assert refusal(lambda: scene.commands.append_signal(scene.sems, values)) == told
    assert scene.unchanged() == before


def test_call_is_repeated_until_it_succeeds(scene: Scene) -> None:
    scene.list.codes = [5, 7]
    scene.append(3)
    assert (scene.list.failures, scene.list.quick) == ([5, 7], 3)
    assert scene.values() == [(1,), (2,), (3,)]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("call", CALLS)
def test_failure_after_repetitions_undoes_everything(
    opened: tuple[xsem.Device, NativeDriver], call: str, count: int
) -> None:
    scene = Scene(*opened, call, count=count)
    before = scene.unchanged()
    scene.list.codes = [5, 7, -3]
    with pytest.raises(DriverError):
        scene.append(9)
    assert scene.list.failures == [5, 7, -3]
    assert scene.unchanged() == before
    scene.append(3)
    assert scene.values() == [(each,) * count for each in (1, 2, 3)]


def test_failed_append_leaves_an_idle_list_idle(scene: Scene) -> None:
    scene.driver.finish()
    scene.commands.synchronize(timeout_s=10)
    scene.list.codes = [-3]
    with pytest.raises(DriverError):
        scene.append(9)
    assert scene.queue.done_seq == scene.queue.last_seq
    assert scene.device.pending() == ()


def test_interrupted_append_counts_as_appended(signals: Scene) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    signals.list.codes, signals.list.on_failure = [5], interrupt
    with pytest.raises(KeyboardInterrupt):
        signals.append(9)
    assert last_of(signals.sems) == [9]
    assert len(signals.device.pending()) == 3
    assert not signals.queue.lock._is_owned()
    assert not signals.queue.state.issuing


def test_append_inside_the_append_of_a_signal_comes_first(signals: Scene) -> None:
    """A signal handler can append between two calls of the driver. The signal is behind it, and done after it."""
    event = signals.device.create_event()
    signals.list.codes = [5]
    signals.list.on_failure = lambda: signals.commands.append_barrier(signal_event=event)
    signals.append(3)
    assert [op.operation for op in signals.queue.pending()] == ["signal", "signal", "barrier", "signal"]
    numbers = [op.seq for op in signals.queue.pending()]
    assert numbers == sorted(numbers)
    signals.list.reach_all()
    assert event.query()
    assert [op.value for op in signals.device.pending()] == [3]
    signals.sems[0].release()
    assert signals.driver.released("release_semaphore") == []


# ---- what an append must see
@pytest.mark.parametrize("what", ["semaphore", "list", "device"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_released_object_is_refused(
    opened: tuple[xsem.Device, NativeDriver], call: str, stream: bool, what: str
) -> None:
    scene = Scene(*opened, call, stream=stream)
    scene.append(3)
    {"semaphore": scene.sems[0], "list": scene.commands, "device": scene.device}[what].release()
    with pytest.raises(ReleasedError):
        scene.append(4)
    assert (scene.list.quick, scene.values()) == (1, [(1,), (2,), (3,)])


@pytest.mark.parametrize("number", range(16))
@pytest.mark.parametrize("call", CALLS)
def test_semaphore_released_inside_the_append_is_not_freed(
    opened: tuple[xsem.Device, NativeDriver], call: str, number: int
) -> None:
    scene = Scene(*opened, call, count=2)
    scene.driver.everything_is_done = True
    scene.commands.synchronize(timeout_s=10)
    token, freed = scene.sems[0]._state.token, list[bool]()
    releaser = scene.device._device_state.releaser

    def release() -> None:
        scene.sems[0].release()
        looks = releaser._rounds + 3
        until(lambda: not releaser._thread.running or releaser._rounds >= looks)

    scene.list.during = lambda: freed.append(token in scene.driver.released("release_semaphore"))
    with finalizer_inside(release, number, scene.queue.lock._is_owned), contextlib.suppress(ReleasedError):
        scene.append((3, 3))
    assert freed in ([], [False])


@pytest.mark.parametrize("number", range(16))
def test_value_signalled_inside_the_append_is_not_taken_back(signals: Scene, number: int) -> None:
    other = signals.device.create_command_list()

    def signal() -> None:
        other.append_signal(signals.sems[0], 9)

    with finalizer_inside(signal, number, signals.queue.lock._is_owned), contextlib.suppress(XsemError):
        signals.append(3)
    given = signals.driver.signalled
    assert given == sorted(given)
    assert last_of(signals.sems) == given[-1:]


@pytest.mark.parametrize("number", range(16))
@pytest.mark.parametrize("call", CALLS)
def test_list_of_values_is_changed_inside_the_append(
    opened: tuple[xsem.Device, NativeDriver], call: str, number: int
) -> None:
    scene = Scene(*opened, call, count=21)   # CPython reuses tuples of up to 20
    values: list[Any] = [*range(3, 24)]
    with finalizer_inside(lambda: operator.setitem(values, 1, "no"), number), contextlib.suppress(XsemError):
        scene.append(values)
    assert not scene.queue.lock._is_owned()
    assert scene.values()[2:] in ([], [tuple(range(3, 24))])
    assert len(scene.queue.pending()) == len(scene.values())


def test_append_to_a_recording_is_recorded() -> None:
    with native(dataclasses.replace(ALL, features=ALL.features | {Feature.RECORDING})) as (device, driver):
        scene = Scene(device, driver)
        with scene.commands.record() as recording:
            scene.append(3)
        assert (scene.list.quick, last_of(scene.sems)) == (0, [2])
        assert [op.params for op in recording._appends.operations] == [3]
        recording.replay({scene.sems[0]: 4})
        assert last_of(scene.sems) == [4]
        with pytest.raises(XsemError):
            scene.append(4)
        scene.append(5)
        assert scene.list.quick == 1


@pytest.mark.parametrize("call", CALLS)
def test_captured_stream_is_not_noted_as_pending(opened: tuple[xsem.Device, NativeDriver], call: str) -> None:
    scene = Scene(*opened, call, stream=True)
    assert scene.queue.state.exposed
    scene.append(3)
    assert scene.list.quick == 1
    scene.list.capture = True
    scene.append(4)
    assert scene.list.quick == 1
    assert [op.value for op in scene.device.pending()] == [1, 2, 3]
    assert scene.sems[0]._lifetime._pinned
    with pytest.raises(BusyError):
        scene.commands.synchronize(timeout_s=1)
    scene.list.capture = False
    scene.append(5)
    assert scene.list.quick == 2
    assert [op.value for op in scene.device.pending()] == [1, 2, 3, 5]


def test_capture_query_that_fails_leaves_the_append_to_python(opened: tuple[xsem.Device, NativeDriver]) -> None:
    scene = Scene(*opened, stream=True)
    scene.list.capture_code = 700
    scene.append(3)
    assert scene.list.quick == 0
    assert scene.values() == [(1,), (2,), (3,)]


def test_list_with_a_native_handle_is_queried_for_captures(signals: Scene) -> None:
    _ = signals.commands.native_handle
    signals.list.capture = True
    signals.append(3)
    signals.list.capture = False
    assert signals.list.quick == 0
    assert [op.value for op in signals.device.pending()] == [1, 2]


@pytest.mark.parametrize("which", ["list", "values"])
def test_append_waits_for_the_lock_of_another_thread(signals: Scene, which: str) -> None:
    lock = signals.queue.lock if which == "list" else signals.device._device_state.values_lock
    with lock:
        thread = threading.Thread(target=signals.append, args=(3,))
        thread.start()
        if which == "values":
            until(lambda: signals.queue.last_seq == 3)   # it has the lock of the list, and waits for this one
        thread.join(0.05)
        assert thread.is_alive()
        assert len(signals.values()) == 2
    thread.join()
    assert signals.values() == [(1,), (2,), (3,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork() is missing")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_child_of_a_fork_appends_nothing(scene: Scene) -> None:
    scene.append(3)

    def child() -> tuple[str, int]:
        try:
            scene.append(4)
        except XsemError as error:
            return error.reason, scene.list.quick
        return "", scene.list.quick

    assert in_child(child) == ("forked", 1)
    scene.append(4)
    assert scene.list.quick == 2


def test_full_queue_refuses_the_append() -> None:
    with native(dataclasses.replace(ALL, max_pending=10)) as (device, driver):
        scene = Scene(device, driver, "append_wait")
        with pytest.raises(WouldBlockError):
            for value in range(3, 40):
                scene.append(value)
        assert 4 <= len(scene.values()) < 10
        assert len(scene.list.calls) == 10
        assert scene.list.quick > 0
        driver.finish()
        scene.commands.synchronize(timeout_s=10)
        for value in range(40, 80):
            scene.append(value)
            assert len(scene.queue.pending()) <= 10


def test_wait_is_seen_by_releases(opened: tuple[xsem.Device, NativeDriver]) -> None:
    scene = Scene(*opened, "append_wait")
    scene.driver.finish()
    scene.commands.synchronize(timeout_s=10)
    scene.driver.everything_is_done = False
    assert not scene.queue.wait_in_flight
    scene.append(3)
    assert scene.list.quick == 1
    assert scene.queue.state.last_wait == 3
    assert scene.queue.wait_in_flight
    other = timeline(scene.device)
    other.release()   # freed only when the wait is met
    assert scene.driver.released("release_semaphore") == []
    scene.driver.finish()
    until(lambda: scene.driver.released("release_semaphore"))


def test_wait_lets_a_release_end_first(opened: tuple[xsem.Device, NativeDriver]) -> None:
    scene = Scene(*opened, "append_wait")
    scene.driver.finish()
    scene.commands.synchronize(timeout_s=10)
    inside, go, other = threading.Event(), threading.Event(), timeline(scene.device)

    def releasing() -> None:
        inside.set()
        assert go.wait(10)

    scene.driver.on_release = releasing
    other.release()
    assert inside.wait(10)
    thread = threading.Thread(target=scene.append, args=(3,))
    thread.start()
    until(lambda: scene.queue.last_seq == 3)   # the append has begun, and waits for the end of the release
    assert len(scene.values()) == 2
    go.set()
    thread.join()
    scene.driver.on_release = lambda: None
    assert scene.values() == [(1,), (2,), (3,)]


def test_wait_that_ended_processes_can_end_gets_markers(opened: tuple[xsem.Device, NativeDriver]) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), binary(device)
    for _ in range(3):
        commands.append_wait(sem)
    made = driver.lists[0]
    assert made.quick == 1
    sem._state.signallers.known = True
    commands.append_wait(sem)
    assert made.quick == 1
    assert [call[0] for call in made.calls] == ["wait"] * 3 + ["barrier", "wait", "barrier"]


def test_markers_bound_the_pending_operations(scene: Scene) -> None:
    for value in range(3, MARK_EVERY + 3):
        scene.append(value)
    assert scene.list.markers == 1
    scene.driver.everything_is_done = True
    scene.list.reach_all()
    for value in range(MARK_EVERY + 3, 10 * MARK_EVERY):
        scene.append(value)
        assert len(scene.queue.pending()) <= 2 * MARK_EVERY
    assert scene.list.quick > 9 * MARK_EVERY
    assert scene.list.markers <= 11


def test_callbacks_thread_that_the_system_refused_is_started(scene: Scene) -> None:
    thread = scene.device._device_state.callbacks_thread
    thread.stalled = True
    scene.append(3)
    assert not thread.stalled


def test_jobs_of_finalizers_are_done(scene: Scene) -> None:
    done: list[int] = []
    releaser = scene.device._device_state.releaser
    releaser.inbox.append(lambda: done.append(1))
    releaser.jobs = True
    scene.append(3)
    assert done == [1]


def test_marker_that_another_list_owes_is_appended(signals: Scene) -> None:
    other = signals.device.create_command_list()
    other.append_work(int)
    signals.device._device_state.owe_marker(other._queue)
    signals.append(3)
    assert signals.driver.lists[1].markers == 1


def test_failed_list_refuses_the_append(scene: Scene) -> None:
    assert not scene.commands.query()
    scene.list.fences[-1].error = DriverError("lost", reason="lost")
    scene.queue.poll()
    with pytest.raises(DriverError, match="lost"):
        scene.append(3)
    assert scene.list.quick == 0


def test_stopped_list_refuses_the_append(scene: Scene) -> None:
    with pytest.raises(ZeroDivisionError):
        scene.commands.append_work(lambda: 1 / 0)
    with pytest.raises(DriverError):
        scene.append(3)
    assert scene.list.quick == 0


def test_append_with_a_handover_or_a_rewind_takes_the_other_way(signals: Scene) -> None:
    memory = signals.device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
    signals.append(5, release=[memory])
    signals.append(SignalParams(value=1, allow_rewind=True))
    assert signals.list.quick == 0
    signals.append(2)
    assert signals.list.quick == 1


def test_signals_on_a_device_with_a_limited_difference_are_checked() -> None:
    with native(dataclasses.replace(ALL, max_value_difference=10)) as (device, driver):
        scene = Scene(device, driver)
        scene.append(9)
        assert scene.list.quick == 1
        scene.append(12)   # above the limit, so the difference decides
        assert refusal(lambda: scene.append(23))[1] == "value_difference"
        assert scene.list.quick == 1
        scene.append(22)
        assert scene.values()[-3:] == [(9,), (12,), (22,)]


def test_prepared_call_without_enough_room_for_its_values_is_refused(
    opened: tuple[xsem.Device, NativeDriver]
) -> None:
    scene = Scene(*opened)
    scene.append(3)
    prepared = scene.queue.prepared.signals[scene.sems[0]._state]
    good = prepared._repeat.native  # type: ignore[union-attr]
    for bad in (good._replace(values=bytearray(STRIDE - 1)), good._replace(stride=4, values=bytearray(4)),
                good._replace(arguments=(1,) * 5)):
        with pytest.raises(ValueError, match="four arguments"):
            QuickAppend(scene.queue.quick, prepared, bad)
    for offset in (-1, STRIDE - 7):
        with pytest.raises(ValueError, match="does not lie"):
            QuickAppend(scene.queue.quick, prepared, good._replace(offset=offset))


def test_semaphores_of_this_list_can_be_signalled_from_another_thread(signals: Scene) -> None:
    in_thread(lambda: signals.append(3))
    signals.append(4)
    assert signals.list.quick == 2
    assert signals.values() == [(1,), (2,), (3,), (4,)]
