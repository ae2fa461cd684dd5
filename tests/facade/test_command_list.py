"""Arguments of append_wait and append_signal: each rule, its error, and no change after a refusal."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakePoint, FakeStream, binary, fake, set_last, timeline, until
from support.fixtures import Opened, refused

import xsem
from xsem.errors import BadArgumentError, BusyError, DriverError, EventNotAppendedError, WrongDeviceError
from xsem.types import INFINITE, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType, SignalParams, WaitParams

S = SemaphoreHandleType
LEVEL_ZERO = dataclasses.replace(ALL, resets_on_wait=False)

Append = Callable[..., None]


@pytest.fixture(params=["append_wait", "append_signal"])
def append(request: pytest.FixtureRequest, opened: Opened) -> Append:
    commands = opened[0].create_command_list()
    appended: Append = getattr(commands, request.param)
    return appended


def semaphore(device: xsem.Device, type: S) -> xsem.Semaphore:
    return device.create_semaphore(type)


def calls(driver: FakeDriver) -> list[Any]:
    """The operations appended to all lists, without xsem's own markers."""
    return [
        call for each in driver.lists for call, own in zip(each.calls, each.quiet_calls, strict=True) if not own
    ]


def refused_unasked(
    driver: FakeDriver, reason: str, call: Callable[[], object], error: type[xsem.XsemError] = BadArgumentError
) -> xsem.XsemError:
    """Check that `call` raises before any driver call."""
    before = calls(driver)
    raised = refused(call, reason, error)
    assert calls(driver) == before
    return raised


# ---- calls that reach the driver
def test_one_semaphore_reaches_the_driver_with_its_parameter(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 7)
    commands.append_signal(sem, 8)
    token = sem._state.token
    assert calls(driver) == [
        ("wait", (token,), (WaitParams(value=7),), (), ()),
        ("signal", (token,), (SignalParams(value=8),), (), ()),
    ]


@pytest.mark.parametrize("form", [tuple, list])
def test_batch_reaches_the_driver_whole(opened: Opened, form: Callable[[Any], Any]) -> None:
    device, driver = opened
    commands = device.create_command_list()
    sems = [timeline(device), binary(device), semaphore(device, S.D3D11_KEYED_MUTEX), semaphore(device, S.NVSCISYNC)]
    fence = WaitParams(nvscisync_fence=0x1000, skip_nvscibuf_memsync=True)
    key = WaitParams(key=1, timeout_ms=100)
    commands.append_wait(form(sems), form([7, None, key, fence]))
    commands.append_signal(form(sems), form([8, SignalParams(), SignalParams(key=2),
                                             SignalParams(nvscisync_fence=0x1000)]))
    tokens = tuple(sem._state.token for sem in sems)
    assert calls(driver)[0] == ("wait", tokens, (WaitParams(value=7), WaitParams(), key, fence), (), ())
    assert calls(driver)[1][1] == tokens
    assert calls(driver)[1][2][:2] == (SignalParams(value=8), SignalParams())


def test_batch_of_one_is_a_batch(opened: Opened) -> None:
    device, driver = opened
    device.create_command_list().append_wait([timeline(device)], [3])
    assert calls(driver)[0][2] == (WaitParams(value=3),)


def test_memory_and_events_reach_the_driver(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    memories = [device.create_memory(MemoryHandleType.OPAQUE_FD, 4096) for _ in range(2)]
    points = [FakePoint(1, "foreign"), FakePoint(2, "foreign")]
    events = [device.event(point) for point in points]
    tokens = tuple(memory._memory for memory in memories)
    commands.append_wait(sem, 1, acquire=memories, wait_events=events)
    commands.append_signal(sem, 1, release=tuple(memories), wait_events=tuple(events[:1]))
    assert calls(driver)[0][3:] == (tuple(points), tokens)
    assert calls(driver)[1][3:] == ((points[0],), tokens)


@pytest.mark.parametrize("value", [np.int64(5), np.uint64(5), np.uint8(5), np.array(5)])
def test_numpy_int_is_a_value(opened: Opened, value: Any) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, value)
    commands.append_signal(sem, value)
    assert calls(driver)[0][2] == (WaitParams(value=5),)
    assert type(calls(driver)[1][2][0].value) is int


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 + 1, 2**63, 2**64 - 1])
def test_value_of_64_bits_is_a_value(append: Append, opened: Opened, value: int) -> None:
    sem = timeline(opened[0])
    set_last(sem, None)   # as after an import: 0 may be the first value
    append(sem, value)
    assert calls(opened[1])[0][2][0].value == value


# ---- calls that do not reach the driver
SPELLED_WRONG: dict[str, tuple[S, Any, str]] = {
    "bool": (S.TIMELINE_SEMAPHORE_FD, True, "not_an_int"),
    "numpy bool": (S.TIMELINE_SEMAPHORE_FD, np.True_, "not_an_int"),
    "float": (S.TIMELINE_SEMAPHORE_FD, 1.0, "not_an_int"),
    "numpy float": (S.TIMELINE_SEMAPHORE_FD, np.float64(1), "not_an_int"),
    "str": (S.TIMELINE_SEMAPHORE_FD, "1", "not_an_int"),
    "sequence": (S.TIMELINE_SEMAPHORE_FD, [1], "not_an_int"),
    "array": (S.TIMELINE_SEMAPHORE_FD, np.array([1, 2]), "not_an_int"),
    "negative": (S.TIMELINE_SEMAPHORE_FD, -1, "value_out_of_range"),
    "too large": (S.TIMELINE_SEMAPHORE_FD, 2**64, "value_out_of_range"),
    "none on a timeline": (S.TIMELINE_SEMAPHORE_FD, None, "value_required"),
    "none on a d3d fence": (S.D3D12_FENCE, None, "value_required"),
    "value on a binary": (S.OPAQUE_FD, 1, "value_not_allowed"),
    "0 on a binary": (S.OPAQUE_FD, 0, "value_not_allowed"),
    "False on a binary": (S.OPAQUE_FD, False, "value_not_allowed"),
    "value on a keyed mutex": (S.D3D11_KEYED_MUTEX, 1, "value_not_allowed"),
    "value on NvSciSync": (S.NVSCISYNC, 1, "value_not_allowed"),
    "none on a keyed mutex": (S.D3D11_KEYED_MUTEX, None, "key_required"),
    "none on NvSciSync": (S.NVSCISYNC, None, "fence_required"),
}


@pytest.mark.parametrize("what", SPELLED_WRONG)
def test_bad_parameter_is_refused(append: Append, opened: Opened, what: str) -> None:
    device, driver = opened
    type, param, reason = SPELLED_WRONG[what]
    sem = semaphore(device, type)
    error = refused_unasked(driver, reason, lambda: append(sem, param))
    assert error.reason.endswith("out_of_range") or error.handle_type is type


FIELDS: dict[str, tuple[S, dict[str, Any], str]] = {
    "value in params of a binary": (S.OPAQUE_FD, {"value": 1}, "value_not_allowed"),
    "key of a binary": (S.OPAQUE_FD, {"key": 1}, "key_not_allowed"),
    "key of a timeline": (S.TIMELINE_SEMAPHORE_FD, {"value": 1, "key": 1}, "key_not_allowed"),
    "fence of a timeline": (S.TIMELINE_SEMAPHORE_FD, {"value": 1, "nvscisync_fence": 1}, "fence_not_allowed"),
    "value of a keyed mutex": (S.D3D11_KEYED_MUTEX, {"value": 1, "key": 1}, "value_not_allowed"),
    "value of NvSciSync": (S.NVSCISYNC, {"value": 1, "nvscisync_fence": 1}, "value_not_allowed"),
    "flag of a timeline": (S.TIMELINE_SEMAPHORE_FD, {"value": 1, "skip_nvscibuf_memsync": True}, "flag_not_allowed"),
    "flag of a binary": (S.OPAQUE_FD, {"skip_nvscibuf_memsync": True}, "flag_not_allowed"),
    "nothing for a timeline": (S.TIMELINE_SEMAPHORE_WIN32, {}, "value_required"),
    "nothing for a keyed mutex": (S.D3D11_KEYED_MUTEX_KMT, {}, "key_required"),
}


@pytest.mark.parametrize("what", FIELDS)
def test_field_that_a_kind_does_not_have_is_refused(append: Append, opened: Opened, what: str) -> None:
    device, driver = opened
    type, fields, reason = FIELDS[what]
    params = (WaitParams if append.__name__ == "append_wait" else SignalParams)(**fields)
    refused_unasked(driver, reason, lambda: append(semaphore(device, type), params))


def test_timeout_is_for_keyed_mutexes(opened: Opened) -> None:
    device, driver = opened
    commands, mutex = device.create_command_list(), semaphore(device, S.D3D11_KEYED_MUTEX)
    for timeout_ms in (0, 100, INFINITE, None):
        commands.append_wait(mutex, WaitParams(key=1, timeout_ms=timeout_ms))
    commands.append_wait(timeline(device), WaitParams(value=1, timeout_ms=INFINITE))
    refused_unasked(driver, "timeout_not_allowed",
                    lambda: commands.append_wait(timeline(device), WaitParams(value=1, timeout_ms=100)))
    refused_unasked(driver, "timeout_not_allowed",
                    lambda: commands.append_wait(binary(device), WaitParams(timeout_ms=0)))


def test_params_of_the_other_call_are_refused(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    refused_unasked(driver, "wrong_params", lambda: commands.append_wait(sem, SignalParams(value=1)))  # type: ignore[call-overload]
    refused_unasked(driver, "wrong_params", lambda: commands.append_signal(sem, WaitParams(value=1)))  # type: ignore[call-overload]


def test_params_of_a_class_of_the_applications_own_are_taken(opened: Opened) -> None:
    class Traced(WaitParams):
        pass

    device, driver = opened
    device.create_command_list().append_wait(timeline(device), Traced(value=3))
    assert calls(driver)[0][2][0].value == 3


def test_sync_file_is_waited_for_and_not_signalled(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), device.import_semaphore(SemaphoreDesc.sync_fd(-1))
    commands.append_wait(sem)
    refused_unasked(driver, "signal_of_sync_file", lambda: commands.append_signal(sem))
    refused_unasked(driver, "signal_of_sync_file", lambda: commands.prepare_signal(sem))


# ---- batches
def test_batch_of_another_shape_is_refused(append: Append, opened: Opened) -> None:
    device, driver = opened
    a, b = timeline(device), timeline(device)
    refused_unasked(driver, "params_mismatch", lambda: append([a, b], 7))
    refused_unasked(driver, "params_mismatch", lambda: append([a, b], None))
    refused_unasked(driver, "params_mismatch", lambda: append([a, b], [7]))
    refused_unasked(driver, "params_mismatch", lambda: append([a], [7, 8]))
    refused_unasked(driver, "params_mismatch", lambda: append([a, b], "78"))
    refused_unasked(driver, "params_mismatch", lambda: append([a, b], (value for value in (7, 8))))
    refused_unasked(driver, "empty_batch", lambda: append([], []))
    refused_unasked(driver, "duplicate_semaphore", lambda: append([a, b, a], [7, 8, 9]))


def test_bad_semaphores_argument_is_refused(append: Append, opened: Opened) -> None:
    device, driver = opened
    a, b = timeline(device), timeline(device)
    for given in ((each for each in (a, b)), {a, b}, {a: 1}, None, 7, "ab", iter([a])):
        refused_unasked(driver, "not_a_semaphore", lambda given=given: append(given, [7, 8]))  # type: ignore[misc]
    refused_unasked(driver, "not_a_semaphore", lambda: append([a, 7], [7, 8]))
    refused_unasked(driver, "not_a_semaphore", lambda: append([None], [7]))
    refused_unasked(driver, "not_a_semaphore", lambda: append(device.create_event(), 7))


BAD_MEMBERS: dict[str, Callable[[xsem.Device], tuple[Any, Any]]] = {
    "none on a timeline": lambda device: (timeline(device), None),
    "value on a binary": lambda device: (binary(device), 5),
    "bool": lambda device: (timeline(device), True),
    "value too large": lambda device: (timeline(device), 2**64),
    "no key": lambda device: (semaphore(device, S.D3D11_KEYED_MUTEX), None),
    "wrong params": lambda device: (timeline(device), object()),
    "no semaphore": lambda device: (object(), 5),
    "released": lambda device: (released(timeline(device)), 5),
}


def released(thing: Any) -> Any:
    thing.release()
    return thing


@pytest.mark.parametrize("bad", BAD_MEMBERS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_batch_with_one_bad_member_is_not_appended_at_all(
    append: Append, opened: Opened, bad: str, place: int
) -> None:
    device, driver = opened
    sems: list[Any] = [timeline(device), timeline(device)]
    values: list[Any] = [5, 6]
    sem, value = BAD_MEMBERS[bad](device)
    sems.insert(place, sem)
    values.insert(place, value)
    event = device.create_event()
    before = calls(driver)
    with pytest.raises(xsem.XsemError):
        append(sems, values, signal_event=event)
    assert calls(driver) == before
    assert device.pending() == ()
    good = [sem for at, sem in enumerate(sems) if at != place]
    assert [sem._state.last_signalled for sem in good] == [0, 0]
    with pytest.raises(EventNotAppendedError):
        event.query()
    append(good, [5, 6], signal_event=event)   # the values and the event can still be used


@pytest.mark.parametrize("bad", ["event", "memory", "signal_event", "driver"])
def test_failed_batch_changes_nothing(
    append: Append, opened: Opened, bad: str
) -> None:
    device, driver = opened
    sems, event = [timeline(device), timeline(device)], device.create_event()
    memory = "acquire" if append.__name__ == "append_wait" else "release"
    more: dict[str, Any] = {"signal_event": event}
    if bad == "event":
        more["wait_events"] = [device.create_event()]
    elif bad == "memory":
        more[memory] = [released(device.create_memory(MemoryHandleType.OPAQUE_FD, 1))]
    elif bad == "signal_event":
        more["signal_event"] = device.event(FakePoint(1, "foreign"))
    else:
        driver.lists[0].fail_next = DriverError("no", reason="driver")
    before = calls(driver)
    with pytest.raises(xsem.XsemError):
        append(sems, [5, 6], **more)
    assert calls(driver) == before
    assert [sem._state.last_signalled for sem in sems] == [0, 0]
    append(sems, [5, 6], signal_event=event)


# ---- values
def test_value_not_above_the_last_one_is_refused(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_signal(sem, 5)
    for value in (0, 4, 5):
        error = refused_unasked(driver, "value_not_above_last", lambda value=value: commands.append_signal(sem, value))  # type: ignore[misc]
        assert "5" in str(error)
    refused_unasked(driver, "value_not_above_last", lambda: sem.host_signal(5))
    commands.append_signal(sem, 6)
    driver.values[sem._state.token] = 6   # the list's signals are done
    sem.host_signal(7)
    refused_unasked(driver, "value_not_above_last", lambda: commands.append_signal(sem, 7))


def test_value_may_go_back_with_allow_rewind(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_signal(sem, 10_000)
    commands.append_signal(sem, SignalParams(value=1, allow_rewind=True))
    assert sem._state.last_signalled == 1
    commands.append_signal(sem, 2)
    assert len(calls(driver)) == 3


def test_first_value_of_an_imported_timeline_is_free(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    set_last(sem, None)   # as after an import: the exporter's last value is unknown
    commands.append_signal(sem, 0)
    commands.append_signal(sem, 1)


def test_wait_for_a_value_signalled_long_ago_is_taken(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)
    commands.append_signal(sem, 100)
    commands.append_wait(sem, 1)


def test_value_of_a_failed_append_can_be_signalled_again(opened: Opened) -> None:
    device, driver = opened
    commands, sems = device.create_command_list(), [timeline(device), timeline(device)]
    commands.append_signal(sems, [3, 4])
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        commands.append_signal(sems, [5, 6])
    assert [sem._state.last_signalled for sem in sems] == [3, 4]
    driver.values[sems[0]._state.token] = 3   # the list's signals are done
    driver.fail_signal = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        sems[0].host_signal(5)
    driver.fail_signal = None
    assert sems[0]._state.last_signalled == 3
    commands.append_signal(sems, [5, 6])


def test_failed_append_does_not_undo_a_later_signal(opened: Opened) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def during() -> None:
        other.append_signal(sem, 9)
        raise DriverError("no", reason="driver")

    driver.lists[0].during = during
    with pytest.raises(DriverError):
        commands.append_signal(sem, 5)
    assert sem._state.last_signalled == 9


def test_value_far_above_the_last_one_is_refused() -> None:
    with fake(dataclasses.replace(ALL, max_value_difference=1000)) as (device, driver):
        commands, sem = device.create_command_list(), timeline(device)
        commands.append_signal(sem, 10)
        commands.append_wait(sem, 1010)
        refused_unasked(driver, "value_difference", lambda: commands.append_wait(sem, 1011))
        refused_unasked(driver, "value_difference", lambda: commands.append_signal(sem, 1011))
        refused_unasked(driver, "value_difference", lambda: sem.host_signal(1011))
        commands.append_signal(sem, 1010)


def test_rising_values_of_many_threads_reach_the_driver_rising(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    counter, lock = iter(range(1, 10_000)), threading.Lock()

    def signal() -> None:
        for _ in range(200):
            with lock:
                value = next(counter)
            try:
                commands.append_signal(sem, value)
            except BadArgumentError as error:
                refusals.append(error.reason)

    refusals: list[str] = []
    each = [threading.Thread(target=signal) for _ in range(4)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()
    values = [call[2][0].value for call in calls(driver) if call[0] == "signal"]
    assert values == sorted(values)
    assert len(values) + len(refusals) == 800
    assert set(refusals) <= {"value_not_above_last"}


# ---- binary semaphores that a wait does not reset
def test_second_wait_needs_the_exporters_reset() -> None:
    with fake(LEVEL_ZERO) as (device, driver):
        commands, sem, mark = device.create_command_list(), binary(device), timeline(device)
        commands.append_wait(sem)
        error = refused_unasked(driver, "not_reset", lambda: commands.append_wait(sem), BusyError)
        assert "mark_reset" in str(error)
        refused_unasked(driver, "not_reset", lambda: commands.append_wait([mark, sem], [1, None]), BusyError)
        sem.mark_reset()
        commands.append_wait(sem)
        commands.append_wait(mark, 1)   # a timeline needs no reset
        commands.append_wait(mark, 1)
        commands.append_signal(sem)


def test_failed_wait_needs_no_reset() -> None:
    with fake(LEVEL_ZERO) as (device, driver):
        commands, first, second = device.create_command_list(), binary(device), binary(device)
        commands.append_wait(second)
        refused_unasked(driver, "not_reset", lambda: commands.append_wait([first, second], [None, None]), BusyError)
        driver.lists[0].fail_next = DriverError("no", reason="driver")
        with pytest.raises(DriverError):
            commands.append_wait(first)
        commands.append_wait(first)


def test_reset_is_optional_when_a_wait_resets(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), binary(device)
    for _ in range(3):
        commands.append_wait(sem)
    sem.mark_reset()


# ---- other devices
def test_objects_of_another_device_are_refused(append: Append, opened: Opened) -> None:
    device, driver = opened
    memory = "acquire" if append.__name__ == "append_wait" else "release"
    other_info = dataclasses.replace(INFO, id="fake:1", index=1)
    with fake(info=other_info) as (other, other_driver):
        theirs, ours = timeline(other), timeline(device)
        event = other.create_event()
        other.create_command_list().append_barrier(signal_event=event)
        free = other.create_event()
        their_memory = other.create_memory(MemoryHandleType.OPAQUE_FD, 1)
        for call in (
            lambda: append(theirs, 1),
            lambda: append([ours, theirs], [1, 1]),
            lambda: append(ours, 1, wait_events=[event]),
            lambda: append(ours, 1, signal_event=free),
            lambda: append(ours, 1, **{memory: [their_memory]}),
        ):
            error = refused_unasked(driver, "wrong_device", call, WrongDeviceError)
            assert isinstance(error, WrongDeviceError)
            assert (error.expected, error.actual) == ("fake:0", "fake:1")
        with pytest.raises(EventNotAppendedError):
            free.query()
        assert len(other_driver.lists[0].calls) == 1


def test_two_devices_of_one_id_are_two(opened: Opened) -> None:
    device, driver = opened
    with fake() as (other, _):
        refused_unasked(driver, "wrong_device", lambda: device.create_command_list().append_wait(timeline(other), 1),
                        WrongDeviceError)


# ---- events and memory
def test_bad_events_argument_is_refused(append: Append, opened: Opened) -> None:
    device, driver = opened
    sem, event = timeline(device), device.event(FakePoint(1, "foreign"))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=event))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=(each for each in (event,))))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=[event, FakePoint(1, "foreign")]))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events="ab"))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=None))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, signal_event=FakePoint(1, "foreign")))


def test_bad_memory_argument_is_refused(append: Append, opened: Opened) -> None:
    device, driver = opened
    which = "acquire" if append.__name__ == "append_wait" else "release"
    sem, memory = timeline(device), device.create_memory(MemoryHandleType.OPAQUE_FD, 1)
    refused_unasked(driver, "not_a_memory", lambda: append(sem, 1, **{which: memory}))
    refused_unasked(driver, "not_a_memory", lambda: append(sem, 1, **{which: (each for each in (memory,))}))
    refused_unasked(driver, "not_a_memory", lambda: append(sem, 1, **{which: [memory, memory.map_buffer()]}))
    refused_unasked(driver, "not_a_memory", lambda: append(sem, 1, **{which: None}))
    refused_unasked(driver, "duplicate_memory", lambda: append(sem, 1, **{which: [memory, memory]}))


def test_event_that_is_not_appended_cannot_be_waited_for(append: Append, opened: Opened) -> None:
    device, driver = opened
    refused_unasked(driver, "event_not_appended",
                    lambda: append(timeline(device), 1, wait_events=[device.create_event()]), EventNotAppendedError)


# ---- copies and fills
def test_copy_and_fill_reach_the_driver(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    a, b = memory.map_buffer(0, 1024), memory.map_buffer(1024, 1024)
    done = device.create_event()
    commands.append_copy(a, b)
    commands.append_fill(a, b"\1\2", signal_event=done)
    commands.append_fill(b, bytearray(b"\0"), wait_events=[done])  # type: ignore[arg-type]
    assert calls(driver) == [
        ("copy", a.address, b.address, 1024), ("fill", a.address, b"\1\2", 1024), ("fill", b.address, b"\0", 1024),
    ]


def test_bad_copies_and_fills_are_refused(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    a, b = memory.map_buffer(0, 1024), memory.map_buffer(1024, 512)
    refused_unasked(driver, "size_mismatch", lambda: commands.append_copy(a, b))
    refused_unasked(driver, "overlap", lambda: commands.append_copy(a, a))
    view = a.view((512,), "uint8", offset=256)
    refused_unasked(driver, "overlap", lambda: commands.append_copy(view, a.view((512,), "uint8")))
    refused_unasked(driver, "not_a_buffer", lambda: commands.append_copy(a, b"1" * 1024))  # type: ignore[arg-type]
    refused_unasked(driver, "not_a_buffer", lambda: commands.append_fill(memory, b"1"))  # type: ignore[arg-type]
    for pattern in (b"", b"123", "0", 0, memoryview(b"0"), None):
        refused_unasked(driver, "bad_pattern", lambda pattern=pattern: commands.append_fill(a, pattern))  # type: ignore[misc]
    with fake() as (other, _):
        theirs = other.create_memory(MemoryHandleType.OPAQUE_FD, 4096).map_buffer(0, 1024)
        refused_unasked(driver, "wrong_device", lambda: commands.append_copy(a, theirs), WrongDeviceError)
        refused_unasked(driver, "wrong_device", lambda: commands.append_fill(theirs, b"0"), WrongDeviceError)


def test_copy_keeps_its_buffers(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    a, b = memory.map_buffer(0, 1024), memory.map_buffer(1024, 1024)
    commands.append_copy(a, b)
    a.release()
    b.release()
    memory.release()
    until(lambda: driver.lists[0].markers == 1)
    assert driver.log == []
    driver.finish()
    until(lambda: len(driver.log) == 3)


# ---- work
def test_work_is_called_at_once_and_in_order(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    seen: list[Any] = []
    commands.append_wait(sem, 1)
    commands.append_work(lambda: seen.append((threading.current_thread(), len(driver.lists[0].calls))))
    commands.append_signal(sem, 2)
    assert seen == [(threading.current_thread(), 1)]
    assert [op.operation for op in device.pending()] == ["wait", "work", "signal"]


@pytest.mark.parametrize("work", [None, 7, "work", b""])
def test_work_that_cannot_be_called_is_refused(opened: Opened, work: Any) -> None:
    device, driver = opened
    refused_unasked(driver, "not_callable", lambda: device.create_command_list().append_work(work))


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), KeyboardInterrupt(), SystemExit(3)])
def test_work_that_raises_stops_its_list_and_no_other(opened: Opened, error: BaseException) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def work() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        commands.append_work(work)
    assert raised.value is error
    before = calls(driver)
    for ask in (commands.query, commands.synchronize, commands.append_barrier, lambda: commands.append_work(print),
                lambda: commands.append_signal(sem, 1), lambda: commands.append_wait(sem, 1)):
        with pytest.raises(DriverError) as caught:
            ask()
        assert caught.value.reason == "work_failed"
        assert caught.value.from_earlier_work
        assert caught.value.__cause__ is error
    assert calls(driver) == before
    other.append_signal(sem, 1)
    commands.release()


def test_error_of_an_append_inside_work_stops_the_list(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)

    def work() -> None:
        commands.append_signal(sem, 1)
        commands.append_signal(sem, 1)

    with pytest.raises(BadArgumentError):
        commands.append_work(work)
    with pytest.raises(DriverError):
        commands.query()


def test_work_may_append_to_other_lists_that_work_meanwhile(opened: Opened) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def work() -> None:
        thread = threading.Thread(target=lambda: other.append_signal(sem, 1))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        commands.append_work(lambda: commands.append_signal(sem, 2))

    commands.append_work(work)
    assert [call[0] for call in calls(driver)] == ["signal", "signal"]


# ---- streams
def test_stream_of_another_library_is_refused_by_name(opened: Opened) -> None:
    device, driver = opened

    def open_command_list(_stream: object, _in_order: bool) -> Any:
        raise TypeError("only mine")

    driver.open_command_list = open_command_list  # type: ignore[assignment,method-assign]
    with pytest.raises(BadArgumentError, match=r"FakeStream.*only mine") as caught:
        device.command_list(FakeStream(1))
    assert caught.value.reason == "not_a_stream"
