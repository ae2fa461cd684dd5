"""Portable objects: timelines and memory in host memory, which belong to no device (docs/host-objects.md)."""

from __future__ import annotations

import sys

from xsem.portable.memory import (
    HostMapping,
    Pages,
    SharedMemory,
    map_private,
    new_memory,
    open_memory,
    open_whole_pages,
)
from xsem.portable.opening import opened
from xsem.portable.semaphore_base import SemaphoreBase

if sys.platform == "win32":
    from xsem.portable.windows_timeline import Timeline, new_timeline, open_timeline
    from xsem.portable.windows_timeline import open_timeline as open_any_timeline
else:
    from xsem.portable.linux_timeline import Timeline, new_timeline, open_any_timeline, open_timeline

__all__ = [
    "HostMapping",
    "Pages",
    "SemaphoreBase",
    "SharedMemory",
    "Timeline",
    "map_private",
    "new_memory",
    "new_timeline",
    "open_any_timeline",
    "open_memory",
    "open_timeline",
    "open_whole_pages",
    "opened",
]
