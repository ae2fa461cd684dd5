"""Faults of work that waits for several fences."""

from __future__ import annotations

from faults.base import List, a_list


@a_list
class FillSkipsItsFifthFence(List):
    """A fill does not wait for its fifth fence."""

    def append_fill(self, dst, offset, pattern, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        some = [fence for place, fence in enumerate(wait_fences) if place != 4]
        return self.inner.append_fill(dst, offset, pattern, size, some, want_fence)


@a_list
class CopyWithoutFencesAwaitsOtherLists(List):
    """A copy without fences waits for all work of other lists of the device."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        fence = self.inner.append_wait(semaphores, params, wait_fences, acquire, True)
        query, waits = self.driver.inner.query_fence, self.driver.__dict__.setdefault("waits", [])
        waits[:] = [(self, fence), *(each for each in waits if not query(each[1]))]
        return fence

    def append_copy(self, dst, dst_offset, src, src_offset, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        others = wait_fences or [fence for each, fence in self.driver.__dict__.get("waits", ()) if each is not self]
        return self.inner.append_copy(dst, dst_offset, src, src_offset, size, others, want_fence)
