"""Images in imported memory: formats, shapes, levels, offsets.

Each device chooses the layout of pixels in memory. Therefore no check looks for a pixel at an address: a check reads
pixels through an image, and compares other bytes only with their old values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

import xsem
from xsem.data.image_formats import FLAGS, FORMATS
from xsem.errors import UnsupportedError
from xsem.spi import ImageRegion, level_layout
from xsem.types import Feature, MemoryHandleType, MipmapDesc
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, BrokenError, Case, NotDeclaredError, Symptom, expect

__all__ = ["IMAGE_MEMORY", "PITCHES", "PLAIN", "WHOLE", "images_are_refused", "memory_for_images"]

# Enough for every image here in any tiling: the images have at most 32 KiB of pixels.
IMAGE_MEMORY: Final = 1 << 20
# "Suitably aligned to match the requirements of the external API": no GPU asks for more than 64 KiB.
_OFFSET: Final = 1 << 16
_FORMATS: Final = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32")
PLAIN: Final = MipmapDesc(extent=(32, 16, 0), format="uint8", channels=4)
WHOLE: Final = ImageRegion((0, 0, 0), (32, 16, 1), 0, 1)
"""The level of PLAIN."""
PITCHES: Final = (32 * 4, 32 * 16 * 4)
"""Row pitch and slice pitch of WHOLE in a buffer without padding, in bytes."""


def _shape(name: str, extent: tuple[int, int, int], **more: Any) -> tuple[str, MipmapDesc]:
    return name, MipmapDesc(extent=extent, format="uint8", channels=4, **more)


_SHAPES: Final = (
    _shape("of one dimension", (64, 0, 0)),
    _shape("of one dimension, with levels", (64, 0, 0), levels=3),
    _shape("of one dimension, with 3 layers", (64, 0, 0), layers=3),
    _shape("of two dimensions, odd", (37, 19, 0)),
    _shape("of one pixel", (1, 1, 0)),
    _shape("with 5 layers", (16, 8, 0), layers=5),
    _shape("with 3 layers and levels", (16, 8, 0), layers=3, levels=3),
    _shape("of three dimensions", (16, 8, 4)),
    _shape("of three dimensions, with levels", (16, 8, 4), levels=4),
    _shape("that is a cubemap", (16, 16, 0), layers=6, cubemap=True),
    _shape("that is a cubemap with levels", (16, 16, 0), layers=6, cubemap=True, levels=3),
    _shape("with two cubemaps as layers", (16, 16, 0), layers=12, cubemap=True),
    _shape("that is a colour attachment", (64, 32, 0), color_attachment=True),
    _shape("that surfaces load and store", (64, 32, 0), surface_load_store=True),
    _shape("that is both, with levels", (64, 32, 0), color_attachment=True, surface_load_store=True, levels=3),
)


def _noise(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Return random bytes, so that pixels differ; some floating-point values are NaN."""
    length = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(length), dtype).reshape(shape)


def _same(found: Any, data: Any) -> bool:
    # Compare bytes: a NaN is not equal to itself.
    return bool(found.shape == data.shape and found.dtype == data.dtype and found.tobytes() == data.tobytes())


def memory_for_images(context: CaseContext, case: Case) -> tuple[Shared, xsem.Memory]:
    """Import memory of the exporter, of the type of the case, in which the device can map a simple image."""
    shared = context.memory(IMAGE_MEMORY, case.handle_type)
    memory: xsem.Memory = context.here.get(shared.here)
    try:
        memory.map_mipmapped_array(PLAIN).release()
    except UnsupportedError as error:
        if MemoryHandleType(case.handle_type).portable:   # no other exporter makes such memory in another way
            raise NotDeclaredError(f"the device maps no image in portable memory: {error}") from error
        raise BlockedError(f"the exporter's memory holds no image that this device maps: {error}") from error
    return shared, memory


def images_are_refused(context: CaseContext, case: Case) -> bool:
    """Return whether xsem refuses every image in memory of the case's type, before it calls the driver."""
    if case.handle_type != MemoryHandleType.DMABUF_FD.value:
        return False
    memory: xsem.Memory = context.here.get(context.memory(IMAGE_MEMORY, case.handle_type).here)
    try:
        memory.map_mipmapped_array(PLAIN)
    except xsem.BadArgumentError as error:
        expect(error.reason == "mipmap_of_dmabuf", f"an image in a dma-buf is refused with {error}")
        return True
    raise BrokenError("a dma-buf is mapped as an image")


@contextmanager
def _image(memory: xsem.Memory, desc: MipmapDesc, what: str) -> Iterator[xsem.MipmappedArray]:
    try:
        image = memory.map_mipmapped_array(desc, overlap=True)
    except xsem.XsemError as error:
        raise BrokenError(f"an image {what} is not mapped: {error}") from error
    with image:
        yield image


def _round_trip(memory: xsem.Memory, desc: MipmapDesc, what: str, seed: int) -> None:
    """Write all levels before the first read: no level overlaps another."""
    with _image(memory, desc, what) as image:
        levels = [image.level(index) for index in range(desc.levels)]
        written = []
        for index, level in enumerate(levels):
            extent = tuple(max(1, length >> index) if length else 0 for length in desc.extent)
            expect(tuple(level.extent) == extent, f"level {index} of an image {what} is {level.extent}, not {extent}")
            lengths = (desc.layers or extent[2], extent[1], extent[0], desc.channels)
            data = _noise(tuple(length for length in lengths if length), desc.format, seed + index)
            level.write(data)
            written.append(data)
        for index, (level, data) in enumerate(zip(levels, written, strict=True)):
            expect(_same(level.read(), data), f"level {index} of an image {what} does not hold its written pixels",
                   Symptom.OTHER_BYTES)


@check("XSEM-MIP-001", deadline_s=60)
def images_of_every_format_keep_what_is_written(context: CaseContext, case: Case) -> None:
    """Every byte is read as written: integers of 8, 16 and 32 bits, floats of 16 and 32, with 1, 2 and 4 channels."""
    # The same holds for each other declared format and each of its planes. An undeclared format is refused.
    if images_are_refused(context, case):
        return
    _, memory = memory_for_images(context, case)
    for seed, (name, channels) in enumerate((name, channels) for name in _FORMATS for channels in (1, 2, 4)):
        desc = MipmapDesc(extent=(33, 17, 0), format=name, channels=channels)
        _round_trip(memory, desc, f"of {channels} x {name}", seed)
    for other in sorted(set(FORMATS) - set(_FORMATS)):
        for channels in FORMATS[other].channels:
            desc = MipmapDesc(extent=(36, 20, 0), format=other, channels=channels)
            if other in context.device.capabilities.image_formats:
                _planes_round_trip(memory, desc)
            else:
                _is_undeclared(memory, desc, f"image_formats.{other}")


def _is_undeclared(memory: xsem.Memory, desc: MipmapDesc, capability: str) -> None:
    """Check that an image is refused by the name of the capability that it needs."""
    try:
        memory.map_mipmapped_array(desc).release()
    except UnsupportedError as error:
        expect((error.reason, error.capability) == ("unsupported", capability),
               f"an image that needs {capability}, which is not declared, is refused for {error.capability} "
               f"({error.reason})")
    else:
        raise BrokenError(f"an image that needs {capability}, which is not declared, is mapped")


def _planes_round_trip(memory: xsem.Memory, desc: MipmapDesc) -> None:
    """Write all planes before the first read: no plane overlaps another."""
    with _image(memory, desc, f"of {desc.format}") as image:
        planes = [image.level(0, plane) for plane in range(len(FORMATS[desc.format].planes))]
        written = [_noise(layout.shape, layout.dtype, seed) for seed, layout in enumerate(
            level_layout(desc, 0, plane) for plane in range(len(planes)))]
        for level, data in zip(planes, written, strict=True):
            level.write(data)
        for index, (level, data) in enumerate(zip(planes, written, strict=True)):
            expect(_same(level.read(), data),
                   f"plane {index} of an image of {desc.format} does not hold its written pixels", Symptom.OTHER_BYTES)


@check("XSEM-MIP-002")
def levels_of_an_image_keep_what_is_written(context: CaseContext, case: Case) -> None:
    """Every level of a mapped image, down to one pixel, has its own extent and contents; a level beyond them fails."""
    if images_are_refused(context, case):
        return
    _, memory = memory_for_images(context, case)
    _round_trip(memory, replace(PLAIN, levels=6), "with 6 levels", 5)
    token = context.driver_memory(context.memory(IMAGE_MEMORY, case.handle_type))
    array = context.driver.map_mipmapped_array(token, replace(PLAIN, levels=3))
    try:
        context.driver.mipmap_level(array, 3)
    except xsem.XsemError:
        pass
    else:
        raise BrokenError("an image of 3 levels has a fourth")
    finally:
        context.driver.release_array(array)
        context.driver.release_memory(token)


@check("XSEM-MIP-003")
def image_lies_at_its_offset_in_the_memory(context: CaseContext, case: Case) -> None:
    """The exporter sees the bytes before the image unchanged, and other bytes from the offset on."""
    # Another memory is imported as well. Later images over the same import and over another import of the memory show
    # the same pixels.
    if images_are_refused(context, case):
        return
    shared, memory = memory_for_images(context, case)
    context.memory(IMAGE_MEMORY, case.handle_type)   # the image must not lie in this memory
    producer, _ = context.ends(IN)
    commands = producer.new_list()
    length = 1 << 13
    for at in range(0, 2 * _OFFSET, length):
        producer.write(commands, shared, b"\x5a" * length, at)
    producer.finish(commands, "copies")
    desc = MipmapDesc(extent=(64, 32, 0), format="uint8", channels=4, levels=2, offset=_OFFSET)
    levels = [_noise((32, 64, 4), "uint8", 1), _noise((16, 32, 4), "uint8", 2)]
    with _image(memory, desc, "at an offset") as image:
        for index, data in enumerate(levels):
            image.level(index).write(data)
    readings = [producer.read(commands, shared, length, at) for at in range(0, 2 * _OFFSET, length)]
    producer.finish(commands, "copies")
    found = b"".join(map(producer.fetch, readings))
    expect(found[:_OFFSET] == b"\x5a" * _OFFSET, f"an image at offset {_OFFSET} changed bytes before it",
           Symptom.OTHER_BYTES)
    expect(found[_OFFSET:] != b"\x5a" * _OFFSET, "an image changed none of the bytes from its offset on",
           Symptom.OTHER_BYTES)
    with context.exporter.export_memory(shared.there, context.importer_uuid) as exported:
        other: xsem.Memory = context.here.get(context.here.import_memory(exported))
    for name, each in (("made again", memory), ("made over another import", other)):
        with _image(each, desc, name) as image:
            for index, data in enumerate(levels):
                expect(_same(image.level(index).read(), data), f"level {index} of an image {name} shows other pixels",
                       Symptom.OTHER_BYTES)


@check("XSEM-MIP-004", deadline_s=60)
def images_of_every_shape_keep_what_is_written(context: CaseContext, case: Case) -> None:
    """Images of all dimensions, with layers and levels, cubemaps, colour attachments and surfaces keep their pixels."""
    if images_are_refused(context, case):
        return
    _, memory = memory_for_images(context, case)
    for seed, (what, desc) in enumerate(_SHAPES):
        _round_trip(memory, desc, what, 100 * seed)


_FLAGGED: Final = {
    "cubemap": replace(PLAIN, extent=(16, 16, 0), layers=6, cubemap=True),
    "depth_texture": MipmapDesc(extent=(36, 20, 0), format="float32", channels=1, depth_texture=True),
}
"""The images of flags with conditions. The images of the other flags are plain."""


@check("XSEM-MIP-015")
def images_of_every_flag_keep_what_is_written(context: CaseContext, case: Case) -> None:
    """Map an image with each declared flag, and write and read it. Map an image with each other flag."""
    if images_are_refused(context, case):
        return
    _, memory = memory_for_images(context, case)
    declared = context.device.capabilities
    for seed, flag in enumerate(FLAGS):
        desc = _FLAGGED.get(flag) or replace(PLAIN, **{flag: True})   # type: ignore[arg-type]
        if desc.beyond_image and Feature.MIPMAPPED_ARRAY not in declared.features:
            continue   # Feature.IMAGE excludes these flags, and XSEM-CAP-004 checks their refusal
        if flag in declared.image_flags:
            _round_trip(memory, desc, f"with the flag {flag}", seed)
        else:
            _is_undeclared(memory, desc, f"image_flags.{flag}")
