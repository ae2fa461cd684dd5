"""Faults in mappings, copies, fills and images."""

from __future__ import annotations

import os
from typing import Any

import xsem_cuda.device as device
import xsem_cuda.images as images
from patches.base import instead, patch
from xsem.errors import UnsupportedError
from xsem_cuda.allocations import create_allocation
from xsem_cuda.chunks import Chunks
from xsem_cuda.device import CudaDevice
from xsem_cuda.queue import StreamQueue


@patch
def offset_dropped() -> None:
    """A mapped buffer begins at the start of the memory."""
    @instead(device, "buffer_descriptor")
    def describe(before: Any, driver: Any, offset: int, size: int) -> Any:
        return before(driver, 0, size)


@patch
def offset_and_size_swapped() -> None:
    """Offset and size of a mapped buffer are exchanged."""
    @instead(device, "buffer_descriptor")
    def describe(before: Any, driver: Any, offset: int, size: int) -> Any:
        return before(driver, size, offset)


@patch
def size_one_short() -> None:
    """A buffer is mapped one byte short."""
    @instead(device, "buffer_descriptor")
    def describe(before: Any, driver: Any, offset: int, size: int) -> Any:
        return before(driver, offset, size - 1)


@patch
def address_off_by_one() -> None:
    """The address of a mapped buffer is one too high."""
    @instead(CudaDevice, "map_buffer")
    def map_buffer(before: Any, self: Any, *args: Any) -> Any:
        buffer, address = before(self, *args)
        return buffer, address + 1


@patch
def copy_backwards() -> None:
    """Source and destination of a copy are exchanged."""
    @instead(StreamQueue, "append_copy")
    def append_copy(
        before: Any, self: Any, dst: Any, dst_offset: int, src: Any, src_offset: int, *rest: Any
    ) -> Any:
        return before(self, src, src_offset, dst, dst_offset, *rest)


@patch
def copy_one_short() -> None:
    """A copy leaves out the last byte."""
    @instead(StreamQueue, "append_copy")
    def append_copy(
        before: Any, self: Any, dst: Any, dst_offset: int, src: Any, src_offset: int, size: int, *rest: Any
    ) -> Any:
        return before(self, dst, dst_offset, src, src_offset, size - 1, *rest)


@patch
def fill_of_one_byte() -> None:
    """A fill repeats the first byte of its pattern."""
    @instead(StreamQueue, "append_fill")
    def append_fill(before: Any, self: Any, dst: Any, offset: int, pattern: bytes, *rest: Any) -> Any:
        return before(self, dst, offset, pattern[:1], *rest)


@patch
def fill_backwards() -> None:
    """The pattern of a fill is read as a big-endian number."""
    @instead(StreamQueue, "append_fill")
    def append_fill(before: Any, self: Any, dst: Any, offset: int, pattern: bytes, *rest: Any) -> Any:
        return before(self, dst, offset, pattern[::-1], *rest)


@patch
def fill_counts_bytes() -> None:
    """A fill of words gets its size in bytes."""
    @instead(StreamQueue, "append_fill")
    def append_fill(before: Any, self: Any, dst: Any, offset: int, pattern: bytes, size: int, *rest: Any) -> Any:
        return before(self, dst, offset, pattern, size * len(pattern), *rest)


@patch
def level_always_the_first() -> None:
    """Every level of an image is the first level."""
    @instead(device, "level_of")
    def level_of(before: Any, driver: Any, context: Any, array: Any, level: int) -> Any:
        wanted, first = before(driver, context, array, level), before(driver, context, array, 0)
        wanted.native, wanted.address = first.native, first.address
        return wanted


@patch
def levels_not_passed() -> None:
    """An image always has one level."""
    @instead(images, "mipmap_descriptor")
    def describe(before: Any, driver: Any, desc: Any) -> Any:
        native = before(driver, desc)
        native.numLevels = 1
        return native


# ---- arrays of other libraries
@patch
def share_offset_dropped() -> None:
    """A shared array begins at the start of its memory."""
    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        return before(*args, **named)[0], 0


@patch
def share_owner_not_kept() -> None:
    """Shared memory does not keep its array."""
    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        *place, _owner = args
        return before(*place, None, **named)


@patch
def share_owner_kept_for_ever() -> None:
    """Shared arrays stay in a list, also the refused ones."""
    kept = []

    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        kept.append(args[-1])
        return before(*args, **named)


@patch
def share_copies() -> None:
    """Shared memory is a copy of its array."""
    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        before(*args, **named)[0].close()
        return _copied(*args)


@patch
def share_copies_what_it_cannot_share() -> None:
    """An array that cannot be shared is copied."""
    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        try:
            return before(*args, **named)
        except UnsupportedError:
            return _copied(*args)


@patch
def share_leaks_fd() -> None:
    """Each call of share_memory leaves a file open, also a refused one."""
    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return before(*args, **named)


@patch
def chunks_in_reverse() -> None:
    """The import of several allocations maps them in the reverse order."""
    @instead(device, "import_chunks")
    def import_reversed(before: Any, driver: Any, ordinal: int, desc: Any, handles: Any) -> Any:
        return before(driver, ordinal, desc, handles[::-1])


@patch
def chunks_leak_fd() -> None:
    """Each export of several allocations leaves a file open."""
    @instead(Chunks, "export_chunks")
    def export(before: Any, *args: Any) -> Any:
        os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return before(*args)


def _copied(driver: Any, ordinal: int, type: Any, address: int, size: int, owner: Any) -> Any:
    made = create_allocation(driver, ordinal, type, size)
    made._owner = owner
    driver.cuMemcpy(made.base, address, size)
    return made, 0
