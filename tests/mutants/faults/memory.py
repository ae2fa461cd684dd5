"""Faults in what a list remembers of its copies."""

from __future__ import annotations

from typing import Any

from faults.base import List, a_list


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
