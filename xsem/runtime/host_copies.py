"""Blocking copies between device memory and the host, on a separate list that only xsem uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Literal

from xsem.runtime.device_state import FIRST
from xsem.runtime.diagnostics.pending_operations import queue_pending
from xsem.runtime.diagnostics.timeout_error import timeout_error
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.queues.operations import DriverCall
from xsem.runtime.queues.queue import Queue
from xsem.runtime.queues.queue_table import QueueTable
from xsem.runtime.timeouts import wait_in_slices
from xsem.spi import CopyQueue, HostMemory, ImageQueue, ImageRegion, LevelLayout, QueueDriver, Token
from xsem.types import Feature

__all__ = ["copy_from_device", "copy_level", "copy_to_device"]


def copy_from_device(
    queues: QueueTable, source: Lifetime, buffer: Token, offset: int, size: int, timeout_s: float | None
) -> bytearray:
    """Read `size` bytes of a buffer. Block the host until the copy is done."""
    data = bytearray(size)
    _copy(queues, source, data, timeout_s, "read",
          lambda driver, staging: (_copies(queues, driver), (staging, 0, buffer, offset, size)))
    return data


def copy_to_device(
    queues: QueueTable, target: Lifetime, buffer: Token, offset: int, data: bytearray | memoryview,
    timeout_s: float | None,
) -> None:
    """Write bytes to a buffer. Block the host until the copy is done."""
    _copy(queues, target, data, timeout_s, "write",
          lambda driver, staging: (_copies(queues, driver), (buffer, offset, staging, 0, len(data))))


def copy_level(
    queues: QueueTable, array: Lifetime, level: Token, layout: LevelLayout, data: memoryview, timeout_s: float | None,
    direction: Literal["read", "write"],
) -> None:
    """Copy an image level, as rows without padding, to the host ("read") or from the host ("write")."""
    width, depth = layout.row_size // layout.element_size, max(1, layout.extent[2])
    whole = ImageRegion((0, 0, 0), (width, layout.rows, depth), 0, layout.slices // depth)
    pitches = layout.row_size, layout.row_size * layout.rows
    _copy(queues, array, data, timeout_s, direction,
          lambda driver, staging: (
              queues.device_state.ability(ImageQueue, Feature.IMAGE.value, driver).append_region_copy,
              (level, whole, staging, 0, *pitches, direction == "read")))


def _copy(
    queues: QueueTable, lifetime: Lifetime, data: bytearray | memoryview, timeout_s: float | None,
    direction: Literal["read", "write"],
    call: Callable[[QueueDriver, Token], tuple[Callable[..., Token | None], Sequence[Any]]],
) -> None:
    """Copy through a staging buffer. For this buffer, `call` returns the driver's method and its arguments."""
    device_state = queues.device_state
    queue, size = _copy_queue(queues), len(data)
    driver = device_state.ability(HostMemory, "host_buffer")
    with device_state.making("staging buffer", driver.release_host_buffer, token_of=FIRST) as making:
        staging, address = making.call(driver.host_buffer, size)
        # A lifetime frees the buffer after the copy: after a timeout of the wait, the copy may still use it.
        staged = making.lifetime()
    try:
        if direction == "write":
            ctypes.memmove(address, bytes(data), size)
        with device_state.calling():
            function, arguments = call(queue.driver, staging)
            fence = queue.append(DriverCall("copy", function, arguments, (lifetime, staged)), want_fence=True)
            done = wait_in_slices(fence.wait, timeout_s)
        if not done:
            raise timeout_error(device_state, "the copy", timeout_s, queue_pending(queues, queue, fence.seq))
        queue.reached(fence.seq)
        if direction == "read":
            data[:] = ctypes.string_at(address, size)
    finally:
        staged.release()


def _copies(queues: QueueTable, driver: QueueDriver) -> Callable[..., Token | None]:
    return queues.device_state.ability(CopyQueue, "append_copy", driver).append_copy


def _copy_queue(queues: QueueTable) -> Queue:
    device_state = queues.device_state
    with queues.copy_lock:
        queue = queues.copy_queue
        if queue is None or queue.state.failure is not None:
            with device_state.calling():
                driver = device_state.driver.create_queue()
            queue = queues.copy_queue = queues.add(driver, f"{device_state.info.id}/transfer")
        return queue
