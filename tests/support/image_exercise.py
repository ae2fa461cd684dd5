"""Copies of random regions of images on a real device, each compared with NumPy.

    exercise(device, commands, memory, buffer, SIMPLE)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import xsem
from xsem.types import MipmapDesc

__all__ = ["SHAPES", "SIMPLE", "between", "exercise", "pixels_of", "write_pixels"]

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


class _Part(NamedTuple):
    """A random region, and the index of its elements in an array of slices or layers, rows and elements."""

    region: dict[str, Any]
    where: tuple[slice, slice, slice]


def _shape(level: xsem.MipmapLevel, desc: MipmapDesc) -> tuple[int, int, int]:
    width, height, depth = (max(1, length) for length in level.extent)
    return desc.layers or depth, height, width


def pixels_of(level: xsem.MipmapLevel, desc: MipmapDesc) -> Any:
    """Read a level as bytes: slices or layers, rows, elements, bytes of an element."""
    return level.read().view(np.uint8).reshape(*_shape(level, desc), -1)


def write_pixels(level: xsem.MipmapLevel, desc: MipmapDesc, pixels: Any) -> None:
    """Write a level from the array that `pixels_of` returns."""
    values = np.ascontiguousarray(pixels).reshape(-1).view(desc.format)
    level.write(values.reshape(level.read().shape))


def _random_part(rng: Any, level: xsem.MipmapLevel, desc: MipmapDesc) -> _Part:
    extent = tuple(int(rng.integers(1, length + 1)) if length else 0 for length in level.extent)
    offset = tuple(int(rng.integers(0, length - part + 1)) if length else 0
                   for length, part in zip(level.extent, extent, strict=True))
    region: dict[str, Any] = {"offset": offset, "extent": extent}
    first, count = offset[2], max(1, extent[2])
    if desc.layers:
        count = int(rng.integers(1, desc.layers + 1))
        first = int(rng.integers(0, desc.layers - count + 1))
        region |= {"layer": first, "layers": count}
    rows, columns = (slice(offset[axis], offset[axis] + max(1, extent[axis])) for axis in (1, 0))
    return _Part(region, (slice(first, first + count), rows, columns))


def exercise(
    device: xsem.Device, commands: xsem.CommandList, memory: xsem.Memory, buffer: xsem.Buffer,
    descs: dict[str, MipmapDesc], seed: int = 0,
) -> None:
    """Copy regions of images over `memory` to and from `buffer` and host memory, and between two images."""
    rng = np.random.default_rng(seed)
    host = device.host_buffer(buffer.size)
    for name, desc in descs.items():
        with memory.map_mipmapped_array(desc) as image:
            for index in range(desc.levels):
                for each in (buffer, host):
                    _with_buffer(rng, commands, image.level(index), desc, each, host, f"{name}, level {index}")
                _within(rng, commands, image, index, name)


def _with_buffer(
    rng: Any, commands: xsem.CommandList, level: xsem.MipmapLevel, desc: MipmapDesc, buffer: xsem.Buffer,
    host: xsem.Buffer, what: str,
) -> None:
    pixels = rng.integers(0, 256, (*_shape(level, desc), _element(desc)), np.uint8)
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


def _within(rng: Any, commands: xsem.CommandList, image: xsem.MipmappedArray, index: int, what: str) -> None:
    """Copy one half of a level to its other half."""
    desc, level = image.desc, image.level(index)
    width, height, depth = level.extent
    if width < 2:
        return
    pixels = pixels_of(level, desc)
    half = width // 2
    commands.append_copy(level, level, offset=(half, 0, 0), extent=(half, height, depth), src_offset=(0, 0, 0))
    commands.synchronize(timeout_s=BOUND_S)
    pixels[:, :, half:2 * half] = pixels[:, :, :half].copy()
    assert (pixels_of(level, desc) == pixels).all(), f"{what}, level {index}, from half to half"


def between(
    commands: xsem.CommandList, dst: xsem.MipmappedArray, src: xsem.MipmappedArray, seed: int = 0
) -> None:
    """Copy random regions between two images with elements of one size, without layers or with the same layers."""
    rng = np.random.default_rng(seed)
    into, out_of = dst.level(0), src.level(0)
    target = rng.integers(0, 256, (*_shape(into, dst.desc), _element(dst.desc)), np.uint8)
    source = rng.integers(0, 256, (*_shape(out_of, src.desc), _element(src.desc)), np.uint8)
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


def _element(desc: MipmapDesc) -> int:
    return desc.channels * np.dtype(desc.format).itemsize
