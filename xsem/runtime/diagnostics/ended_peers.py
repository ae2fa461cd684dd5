"""Host waits that end when only ended processes could have met them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from xsem.data.signallers import Ended
from xsem.runtime.diagnostics.pending_operations import ended_peers_of_queue, ended_peers_of_semaphore
from xsem.runtime.native import now
from xsem.runtime.queues.operations import FencedQueue
from xsem.runtime.queues.queue_table import QueueTable
from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["QueueBlocker", "SemaphoreBlocker", "WatchedWait"]

_CONFIRM_S: Final = 0.2


class _Blocker(Protocol):
    def ended_peers(self) -> Ended | None:
        """Return the ended processes that hold the wait, if some do."""


class SemaphoreBlocker:
    """The semaphore that a host wait waits for."""

    def __init__(self, queues: QueueTable, state: SemaphoreState, value: int | None) -> None:
        self._queues = queues
        self._state = state
        self._value = value

    def ended_peers(self) -> Ended | None:
        """Return the ended processes that hold the wait, if some do."""
        return ended_peers_of_semaphore(self._queues, self._state, self._value)


class QueueBlocker:
    """The operations of a queue up to the one that a host wait waits for."""

    def __init__(self, queues: QueueTable, queue: FencedQueue | None, up_to: int) -> None:
        self._queues = queues
        self._queue = queue
        self._up_to = up_to
        self._held: int | None = None   # the operation that held the queue at the last look
        self._since = 0.0

    def ended_peers(self) -> Ended | None:
        """Return the ended processes that hold the wait, if some do and did at the looks before."""
        found = None if self._queue is None else ended_peers_of_queue(self._queues, self._queue, self._up_to)
        if found is None:
            self._held = None
            return None
        held, ended = found
        if held != self._held:
            self._held, self._since = held, now()
        return ended if now() - self._since >= _CONFIRM_S else None


class WatchedWait:
    """The argument of `wait_in_slices` for a wait that an ended process may hold."""

    def __init__(self, wait: Callable[[int], bool], blocker: _Blocker) -> None:
        self._wait = wait
        self._blocker = blocker
        self.ended: Ended | None = None   # because of whom the wait is over, and not met

    def __call__(self, timeout_ns: int) -> bool:
        """Wait for at most `timeout_ns`. Return whether the wait is met or can never be met."""
        if self._wait(timeout_ns):
            return True
        ended = self._blocker.ended_peers()
        # The process can have met the wait just before its end.
        if ended is None or self._wait(0):
            return ended is not None
        self.ended = ended
        return True
