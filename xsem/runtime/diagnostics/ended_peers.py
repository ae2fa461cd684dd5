"""Host waits that end when only an ended process could have met them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from xsem.data.peers import Peer
from xsem.runtime.diagnostics.pending_operations import ended_peer_of_queue, ended_peer_of_semaphore
from xsem.runtime.queues.operations import FencedQueue
from xsem.runtime.queues.queue_table import QueueTable
from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["QueueBlocker", "SemaphoreBlocker", "WatchedWait"]


class _Blocker(Protocol):
    def ended_peer(self) -> Peer | None:
        """Return the ended process that holds the wait, if one does."""


class SemaphoreBlocker:
    """The semaphore that a host wait waits for."""

    def __init__(self, queues: QueueTable, state: SemaphoreState, value: int | None) -> None:
        self._queues = queues
        self._state = state
        self._value = value

    def ended_peer(self) -> Peer | None:
        """Return the ended process that holds the wait, if one does."""
        return ended_peer_of_semaphore(self._queues, self._state, self._value)


class QueueBlocker:
    """The operations of a queue up to the one that a host wait waits for."""

    def __init__(self, queues: QueueTable, queue: FencedQueue | None, up_to: int) -> None:
        self._queues = queues
        self._queue = queue
        self._up_to = up_to

    def ended_peer(self) -> Peer | None:
        """Return the ended process that holds the wait, if one does."""
        return None if self._queue is None else ended_peer_of_queue(self._queues, self._queue, self._up_to)


class WatchedWait:
    """The argument of `wait_in_slices` for a wait that an ended process may hold.

    Attributes
    ----------
    ended : Peer or None
        The ended process because of which the wait is over. The wait is then not met.
    """

    def __init__(self, wait: Callable[[int], bool], blocker: _Blocker) -> None:
        self._wait = wait
        self._blocker = blocker
        self.ended: Peer | None = None

    def __call__(self, timeout_ns: int) -> bool:
        """Wait for at most `timeout_ns`. Return whether the wait is met or can never be met."""
        if self._wait(timeout_ns):
            return True
        peer = self._blocker.ended_peer()
        # The process can have met the wait just before its end.
        if peer is None or self._wait(0):
            return peer is not None
        self.ended = peer
        return True
