"""The functions of OpenCL that enqueue a command, as data: an append is one or two of them."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_size_t
from typing import Any, NamedTuple

from xsem_opencl import cl
from xsem_opencl.core import array
from xsem_opencl.images import Box, Image
from xsem_opencl.memory import HostBuffer, Mapping, Memory, SharedWithHost
from xsem_opencl.semaphores import Semaphore, payloads

__all__ = ["Pitched", "Step", "barrier", "copy_buffer", "copy_image", "copy_image_and_buffer", "copy_image_and_host",
           "copy_rows", "fill_buffer", "handover", "place", "read_buffer", "semaphores", "write_buffer"]


class Step(NamedTuple):
    """The call of one function."""

    name: str
    arguments: tuple[Any, ...]   # between the queue and the events
    memories: Sequence[Memory | SharedWithHost] = ()   # change hands with the call


class Pitched(NamedTuple):
    """Rows in a buffer."""

    buffer: int   # cl_mem
    offset: int
    row_pitch: int
    slice_pitch: int


def place(buffer: Mapping | HostBuffer, offset: int) -> tuple[int, int]:
    """Return the cl_mem and the offset in it; for host memory, 0 and a pointer."""
    if isinstance(buffer, HostBuffer):
        return 0, buffer.address + offset
    return buffer.memory.handle, buffer.offset + offset


def barrier() -> Step:
    """Wait for the events, in addition to the order of the queue."""
    return Step("clEnqueueBarrierWithWaitList", ())


def semaphores(name: str, batch: Sequence[Semaphore], params: Sequence[Any]) -> Step:
    """Wait for semaphores, or signal them."""
    return Step(name, (len(batch), array([each.handle for each in batch]), payloads(batch, params)))


def handover(name: str, memories: Sequence[Memory | SharedWithHost]) -> Sequence[Step]:
    """Acquire memories and the images over them from their exporters, or give them back."""
    external = [memory for memory in memories if isinstance(memory, Memory)]
    objects = [handle for memory in external for handle in (memory.handle, *tuple(memory.images))]
    steps = [Step(name, (len(objects), array(objects)), external)] if external else []
    for memory in memories:
        if isinstance(memory, SharedWithHost):
            steps += _with_host(memory, acquire=name == cl.ACQUIRE)
    return steps


def _with_host(memory: SharedWithHost, *, acquire: bool) -> Sequence[Step]:
    if not acquire:
        return [] if memory.mapped else [_map(memory, cl.MAP_READ_AND_WRITE)]
    unmap = Step(cl.UNMAP, (memory.handle, memory.address), [memory])
    # After an acquire without a release, the other side may have written. The device's copy is not wanted then.
    return [unmap] if memory.mapped else [_map(memory, cl.MAP_WRITE_INVALIDATE_REGION), unmap]


def _map(memory: SharedWithHost, flags: int) -> Step:
    return Step(cl.MAP, (memory.handle, cl.CL_FALSE, flags, 0, memory.size), [memory])


def copy_buffer(dst: int, to: int, src: int, out_of: int, size: int) -> Step:
    """Copy between two buffers."""
    return Step("clEnqueueCopyBuffer", (src, dst, out_of, to, size))


def read_buffer(buffer: int, offset: int, size: int, pointer: int) -> Step:
    """Copy from a buffer to host memory, without blocking."""
    return Step("clEnqueueReadBuffer", (buffer, cl.CL_FALSE, offset, size, pointer))


def write_buffer(buffer: int, offset: int, size: int, pointer: int) -> Step:
    """Copy from host memory to a buffer, without blocking."""
    return Step("clEnqueueWriteBuffer", (buffer, cl.CL_FALSE, offset, size, pointer))


def fill_buffer(buffer: int, offset: int, pattern: Any, size: int) -> Step:
    """Repeat a pattern, an array of char, over `size` bytes of a buffer."""
    return Step("clEnqueueFillBuffer", (buffer, pattern, len(pattern), offset, size))


def copy_rows(dst: Pitched, src: Pitched, region: Box) -> Step:
    """Copy rows between two buffers, of which each has its own pitches."""
    return Step("clEnqueueCopyBufferRect", (
        src.buffer, dst.buffer, _sizes((src.offset, 0, 0)), _sizes((dst.offset, 0, 0)), _sizes(region),
        src.row_pitch, src.slice_pitch, dst.row_pitch, dst.slice_pitch))


def copy_image(dst: Image, to: Box, src: Image, out_of: Box, region: Box) -> Step:
    """Copy between two images of one format."""
    return Step("clEnqueueCopyImage", (src.handle, dst.handle, _sizes(out_of), _sizes(to), _sizes(region)))


def copy_image_and_host(
    image: Image, box: tuple[Box, Box], pointer: int, row_pitch: int, slice_pitch: int, *, read: bool
) -> Step:
    """Copy from an image to host memory, or in the other direction, without blocking."""
    if image.counts_layers_as_rows:
        row_pitch = slice_pitch   # drivers take either pitch as the distance of such layers
    return Step("clEnqueueReadImage" if read else "clEnqueueWriteImage", (
        image.handle, cl.CL_FALSE, *map(_sizes, box), row_pitch, slice_pitch if image.has_slices else 0, pointer))


def copy_image_and_buffer(image: Image, box: tuple[Box, Box], buffer: int, offset: int, *, read: bool) -> Step:
    """Copy from an image to rows without padding in a buffer, or in the other direction."""
    origin, region = map(_sizes, box)
    if read:
        return Step("clEnqueueCopyImageToBuffer", (image.handle, buffer, origin, region, offset))
    return Step("clEnqueueCopyBufferToImage", (buffer, image.handle, offset, origin, region))


def _sizes(numbers: Box) -> Any:
    return (c_size_t * 3)(*numbers)
