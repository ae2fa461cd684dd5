"""Faults that leave something behind at each call."""

from __future__ import annotations

import os
from typing import Any

from faults.base import Driver, a_driver


@a_driver
class ValueQueryLeaks(Driver):
    """Each query of a value leaves a file descriptor open."""

    def semaphore_value(self, semaphore: Any) -> int:
        os.open(os.devnull, os.O_RDONLY)
        return self.inner.semaphore_value(semaphore)   # type: ignore[no-any-return]
