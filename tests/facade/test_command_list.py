"""An append gives the driver its arguments, or refuses them before any driver call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.fake_backend import INFO, FakeFence, FakeStream, binary, fake, set_last, timeline
from support.fixtures import Opened, calls, refused_unasked
from support.numpy_bools import IndexedBool

import xsem
from xsem.errors import BadArgumentError, DriverError, EventNotAppendedError, WrongDeviceError
from xsem.types import INFINITE, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType, SignalParams, WaitParams

S = SemaphoreHandleType
Append = Callable[..., None]


@pytest.fixture(params=["append_wait", "append_signal"])
def append(request: pytest.FixtureRequest, opened: Opened) -> Append:
    commands = opened[0].create_command_list()
    appended: Append = getattr(commands, request.param)
    return appended


def semaphore(device: xsem.Device, type: S) -> xsem.Semaphore:
    return device.create_semaphore(type)


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
    fences = [FakeFence(1, "foreign"), FakeFence(2, "foreign")]
    events = [device.event(fence) for fence in fences]
    tokens = tuple(memory._memory for memory in memories)
    commands.append_wait(sem, 1, acquire=memories, wait_events=events)
    commands.append_signal(sem, 1, release=tuple(memories), wait_events=tuple(events[:1]))
    assert calls(driver)[0][3:] == (tuple(fences), tokens)
    assert calls(driver)[1][3:] == ((fences[0],), tokens)


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
    "numpy bool with an index": (S.TIMELINE_SEMAPHORE_FD, IndexedBool(), "not_an_int"),
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
    assert [sem._state.last for sem in good] == [0, 0]
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
        more["signal_event"] = device.event(FakeFence(1, "foreign"))
    else:
        driver.lists[0].fail_next = DriverError("no", reason="driver")
    before = calls(driver)
    with pytest.raises(xsem.XsemError):
        append(sems, [5, 6], **more)
    assert calls(driver) == before
    assert [sem._state.last for sem in sems] == [0, 0]
    append(sems, [5, 6], signal_event=event)


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
    sem, event = timeline(device), device.event(FakeFence(1, "foreign"))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=event))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=(each for each in (event,))))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=[event, FakeFence(1, "foreign")]))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events="ab"))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, wait_events=None))
    refused_unasked(driver, "not_an_event", lambda: append(sem, 1, signal_event=FakeFence(1, "foreign")))


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


# ---- streams
def test_stream_of_another_library_is_refused_by_name(opened: Opened) -> None:
    device, driver = opened

    def borrow_queue(_stream: object, _in_order: bool) -> Any:
        raise BadArgumentError("FakeStream is not a stream: only mine", reason="not_a_stream")

    driver.borrow_queue = borrow_queue  # type: ignore[assignment,method-assign]
    with pytest.raises(BadArgumentError, match=r"FakeStream.*only mine") as caught:
        device.command_list(FakeStream(1))
    assert caught.value.reason == "not_a_stream"
