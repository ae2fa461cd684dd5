"""Bandwidth of copies of images: `append_copy` of xsem, beside cuMemcpy2DAsync with the same array and address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final

import xsem
from bench.rig import MEMORY, Rig, check
from bench.timing import Series, interleaved
from xsem.types import MipmapDesc

__all__ = ["BY_HAND", "DIRECTIONS", "measure"]

DIRECTIONS: Final = ("image to buffer", "buffer to image", "image to image")
BY_HAND: Final = "cuMemcpy2DAsync"
_BY_XSEM: Final = "append_copy"
_PIXEL: Final = 4


def measure(rig: Rig) -> Iterator[Series]:
    """Measure the payload of copies in GB/s. The images have 4 x 8 bits, in memory of the exporter."""
    width, height, copies, repetitions = (256, 64, 2, 3) if rig.quick else (15360, 8640, 16, 11)
    size = width * height * _PIXEL
    desc = MipmapDesc(extent=(width, height, 0), format="uint8", channels=_PIXEL)
    # The driver rounds an image up to whole tiles.
    exported = [rig.exporter.create_memory(MEMORY, 2 * size) for _ in "123"]
    imported = []
    for each in exported:
        with each.export(for_device=rig.device) as handle:
            imported.append(rig.device.import_memory(handle))
    images = [each.map_mipmapped_array(desc) for each in imported[:2]]
    one, other = (each.level(0) for each in images)
    buffer = imported[2].map_buffer(shape=(height, width, _PIXEL), dtype="uint8")
    for direction, dst, src in (("image to buffer", buffer, one), ("buffer to image", one, buffer),
                                ("image to image", other, one)):
        by_hand = _parameters(rig, dst, src, width * _PIXEL, height)
        asked: dict[str, Callable[[], float]] = {
            BY_HAND: partial(_raw, rig, by_hand, size, copies), _BY_XSEM: partial(_append, rig, dst, src, size, copies),
        }
        yield Series("image copy", direction, size, "GB/s", interleaved(asked, repetitions), repetitions)
    for resource in (*images, buffer, *imported, *exported):
        resource.release()


def _parameters(rig: Rig, dst: Any, src: Any, row: int, rows: int) -> Any:
    """Return the CUDA_MEMCPY2D of a whole image."""
    copy, types = rig.driver.CUDA_MEMCPY2D(), rig.driver.CUmemorytype
    for name, end in (("src", src), ("dst", dst)):
        if isinstance(end, xsem.Buffer):
            setattr(copy, f"{name}MemoryType", types.CU_MEMORYTYPE_DEVICE)
            setattr(copy, f"{name}Device", end.address)
            setattr(copy, f"{name}Pitch", row)
        else:
            setattr(copy, f"{name}MemoryType", types.CU_MEMORYTYPE_ARRAY)
            setattr(copy, f"{name}Array", rig.driver.CUarray(end.native_handle))
    copy.WidthInBytes, copy.Height = row, rows
    return copy


def _raw(rig: Rig, copy: Any, size: int, copies: int) -> float:
    driver, stream = rig.driver, rig.stream
    began = perf_counter()
    for _ in range(copies):
        check(driver.cuMemcpy2DAsync(copy, stream))
    check(driver.cuStreamSynchronize(stream))
    return size * copies / (perf_counter() - began) / 1e9


def _append(rig: Rig, dst: Any, src: Any, size: int, copies: int) -> float:
    began = perf_counter()
    for _ in range(copies):
        rig.commands.append_copy(dst, src)
    rig.commands.synchronize()
    return size * copies / (perf_counter() - began) / 1e9
