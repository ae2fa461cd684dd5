"""Faults that leave something behind at each call, and faults in the events of fills."""

from __future__ import annotations

import os
from typing import Any

from faults.base import Driver, List, a_driver, a_list


@a_driver
class ValueQueryLeaks(Driver):
    """Each query of a value leaves a file descriptor open."""

    def semaphore_value(self, semaphore: Any) -> int:
        os.open(os.devnull, os.O_RDONLY)
        return self.inner.semaphore_value(semaphore)   # type: ignore[no-any-return]


@a_list
class FillIgnoresEvents(List):
    """A fill does not wait for its events."""

    def append_fill(self, dst, offset, pattern, size, wait_fences, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_fill(dst, offset, pattern, size, (), want_fence)
