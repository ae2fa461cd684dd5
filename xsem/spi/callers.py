"""The threads that may call a driver."""

from __future__ import annotations

from enum import Enum

__all__ = ["Callers"]


class Callers(Enum):
    """The threads that may call the methods of a driver, as `QueueDriver.callers` and `DeviceDriver.callers`."""

    ANY = "any"
    """Any thread. Calls of several threads may overlap."""
    ONE_AT_A_TIME = "one_at_a_time"
    """Any thread. The calls of two threads never overlap. Only for a queue."""
    APPLICATION = "application"
    """Only a thread of the application, while the application calls xsem.

    A queue: the calls of two threads never overlap. xsem's own threads append no markers to the queue. The thread that
    appended to the queue last, or synchronised it, appends the markers in its next call on the device: this thread may
    also call the native queue itself. If the thread has ended, or the device is released, any thread of the application
    appends the markers. Two methods are exceptions: any thread may call `QueueDriver.close` and
    `RecordingQueue.release_recording`.

    A device: xsem's own threads call neither the driver of the device nor the drivers of its queues, without an
    exception. The next calls of the application on the device make these calls, and so do its host waits and
    `Device.release`. Each call of the driver comes inside a call of the application on the same device. Calls of
    several threads of the application may overlap."""
