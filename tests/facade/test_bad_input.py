"""Errors of an application in ranges, values, events and released objects have a class and a reason."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.bad_input import Counted, faked
from support.fake_backend import FakeStream
from support.fixtures import refused
from support.system_types import BINARY, MEMORY, TIMELINE, binary, timeline

import xsem
from xsem.errors import EventNotAppendedError, ReleasedError, WrongDeviceError
from xsem.facade.device import Device
from xsem.types import SignalParams, WaitParams

PAGE = mmap.PAGESIZE


# ---- memory ranges
@pytest.mark.parametrize("size", [0, -1, 2**64, True, 1.0, "1", None])
def test_memory_of_no_size_is_refused(counted: Counted, size: Any) -> None:
    reason = "bad_size" if type(size) is int else "not_an_int"
    refused(lambda: counted.create_memory(MEMORY, size), reason)
    refused(lambda: counted.host_buffer(size), reason)


@pytest.mark.parametrize(
    ("offset", "size", "reason"),
    [
        (0, PAGE + 1, "out_of_range"),
        (1, PAGE, "out_of_range"),
        (PAGE - 1, 2, "out_of_range"),
        (PAGE, 1, "out_of_range"),
        (PAGE, None, "out_of_range"),
        (2**64 - 1, 2, "out_of_range"),
        (2**64 - 1, None, "out_of_range"),
        (0, 0, "bad_size"),
        (0, -1, "bad_size"),
        (0, 2**64, "bad_size"),
        (-1, 1, "bad_offset"),
        (2**64, 1, "bad_offset"),
        (True, 1, "not_an_int"),
        (0.0, 1, "not_an_int"),
        (0, True, "not_an_int"),
        (0, "1", "not_an_int"),
        (None, 1, "not_an_int"),
    ],
)
def test_a_range_beyond_the_allocation_is_refused(counted: Counted, offset: Any, size: Any, reason: str) -> None:
    memory = counted.create_memory(MEMORY, PAGE)
    assert memory.allocation_size == PAGE
    refused(lambda: memory.map_buffer(offset, size), reason)
    memory.map_buffer(0, PAGE).release()


def test_an_imported_range_ends_where_the_descriptor_says(device: Device) -> None:
    with device.create_memory(MEMORY, 4 * PAGE) as made, made.export() as desc:
        import dataclasses

        with device.import_memory(dataclasses.replace(desc, allocation_size=PAGE)) as memory:
            refused(lambda: memory.map_buffer(0, PAGE + 1), "out_of_range")
            refused(lambda: memory.map_buffer(PAGE), "out_of_range")


# ---- values
@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("binary", 1, "value_not_allowed"),
        ("binary", 0, "value_not_allowed"),
        ("binary", True, "value_not_allowed"),
        ("timeline", None, "value_required"),
        ("timeline", True, "not_an_int"),
        ("timeline", False, "not_an_int"),
        ("timeline", 1.0, "not_an_int"),
        ("timeline", "1", "not_an_int"),
        ("timeline", -1, "value_out_of_range"),
        ("timeline", 2**64, "value_out_of_range"),
    ],
)
def test_value_of_the_wrong_type_or_range_is_refused(counted: Counted, kind: str, value: Any, reason: str) -> None:
    semaphore = timeline(counted.device) if kind == "timeline" else binary(counted.device)
    commands = counted.create_command_list()
    for act in (commands.append_signal, commands.append_wait):
        refused(lambda act=act: act(semaphore, value), reason)  # type: ignore[misc]
    for act in (semaphore.host_signal, semaphore.host_wait):
        refused(lambda act=act: act(value), reason)  # type: ignore[misc]
    commands.synchronize()
    assert counted.pending() == ()


@pytest.mark.parametrize("kind", ["binary", "timeline"])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"key": 1}, "key_not_allowed"), ({"nvscisync_fence": 0x1000}, "fence_not_allowed"),
     ({"skip_nvscibuf_memsync": True}, "flag_not_allowed")],
    ids=str,
)
def test_parameters_of_another_kind_are_refused(
    counted: Counted, kind: str, fields: dict[str, Any], reason: str
) -> None:
    semaphore = timeline(counted.device) if kind == "timeline" else binary(counted.device)
    fields = {"value": 1 if kind == "timeline" else None, **fields}
    commands = counted.create_command_list()
    refused(lambda: commands.append_signal(semaphore, SignalParams(**fields)), reason)
    refused(lambda: commands.append_wait(semaphore, WaitParams(**fields)), reason)


def test_a_value_going_back_is_refused(counted: Counted) -> None:
    semaphore = timeline(counted.device)
    commands = counted.create_command_list()
    refused(lambda: commands.append_signal(semaphore, 0), "value_not_above_last")
    commands.append_signal(semaphore, 5)
    for value in (5, 4, 0):
        refused(partial(commands.append_signal, semaphore, value), "value_not_above_last")
        refused(partial(semaphore.host_signal, value), "value_not_above_last")
    commands.append_signal(semaphore, SignalParams(value=2, allow_rewind=True))
    commands.append_signal(semaphore, 3)


def test_bad_initial_values_are_refused(counted: Counted) -> None:
    refused(lambda: counted.create_semaphore(BINARY, initial_value=1), "value_not_allowed")
    for value, reason in ((-1, "value_out_of_range"), (2**64, "value_out_of_range"), (True, "not_an_int")):
        refused(lambda value=value: counted.create_semaphore(  # type: ignore[misc]
            TIMELINE, initial_value=value), reason)


# ---- events, other devices, released objects
def test_an_event_that_is_not_appended_is_refused(counted: Counted) -> None:
    event = counted.create_event()
    commands = counted.create_command_list()
    semaphore = timeline(counted.device)
    acts: list[Callable[[], object]] = [
        event.query,
        lambda: event.wait(timeout_s=0),
        lambda: event.add_done_callback(print),
        lambda: commands.append_wait(semaphore, 1, wait_events=[event]),
        lambda: commands.append_signal(semaphore, 1, wait_events=[event]),
        lambda: commands.append_barrier(wait_events=[event]),
    ]
    for act in acts:
        refused(act, "event_not_appended", EventNotAppendedError)
    # The refused signal has not advanced the value.
    commands.append_signal(semaphore, 1, signal_event=event)


def test_objects_of_another_device_are_refused(counted: Counted) -> None:
    with faked() as (other, _):
        theirs, ours = timeline(other), timeline(counted.device)
        commands, their_list = counted.create_command_list(), other.create_command_list()
        event = other.create_event()
        their_list.append_barrier(signal_event=event)
        memory = other.create_memory(MEMORY, 4096)
        mine = counted.create_memory(MEMORY, 4096).map_buffer()
        acts: list[Callable[[], object]] = [
            lambda: commands.append_wait(theirs, 1),
            lambda: commands.append_signal(theirs, 1),
            lambda: commands.append_wait([ours, theirs], [1, 1]),
            lambda: commands.append_signal([ours, theirs], [1, 1]),
            lambda: commands.append_wait(ours, 1, wait_events=[event]),
            lambda: commands.append_signal(ours, 1, wait_events=[event]),
            lambda: commands.append_signal(ours, 1, signal_event=event),
            lambda: commands.append_barrier(signal_event=event),
            lambda: commands.append_wait(ours, 1, acquire=[memory]),
            lambda: commands.append_signal(ours, 1, release=[memory]),
            lambda: commands.append_copy(memory.map_buffer(overlap=True), mine),
            lambda: commands.append_copy(mine, memory.map_buffer(overlap=True)),
            lambda: commands.append_fill(memory.map_buffer(overlap=True), b"\0"),
        ]
        for act in acts:
            error = refused(act, "wrong_device", WrongDeviceError)
            assert isinstance(error, WrongDeviceError)
            assert error.expected == counted.info.id
            assert error.actual == "fake:0"
        commands.append_signal(ours, 1)


def test_released_objects_are_refused(counted: Counted) -> None:
    commands = counted.create_command_list()
    semaphore, event = timeline(counted.device), counted.create_event()
    memory = counted.create_memory(MEMORY, PAGE)
    buffer = memory.map_buffer()
    commands.append_barrier(signal_event=event)
    if counted.driver is not None:
        counted.driver.lists[0].reach_all()
    kept = timeline(counted.device)
    for each in (buffer, semaphore, memory, event):
        each.release()
        each.release()
        assert each.released
    acts: list[Callable[[], object]] = [
        lambda: semaphore.export(),
        lambda: semaphore.value(),
        lambda: semaphore.host_signal(1),
        lambda: semaphore.host_wait(1, timeout_s=0),
        lambda: semaphore.mark_reset(),
        lambda: semaphore.native_handle,
        lambda: semaphore.__enter__(),
        lambda: commands.append_wait(semaphore, 1),
        lambda: commands.append_signal([kept, semaphore], [1, 1]),
        lambda: commands.append_wait(kept, 1, acquire=[memory]),
        lambda: commands.append_wait(kept, 1, wait_events=[event]),
        lambda: commands.append_barrier(signal_event=event),
        lambda: commands.append_fill(buffer, b"\0"),
        lambda: memory.export(),
        lambda: memory.map_buffer(),
        lambda: memory.map_mipmapped_array(xsem.MipmapDesc(extent=(1, 0, 0), format="uint8", channels=1)),
        lambda: buffer.view((1,), "uint8"),
        lambda: buffer.numpy(),
        lambda: buffer.copy_to_host(),
        lambda: buffer.copy_from_host([0]),
        lambda: buffer.__dlpack__(),
        lambda: buffer.__dlpack_device__(),
        lambda: event.query(),
        lambda: event.wait(timeout_s=0),
        lambda: event.reset(),
        lambda: event.add_done_callback(print),
    ]
    for number, act in enumerate(acts):
        with pytest.raises(ReleasedError) as caught:
            act()
            pytest.fail(f"act {number} was not refused")
        assert caught.value.reason == "released"
    commands.release()
    for act in (lambda: commands.append_barrier(), lambda: commands.query(), lambda: commands.synchronize(),
                lambda: commands.record(), lambda: commands.append_work(print)):
        refused(act, "released", ReleasedError)
    counted.device.release()
    for act in (lambda: counted.create_command_list(), lambda: counted.create_event(), lambda: counted.pending(),
                lambda: counted.host_buffer(1), lambda: counted.create_semaphore(BINARY),
                lambda: counted.create_memory(MEMORY, 1), lambda: counted.event(threading.Event()),
                lambda: counted.command_list(FakeStream(5)), lambda: counted.watch(after_s=1), lambda: kept.value()):
        refused(act, "released", ReleasedError)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [(0, "null_stream"), (-1, "not_a_stream"), (True, "not_a_stream"), (2**64, "not_a_stream"), (1.0, "not_a_stream"),
     ("stream", "not_a_stream"), (None, "not_a_stream"), (object(), "not_a_stream")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_non_stream_is_refused(counted: Counted, stream: Any, reason: str) -> None:
    refused(lambda: counted.command_list(stream), reason)


def test_batch_with_one_bad_member_appends_nothing() -> None:
    with faked() as (device, driver):
        good, bad, kept = timeline(device), timeline(device), binary(device)
        number: Any = 5
        commands = device.create_command_list()
        commands.append_signal(bad, 7)
        calls = list(driver.lists[0].calls)
        for params, reason in (
            ([1, 7], "value_not_above_last"), ([1, None], "value_required"), ([1, True], "not_an_int"),
            ([1, SignalParams(key=1)], "value_required"), ([1], "params_mismatch"), ([1, 8, 9], "params_mismatch"),
        ):
            refused(partial(commands.append_signal, [good, bad], params), reason)
        refused(lambda: commands.append_signal([good, kept], [1, 1]), "value_not_allowed")
        refused(lambda: commands.append_signal([good, good], [1, 2]), "duplicate_semaphore")
        refused(lambda: commands.append_signal([], []), "empty_batch")
        refused(lambda: commands.append_signal([good, number], [1, 1]), "not_a_semaphore")
        assert driver.lists[0].calls == calls
        # No value was recorded: 1 is still above the last value of the good semaphore.
        commands.append_signal([good, bad], [1, 8])
