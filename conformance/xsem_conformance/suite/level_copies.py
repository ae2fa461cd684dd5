"""Copies of image levels through the driver: their bytes in the host buffer, their order, and their threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from xsem.spi import Token
from xsem.types import SemaphoreHandleType, WaitParams
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.noise import noise
from xsem_conformance.case.other_thread import OtherThread, on_another_thread
from xsem_conformance.case.polling import never, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect
from xsem_conformance.suite.images import (
    IMAGE_MEMORY,
    PITCHES,
    PLAIN,
    WHOLE,
    images_are_refused,
    memory_for_images,
)

__all__ = ["Gate"]

_PIXELS: Final = PITCHES[1]
_HOST: Final = 8192
_FROM: Final = 1024
"""Offset of the pixels in the host buffer that a write reads."""
_TO: Final = 4096
"""Offset of the pixels in the host buffer that a read writes."""
_UNTOUCHED: Final = b"\x5a"


class Gate:
    """A wait on a new queue of the driver, or on `queue`. `fence` is reached when the wait is met."""

    def __init__(self, context: CaseContext, type: str, queue: Any = None) -> None:
        self._context, self._value = context, value_of(type)
        self._shared = context.semaphore(type)
        self._semaphore = context.driver_semaphore(self._shared)
        self._own = queue is None
        self._queue = context.driver.create_queue() if queue is None else queue
        self.fence = self._queue.append_wait([self._semaphore], [WaitParams(value=self._value)], (), (), True)

    def open(self) -> None:
        """Signal the semaphore, and wait until the fence is reached."""
        self._context.exporter.host_signal(self._shared.there, self._value)
        soon(lambda: self._context.driver.query_fence(self.fence), "a wait was not met by its signal",
             self._context.patience_s)

    def close(self) -> None:
        """Release the objects of the gate. The gate must be open."""
        self._context.driver.release_fence(self.fence)
        if self._own:
            self._queue.close()
        self._context.driver.release_semaphore(self._semaphore)


class _Images:
    """Three images with one level each, in memory of their own, and the queue of their copies."""

    def __init__(self, context: CaseContext, type: str) -> None:
        driver: Any = context.driver
        self._context, self._driver = context, driver
        self._memories = [context.driver_memory(context.memory(IMAGE_MEMORY, type)) for _ in range(3)]
        self._arrays = [driver.map_mipmapped_array(each, PLAIN) for each in self._memories]
        self.levels: list[Token] = [driver.mipmap_level(each, 0) for each in self._arrays]
        self._hosts = [driver.host_buffer(_HOST) for _ in range(len(self.levels) + 1)]
        self._copied, self._address = self._hosts.pop()
        self.queue: Any = driver.create_queue()
        self._seed = 0

    def write(self, index: int, fences: Sequence[Token] = ()) -> bytes:
        """Append a copy of new pixels to a level, without a fence of its own. Return the pixels."""
        self._seed += 1
        token, address = self._hosts[index]
        data = noise(_HOST, self._seed)
        ctypes.memmove(address, data, _HOST)
        self.queue.append_region_copy(self.levels[index], WHOLE, token, _FROM, *PITCHES, False, fences, False)
        return data[_FROM:_FROM + _PIXELS]

    def read(self, index: int, *, barrier: bool = False) -> Token:
        """Append a copy of a level to the host, and return its fence, or the fence of a barrier behind the copy."""
        ctypes.memset(self._address, _UNTOUCHED[0], _HOST)
        fence = self.queue.append_region_copy(
            self.levels[index], WHOLE, self._copied, _TO, *PITCHES, True, (), not barrier)
        return self.queue.append_barrier((), True) if barrier else fence

    def untouched(self, fence: Token, what: str) -> None:
        """Check that a read is not done, and has changed no byte."""
        never(lambda: self._driver.query_fence(fence), f"{what} is done before its time")
        expect(self._found() == _UNTOUCHED * _HOST, f"{what} has changed bytes before its time")

    def done(self, fence: Token, pixels: bytes, what: str) -> None:
        """Wait for a read. Check the pixels, and the bytes before and after them."""
        soon(lambda: self._driver.query_fence(fence), f"{what} is not done", self._context.patience_s)
        found = self._found()
        self._driver.release_fence(fence)
        expect(found[_TO:_TO + _PIXELS] == pixels, f"{what} does not give the pixels of the last write to the level")
        expect(found[:_TO] + found[_TO + _PIXELS:] == _UNTOUCHED * (_HOST - _PIXELS),
               f"{what} changed other bytes of the host buffer")

    def _found(self) -> bytes:
        return ctypes.string_at(self._address, _HOST)

    def close(self) -> None:
        """Release everything. The queue must be idle."""
        self.queue.close()
        for array in self._arrays:
            self._driver.release_array(array)
        for memory in self._memories:
            self._driver.release_memory(memory)
        for token in (*(token for token, _ in self._hosts), self._copied):
            self._driver.release_host_buffer(token)


@check("XSEM-MIP-007", deadline_s=60)
def level_copies_are_exact_and_in_order(context: CaseContext, case: Case) -> None:
    """Copies of three levels, also by another thread, behind a wait of their queue, and behind fences of other queues.

    The first or the last fence is missing in turn. Meanwhile, no byte of the host buffer changes. The copies behind
    waits and fences need a device that waits before the signal.
    """
    if images_are_refused(context, case):
        return
    memory_for_images(context, case)
    images, type = _Images(context, case.handle_type), context.driver_type()
    for barrier in (False, True):
        written = [images.write(index) for index in range(len(images.levels))]
        for index, pixels in enumerate(written):
            images.done(images.read(index, barrier=barrier), pixels, f"a read of image {index + 1}")
    on_another_thread(lambda: _written_and_read(images), 2 * context.patience_s,
                      "a thread without an earlier copy of a level hangs in such a copy")
    if SemaphoreHandleType(type) in context.device.capabilities.wait_before_signal:   # otherwise nothing holds it back
        _behind_a_wait(context, images, type)
        count = max(1, min(2, context.device.capabilities.independent_lists - 1))
        for missing in range(count):
            _behind_fences(context, images, type, count, missing)
    images.close()


def _written_and_read(images: _Images) -> None:
    pixels = images.write(0)
    images.done(images.read(0), pixels, "a read by another thread")


def _behind_a_wait(context: CaseContext, images: _Images, type: str) -> None:
    gate, made = Gate(context, type, images.queue), []
    # Another thread, so that an append that blocks fails and does not hang.
    appends = OtherThread(lambda: made.extend([images.write(1), images.read(1)]))
    returned = appends.ends_within(context.patience_s)
    if returned:
        images.untouched(made[1], "a copy of a level behind an unmet wait of its queue")
    gate.open()
    appends.finish(context.patience_s, "an append of a copy of a level did not return when the wait before it was met")
    expect(returned, "an append of a copy of a level did not return before the wait before it was met")
    images.done(made[1], made[0], "a read behind a wait")
    gate.close()


def _behind_fences(context: CaseContext, images: _Images, type: str, count: int, missing: int) -> None:
    reached = images.queue.append_barrier((), True)   # no fence for the copy
    soon(lambda: context.driver.query_fence(reached), "a barrier of an idle queue is not done", context.patience_s)
    gates = [Gate(context, type) for _ in range(count)]   # after the barrier, which a waiting queue may stop
    pixels = images.write(2, [each.fence for each in gates])
    fence, what = images.read(2), f"a copy of a level without fence {missing + 1} of {count}"
    for index, gate in enumerate(gates):
        if index != missing:
            gate.open()
    images.untouched(fence, what)
    gates[missing].open()
    images.done(fence, pixels, "a read behind fences")
    context.driver.release_fence(reached)
    for gate in gates:
        gate.close()
