"""Appended copies between buffers and image levels: the checks of both ends, and the driver's call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from xsem.data.params import UINT64_MAX, check_int
from xsem.errors import BadArgumentError
from xsem.facade.buffer import Buffer
from xsem.facade.image import ImageBytes, MipmapLevel
from xsem.runtime.device_state import DeviceState
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.queues.operations import DriverCall
from xsem.spi import LARGEST_ROW_PITCH, ImageCopyQueue, ImageRegion, QueueDriver
from xsem.types import Feature

__all__ = ["CopyRegion", "image_copy"]

_AXES: Final = ("x", "y", "z")
_LENGTHS: Final = ("width", "height", "depth")

Box = tuple[int, int, int]


class CopyRegion(NamedTuple):
    """The region of a copy, as `CommandList.append_copy` describes its parameters. None: the default."""

    offset: Sequence[int] | None
    extent: Sequence[int] | None
    layer: int | None
    layers: int | None
    src_offset: Sequence[int] | None
    src_layer: int | None
    row_pitch: int | None
    slice_pitch: int | None

    def refuse_for_buffers(self) -> None:
        """Refuse a region of a copy between two buffers."""
        self._refuse(self._fields, "a copy between two buffers", "use Buffer.view()")

    def refuse_for_buffer(self) -> None:
        """Refuse the second region of a copy with only one level."""
        self._refuse(("src_offset", "src_layer"), "a copy between a buffer and a level",
                     "offset and layer name the region of the level, and Buffer.view() a part of the buffer")

    def refuse_for_levels(self) -> None:
        """Refuse a pitch of a copy between two levels."""
        if self.row_pitch is not None or self.slice_pitch is not None:
            raise BadArgumentError("row_pitch and slice_pitch describe a buffer; a copy between two levels takes "
                                   "neither", reason="bad_pitch")

    def _refuse(self, names: Sequence[str], what: str, instead: str) -> None:
        given = [name for name in names if getattr(self, name) is not None]
        if given:
            raise BadArgumentError(f"{what} takes no {' and no '.join(given)}: {instead}", reason="not_an_image")


def image_copy(
    device_state: DeviceState, queue: QueueDriver, dst: Buffer | MipmapLevel, src: Buffer | MipmapLevel,
    region: CopyRegion,
) -> DriverCall:
    """Return the append of a copy with at least one level. The objects belong to this device."""
    device_state.require(Feature.IMAGE_COPY)
    driver = device_state.ability(ImageCopyQueue, Feature.IMAGE_COPY.value, queue)
    lifetimes = (_lifetime(dst), _lifetime(src))
    if isinstance(dst, MipmapLevel) and isinstance(src, MipmapLevel):
        region.refuse_for_levels()
        return DriverCall("copy", driver.append_image_copy, _between_levels(dst, src, region), lifetimes)
    region.refuse_for_buffer()
    read = not isinstance(dst, MipmapLevel)
    level, buffer = cast("tuple[MipmapLevel, Buffer]", (src, dst) if read else (dst, src))
    box = _region_of(level, region.offset, region.extent, region.layer, region.layers)
    pitches = _pitches(buffer, level, box, region)
    _check_place(buffer, level, box, pitches)
    place = buffer._place
    return DriverCall("copy", driver.append_region_copy,
                      (level._level, box, place.token, place.offset, *pitches, read), lifetimes)


def _lifetime(end: Buffer | MipmapLevel) -> Lifetime:
    return end._array._lifetime if isinstance(end, MipmapLevel) else end._lifetime


# ---- regions of levels
def _between_levels(dst: MipmapLevel, src: MipmapLevel, region: CopyRegion) -> tuple[object, ...]:
    if dst._layout.element_size != src._layout.element_size:
        raise BadArgumentError(
            f"an element of {dst._described()} has {dst._layout.element_size} bytes, and one of {src._described()} "
            f"{src._layout.element_size}: a copy converts nothing", reason="format_mismatch",
        )
    src_offset = region.offset if region.src_offset is None else region.src_offset
    src_layer = region.layer if region.src_layer is None else region.src_layer
    into = _region_of(dst, region.offset, region.extent, region.layer, region.layers)
    out_of = _region_of(src, src_offset, region.extent, src_layer, region.layers)
    if into.extent != out_of.extent or into.layers != out_of.layers:
        raise BadArgumentError(
            f"the regions differ: {into.extent} elements and {into.layers} layers of {dst._described()}, "
            f"{out_of.extent} and {out_of.layers} of {src._described()}; pass extent and layers",
            reason="size_mismatch",
        )
    same_image = dst._array is src._array or (
        dst._array._bytes == src._array._bytes and dst._array.desc == src._array.desc)
    if same_image:
        if dst._index == src._index and _overlap(into, out_of):
            raise BadArgumentError(f"the two regions of {dst._described()} overlap", reason="overlap")
    elif dst._array._bytes.overlaps(src._array._bytes):
        raise BadArgumentError("the two images lie over the same bytes of one memory", reason="overlap")
    return dst._level, into, src._level, out_of


def _region_of(
    level: MipmapLevel, offset: Sequence[int] | None, extent: Sequence[int] | None, layer: int | None,
    layers: int | None,
) -> ImageRegion:
    room = level.extent
    start = (0, 0, 0) if offset is None else _triple(offset, "offset is (x, y, z)", reason="bad_offset")
    for axis, at, length in zip(_AXES, start, room, strict=True):
        check_int(f"{axis} of offset", at, 0, max(1, length) - 1, reason="out_of_range")
    if extent is None:
        width, height, depth = (max(1, length) - at for length, at in zip(room, start, strict=True))
    else:
        given = _triple(extent, "extent is (width, height, depth)", reason="bad_extent")
        for name, count, at, length in zip(_LENGTHS, given, start, room, strict=True):
            # A dimension that the level lacks is 0, as in `MipmapLevel.extent`, or 1.
            check_int(f"{name} of extent", count, 1 if length else 0, UINT64_MAX, reason="bad_extent")
            if at + max(1, count) > max(1, length):
                raise BadArgumentError(
                    f"offset {start} and extent {given} reach beyond {level._described()}, whose extent is {room}",
                    reason="out_of_range",
                )
        width, height, depth = (max(1, count) for count in given)
    first, size = _in_elements(level, start, (width, height, depth))
    return ImageRegion(first, size, *_layers(level, layer, layers))


def _in_elements(level: MipmapLevel, start: Box, extent: Box) -> tuple[Box, Box]:
    """Return the offset and the extent in elements. An element is a pixel, or a block of pixels."""
    block = level._layout.block
    if block == 1:
        return start, extent
    for name, at, count, length in zip(_LENGTHS[:2], start, extent, level.extent, strict=False):
        if at % block or (count % block and at + count != length):
            raise BadArgumentError(
                f"{level._described()} has blocks of {block} x {block} pixels: the offset of a region must be a "
                f"multiple of {block}, and its {name}, too, unless it ends with the level; not {at} and {count}",
                reason="bad_extent")
    (x, y, z), (width, height, depth) = start, extent
    return (x // block, y // block, z), (-(-width // block), -(-height // block), depth)


def _layers(level: MipmapLevel, layer: int | None, layers: int | None) -> tuple[int, int]:
    room = max(1, level._array.desc.layers)
    if layer is None:
        first, rest = 0, room
    else:
        check_int("layer", layer, 0, room - 1, reason="bad_layers")
        first, rest = layer, 1
    if layers is None:
        return first, rest
    check_int("layers", layers, 1, room - first, reason="bad_layers")
    return first, layers


def _triple(given: Sequence[int], form: str, *, reason: str) -> Box:
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise BadArgumentError(f"{form} in pixels, not {given!r}", reason=reason)
    x, y, z = given
    return x, y, z


def _overlap(first: ImageRegion, second: ImageRegion) -> bool:
    """Return whether two regions of one level with the same extent and number of layers have a common element."""
    return abs(first.layer - second.layer) < first.layers and all(
        abs(one - other) < length for one, other, length in zip(first.offset, second.offset, first.extent, strict=True))


# ---- rows of buffers
def _pitches(buffer: Buffer, level: MipmapLevel, region: ImageRegion, given: CopyRegion) -> tuple[int, int]:
    """Return the bytes from row to row, and from slice to slice, in the buffer."""
    row = region.extent[0] * level._layout.element_size
    rows = region.extent[1]
    if given.row_pitch is None and given.slice_pitch is None:
        row_pitch, slice_pitch = _pitches_of_shape(buffer, level, region)
    else:
        row_pitch = row if given.row_pitch is None else given.row_pitch
        check_int("row_pitch", row_pitch, 0, UINT64_MAX, reason="bad_pitch")
        slice_pitch = row_pitch * rows if given.slice_pitch is None else given.slice_pitch
        check_int("slice_pitch", slice_pitch, 0, UINT64_MAX, reason="bad_pitch")
    if not row <= row_pitch <= LARGEST_ROW_PITCH or row_pitch % level._layout.element_size:
        raise BadArgumentError(
            f"the row pitch must be a multiple of the {level._layout.element_size} bytes of an element, from the {row} "
            f"bytes of a row to {LARGEST_ROW_PITCH}, not {row_pitch}", reason="bad_pitch",
        )
    if slice_pitch < row_pitch * rows or slice_pitch % row_pitch:
        raise BadArgumentError(
            f"the slice pitch must be a multiple of the row pitch of {row_pitch} bytes, and at least {rows} rows, not "
            f"{slice_pitch} bytes", reason="bad_pitch",
        )
    return row_pitch, slice_pitch


def _pitches_of_shape(buffer: Buffer, level: MipmapLevel, region: ImageRegion) -> tuple[int, int]:
    """Return the pitches of a buffer without pitches of the caller."""
    # A buffer with one dimension holds rows without padding. A buffer with more dimensions has the shape of the region,
    # in C order, and its strides are the pitches.
    (width, height, _), slices = region.extent, region.slices
    row = width * level._layout.element_size
    itemsize = buffer._dtype.itemsize
    if len(buffer.shape) == 1:
        if buffer.strides[0] != itemsize and buffer.shape[0] > 1:
            raise BadArgumentError(f"the elements of the buffer are {buffer.strides[0]} bytes apart: an image needs "
                                   "rows of adjacent elements", reason="bad_strides")
        return row, row * height
    # A dimension of length 1 can be absent on both sides.
    expected = [(slices, 0), (height, 0), (width, level._layout.element_size)]
    if itemsize != level._layout.element_size:
        expected.append((level._layout.element_size // itemsize, itemsize))
    wanted = [length for length, _ in expected if length != 1]
    found = [(length, step) for length, step in zip(buffer.shape, buffer.strides, strict=True) if length != 1]
    if level._layout.element_size % itemsize or wanted != [length for length, _ in found]:
        raise BadArgumentError(
            f"the buffer's shape is {buffer.shape} of {buffer.dtype}, and the region has {slices} slices or layers, "
            f"{height} rows and {width} elements of {level._layout.element_size} bytes in a row; use Buffer.view(), or "
            "pass row_pitch", reason="shape_mismatch",
        )
    steps = iter(found)
    strides = [next(steps)[1] if length != 1 else 0 for length, _ in expected]
    for (length, step), stride in zip(expected, strides, strict=True):
        if step and length != 1 and stride != step:
            raise BadArgumentError(f"the buffer's strides are {buffer.strides}: an image needs rows of adjacent "
                                   "elements", reason="bad_strides")
    row_pitch = strides[1] if height > 1 else row
    return row_pitch, strides[0] if slices > 1 else row_pitch * height


def _check_place(buffer: Buffer, level: MipmapLevel, region: ImageRegion, pitches: tuple[int, int]) -> None:
    row_pitch, slice_pitch = pitches
    width, height, _ = region.extent
    size = (region.slices - 1) * slice_pitch + (height - 1) * row_pitch + width * level._layout.element_size
    if size > buffer.size:
        raise BadArgumentError(f"the region needs {size} bytes of the buffer, which has {buffer.size}",
                               reason="out_of_range")
    place = buffer._place
    if place.memory_offset % level._layout.element_size:
        raise BadArgumentError(
            f"the buffer begins at byte {place.memory_offset} of its memory: an image needs a multiple of the "
            f"{level._layout.element_size} bytes of an element", reason="bad_offset",
        )
    if level._array._bytes.overlaps(ImageBytes(place.memory, place.memory_offset, place.memory_offset + size)):
        raise BadArgumentError("the buffer and the image lie over the same bytes of one memory", reason="overlap")
