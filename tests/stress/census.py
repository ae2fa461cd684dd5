"""File descriptors, threads and memory of a process, and their growth."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["RSS_ALLOWANCE", "Census", "Growth", "rss", "take"]

# Growth of the arenas and free lists of the allocator and the interpreter after the warm-up, for a run of any length.
# A leak of 16 bytes in each of a million operations is above it.
RSS_ALLOWANCE: Final = 12 << 20
_SETTLED: Final = 10   # consecutive counts that must agree
_LOOK_S: Final = 0.02
_LIMIT_S: Final = 20.0
_PAGE: Final = os.sysconf("SC_PAGESIZE") if sys.platform != "win32" else 4096


@dataclass(frozen=True)
class Census:
    """Numbers of open file descriptors and threads, and resident bytes."""

    fds: int
    threads: int
    rss: int


@dataclass
class Growth:
    """A process before and after, with the allowed growth."""

    before: Census
    after: Census
    rss_allowance: int = RSS_ALLOWANCE

    def complaints(self) -> list[str]:
        """Return a text for each leak; an empty list without leaks."""
        found = []
        if self.after.fds > self.before.fds:
            found.append(f"{self.after.fds - self.before.fds} file descriptors leaked")
        if self.after.threads > self.before.threads:
            found.append(f"{self.after.threads - self.before.threads} threads leaked")
        if self.after.rss - self.before.rss > self.rss_allowance:
            found.append(f"resident memory grew by {(self.after.rss - self.before.rss) / 2**20:.1f} MiB, "
                         f"more than {self.rss_allowance / 2**20:.0f} MiB")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the entry for the record."""
        return {"before": asdict(self.before), "after": asdict(self.after), "rss_allowance": self.rss_allowance}


def rss() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def take() -> Census:
    """Count when the numbers are stable: a thread of xsem frees released objects with a delay."""
    looks: list[tuple[int, int]] = []
    deadline = time.monotonic() + _LIMIT_S
    while len(looks) < _SETTLED or len(set(looks[-_SETTLED:])) > 1:
        gc.collect()
        looks.append((len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
        if time.monotonic() > deadline:
            break   # counted as it is: numbers that do not settle will show as a leak
        time.sleep(_LOOK_S)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)   # of glibc: free memory in its heap is not a leak
    if trim is not None:
        trim(0)
    fds, threads = looks[-1]
    return Census(fds, threads, rss())
