"""The threads that may call a queue."""

from __future__ import annotations

from enum import Enum

__all__ = ["Callers"]


class Callers(Enum):
    """The threads that may call the methods of a queue driver, as `QueueDriver.callers`."""

    ANY = "any"
    """Any thread. Calls of several threads may overlap."""
    ONE_AT_A_TIME = "one_at_a_time"
    """Any thread. The calls of two threads never overlap."""
    APPLICATION = "application"
    """Only a thread of the application, while the application calls xsem. The calls of two threads never overlap.

    xsem's own threads append no markers to the queue. The next call of the application on the device appends the
    markers. Two methods are exceptions: any thread may call `QueueDriver.close` and
    `RecordingQueue.release_recording`."""
