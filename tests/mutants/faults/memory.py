"""Faults in mappings and release."""

from __future__ import annotations

from typing import Any

from faults.base import Driver, List, a_driver, a_list


# ---- memory
@a_driver
class OffsetIgnored(Driver):
    """Every mapping begins at the start of the memory."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> tuple[Any, int]:
        return self.inner.map_buffer(memory, 0, size)


@a_driver
class AddressOfTheMemory(Driver):
    """The address of every mapping is that of the start of the memory."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> tuple[Any, int]:
        token, address = self.inner.map_buffer(memory, offset, size)
        return token, address - offset


@a_driver
class CreatesTooLittle(Driver):
    """Created memory has only whole pages of the requested size, and at least one."""

    def create_memory(self, type: Any, size: int, dedicated: bool) -> tuple[Any, int]:
        return self.inner.create_memory(type, max(4096, size // 4096 * 4096), dedicated)


@a_driver
class MappingIsACopy(Driver):
    """A mapping is other memory."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> tuple[Any, int]:
        return self.inner.host_buffer(size)

    def unmap_buffer(self, buffer: Any) -> None:
        self.inner.release_host_buffer(buffer)


@a_driver
class ReleaseTooEarly(Driver):
    """Released memory is cleared immediately, even if it is in use."""

    def query_fence(self, fence: Any) -> bool:
        return True   # so everything looks idle to the facade, and it frees

    def wait_fence(self, fence: Any, timeout_ns: int) -> bool:
        return self.inner.wait_fence(fence, timeout_ns)


@a_list
class OwnWritesAreCached(List):
    """A copy from memory that its list wrote before gives the bytes that the list wrote."""

    def __init__(self, inner: Any, driver: Any) -> None:
        super().__init__(inner, driver)
        self._wrote: dict[tuple[int, int, int], tuple[Any, int, Any]] = {}

    def append_copy(self, dst, dst_offset, src, src_offset, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        source, at, _ = self._wrote.get((id(src), src_offset, size), (src, src_offset, None))
        self._wrote[id(dst), dst_offset, size] = source, at, dst
        return self.inner.append_copy(dst, dst_offset, source, at, size, wait_fences, want_fence)
