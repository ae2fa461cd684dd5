"""Faults of offsets in memory: odd ones and large ones."""

from __future__ import annotations

from typing import Any

from faults.base import Driver, List, a_driver, a_list


@a_driver
class MappingAtEvenBytes(Driver):
    """A mapping at an odd offset begins one byte before it."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> Any:
        return self.inner.map_buffer(memory, offset & ~1, size)


@a_driver
class SmallMappingAtItsPage(Driver):
    """A mapping of less than 64 bytes begins at the page of its offset."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> Any:
        return self.inner.map_buffer(memory, offset // 4096 * 4096 if size < 64 else offset, size)


@a_list
class FarFillsAreAligned(List):
    """A fill of few bytes behind the first MiB begins at a multiple of 64."""

    def append_fill(self, dst, offset, pattern, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        at = offset // 64 * 64 if offset > 1 << 20 and size < 4096 else offset
        return self.inner.append_fill(dst, at, pattern, size, wait_fences, want_fence)
