"""Layout of an image in a dma-buf, in the terms of Linux's DRM subsystem. The constructor checks the fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xsem.data.params import check_int
from xsem.errors import BadArgumentError

__all__ = ["LINEAR", "MAX_PLANES", "DrmLayout", "DrmPlane", "modifier_name"]

LINEAR: Final = 0
"""DRM_FORMAT_MOD_LINEAR: rows of pixels with a pitch."""
MAX_PLANES: Final = 4
_INVALID: Final = 0x00FF_FFFF_FFFF_FFFF
_UINT32: Final = 2**32 - 1
_UINT64: Final = 2**64 - 1
# The highest byte of a modifier (drm_fourcc.h).
_VENDORS: Final = ("NONE", "INTEL", "AMD", "NVIDIA", "SAMSUNG", "QCOM", "VIVANTE", "BROADCOM", "ARM", "ALLWINNER",
                   "AMLOGIC", "MTK", "APPLE")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrmPlane:
    """One memory plane of a `DrmLayout`.

    Attributes
    ----------
    offset : int
        Bytes from the start of the dma-buf to the plane, 0 … 2**64 - 1.
    pitch : int
        Bytes from one row to the next, 1 … 2**32 - 1. The modifier defines its meaning for tiles.

    Raises
    ------
    BadArgumentError
        ``bad_plane``: the offset; ``bad_pitch``; ``not_an_int``.

    Examples
    --------
    >>> DrmPlane(offset=0, pitch=7680).pitch
    7680
    """

    offset: int
    pitch: int

    def __post_init__(self) -> None:
        check_int("offset", self.offset, 0, _UINT64, reason="bad_plane")
        check_int("pitch", self.pitch, 1, _UINT32, reason="bad_pitch")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrmLayout:
    """Layout of the image in a dma-buf, as EGL, GBM, Wayland and VK_EXT_image_drm_format_modifier describe it.

    All planes lie in one dma-buf.

    Attributes
    ----------
    modifier : int
        The DRM format modifier, 64 bits; 0 is DRM_FORMAT_MOD_LINEAR. DRM_FORMAT_MOD_INVALID is refused: it means that
        the layout is known only to the drivers.
    planes : tuple of DrmPlane
        The memory planes, 1 to 4. Their number belongs to the modifier and the format: a compressed format can have
        more planes than channels.
    fourcc : int or None
        The DRM format code, for example DRM_FORMAT_ABGR8888; None: unknown. The constructor also takes the four
        characters, for example ``"AB24"``.

    Raises
    ------
    BadArgumentError
        ``bad_modifier``; ``bad_plane``: not 1 to 4 planes; ``bad_fourcc``; ``not_an_int``.

    Examples
    --------
    >>> layout = DrmLayout(modifier=0, planes=(DrmPlane(offset=0, pitch=7680),), fourcc="AB24")
    >>> hex(layout.fourcc)
    '0x34324241'
    """

    modifier: int
    planes: tuple[DrmPlane, ...]
    fourcc: int | str | None = None

    def __post_init__(self) -> None:
        check_int("modifier", self.modifier, 0, _UINT64, reason="bad_modifier")
        if self.modifier == _INVALID:
            raise BadArgumentError("DRM_FORMAT_MOD_INVALID describes no layout: ask the exporter for an explicit "
                                   "modifier", reason="bad_modifier")
        planes = self.planes
        if (not isinstance(planes, tuple | list) or not 1 <= len(planes) <= MAX_PLANES
                or not all(isinstance(each, DrmPlane) for each in planes)):
            raise BadArgumentError(f"planes is a tuple of 1 to {MAX_PLANES} DrmPlane, not {planes!r}",
                                   reason="bad_plane")
        object.__setattr__(self, "planes", tuple(planes))
        code = self.fourcc
        if isinstance(code, str):
            if len(code) != 4 or not code.isascii() or not code.isprintable():
                raise BadArgumentError(f"fourcc has four ASCII characters, not {code!r}", reason="bad_fourcc")
            object.__setattr__(self, "fourcc", int.from_bytes(code.encode("ascii"), "little"))
        elif code is not None:
            check_int("fourcc", code, 1, _UINT32, reason="bad_fourcc")


def modifier_name(modifier: int) -> str:
    """Return a modifier for messages: LINEAR, or the vendor and the number."""
    if modifier == LINEAR:
        return "DRM_FORMAT_MOD_LINEAR"
    vendor = modifier >> 56
    return f"{_VENDORS[vendor] if vendor < len(_VENDORS) else 'vendor ' + str(vendor)} {modifier:#018x}"
