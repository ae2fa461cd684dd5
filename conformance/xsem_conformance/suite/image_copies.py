"""Appended copies of image regions: between levels and buffers, between levels, and their order."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import xsem
from xsem.errors import UnsupportedError
from xsem.spi import Token
from xsem.types import Feature, MipmapDesc, SemaphoreHandleType
from xsem_conformance.case.context import CaseContext
from xsem_conformance.case.noise import noise
from xsem_conformance.case.other_thread import OtherThread, on_another_thread
from xsem_conformance.case.polling import never, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, Symptom, expect
from xsem_conformance.suite.images import (
    IMAGE_MEMORY,
    PITCHES,
    PLAIN,
    WHOLE,
    images_are_refused,
    memory_for_images,
)
from xsem_conformance.suite.level_copies import Gate

_ELEMENT: Final = 4
_UNTOUCHED: Final = 0x5A
_BUFFER: Final = 1 << 14
_SIMPLE: Final = (("of two dimensions", PLAIN),)
_SHAPES: Final = (
    ("of one dimension, with layers", replace(PLAIN, extent=(24, 0, 0), layers=3)),
    ("with layers and levels", replace(PLAIN, extent=(16, 8, 0), layers=3, levels=2)),
    ("of three dimensions, with levels", replace(PLAIN, extent=(16, 8, 4), levels=2)),
)


@dataclass(frozen=True)
class _Box:
    """A region of a level as parameters of `append_copy`, and as an index of slices or layers, rows and elements."""

    offset: tuple[int, int, int]
    extent: tuple[int, int, int]
    layers: tuple[int, int] | None

    @property
    def parameters(self) -> dict[str, Any]:
        return {"offset": self.offset, "extent": self.extent} | (
            {} if self.layers is None else {"layer": self.layers[0], "layers": self.layers[1]})

    @property
    def index(self) -> tuple[slice, slice, slice]:
        first, count = self.layers or (self.offset[2], max(1, self.extent[2]))
        row, column = self.offset[1], self.offset[0]
        return (slice(first, first + count), slice(row, row + max(1, self.extent[1])),
                slice(column, column + self.extent[0]))


def _boxes(level: xsem.MipmapLevel, desc: MipmapDesc) -> Iterator[_Box]:
    """Yield the whole level, a box in its middle that is nowhere as long as the level, and its last element."""
    extent, count = level.extent, desc.layers
    yield _Box((0, 0, 0), extent, (0, count) if count else None)
    middle = tuple(min(1, length - 1) if length else 0 for length in extent)
    part = tuple(max(1, length - 2 - axis) if length else 0 for axis, length in enumerate(extent))
    yield _Box((middle[0], middle[1], middle[2]), (part[0], part[1], part[2]), (1, count - 1) if count else None)
    last = tuple(max(0, length - 1) for length in extent)
    one = tuple(min(1, length) for length in extent)
    yield _Box((last[0], last[1], last[2]), (one[0], one[1], one[2]), (count - 1, 1) if count else None)


class _Pixels:
    """The elements that a level must have: bytes by slice or layer, row and element."""

    def __init__(self, level: xsem.MipmapLevel, desc: MipmapDesc, seed: int) -> None:
        width, height, depth = (max(1, length) for length in level.extent)
        self.level = level
        shape = (desc.layers or depth, height, width, _ELEMENT)
        self.expected = np.frombuffer(bytearray(noise(math.prod(shape), seed)), np.uint8).reshape(shape)
        level.write(self.expected.reshape(-1).view(desc.format).reshape(level.read().shape))

    def check(self, what: str) -> None:
        found = self.level.read().view(np.uint8).reshape(self.expected.shape)
        expect(np.array_equal(found, self.expected),
               f"{what} changes other elements of the level than those of its region, or gives them other values",
               Symptom.OTHER_BYTES)


class _Copies:
    """A list, a buffer of the device and a buffer of the host for the copies of one case."""

    def __init__(self, context: CaseContext, case: Case) -> None:
        here = context.here
        mapping: xsem.Memory = here.get(context.memory(_BUFFER, case.handle_type).here)
        self.commands: xsem.CommandList = here.get(here.new_list())
        self.buffers = {"a mapping": mapping.map_buffer(0, _BUFFER),
                        "a host buffer": context.device.host_buffer(_BUFFER)}
        self._host = context.device.host_buffer(_BUFFER)
        self._patience_s = context.patience_s
        self._seed = 0

    def noise(self, size: int) -> Any:
        self._seed += 1
        return np.frombuffer(bytearray(noise(size, self._seed)), np.uint8)

    def finish(self) -> None:
        self.commands.synchronize(timeout_s=self._patience_s)

    def put(self, buffer: xsem.Buffer, content: Any) -> None:
        """Write the content into a buffer, in the order of the list."""
        self.finish()   # the last copy may read this host buffer
        self._host.numpy()[...] = content
        self.commands.append_copy(buffer, self._host)

    def found(self, buffer: xsem.Buffer) -> Any:
        self.commands.append_copy(self._host, buffer)
        self.finish()
        return self._host.numpy().copy()

    def both_ways(self, pixels: _Pixels, box: _Box, name: str, pads: tuple[int, int], what: str) -> None:
        """Copy a box to a buffer and back from other bytes."""
        # `pads`: elements after each row, and rows after each slice. Every byte between the rows and slices, and around
        # them, must stay.
        buffer, (slices, rows, columns, _) = self.buffers[name], pixels.expected[box.index].shape
        row_pitch = (columns + pads[0]) * _ELEMENT
        slice_pitch = row_pitch * (rows + pads[1])
        size = (slices - 1) * slice_pitch + (rows - 1) * row_pitch + columns * _ELEMENT
        start = 3 * _ELEMENT
        part = buffer.view((size,), "uint8", offset=start)
        content = np.full(_BUFFER, _UNTOUCHED, np.uint8)
        inside = np.lib.stride_tricks.as_strided(content[start:], (slices, rows, columns, _ELEMENT),
                                                 (slice_pitch, row_pitch, _ELEMENT, 1))
        given = box.parameters | ({"row_pitch": row_pitch, "slice_pitch": slice_pitch} if any(pads) else {})
        said = f"between {name} and {given} of a level of an image {what}"
        self.put(buffer, content)
        try:
            self.commands.append_copy(part, pixels.level, **given)
        except UnsupportedError:
            if not any(pads):
                raise
            return   # the device has no pitches, and says so
        inside[...] = pixels.expected[box.index]
        expect(np.array_equal(self.found(buffer), content),
               f"a copy {said} writes other bytes of the buffer than those of the rows, or other values",
               Symptom.OTHER_BYTES)
        pixels.check(f"reading by a copy {said}")
        inside[...] = self.noise(inside.size).reshape(inside.shape)
        self.put(buffer, content)
        self.commands.append_copy(pixels.level, part, **given)
        pixels.expected[box.index] = inside
        self.finish()
        pixels.check(f"writing by a copy {said}")
        expect(np.array_equal(self.found(buffer), content), f"a copy {said} changes its source", Symptom.OTHER_BYTES)


def _shapes(context: CaseContext) -> Sequence[tuple[str, MipmapDesc]]:
    return _SIMPLE + (_SHAPES if Feature.MIPMAPPED_ARRAY in context.device.capabilities.features else ())


@check("XSEM-MIP-011", deadline_s=120)
def regions_are_copied_to_and_from_buffers(context: CaseContext, case: Case) -> None:
    """Whole levels, boxes and single elements, with and without pitches, to and from mappings and host buffers."""
    # NumPy has the expected bytes. A device that refuses pitches with UnsupportedError is checked without them.
    if images_are_refused(context, case):
        return
    _, memory = memory_for_images(context, case)
    copies = _Copies(context, case)
    for seed, (what, desc) in enumerate(_shapes(context)):
        with memory.map_mipmapped_array(desc, overlap=True) as image:
            levels = [_Pixels(image.level(index), desc, 10 * seed + index + 1) for index in range(desc.levels)]
            for pixels in levels:
                for box in _boxes(pixels.level, desc):
                    for name in copies.buffers:
                        for pads in ((0, 0), (5, 0), (2, 3)):
                            copies.both_ways(pixels, box, name, pads, what)
            for pixels in levels:
                pixels.check(f"a copy of another level of an image {what}")


@check("XSEM-MIP-012", deadline_s=60)
def regions_are_copied_between_levels(context: CaseContext, case: Case) -> None:
    """Copies between two images, with another position in each, and between two halves of one level."""
    if images_are_refused(context, case):
        return
    _, first = memory_for_images(context, case)
    _, second = memory_for_images(context, case)
    copies = _Copies(context, case)
    for what, desc in _shapes(context):
        other = replace(desc, extent=(desc.extent[0] + 8, *desc.extent[1:]), format="uint32", channels=1)
        with first.map_mipmapped_array(desc, overlap=True) as image, second.map_mipmapped_array(
                other, overlap=True) as source:
            for index in range(desc.levels):
                to, at = _Pixels(image.level(index), desc, index + 1), _Pixels(source.level(index), other, index + 7)
                for box in _boxes(to.level, desc):
                    _from_elsewhere(copies, to, at, box, what)
                _from_itself(copies, to, desc, what)


def _from_elsewhere(copies: _Copies, to: _Pixels, at: _Pixels, box: _Box, what: str) -> None:
    """Copy a box that lies further right in the source, and with layers one layer lower."""
    shift = at.level.extent[0] - to.level.extent[0]
    layers = None if box.layers is None else (box.layers[0] - min(1, box.layers[0]), box.layers[1])
    source = replace(box, offset=(box.offset[0] + shift, *box.offset[1:]), layers=layers)
    given = box.parameters | {"src_offset": source.offset} | ({} if layers is None else {"src_layer": layers[0]})
    copies.commands.append_copy(to.level, at.level, **given)
    copies.finish()
    to.expected[box.index] = at.expected[source.index]
    said = f"a copy between two images {what}, {given},"
    to.check(said)
    at.check(f"reading by {said}")


def _from_itself(copies: _Copies, pixels: _Pixels, desc: MipmapDesc, what: str) -> None:
    width, height, depth = pixels.level.extent
    half = width // 2
    layers: dict[str, Any] = {"layer": 0, "layers": desc.layers, "src_layer": 0} if desc.layers else {}
    copies.commands.append_copy(pixels.level, pixels.level, offset=(half, 0, 0), extent=(half, height, depth),
                                src_offset=(0, 0, 0), **layers)
    copies.finish()
    pixels.expected[:, :, half:2 * half] = pixels.expected[:, :, :half].copy()
    pixels.check(f"a copy from half to half of a level of an image {what}")


# ---- order
_SIZE: Final = PITCHES[1]
_STEPS: Final = ("from a buffer to a level", "between two levels", "from a level to a buffer")


class _Chain:
    """Copies through the driver: from a host buffer to a level, to another level, and to another host buffer."""

    def __init__(self, context: CaseContext, type: str) -> None:
        driver: Any = context.driver
        self._context, self._driver = context, driver
        self._memories = [context.driver_memory(context.memory(IMAGE_MEMORY, type)) for _ in range(2)]
        self._arrays = [driver.map_mipmapped_array(each, PLAIN) for each in self._memories]
        self._levels: list[Token] = [driver.mipmap_level(each, 0) for each in self._arrays]
        (self._source, self._in), (self._target, self._out) = driver.host_buffer(_SIZE), driver.host_buffer(_SIZE)
        self.queue: Any = driver.create_queue()
        self._seed = 0

    def append(self, held: int = 0, fences: Sequence[Token] = (), wants: int = 2) -> tuple[Token, bytes]:
        """Append the three copies, copy number `held` behind `fences`. Return a fence and the new pixels."""
        # The fence is that of copy number `wants`, or of a barrier for 3.
        self._seed += 1
        data = noise(_SIZE, self._seed)
        ctypes.memmove(self._in, data, _SIZE)
        ctypes.memset(self._out, _UNTOUCHED, _SIZE)
        first, second = self._levels
        calls: list[Callable[[Sequence[Token], bool], Token | None]] = [
            lambda waits, want: self.queue.append_region_copy(
                first, WHOLE, self._source, 0, *PITCHES, False, waits, want),
            lambda waits, want: self.queue.append_image_copy(second, WHOLE, first, WHOLE, waits, want),
            lambda waits, want: self.queue.append_region_copy(
                second, WHOLE, self._target, 0, *PITCHES, True, waits, want),
            self.queue.append_barrier,
        ]
        made = [call(fences if number == held else (), number == wants) for number, call in enumerate(calls)]
        for number, fence in enumerate(made):
            expect((fence is not None) == (number == wants), f"append number {number + 1} of a chain of copies returns "
                   f"{fence!r}, and a fence is wanted only of append {wants + 1}")
        return made[wants], data

    def untouched(self, fence: Token, what: str) -> None:
        """Check that a chain is not done, and has changed no byte of its target."""
        never(lambda: self._driver.query_fence(fence), f"{what} is done before its time")
        expect(ctypes.string_at(self._out, _SIZE) == bytes([_UNTOUCHED]) * _SIZE,
               f"{what} has changed bytes before its time")

    def done(self, fence: Token, pixels: bytes, what: str, *, complete: bool = True) -> None:
        """Wait for a chain, and check its target. `complete`: the fence is that of the last copy or behind it."""
        soon(lambda: self._driver.query_fence(fence), f"{what} is not done", self._context.patience_s)
        found = ctypes.string_at(self._out, _SIZE)
        self._driver.release_fence(fence)
        if not complete:
            end = self.queue.append_barrier((), True)
            soon(lambda: self._driver.query_fence(end), f"{what} is not done", self._context.patience_s)
            self._driver.release_fence(end)
            found = ctypes.string_at(self._out, _SIZE)
        expect(found == pixels, f"{what} gives other pixels than those of its source", Symptom.OTHER_BYTES)

    def close(self) -> None:
        """Release everything. The queue must be idle."""
        self.queue.close()
        for array in self._arrays:
            self._driver.release_array(array)
        for memory in self._memories:
            self._driver.release_memory(memory)
        for buffer in (self._source, self._target):
            self._driver.release_host_buffer(buffer)


@check("XSEM-MIP-013", deadline_s=90)
def image_copies_are_in_order(context: CaseContext, case: Case) -> None:
    """Chains of copies, also by another thread, behind a wait of their queue, and each copy behind fences of others."""
    # The first or the last fence is missing in turn. The copies behind waits and fences need a device that waits before
    # the signal.
    if images_are_refused(context, case):
        return
    memory_for_images(context, case)
    chain, type = _Chain(context, case.handle_type), context.driver_type()
    for wants in range(4):
        fence, pixels = chain.append(wants=wants)
        chain.done(fence, pixels, "a chain of copies", complete=wants > 1)
    on_another_thread(lambda: chain.done(*chain.append(), "a chain of copies by another thread"),
                      2 * context.patience_s, "a thread without an earlier copy of an image hangs in such a copy")
    if SemaphoreHandleType(type) in context.device.capabilities.wait_before_signal:   # otherwise nothing holds it back
        for wants in range(4):
            _behind_a_wait(context, chain, type, wants)
        count = max(1, min(2, context.device.capabilities.independent_lists - 1))
        for held, step in enumerate(_STEPS):
            for missing in range(count):
                _behind_fences(context, chain, type, held, count, missing,
                               f"a copy {step} without fence {missing + 1} of {count}")
    chain.close()


def _behind_a_wait(context: CaseContext, chain: _Chain, type: str, wants: int) -> None:
    gate, made = Gate(context, type, chain.queue), []
    # Another thread, so that an append that blocks fails and does not hang.
    appends = OtherThread(lambda: made.append(chain.append(wants=wants)))
    returned = appends.ends_within(context.patience_s)
    if returned and made:
        chain.untouched(made[0][0], "a chain of copies behind an unmet wait of its queue")
    gate.open()
    appends.finish(context.patience_s, "an append of a copy of an image did not return when the wait before it was met")
    expect(returned, "an append of a copy of an image did not return before the wait before it was met")
    chain.done(*made[0], "a chain of copies behind a wait", complete=wants > 1)
    gate.close()


def _behind_fences(
    context: CaseContext, chain: _Chain, type: str, held: int, count: int, missing: int, what: str
) -> None:
    reached = chain.queue.append_barrier((), True)   # no fence for the copy
    soon(lambda: context.driver.query_fence(reached), "a barrier of an idle queue is not done", context.patience_s)
    gates = [Gate(context, type) for _ in range(count)]   # after the barrier, which a waiting queue may stop
    fence, pixels = chain.append(held, [each.fence for each in gates])
    for index, gate in enumerate(gates):
        if index != missing:
            gate.open()
    chain.untouched(fence, what)
    gates[missing].open()
    chain.done(fence, pixels, "a chain of copies behind fences")
    context.driver.release_fence(reached)
    for gate in gates:
        gate.close()
