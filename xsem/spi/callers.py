"""The threads that may call the driver of a queue."""

from __future__ import annotations

from enum import Enum

__all__ = ["Callers"]


class Callers(Enum):
    """The threads that may call the methods of a queue's driver, as `QueueDriver.callers`."""

    ANY = "any"
    """Any thread. Calls of several threads may overlap, and the calls of each thread take effect in their order."""
    ONE_AT_A_TIME = "one_at_a_time"
    """Any thread. The calls of two threads never overlap."""
    APPLICATION = "application"
    """Only a thread of the application, while the application calls xsem.

    The calls of two threads never overlap. xsem's own threads append no markers to the queue. The thread that
    appended to the queue last, or synchronised it, appends the markers in its next call on the device: this thread may
    also call the native queue itself. If the thread has ended, or the device is released, any thread of the application
    appends the markers. Two methods are exceptions: any thread may call `QueueDriver.close` and
    `RecordingQueue.release_recording`."""
