"""Memory as torch allocates it in expandable segments: several allocations of cuMemCreate in one range of addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from support.cuda_calls import ask, driver

__all__ = ["GRANULE", "Array", "ask", "driver", "segment"]

GRANULE = 2 << 20


class Segment:
    """Allocations, mapped one after the other. torch releases their handles, too, when it has mapped them."""

    def __init__(self, sizes: Sequence[int], handle_type: int, device: int) -> None:
        wanted = driver().CUmemAllocationProp()
        wanted.type = driver().CUmemAllocationType(1)
        wanted.location.type = driver().CUmemLocationType(1)
        wanted.location.id = device
        wanted.requestedHandleTypes = driver().CUmemAllocationHandleType(handle_type)
        access = driver().CUmemAccessDesc()
        access.location = wanted.location
        access.flags = driver().CUmemAccess_flags(3)
        self.sizes = sizes
        self.size = sum(sizes)
        self.base = int(ask("cuMemAddressReserve", self.size, 0, 0, 0))
        at = self.base
        for size in sizes:
            handle = ask("cuMemCreate", size, wanted, 0)
            ask("cuMemMap", at, size, 0, handle, 0)
            ask("cuMemRelease", handle)
            at += size
        ask("cuMemSetAccess", self.base, self.size, [access], 1)

    def close(self) -> None:
        at = self.base
        for size in self.sizes:
            ask("cuMemUnmap", at, size)
            at += size
        ask("cuMemAddressFree", self.base, self.size)


@contextmanager
def segment(*granules: int, handle_type: int = 1, device: int = 0) -> Iterator[Segment]:
    """Map an allocation of so many granules each, by default one of one granule."""
    made = Segment([each * GRANULE for each in granules or (1,)], handle_type, device)
    try:
        yield made
    finally:
        made.close()


class Array:
    """An array of CuPy or torch."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str = "<f4", strides: Any = None) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": shape, "typestr": typestr, "strides": strides, "version": 3}
