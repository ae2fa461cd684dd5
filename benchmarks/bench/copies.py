"""Bandwidth of copies: mapped memory of the exporter, beside the device's own memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final

from bench.rig import MEMORY, Rig, check
from bench.timing import Series, interleaved

__all__ = ["DIRECTIONS", "MAPPED", "PLAIN", "measure"]

DIRECTIONS: Final = ("device to device", "host to device", "device to host")
PLAIN: Final = "plain"
MAPPED: Final = "mapped"
_BY_XSEM: Final = "mapped, append_copy"


def measure(rig: Rig) -> Iterator[Series]:
    """Measure the payload of copies in GB/s. The memory on the host is page-locked."""
    size, copies, repetitions = (1 << 20, 2, 3) if rig.quick else (256 << 20, 16, 11)
    driver = rig.driver
    plain = [check(driver.cuMemAlloc(size)) for _ in "12"]
    exported = [rig.exporter.create_memory(MEMORY, size) for _ in "12"]
    mapped = []
    for each in exported:
        with each.export(for_device=rig.device) as desc:
            mapped.append(rig.device.import_memory(desc).map_buffer())
    host = rig.device.host_buffer(size)
    pinned = host.address
    ends: dict[str, tuple[tuple[int, int], tuple[int, int], tuple[Any, Any]]] = {
        "device to device": ((int(plain[1]), int(plain[0])), (mapped[1].address, mapped[0].address),
                             (mapped[1], mapped[0])),
        "host to device": ((int(plain[1]), pinned), (mapped[1].address, pinned), (mapped[1], host)),
        "device to host": ((pinned, int(plain[0])), (pinned, mapped[0].address), (host, mapped[0])),
    }
    for direction in DIRECTIONS:
        own, shared, buffers = ends[direction]
        asked: dict[str, Callable[[], float]] = {
            PLAIN: partial(_raw, rig, *own, size, copies), MAPPED: partial(_raw, rig, *shared, size, copies),
            _BY_XSEM: partial(_by_xsem, rig, *buffers, size, copies),
        }
        yield Series("copy", direction, size, "GB/s", interleaved(asked, repetitions), repetitions)
    for address in plain:
        check(driver.cuMemFree(address))
    for resource in (*mapped, host, *exported):
        resource.release()


def _raw(rig: Rig, dst: int, src: int, size: int, copies: int) -> float:
    driver, stream = rig.driver, rig.stream
    to, source = driver.CUdeviceptr(dst), driver.CUdeviceptr(src)
    began = perf_counter()
    for _ in range(copies):
        check(driver.cuMemcpyAsync(to, source, size, stream))
    check(driver.cuStreamSynchronize(stream))
    return size * copies / (perf_counter() - began) / 1e9


def _by_xsem(rig: Rig, dst: Any, src: Any, size: int, copies: int) -> float:
    began = perf_counter()
    for _ in range(copies):
        rig.commands.append_copy(dst, src)
    rig.commands.synchronize()
    return size * copies / (perf_counter() - began) / 1e9
