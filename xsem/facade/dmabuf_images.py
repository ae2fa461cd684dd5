"""Checks of an image against the layout of its dma-buf."""

from __future__ import annotations

from typing import Final

from xsem.data.drm import LINEAR, DrmLayout, modifier_name
from xsem.data.image_formats import FORMATS
from xsem.data.images import MipmapDesc, level_layout
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.runtime.device_state import DeviceState
from xsem.types import MemoryHandleType

__all__ = ["check_drm_layout"]

_DMABUF: Final = MemoryHandleType.DMABUF_FD
# Formats and channels of drm_fourcc.h's codes. Codes with another order of the channels are not here.
_CODES: Final = {
    "R8  ": ("unorm8", 1), "GR88": ("unorm8", 2), "AB24": ("unorm8", 4), "R16 ": ("unorm16", 1), "GR32": ("unorm16", 2),
    "AB48": ("unorm16", 4), "AB30": ("unorm_10_10_10_2", 4), "AB4H": ("float16", 4), "NV12": ("nv12", 3),
    "P010": ("p010", 3),
}


def check_drm_layout(device_state: DeviceState, desc: MipmapDesc, layout: DrmLayout | None, size: int) -> None:
    """Refuse an image that does not fit the layout of the dma-buf, or whose modifier the device does not support."""
    if layout is None:
        raise BadArgumentError("a dma-buf cannot be mapped as a mipmapped array without its DrmLayout "
                               "(MemoryDesc.drm_layout)", reason="mipmap_of_dmabuf", handle_type=_DMABUF)
    known = device_state.capabilities.drm_modifiers
    if layout.modifier not in known:
        names = ", ".join(map(modifier_name, sorted(known))) or "none"
        raise UnsupportedError(
            f"{device_state.info.id} maps no image with the DRM format modifier {modifier_name(layout.modifier)}; its "
            f"modifiers: {names}", capability="drm_modifiers", backend=device_state.info.backend, handle_type=_DMABUF)
    if not desc.extent[1] or desc.extent[2]:
        _refuse("an image in a dma-buf has two dimensions", reason="bad_extent")
    if desc.levels != 1:
        _refuse("an image in a dma-buf has one level", reason="bad_levels")
    if desc.layers:
        _refuse("an image in a dma-buf has no layers", reason="bad_layers")
    if desc.offset:
        _refuse("the offset of an image in a dma-buf is 0: the planes of its DrmLayout have offsets",
                reason="bad_offset")
    _check_code(desc, layout)
    if layout.modifier == LINEAR:
        _check_rows(desc, layout, size)


def _check_code(desc: MipmapDesc, layout: DrmLayout) -> None:
    if layout.fourcc is None:
        return
    for code, format_ in _CODES.items():
        if int.from_bytes(code.encode(), "little") == layout.fourcc and format_ != (desc.format, desc.channels):
            _refuse(f"the dma-buf's DRM format {code!r} is {format_[0]} with {format_[1]} channels, not {desc.format} "
                    f"with {desc.channels}", reason="bad_fourcc")


def _check_rows(desc: MipmapDesc, layout: DrmLayout, size: int) -> None:
    planes = len(FORMATS[desc.format].planes)
    if len(layout.planes) != planes:
        _refuse(f"a linear image of {desc.format} has {planes} planes, and the layout has {len(layout.planes)}",
                reason="bad_plane")
    for index, plane in enumerate(layout.planes):
        rows = level_layout(desc, plane=index)
        if plane.pitch < rows.row_size:
            _refuse(f"plane {index} has rows of {rows.row_size} bytes, and the pitch is {plane.pitch}",
                    reason="bad_pitch")
        end = plane.offset + plane.pitch * (rows.rows - 1) + rows.row_size
        if end > size:
            _refuse(f"plane {index} ends at {end}, beyond the dma-buf of {size} bytes", reason="out_of_range")


def _refuse(message: str, *, reason: str) -> None:
    raise BadArgumentError(message, reason=reason, handle_type=_DMABUF)
