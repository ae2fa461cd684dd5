"""Test the streams, events and failing kernels that the conformance suite gets. On the stand-in for libcuda."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S

import xsem
from xsem.errors import WrongDeviceError, XsemError
from xsem.plugins import registry
from xsem.spi import QueueDriver, SuiteHooks
from xsem.types import MemoryHandleType


@contextmanager
def opened() -> Iterator[tuple[xsem.Device, SuiteHooks]]:
    with xsem.open_device("cuda:0") as device:
        yield device, registry().get("cuda").suite_hooks(device._device_state.driver)


def borrowed(device: xsem.Device, stream: object) -> QueueDriver:
    """Return the queue of the driver itself: a list has no query for a capture."""
    commands = device.command_list(stream)  # type: ignore[arg-type]
    return commands._queue.driver


def soon(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@on_stand_in
def test_native_queue_works_beside_a_borrowed_list_until_its_own_close() -> None:
    with opened() as (device, hooks):
        native = hooks.native_queue()
        assert native is not None
        commands = device.command_list(native.stream)  # type: ignore[arg-type]
        assert commands.native_handle == native.handle
        commands.append_barrier(signal_event=device.create_event())
        commands.synchronize(timeout_s=BOUND_S)
        commands.release()
        soon(lambda: not device.releasing())
        assert native.works()
        native.close()


@on_stand_in
def test_foreign_queue_belongs_to_another_context() -> None:
    with opened() as (device, hooks):
        native = hooks.foreign_queue()
        assert native is not None
        assert native.works()
        with pytest.raises(WrongDeviceError) as caught:
            device.command_list(native.stream)  # type: ignore[arg-type]
        assert caught.value.reason == "wrong_context"
        native.close()


@on_stand_in
def test_capture_holds_within_its_block() -> None:
    with opened() as (device, hooks):
        native = hooks.native_queue()
        assert native is not None
        assert native.capture is not None
        queue = borrowed(device, native.stream)
        assert not queue.is_capturing()
        with native.capture():
            assert queue.is_capturing()
        assert not queue.is_capturing()


@on_stand_in
def test_native_event_is_pending_until_it_is_reached() -> None:
    with opened() as (device, hooks):
        native = hooks.native_event()
        assert native is not None
        event = device.event(native.event)
        assert not native.works()
        assert not event.query()
        native.reach()
        soon(native.works)
        soon(event.query)
        native.close()


@on_stand_in
def test_failing_work_needs_a_driver_that_loads_modules() -> None:
    with opened() as (_, hooks):
        assert hooks.failing_work() is None   # the stand-in loads none; XSEM-ORD-013 runs the kernel on a GPU


@on_stand_in
@pytest.mark.parametrize("type", [MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD])
def test_arrays_are_shareable_or_not_and_end_with_their_last_reference(type: MemoryHandleType) -> None:
    with opened() as (device, hooks):
        good, bad = hooks.native_array(type), hooks.unshareable_array(type)
        assert good is not None
        assert bad is not None
        for number, native in enumerate((good, bad), 1):
            native.write(bytes([number]) * 8192)
            assert native.read(8192) == bytes([number]) * 8192
        with device.share(good.array, type=type) as shared:
            assert shared.offset > 0
            assert shared.size == 8192
            assert shared.buffer().copy_to_host(timeout_s=BOUND_S).tobytes() == good.read(8192)
        soon(lambda: not device.releasing())
        with pytest.raises(XsemError) as caught:
            device.share(bad.array, type=type)
        assert caught.value.reason == ("host_array" if type is MemoryHandleType.DMABUF_FD else "not_shareable")
        del caught
        ends = [good.freed, bad.freed]
        assert not any(each() for each in ends)
        del good, bad, native
        gc.collect()
        assert all(each() for each in ends)
