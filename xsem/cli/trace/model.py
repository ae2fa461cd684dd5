"""What a trace holds, after it has been read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

__all__ = ["Match", "Process", "Slice", "Trace", "Use"]


class Use(NamedTuple):
    """A semaphore and a value, in a wait or a signal."""

    key: str   # equal in all processes that share the semaphore
    name: str
    value: int | None   # None: a binary semaphore

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name} {self.value}"


@dataclass(eq=False)
class Process:
    """One process, and the names of its lists and threads by their number."""

    pid: int
    resolution_us: float   # by how much it may see the end of an operation late
    label: str = "process"
    tracks: dict[int, str] = field(default_factory=dict)


class Match(NamedTuple):
    """What met one semaphore of a wait."""

    use: Use
    how: str   # "signal", "start value", "outside", "late" (the wait timed out), "expected" (appended, not yet done)
    signal: Slice | None = None

    @property
    def at(self) -> float:
        """Return when the semaphore had the value, or minus infinity if no signal of the trace tells."""
        return self.signal.end if self.how == "signal" and self.signal and self.signal.end is not None else -inf


@dataclass(eq=False, slots=True)
class Slice:
    """An operation of a list, or an event of a host thread."""

    process: Process
    tid: int
    category: str   # "device", "host", "append", "message", "object", "ring"
    kind: str       # "wait", "work", "host wait", "read", …
    begin: float
    end: float | None   # None: pending at the end of the trace
    waits: tuple[Use, ...] = ()
    signals: tuple[Use, ...] = ()
    seq: int | None = None
    appended: float | None = None
    host_tid: int | None = None       # the thread of the append
    by_device: bool = False           # the device measured the times
    queued: bool = False              # pending behind a pending operation
    target: Slice | None = None       # the operation of an append, or the one that the host waits for
    before: Slice | None = None       # the operation before it in its list, or the event of the host on its thread
    text: str = ""
    result: str = ""
    line: str = ""   # of the program, which appended
    ring: tuple[str, int, int] | None = None   # its id, the number of the frame, and how many were skipped
    met: list[Match] = field(default_factory=list)

    @property
    def asked(self) -> float:
        """Return the time of the append or of the call."""
        return self.begin if self.appended is None else self.appended

    @property
    def until(self) -> float:
        """Return the end, or the begin of an operation that is pending."""
        return self.begin if self.end is None else self.end

    @property
    def place(self) -> str:
        """Return the process and the list or thread."""
        return f"{self.process.label} {self.track}"

    @property
    def track(self) -> str:
        """Return the name of the list or thread."""
        return self.process.tracks.get(self.tid, f"thread {self.tid}")

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, ", ".join(map(str, (*self.waits, *self.signals))), self.text)))


@dataclass
class Trace:
    """The events of all files."""

    files: list[dict[str, Any]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    raw: list[tuple[Process, dict[str, Any]]] = field(default_factory=list)
    begin: float = 0.0
    end: float = 0.0

    def waiting(self) -> Iterator[Slice]:
        """Yield the waits of lists and of the host."""
        return (each for each in self.slices if each.waits)

    def tracks(self, category: str) -> dict[tuple[Process, int], list[Slice]]:
        """Return the operations of each list ("device") or the events of each thread ("host"), in their order."""
        found: dict[tuple[Process, int], list[Slice]] = {}
        for each in self.slices:
            if each.category == category:
                found.setdefault((each.process, each.tid), []).append(each)
        for track in found.values():
            track.sort(key=lambda each: (each.seq or 0, each.until))
        return found
