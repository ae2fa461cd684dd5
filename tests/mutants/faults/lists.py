"""Faults in lists."""

from __future__ import annotations

import os

from faults.base import Driver, List, a_driver, a_list
from xsem import spi


@a_driver
class ListsAreOne(Driver):
    """All lists are one queue: a waiting list blocks all others."""

    _one: spi.QueueDriver | None = None

    def create_queue(self) -> spi.QueueDriver:
        if self._one is None:
            self._one = self.inner.create_queue()
        made = _Unclosed(self._one, self)
        made.identity = id(made)
        return made


class _Unclosed(List):
    def close(self) -> None:
        pass


@a_list
class Crashes(List):
    """A signal ends the process."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        os.abort()
