"""Test command lists of the OpenCL backend on PoCL: own and borrowed queues, events, copies and fills."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.opencl_facade import BOUND_S, PAGE, driver_of, list_of, on_pocl, opened, soon

import xsem
from xsem.errors import BadArgumentError, DriverError, UnsupportedError, WrongDeviceError
from xsem.spi import QueueDriver


@contextmanager
def application(device: xsem.Device) -> Iterator[tuple[Any, Any]]:
    """Yield the objects of an application: pyopencl's context around the device's context, and a queue."""
    import pyopencl as cl

    context = cl.Context.from_int_ptr(device.native_handle)
    queue = cl.CommandQueue(context)
    yield context, queue
    queue.finish()


@contextmanager
def held(queue: Any) -> Iterator[Any]:
    """Block the queue in this block by an event that the host sets at the end; yield the event of a blocked barrier."""
    import pyopencl as cl

    gate = cl.UserEvent(queue.context)
    barrier = cl.enqueue_barrier(queue, wait_for=[gate])
    queue.flush()
    try:
        yield barrier
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)


# ---- copies and fills
@on_pocl
@pytest.mark.parametrize("pattern", [b"\0", b"ab", b"abab", b"abcdefgh", bytes(range(128)), b"\5" * 96])
def test_pattern_of_a_power_of_two_of_bytes_fills(pattern: bytes) -> None:
    with opened() as at:
        commands, host = at.here.create_command_list(), at.here.host_buffer(len(pattern) * 32)
        commands.append_fill(host, pattern)
        commands.synchronize(timeout_s=BOUND_S)
        assert host.numpy().tobytes() == pattern * 32


@on_pocl
@pytest.mark.parametrize("pattern", [b"abc", bytes(range(96)), bytes(256)[:-1] + b"\1"])
def test_other_patterns_are_refused_and_nothing_is_filled(pattern: bytes) -> None:
    with opened() as at:
        commands, host = at.here.create_command_list(), at.here.host_buffer(len(pattern) * 2)
        host.numpy()[...] = 9
        with pytest.raises(BadArgumentError) as refused:
            commands.append_fill(host, pattern)
        assert refused.value.reason == "bad_pattern"
        commands.synchronize(timeout_s=BOUND_S)
        assert (host.numpy() == 9).all()


@on_pocl
def test_offsets_count_from_the_start_of_a_host_buffer() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        (first, source), (second, target) = driver.host_buffer(PAGE), driver.host_buffer(PAGE)
        ctypes.memset(source, 0, PAGE)
        ctypes.memset(target, 0, PAGE)
        commands = driver.create_queue()
        commands.append_fill(first, 64, b"\1\2", 64, (), False)
        fence = commands.append_copy(second, 8, first, 96, 64, (), True)
        soon(lambda: driver.query_fence(fence))
        driver.release_fence(fence)
        assert ctypes.string_at(source, PAGE) == bytes(64) + b"\1\2" * 32 + bytes(PAGE - 128)
        assert ctypes.string_at(target, PAGE) == bytes(8) + b"\1\2" * 16 + bytes(PAGE - 40)
        for buffer in (first, second):
            with pytest.raises(UnsupportedError):
                driver.native_handle(buffer)   # the memory is mapped: no command may use it
            driver.release_host_buffer(buffer)
        commands.close()


# ---- fences
@on_pocl
def test_command_that_fails_fails_its_event() -> None:
    import pyopencl as cl

    with opened() as at, application(at.here) as (context, queue):
        gate = cl.UserEvent(context)
        event = at.here.event(cl.enqueue_marker(queue, wait_for=[gate]))
        assert not event.query()
        gate.set_status(-42)
        with pytest.raises(DriverError) as failed:
            event.wait(timeout_s=BOUND_S)
        assert failed.value.from_earlier_work
        assert failed.value.code is not None
        assert failed.value.code < 0


@on_pocl
def test_release_of_a_fence_gives_up_one_reference() -> None:
    import pyopencl as cl

    with opened() as at:
        driver = driver_of(at.here)
        commands = driver.create_queue()
        fence = commands.append_barrier((), True)
        keeper = cl.Event.from_int_ptr(fence.handle)   # has its own reference
        soon(lambda: driver.query_fence(fence))
        before = keeper.reference_count
        driver.release_fence(fence)
        assert keeper.reference_count == before - 1
        assert commands.append_barrier((), False) is None
        commands.close()


# ---- borrowed events
@on_pocl
def test_event_of_a_command_is_borrowed_and_kept() -> None:
    import pyopencl as cl

    with opened() as at, application(at.here) as (_, queue):
        commands = at.here.create_command_list()
        with held(queue) as barrier:
            event = at.here.event(barrier)
            del barrier
            commands.append_barrier(wait_events=[event])
            assert not event.query()
            assert not commands.query()
        commands.synchronize(timeout_s=BOUND_S)
        by_number = cl.enqueue_marker(queue)
        at.here.event(by_number.int_ptr).wait(timeout_s=BOUND_S)


@on_pocl
def test_user_event_is_refused_with_the_reason() -> None:
    import pyopencl as cl

    with opened() as at, application(at.here) as (context, _):
        with pytest.raises(BadArgumentError, match="hold this thread") as refused:
            _ = at.here.event(cl.UserEvent(context))
        assert refused.value.reason == "user_event"


@on_pocl
def test_event_of_another_context_or_invalid_event_is_refused() -> None:
    import pyopencl as cl

    with opened() as at, application(at.here) as (context, queue):
        other = cl.CommandQueue(cl.Context(context.devices))
        with pytest.raises(WrongDeviceError) as wrong:
            _ = at.here.event(cl.enqueue_marker(other))
        assert wrong.value.reason == "wrong_context"
        assert wrong.value.expected == f"context {context.int_ptr:#x}"
        assert wrong.value.actual == f"context {other.context.int_ptr:#x}"
        other.finish()
        with pytest.raises(BadArgumentError) as refused:
            _ = at.here.event(0)
        assert refused.value.reason == "null_event"
        for each in (queue, "event", True):
            with pytest.raises(BadArgumentError) as refused:
                _ = at.here.event(each)
            assert refused.value.reason == "not_an_event"


# ---- borrowed queues
@on_pocl
def test_borrowed_queue_is_in_order_and_outlives_its_release() -> None:
    import pyopencl as cl

    with opened() as at, application(at.here) as (context, queue):
        before = queue.reference_count
        data = np.zeros(PAGE, dtype="uint8")
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, PAGE)
        commands, done = at.here.command_list(queue), at.here.create_event()
        commands.append_work(lambda: cl.enqueue_fill_buffer(queue, buffer, np.array(5, dtype="uint8"), 0, PAGE))
        commands.append_barrier(signal_event=done)
        cl.enqueue_copy(queue, data, buffer)
        assert done.query()
        assert (data == 5).all()
        assert commands.native_handle == queue.int_ptr
        by_number = at.here.command_list(queue.int_ptr)
        assert by_number.native_handle == commands.native_handle
        assert list_of(by_number) is list_of(commands)   # one native queue, one list
        commands.synchronize(timeout_s=BOUND_S)
        del commands, by_number, done
        buffer.release()   # PoCL keeps the queue for the last command of a buffer
    soon(lambda: queue.reference_count == before)
    cl.enqueue_marker(queue).wait()


@on_pocl
def test_work_is_flushed_when_the_append_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as at:
        commands = at.here.create_command_list()
        driver = list_of(commands)
        assert isinstance(driver, QueueDriver)
        seen: list[str] = []
        flush = driver._core.flush   # type: ignore[attr-defined]

        def note(queue: int) -> None:
            seen.append("flush")
            flush(queue)

        monkeypatch.setattr(driver._core, "flush", note)   # type: ignore[attr-defined]
        driver.append_work(lambda: seen.append("work"))
        assert seen == ["work", "flush"]
        driver.append_barrier((), False)
        assert seen == ["work", "flush", "flush"]

        def fail() -> None:
            raise LookupError

        with pytest.raises(LookupError):
            driver.append_work(fail)
        assert seen[3:] == ["flush"]   # the work may have enqueued commands before it raised


@on_pocl
def test_queue_that_is_out_of_order_is_refused() -> None:
    import pyopencl as cl

    with opened() as at, application(at.here) as (context, queue):
        wild = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        profiled = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        for stream, in_order in ((wild, True), (wild.int_ptr, True), (queue, False)):
            with pytest.raises(BadArgumentError) as refused:
                at.here.command_list(stream, in_order=in_order)
            assert refused.value.reason == "out_of_order"
        assert at.here.command_list(profiled).query()


@on_pocl
def test_queue_of_another_context_or_invalid_queue_is_refused() -> None:
    import pyopencl as cl

    with opened() as at, application(at.here) as (context, _):
        other = cl.CommandQueue(cl.Context(context.devices))
        with pytest.raises(WrongDeviceError) as wrong:
            at.here.command_list(other)
        assert wrong.value.reason == "wrong_context"
        assert wrong.value.expected == f"context {context.int_ptr:#x}"
        assert wrong.value.actual == f"context {other.context.int_ptr:#x}"
        assert "native=" in str(wrong.value)
        with pytest.raises(BadArgumentError) as refused:
            at.here.command_list(0)
        assert refused.value.reason == "null_stream"
        with pytest.raises(BadArgumentError) as refused:
            at.here.command_list(context)   # a context also has an int_ptr
        assert refused.value.reason == "not_a_stream"
        for stream, reason in ((0, "null_stream"), (True, "not_a_stream"), (object(), "not_a_stream")):
            for refuse in (partial(driver_of(at.here).borrow_queue, stream, True),
                           partial(driver_of(at.here).queue_identity, stream)):
                with pytest.raises(BadArgumentError) as refused:
                    refuse()
                assert refused.value.reason == reason
        references = other.reference_count
        assert references == 1


@on_pocl
def test_lists_of_a_borrowed_context_share_it() -> None:
    import pyopencl as cl

    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context)
    with opened("opencl", native=queue) as at:
        commands = at.here.create_command_list()
        own = cl.CommandQueue.from_int_ptr(commands.native_handle)
        assert own.context == context
        with held(queue) as barrier:
            commands.append_barrier(wait_events=[at.here.event(barrier)])
            assert not commands.query()
        commands.synchronize(timeout_s=BOUND_S)
        del own, barrier
