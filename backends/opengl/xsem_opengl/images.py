"""Textures on imported memory, and copies of their levels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from ctypes import c_void_p
from typing import NamedTuple

from xsem.errors import UnsupportedError
from xsem.spi import ImageRegion, level_layout
from xsem.types import MipmapDesc
from xsem_opengl.contexts import do
from xsem_opengl.formats import CHANNELS, KINDS
from xsem_opengl.loader import Gl
from xsem_opengl.objects import Memory, delete, new_name

__all__ = ["Image", "Level", "copy_levels", "copy_rows", "pixel_store"]

_TILING, _OPTIMAL = 0x9580, 0x9584


class Image:
    """A texture over a memory."""

    def __init__(self, gl: Gl, memory: Memory, desc: MipmapDesc) -> None:
        self.gl = gl
        self.desc = desc
        self.memory = memory
        if desc.channels not in CHANNELS:
            raise UnsupportedError(f"OpenGL has no texture format with {desc.channels} channels of {desc.format}",
                                   backend="opengl", capability="mipmapped_array.format", reason="not_supported")
        kind, end, integer = KINDS[desc.format]
        letters, layout = CHANNELS[desc.channels]
        self.type = getattr(gl, kind)
        self.layout = getattr(gl, f"GL_{layout}_INTEGER" if integer else f"GL_{layout}")
        width, height, depth = desc.extent
        cube = desc.cubemap and desc.layers == 6 and not desc.layered_cubemap   # of which GL creates the six faces
        shape = "CUBE_MAP" if desc.cubemap else f"{3 if depth else 2 if height else 1}D"
        self.target = getattr(gl, f"GL_TEXTURE_{shape}{'_ARRAY' if desc.layers and not cube else ''}")
        sizes = [each for each in (width, height, depth, desc.layers) if each]
        self.dimensions = len(sizes)   # of copies, in which layers and faces are one
        if cube:
            sizes.pop()
        self.name = new_name(gl, "glCreateTextures", self.target)
        try:
            do(gl, "glTextureParameteri", self.name, _TILING, _OPTIMAL)
            do(gl, f"glTextureStorageMem{len(sizes)}DEXT", self.name, desc.levels,
               getattr(gl, f"GL_{letters}{end}"), *sizes, memory.name, desc.offset)
        except BaseException:
            delete(gl, "glDeleteTextures", self.name)
            raise
        memory.textures.add(self.name)

    @property
    def rows_are_layers(self) -> bool:
        """Whether copies count the layers as rows: for an image of one dimension."""
        return self.desc.layers > 0 and not self.desc.extent[1]

    def release(self) -> None:
        """Delete it, on the worker."""
        self.memory.textures.discard(self.name)
        delete(self.gl, "glDeleteTextures", self.name)


class Level(NamedTuple):
    """A level of a texture."""

    image: Image
    number: int

    def box(self, region: ImageRegion) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return the first element and the extent, in which one of three numbers counts the layers."""
        (x, y, z), (width, height, depth) = region.offset, region.extent
        if self.image.rows_are_layers:
            return (x, region.layer, 0), (width, region.layers, 1)
        return (x, y, z + region.layer), (width, height, depth * region.layers)


def copy_rows(
    level: Level, region: ImageRegion, buffer: int, offset: int, row_pitch: int, slice_pitch: int, *, read: bool
) -> None:
    """Copy between a region and rows in a buffer, and keep the application's settings of such copies."""
    gl, image, (first, extent) = level.image.gl, level.image, level.box(region)
    element = level_layout(image.desc, level.number).element_size
    side = "PACK" if read else "UNPACK"
    # The layers of an image of one dimension are rows, and Mesa 22.3.6 yet multiplies them by the height of an image.
    rows, height = (slice_pitch, 0) if image.rows_are_layers else (row_pitch, slice_pitch // row_pitch)
    with pixel_store(gl, side, buffer, rows // element, height):
        if read:
            size = slice_pitch * (extent[2] - 1) + rows * (extent[1] - 1) + element * extent[0]
            do(gl, "glGetTextureSubImage", image.name, level.number, *first, *extent, image.layout, image.type, size,
               c_void_p(offset))
        else:
            count = image.dimensions
            do(gl, f"glTextureSubImage{count}D", image.name, level.number, *first[:count], *extent[:count],
               image.layout, image.type, c_void_p(offset))


@contextlib.contextmanager
def pixel_store(gl: Gl, side: str, buffer: int, row_length: int = 0, image_height: int = 0) -> Iterator[None]:
    """Set how pixels lie in memory, and restore the application's settings."""
    wanted = {"ROW_LENGTH": row_length, "IMAGE_HEIGHT": image_height, "ALIGNMENT": 1, "SKIP_PIXELS": 0, "SKIP_ROWS": 0,
              "SKIP_IMAGES": 0, "SWAP_BYTES": 0, "LSB_FIRST": 0}
    names = {getattr(gl, f"GL_{side}_{each}"): value for each, value in wanted.items()}
    before = {name: int(do(gl, "glGetIntegerv", name)) for name in names}
    binding, bound = getattr(gl, f"GL_PIXEL_{side}_BUFFER"), getattr(gl, f"GL_PIXEL_{side}_BUFFER_BINDING")
    bound_before = int(do(gl, "glGetIntegerv", bound))
    try:
        for name, value in names.items():
            do(gl, "glPixelStorei", name, value)
        do(gl, "glBindBuffer", binding, buffer)
        yield
    finally:
        do(gl, "glBindBuffer", binding, bound_before)
        for name, value in before.items():
            do(gl, "glPixelStorei", name, value)


def copy_levels(dst: Level, dst_region: ImageRegion, src: Level, src_region: ImageRegion) -> None:
    """Copy between two regions."""
    (to, _), (out_of, extent) = dst.box(dst_region), src.box(src_region)
    # This function alone does not count layers as rows.
    if dst.image.rows_are_layers:
        to = (to[0], 0, to[1])
    if src.image.rows_are_layers:
        out_of, extent = (out_of[0], 0, out_of[1]), (extent[0], 1, extent[1])
    do(dst.image.gl, "glCopyImageSubData", src.image.name, src.image.target, src.number, *out_of, dst.image.name,
       dst.image.target, dst.number, *to, *extent)
