"""Images in dma-bufs with a layout in the terms of DRM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

import xsem
from xsem.data.drm import LINEAR, MAX_PLANES
from xsem.data.image_formats import FORMATS
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.spi import level_layout
from xsem.types import DrmLayout, DrmPlane, MemoryHandleType, MipmapDesc
from xsem_conformance.case import measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.case.noise import noise
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BrokenError, Case, NotExaminedError, Symptom, expect

_TYPE: Final = MemoryHandleType.DMABUF_FD.value
_SIZE: Final = 1 << 16
_PART: Final = 1 << 13
"""Bytes of one message to the exporter."""
_EXTENT: Final = (36, 20, 0)
_PITCH: Final = 1024
"""At least the row of each format, and a multiple of the alignment of each known GPU."""
_OFFSETS: Final = (0, 1 << 15)
_VENDOR: Final = 0x0A << 56
"""The modifiers of a vendor of mobile GPUs."""


@check("XSEM-MIP-016", deadline_s=60)
def images_of_dmabufs_follow_their_layout(context: CaseContext, case: Case) -> None:
    """At two offsets, the exporter writes bytes and the device reads elements; then the reverse. Try wrong layouts."""
    # The case needs an exporter of dma-bufs, and the modifier DRM_FORMAT_MOD_LINEAR: only its bytes have a defined
    # order.
    info = context.device.info
    if LINEAR not in context.device.capabilities.drm_modifiers:
        raise NotExaminedError(f"{info.id} declares only modifiers of tiles, whose order of bytes is not defined")
    if _TYPE not in context.exporter.about()["memory_export"]:
        raise NotExaminedError("the exporter creates no dma-bufs")
    shared = context.memory(_SIZE, _TYPE)
    desc = _some_image(context, shared)
    for seed, offset in enumerate(_OFFSETS, 1):
        _bytes_are_elements(context, shared, desc, offset, seed)
    _wrong_layouts_are_refused(context, shared, desc)


def _linear(offset: int = 0, pitch: int = _PITCH) -> DrmLayout:
    return DrmLayout(modifier=LINEAR, planes=(DrmPlane(offset=offset, pitch=pitch),))


def _some_image(context: CaseContext, shared: Shared) -> MipmapDesc:
    """Return an image of the first format of one plane that the device maps. A modifier holds for some formats."""
    declared = context.device.capabilities.image_formats
    for name in [each for each in FORMATS if each in declared and len(FORMATS[each].planes) == 1]:
        desc = MipmapDesc(extent=_EXTENT, format=name, channels=FORMATS[name].channels[-1])
        try:
            with _image(context, shared, desc, _linear()):
                return desc
        except UnsupportedError:
            continue
    raise BrokenError("the device declares DRM_FORMAT_MOD_LINEAR, and maps no format of one plane with it")


@contextmanager
def _image(context: CaseContext, shared: Shared, desc: MipmapDesc, layout: DrmLayout) -> Iterator[xsem.MipmapLevel]:
    with context.exporter.export_memory(shared.there, context.importer_uuid) as exported:
        memory = context.device.import_memory(replace(exported, drm_layout=layout))
    with memory, memory.map_mipmapped_array(desc) as image:
        yield image.level(0)


def _bytes_are_elements(context: CaseContext, shared: Shared, desc: MipmapDesc, offset: int, seed: int) -> None:
    rows = level_layout(desc)
    producer, _ = context.ends(IN)
    writes, before = producer.new_list(), noise(_SIZE, seed)
    for at in range(0, _SIZE, _PART):
        producer.write(writes, shared, before[at:at + _PART], at)
    producer.finish(writes, "copies")
    producer.release(writes)
    expected = np.frombuffer(bytearray(before), np.uint8)
    elements = np.lib.stride_tricks.as_strided(expected[offset:], (rows.rows, rows.row_size), (_PITCH, 1))
    with _image(context, shared, desc, _linear(offset)) as level:
        found: Any = level.read()
        expect(found.tobytes() == elements.tobytes(),
               f"an image at offset {offset} of a dma-buf, with a pitch of {_PITCH}, shows other bytes than its rows",
               Symptom.OTHER_BYTES)
        written = np.frombuffer(noise(elements.size, seed + 7), np.uint8)
        level.write(written.view(found.dtype).reshape(found.shape))
    elements[...] = written.reshape(elements.shape)
    after = b"".join(measures.read_there(context, shared, _PART, at) for at in range(0, _SIZE, _PART))
    expect(after == expected.tobytes(),
           f"an image at offset {offset} of a dma-buf, with a pitch of {_PITCH}, writes other bytes than its rows",
           Symptom.OTHER_BYTES)


def _wrong_layouts_are_refused(context: CaseContext, shared: Shared, desc: MipmapDesc) -> None:
    known, rows = context.device.capabilities.drm_modifiers, level_layout(desc)
    undeclared = next(each for each in range(_VENDOR + 1, _VENDOR + 2 + len(known)) if each not in known)
    plane = _linear().planes[0]
    end = rows.row_size + _PITCH * (rows.rows - 1)
    wrong: list[tuple[str, DrmLayout, str]] = [
        ("an undeclared modifier", DrmLayout(modifier=undeclared, planes=(plane,)), "unsupported"),
        ("too many planes", DrmLayout(modifier=LINEAR, planes=(plane,) * MAX_PLANES), "bad_plane"),
        ("a pitch below a row", _linear(pitch=rows.row_size - 1), "bad_pitch"),
        ("a plane beyond the dma-buf", _linear(_allocated(context, shared) - end + 1), "out_of_range"),
    ]
    for what, layout, reason in wrong:
        try:
            with _image(context, shared, desc, layout):
                pass
        except (BadArgumentError, UnsupportedError) as error:
            expect(error.reason == reason, f"{what} is refused with {error!r}, not with the reason {reason}")
        else:
            raise BrokenError(f"an image in a dma-buf with {what} is mapped")


def _allocated(context: CaseContext, shared: Shared) -> int:
    memory: xsem.Memory = context.here.get(shared.here)
    return memory.allocation_size
