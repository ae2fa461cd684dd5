"""Faults that leave something behind at each call."""

from __future__ import annotations

import os
from typing import Any

from faults.base import Driver, a_driver


@a_driver
class MappingLeaks(Driver):
    """Each mapping leaves a file descriptor open."""

    def map_buffer(self, memory: Any, offset: int, size: int) -> Any:
        os.open(os.devnull, os.O_RDONLY)
        return self.inner.map_buffer(memory, offset, size)
