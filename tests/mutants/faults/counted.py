"""Faults in one call of many."""

from __future__ import annotations

from faults.base import List, a_list


class _Counting(List):
    """Counts the calls of a method."""

    count = 0

    def is_due(self) -> bool:
        """Return whether this is each fiftieth call."""
        self.count += 1
        return self.count % 50 == 0


@a_list
class EachFiftiethFillIsLost(_Counting):
    """Each fiftieth fill of a list is lost."""

    def append_fill(self, *args):  # type: ignore[no-untyped-def]
        return self.inner.append_barrier(*args[-2:]) if self.is_due() else self.inner.append_fill(*args)


@a_list
class EachFiftiethFunctionIsLost(_Counting):
    """Each fiftieth function of `append_work` is lost."""

    def append_work(self, work):  # type: ignore[no-untyped-def]
        if not self.is_due():
            self.inner.append_work(work)
