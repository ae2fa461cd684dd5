"""Copies of random regions of images on a real device, each compared with NumPy.

    exercise(device, commands, memory, buffer, SIMPLE)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import xsem
from xsem.data.image_formats import FORMATS as ALL_FORMATS
from xsem.types import MipmapDesc

__all__ = ["BLOCKS", "FORMATS", "PLANES", "SHAPES", "SIMPLE", "between", "copy_frame", "exercise", "pixels_of",
           "write_pixels"]

BOUND_S = 30.0
ROUNDS = 6
UNTOUCHED = 0x5A


def _desc(**fields: Any) -> MipmapDesc:
    return MipmapDesc(**{"extent": (24, 10, 0), "format": "uint8", "channels": 4, **fields})


SIMPLE = {
    "2D": _desc(), "1D": _desc(extent=(40, 0, 0), format="uint16", channels=1), "2D layers": _desc(layers=3),
    "3D": _desc(extent=(8, 6, 4), format="float32", channels=2), "wide elements": _desc(format="int32"),
    "bytes": _desc(extent=(37, 5, 0), channels=1), "1D layers": _desc(extent=(24, 0, 0), layers=3),
}
"""Images of one level at the start of their memory (`Feature.IMAGE`)."""
SHAPES = SIMPLE | {
    "levels": _desc(levels=3), "levels of layers": _desc(levels=2, layers=2), "cubemap": _desc(
        extent=(8, 8, 0), layers=6, cubemap=True), "3D levels": _desc(extent=(8, 8, 8), levels=2),
}
FORMATS = {
    name: _desc(extent=(36, 20, 0), format=name, channels=ALL_FORMATS[name].channels[-1])
    for name in ("unorm8", "unorm16", "snorm8", "snorm16", "unorm_10_10_10_2", "bc1_unorm", "bc4_snorm", "bc5_unorm",
                 "bc6h_uf16", "bc7_unorm_srgb")
}
"""Images of one level, of formats beyond the plain components. All blocks are whole."""
BLOCKS = {
    "cut blocks": _desc(extent=(22, 13, 0), format="bc1_unorm", levels=3),
    "layers of blocks": _desc(extent=(12, 8, 0), format="bc7_unorm", layers=3, levels=2),
    "less than a block": _desc(extent=(3, 2, 0), format="bc5_snorm", channels=2),
}
"""Images of blocks, some of which reach beyond their level."""
PLANES = {name: _desc(format=name, channels=3) for name in ("nv12", "p010")}
"""Images of two planes."""


class _Part(NamedTuple):
    """A random region in pixels, and the index of its elements in an array of slices or layers, rows and elements."""

    region: dict[str, Any]
    where: tuple[slice, slice, slice]


def _counts(level: xsem.MipmapLevel, desc: MipmapDesc) -> tuple[int, int, int]:
    """Return the elements in each dimension: pixels, or blocks of pixels. 0: an absent dimension."""
    block = ALL_FORMATS[desc.format].block
    width, height, depth = level.extent
    return -(-width // block), -(-height // block), depth


def _in_pixels(level: xsem.MipmapLevel, desc: MipmapDesc, offset: Any, count: Any) -> tuple[Any, Any]:
    """Return the offset and the extent of some elements. A block at the end can reach beyond the level."""
    block = ALL_FORMATS[desc.format].block
    start = tuple(at * size for at, size in zip(offset, (block, block, 1), strict=True))
    return start, tuple(min(length * size, room - at) for length, size, room, at in zip(
        count, (block, block, 1), level.extent, start, strict=True))


def _shape(level: xsem.MipmapLevel, desc: MipmapDesc) -> tuple[int, int, int]:
    width, height, depth = (max(1, length) for length in _counts(level, desc))
    return desc.layers or depth, height, width


def pixels_of(level: xsem.MipmapLevel, desc: MipmapDesc) -> Any:
    """Read a level as bytes: slices or layers, rows, elements, bytes of an element."""
    return level.read().view(np.uint8).reshape(*_shape(level, desc), -1)


def write_pixels(level: xsem.MipmapLevel, desc: MipmapDesc, pixels: Any) -> None:
    """Write a level from the array that `pixels_of` returns."""
    before = level.read()
    assert pixels.shape[:3] == _shape(level, desc)
    level.write(np.ascontiguousarray(pixels).reshape(-1).view(before.dtype).reshape(before.shape))


def _noise(rng: Any, level: xsem.MipmapLevel, desc: MipmapDesc) -> Any:
    return rng.integers(0, 256, pixels_of(level, desc).shape, np.uint8)


def _random_part(rng: Any, level: xsem.MipmapLevel, desc: MipmapDesc) -> _Part:
    counts = _counts(level, desc)
    count = tuple(int(rng.integers(1, length + 1)) if length else 0 for length in counts)
    at = tuple(int(rng.integers(0, length - part + 1)) if length else 0
               for length, part in zip(counts, count, strict=True))
    offset, extent = _in_pixels(level, desc, at, count)
    region: dict[str, Any] = {"offset": offset, "extent": extent}
    first, slices = at[2], max(1, count[2])
    if desc.layers:
        slices = int(rng.integers(1, desc.layers + 1))
        first = int(rng.integers(0, desc.layers - slices + 1))
        region |= {"layer": first, "layers": slices}
    rows, columns = (slice(at[axis], at[axis] + max(1, count[axis])) for axis in (1, 0))
    return _Part(region, (slice(first, first + slices), rows, columns))


def exercise(
    device: xsem.Device, commands: xsem.CommandList, memory: xsem.Memory, buffer: xsem.Buffer,
    descs: dict[str, MipmapDesc], seed: int = 0,
) -> None:
    """Copy regions of images over `memory` to and from `buffer` and host memory, and within each level and plane."""
    rng = np.random.default_rng(seed)
    host = device.host_buffer(buffer.size)
    for name, desc in descs.items():
        with memory.map_mipmapped_array(desc) as image:
            for index, plane in np.ndindex(desc.levels, len(ALL_FORMATS[desc.format].planes)):
                level, what = image.level(index, plane), f"{name}, level {index}, plane {plane}"
                for each in (buffer, host):
                    _with_buffer(rng, commands, level, desc, each, host, what)
                _within(commands, level, desc, what)


def _with_buffer(
    rng: Any, commands: xsem.CommandList, level: xsem.MipmapLevel, desc: MipmapDesc, buffer: xsem.Buffer,
    host: xsem.Buffer, what: str,
) -> None:
    pixels = _noise(rng, level, desc)
    write_pixels(level, desc, pixels)
    for _ in range(ROUNDS):
        region, where = _random_part(rng, level, desc)
        slices, rows, columns, size = pixels[where].shape
        row_pitch = (columns + int(rng.integers(0, 4))) * size
        slice_pitch = row_pitch * (rows + int(rng.integers(0, 3)))
        start = int(rng.integers(0, 8)) * size
        needed = (slices - 1) * slice_pitch + (rows - 1) * row_pitch + columns * size
        content = np.full(buffer.size, UNTOUCHED, np.uint8)
        view = buffer.view((needed,), "uint8", offset=start)
        inside = np.lib.stride_tricks.as_strided(
            content[start:], (slices, rows, columns, size), (slice_pitch, row_pitch, size, 1))
        read = bool(rng.integers(0, 2))
        given = region | {"row_pitch": row_pitch, "slice_pitch": slice_pitch}
        said = f"{what}, {given}, {'read' if read else 'written'}"
        if read:
            _set(commands, buffer, host, content)
            commands.append_copy(view, level, **given)
            inside[...] = pixels[where]
        else:
            inside[...] = pixels[where] = rng.integers(0, 256, inside.shape, np.uint8)
            _set(commands, buffer, host, content)
            commands.append_copy(level, view, **given)
        commands.synchronize(timeout_s=BOUND_S)
        found = buffer.copy_to_host()
        assert (found == content).all(), f"bytes of the buffer: {said}"
        assert (pixels_of(level, desc) == pixels).all(), f"pixels: {said}"


def _set(commands: xsem.CommandList, buffer: xsem.Buffer, host: xsem.Buffer, content: Any) -> None:
    host.numpy()[...] = content
    if buffer is not host:
        commands.append_copy(buffer, host)


def _within(commands: xsem.CommandList, level: xsem.MipmapLevel, desc: MipmapDesc, what: str) -> None:
    """Copy a part of a level to the part beside it. Both parts have only whole blocks."""
    half = level.extent[0] // ALL_FORMATS[desc.format].block // 2
    if not half:
        return
    pixels = pixels_of(level, desc)
    _, height, depth = _counts(level, desc)
    offset, _ = _in_pixels(level, desc, (half, 0, 0), (half, height, depth))
    _, extent = _in_pixels(level, desc, (0, 0, 0), (half, height, depth))
    commands.append_copy(level, level, offset=offset, extent=extent, src_offset=(0, 0, 0))
    commands.synchronize(timeout_s=BOUND_S)
    pixels[:, :, half:2 * half] = pixels[:, :, :half].copy()
    assert (pixels_of(level, desc) == pixels).all(), f"{what}, from half to half"


def between(
    commands: xsem.CommandList, dst: xsem.MipmappedArray, src: xsem.MipmappedArray, seed: int = 0
) -> None:
    """Copy random regions between two images of pixels with one size, without layers or with the same layers."""
    rng = np.random.default_rng(seed)
    into, out_of = dst.level(0), src.level(0)
    target, source = _noise(rng, into, dst.desc), _noise(rng, out_of, src.desc)
    write_pixels(into, dst.desc, target)
    write_pixels(out_of, src.desc, source)
    for _ in range(ROUNDS):
        extent = tuple(int(rng.integers(1, min(one, other) + 1)) if one else 0
                       for one, other in zip(into.extent, out_of.extent, strict=True))
        to, at = (tuple(int(rng.integers(0, length - part + 1)) if length else 0
                        for length, part in zip(level.extent, extent, strict=True)) for level in (into, out_of))
        more: dict[str, Any] = {}
        first, second = to[2], at[2]
        if dst.desc.layers and src.desc.layers:
            first, second = (int(rng.integers(0, each.desc.layers)) for each in (dst, src))
            more = {"layer": first, "src_layer": second}
        commands.append_copy(into, out_of, offset=to, extent=extent, src_offset=at, **more)
        commands.synchronize(timeout_s=BOUND_S)
        width, height, count = (max(1, length) for length in extent)
        target[first:first + count, to[1]:to[1] + height, to[0]:to[0] + width] = source[
            second:second + count, at[1]:at[1] + height, at[0]:at[0] + width]
        assert (pixels_of(into, dst.desc) == target).all(), f"{extent} from {at} to {to}, {more}"
        assert (pixels_of(out_of, src.desc) == source).all()


def copy_frame(device: xsem.Device, commands: xsem.CommandList, planes: Sequence[xsem.MipmapLevel]) -> None:
    """Copy a frame into its planes and back. In the buffer, the planes lie one behind the other."""
    sizes = [level.read().nbytes for level in planes]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    frame, back = device.host_buffer(sum(sizes)), device.host_buffer(sum(sizes))
    frame.numpy()[...] = np.random.default_rng(len(sizes)).integers(0, 256, sum(sizes), np.uint8)
    parts = list(zip(planes, starts, sizes, strict=True))
    for level, start, size in parts:
        commands.append_copy(level, frame.view((size,), "uint8", offset=start))
    for level, start, size in parts:
        commands.append_copy(back.view((size,), "uint8", offset=start), level)
    commands.synchronize(timeout_s=BOUND_S)
    assert (back.numpy() == frame.numpy()).all()
    for level, start, size in parts:
        assert level.read().tobytes() == frame.numpy()[start:start + size].tobytes()
