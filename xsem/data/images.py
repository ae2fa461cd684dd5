"""Layouts of images in external memory. The constructor checks the fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xsem.data.params import UINT64_MAX, check_bool, check_int
from xsem.errors import BadArgumentError

__all__ = ["MipmapDesc"]

_FORMATS: Final = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32")


@dataclass(frozen=True, kw_only=True, slots=True)
class MipmapDesc:
    """Layout of an image in external memory (CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC).

    Attributes
    ----------
    extent : tuple of int
        Width, height and depth of level 0 in elements. One dimension: height and depth are 0. Two dimensions: depth
        is 0.
    format, channels : str, int
        Component type of CUarray_format, as a dtype name: ``"uint8"``, ``"uint16"``, ``"uint32"``, ``"int8"``,
        ``"int16"``, ``"int32"``, ``"float16"`` or ``"float32"``. Number of components: 1, 2 or 4.
    levels : int
        Number of mipmap levels; 1 for NvSciBuf memory.
    layers : int
        Number of layers; 0: not layered. Cubemaps: 6 or a multiple of 6.
    offset : int
        Bytes from the start of the memory to level 0.
    cubemap, surface_load_store, color_attachment : bool
        CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_SURFACE_LDST and CUDA_ARRAY3D_COLOR_ATTACHMENT. CUDA_ARRAY3D_COLOR_ATTACHMENT
        means that the graphics API binds the image as a colour target.

    Raises
    ------
    BadArgumentError
        ``bad_extent``, ``bad_format``, ``bad_channels``, ``bad_levels``, ``bad_layers``, ``bad_offset``,
        ``not_an_int``, ``not_a_bool``.

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
        if not isinstance(self.format, str) or self.format not in _FORMATS:
            raise BadArgumentError(f"format is one of the names {', '.join(_FORMATS)}, not {self.format!r}",
                                   reason="bad_format")
        check_int("channels", self.channels, 1, 4, reason="bad_channels")
        if self.channels == 3:
            raise BadArgumentError("channels is 1, 2 or 4, not 3", reason="bad_channels")
        # For a number of levels above the maximum, the driver creates fewer levels and reports no error.
        check_int("levels", self.levels, 1, max(width, height, depth).bit_length(), reason="bad_levels")
        check_int("layers", self.layers, 0, 2**32 - 1, reason="bad_layers")
        check_int("offset", self.offset, 0, UINT64_MAX, reason="bad_offset")
        for flag in ("cubemap", "surface_load_store", "color_attachment"):
            check_bool(flag, getattr(self, flag))
        if self.layers and depth:
            raise BadArgumentError("an image with a depth has no layers", reason="bad_layers")
        if self.cubemap and (self.layers == 0 or self.layers % 6 or width != height):
            raise BadArgumentError("a cubemap is square and has 6 layers, or a multiple of 6", reason="bad_layers")

    @property
    def beyond_image(self) -> str | None:
        """Name of the first property of the image that `Feature.IMAGE` excludes; None if no property is excluded."""
        asked = {"more than one level": self.levels > 1, "an offset": self.offset, "a cubemap": self.cubemap,
                 "a colour attachment": self.color_attachment}
        return next((what for what, wanted in asked.items() if wanted), None)
