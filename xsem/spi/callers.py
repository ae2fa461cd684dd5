"""The threads that may call a queue."""

from __future__ import annotations

from enum import Enum

__all__ = ["Callers"]


class Callers(Enum):
    """The threads that may call a queue of the driver."""

    ANY = "any"
    """Any thread, also several threads at the same time."""
    ONE_AT_A_TIME = "one_at_a_time"
    """Any thread. The facade makes one call at a time."""
    APPLICATION = "application"
    """Only a thread with which the application has called xsem, one call at a time.

    xsem's own threads append no markers to the queue. The next call of the application appends them. The exception is
    `QueueDriver.close`, which any thread may call when the queue is idle."""
