"""Layouts of images in external memory. The constructor checks the fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from xsem.data.image_formats import FLAGS, FORMATS, ImageFormat
from xsem.data.layout import parse_dtype
from xsem.data.params import UINT64_MAX, check_bool, check_int
from xsem.errors import BadArgumentError

__all__ = ["LevelLayout", "MipmapDesc", "least_size", "level_layout"]

_DEPTH_FORMATS: Final = ("unorm16", "float32")
_BOOLS: Final = (*FLAGS, "layered_cubemap")


@dataclass(frozen=True, kw_only=True, slots=True)
class MipmapDesc:
    """Layout of an image in external memory (CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC).

    Attributes
    ----------
    extent : tuple of int
        Width, height and depth of level 0 in pixels. One dimension: height and depth are 0. Two dimensions: depth
        is 0.
    format, channels : str, int
        Name of the format, and number of channels. Integers and floats: ``"uint8"``, ``"uint16"``, ``"uint32"``,
        ``"int8"``, ``"int16"``, ``"int32"``, ``"float16"`` or ``"float32"``, 1, 2 or 4 channels. Fractions of 1:
        ``"unorm8"``, ``"unorm16"``, ``"snorm8"`` or ``"snorm16"``, 1, 2 or 4 channels. Packed: ``"unorm_10_10_10_2"``,
        4 channels, red in the lowest bits. Two planes, 4:2:0: ``"nv12"`` or ``"p010"``, 3 channels. Blocks of 4 x 4
        pixels: ``"bc1_unorm"``, ``"bc2_unorm"``, ``"bc3_unorm"`` or ``"bc7_unorm"``, also with ``"_srgb"`` at the end,
        4 channels; ``"bc4_unorm"`` or ``"bc4_snorm"``, 1 channel; ``"bc5_unorm"`` or ``"bc5_snorm"``, 2 channels;
        ``"bc6h_uf16"`` or ``"bc6h_sf16"``, 3 channels. `Capabilities.image_formats` lists the formats of a device.
    levels : int
        Number of mipmap levels; 1 for NvSciBuf memory and for images of two planes.
    layers : int
        Number of layers; 0: not layered. Cubemaps: 6 or a multiple of 6, the faces of one cube after the other.
    offset : int
        Bytes from the start of the memory to level 0.
    cubemap, surface_load_store, color_attachment : bool
        CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_SURFACE_LDST and CUDA_ARRAY3D_COLOR_ATTACHMENT. CUDA_ARRAY3D_COLOR_ATTACHMENT
        means that the graphics API binds the image as a colour target.
    layered_cubemap : bool
        A cubemap of 6 layers is an array of one cube (CUDA_ARRAY3D_LAYERED), not a single cube. A cubemap of more
        layers is always an array of cubes.
    texture_gather, depth_texture, deferred_mapping, sparse, video : bool
        CUDA_ARRAY3D_TEXTURE_GATHER, CUDA_ARRAY3D_DEPTH_TEXTURE, CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_SPARSE and
        CUDA_ARRAY3D_VIDEO_ENCODE_DECODE. A depth texture has the format ``"unorm16"`` or ``"float32"`` and 1 channel:
        D16_UNORM or D32_FLOAT of the graphics API. `Capabilities.image_flags` lists the flags of a device.

    Raises
    ------
    BadArgumentError
        ``bad_extent``, ``bad_format``, ``bad_channels``, ``bad_levels``, ``bad_layers``, ``bad_offset``,
        ``bad_flags``, ``not_an_int``, ``not_a_bool``.

    Examples
    --------
    >>> image = MipmapDesc(extent=(640, 480, 0), format="uint8", channels=4)
    >>> image.levels, image.layers, image.offset
    (1, 0, 0)
    """

    extent: tuple[int, int, int]
    format: str
    channels: int
    levels: int = 1
    layers: int = 0
    offset: int = 0
    cubemap: bool = False
    surface_load_store: bool = False
    color_attachment: bool = False
    layered_cubemap: bool = False
    texture_gather: bool = False
    depth_texture: bool = False
    deferred_mapping: bool = False
    sparse: bool = False
    video: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.extent, tuple | list) or len(self.extent) != 3:
            raise BadArgumentError(f"extent is (width, height, depth), not {self.extent!r}", reason="bad_extent")
        width, height, depth = self.extent
        object.__setattr__(self, "extent", (width, height, depth))
        check_int("width", width, 1, UINT64_MAX, reason="bad_extent")
        check_int("height", height, 0, UINT64_MAX, reason="bad_extent")
        check_int("depth", depth, 0, UINT64_MAX, reason="bad_extent")
        if depth and not height:
            raise BadArgumentError("an image with a depth has a height", reason="bad_extent")
        # A dtype object is equal to its name, but the keys of the backends' tables are only names.
        if not isinstance(self.format, str) or self.format not in FORMATS:
            raise BadArgumentError(f"format is one of the names {', '.join(FORMATS)}, not {self.format!r}",
                                   reason="bad_format")
        format_ = FORMATS[self.format]
        check_int("channels", self.channels, 1, 4, reason="bad_channels")
        if self.channels not in format_.channels:
            counts = " or ".join(map(str, format_.channels))
            raise BadArgumentError(f"channels of {self.format!r} is {counts}, not {self.channels}",
                                   reason="bad_channels")
        # For a number of levels above the maximum, the driver creates fewer levels and reports no error.
        check_int("levels", self.levels, 1, max(width, height, depth).bit_length(), reason="bad_levels")
        check_int("layers", self.layers, 0, 2**32 - 1, reason="bad_layers")
        check_int("offset", self.offset, 0, UINT64_MAX, reason="bad_offset")
        for flag in _BOOLS:
            check_bool(flag, getattr(self, flag))
        if self.layers and depth:
            raise BadArgumentError("an image with a depth has no layers", reason="bad_layers")
        if self.cubemap and (self.layers == 0 or self.layers % 6 or width != height):
            raise BadArgumentError("a cubemap is square and has 6 layers, or a multiple of 6", reason="bad_layers")
        self._check_flags()
        self._check_format(format_)

    def _check_flags(self) -> None:
        _, height, depth = self.extent
        if self.layered_cubemap and not self.cubemap:
            raise BadArgumentError("layered_cubemap needs cubemap=True", reason="bad_flags")
        if self.texture_gather and (not height or depth):
            raise BadArgumentError("texture_gather needs an image of two dimensions", reason="bad_flags")
        if not self.depth_texture:
            return
        if self.format not in _DEPTH_FORMATS or self.channels != 1:
            raise BadArgumentError(f"a depth texture has the format {' or '.join(_DEPTH_FORMATS)} and 1 channel, not "
                                   f"{self.format} and {self.channels}", reason="bad_format")
        if not height or depth or self.color_attachment or self.surface_load_store:
            raise BadArgumentError("a depth texture has two dimensions, and is neither a colour attachment nor a "
                                   "surface", reason="bad_flags")

    def _check_format(self, format_: ImageFormat) -> None:
        width, height, depth = self.extent
        if format_.block > 1 and not height:
            raise BadArgumentError(f"an image of {self.format} has a height, because its blocks have 4 rows",
                                   reason="bad_extent")
        if format_.block > 1 and self.surface_load_store:
            raise BadArgumentError(f"an image of {self.format} is not a surface, because its pixels are compressed",
                                   reason="bad_flags")
        if len(format_.planes) == 1:
            return
        if depth or not height or width % 2 or height % 2:
            raise BadArgumentError(f"an image of {self.format} has two dimensions with an even width and height, not "
                                   f"{self.extent}", reason="bad_extent")
        if self.levels != 1:
            raise BadArgumentError(f"an image of {self.format} has one level", reason="bad_levels")
        if self.layers:
            raise BadArgumentError(f"an image of {self.format} has no layers", reason="bad_layers")

    def plane(self, index: int, *, offset: int) -> MipmapDesc:
        """Return the layout of one plane of an ``"nv12"`` or ``"p010"`` image as an image of its own.

        A device that lacks the format maps the two planes as two images.

        Parameters
        ----------
        index : int
            0 for luma, of 1 channel; 1 for chroma, of 2 channels and half the width and height.
        offset : int
            Bytes from the start of the memory to the plane.

        Returns
        -------
        MipmapDesc
            The format is ``"unorm8"`` for nv12 and ``"unorm16"`` for p010. The flags are those of this image.

        Raises
        ------
        BadArgumentError
            ``bad_plane``: the format does not have this plane; ``bad_offset``, ``not_an_int``.

        Examples
        --------
        >>> frame = MipmapDesc(extent=(640, 480, 0), format="nv12", channels=3)
        >>> frame.plane(1, offset=640 * 480).extent
        (320, 240, 0)
        """
        planes = FORMATS[self.format].planes
        if len(planes) == 1:
            raise BadArgumentError(f"an image of {self.format} has no planes", reason="bad_plane")
        check_int("index", index, 0, len(planes) - 1, reason="bad_plane")
        width, height, _ = self.extent
        part = planes[index]
        return replace(self, extent=(width // part.divisor, height // part.divisor, 0), channels=part.components,
                       format="unorm8" if part.dtype == "uint8" else "unorm16", offset=offset)

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the flags that are set, as in `Capabilities.image_flags`."""
        return tuple(flag for flag in FLAGS if getattr(self, flag))

    @property
    def beyond_image(self) -> str | None:
        """Name of the first property of the image that `Feature.IMAGE` excludes; None if no property is excluded."""
        asked = {"more than one level": self.levels > 1, "an offset": self.offset, "a cubemap": self.cubemap,
                 "a colour attachment": self.color_attachment}
        return next((what for what, wanted in asked.items() if wanted), None)


class LevelLayout(NamedTuple):
    """One plane of one level of an image, as rows without padding in host memory.

    Attributes
    ----------
    extent : tuple of int
        Width, height and depth in pixels; 0 for an absent dimension.
    shape, dtype : tuple of int, str
        The NumPy array of the elements: (layers or depth, height, width, components), without the absent dimensions.
        For a block-compressed format, height and width count blocks, and a component is a byte of a block.
    element_size, block : int
        Bytes per pixel and 1; or bytes per block, and the width and height of a block in pixels.
    row_size, rows, slices : int
        Bytes per row; rows per layer or slice of depth; number of layers or slices. A row is a row of blocks for a
        block-compressed format.
    """

    extent: tuple[int, int, int]
    shape: tuple[int, ...]
    dtype: str
    element_size: int
    block: int
    row_size: int
    rows: int
    slices: int

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return self.row_size * self.rows * self.slices


def level_layout(desc: MipmapDesc, level: int = 0, plane: int = 0) -> LevelLayout:
    """Return the layout of one plane of one level.

    Parameters
    ----------
    desc : MipmapDesc
        The image.
    level, plane : int
        Numbers from 0. The caller has checked both.

    Returns
    -------
    LevelLayout
        Extent, shape and sizes of the plane.
    """
    format_ = FORMATS[desc.format]
    part = format_.planes[plane]
    width, height, depth = (max(1, (length >> level) // part.divisor) if length else 0 for length in desc.extent)
    columns, rows = (-(-length // format_.block) for length in (width, height))
    components = part.components or desc.channels
    element_size = components * parse_dtype(part.dtype).itemsize
    lengths = (desc.layers or depth, rows, columns, components)
    return LevelLayout(
        extent=(width, height, depth), shape=tuple(length for length in lengths if length), dtype=part.dtype,
        element_size=element_size, block=format_.block, row_size=columns * element_size, rows=max(1, rows),
        slices=max(1, desc.layers or depth),
    )


def least_size(desc: MipmapDesc) -> int:
    """Return the bytes of all elements: the smallest size of the image for any tiling."""
    # Only the driver knows the full size.
    planes = range(len(FORMATS[desc.format].planes))
    return sum(level_layout(desc, level, plane).size for level in range(desc.levels) for plane in planes)
