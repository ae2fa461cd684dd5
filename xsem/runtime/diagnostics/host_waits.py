"""Host waits that end when only ended processes could have met them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter as now
from typing import Any, Final, Protocol

from xsem.data.signallers import Ended
from xsem.runtime.diagnostics.pending_operations import (
    abandon_unmet,
    ended_peers_of_queue,
    ended_peers_of_semaphore,
)
from xsem.runtime.queues.operations import FencedQueue
from xsem.runtime.queues.queue_table import QueueTable
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.runtime.timeouts import wait_in_slices
from xsem.runtime.tracing import tracing

__all__ = ["QueueBlocker", "SemaphoreBlocker", "host_wait", "host_waits", "unblock_released"]

_CONFIRM_S: Final = 0.2

host_waits: Final[dict[int, tuple[int, tuple[Any, int | None], float]]] = {}
"""The waits of the host now: the thread, what it waits for, and since when."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=host_waits.clear)   # they are those of its parent


class Blocker(Protocol):
    """What a host wait waits for."""

    def waited_for(self) -> tuple[Any, int | None]:
        """Return the semaphore and the value, or the queue and the number of the operation."""

    def ended_peers(self) -> Ended | None:
        """Return the ended processes that hold the wait, if some do."""


class SemaphoreBlocker:
    """The semaphore that a host wait waits for."""

    def __init__(self, queues: QueueTable, state: SemaphoreState, value: int | None) -> None:
        self._queues = queues
        self._state = state
        self._value = value

    def waited_for(self) -> tuple[SemaphoreState, int | None]:
        """Return the semaphore and the value."""
        return self._state, self._value

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

    def waited_for(self) -> tuple[FencedQueue | None, int]:
        """Return the queue and the number of the operation."""
        return self._queue, self._up_to

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

    def give_up(self) -> None:
        """Abandon the timelines that hold the queue, so that no device waits for ever."""
        if self._queue is not None:
            abandon_unmet(self._queues, self._queue, self._up_to)


def unblock_released(queues: QueueTable) -> None:
    """Let the releasing thread abandon the timelines that hold released queues."""
    # The device's state keeps the queues: they are needed until their release is over.
    queues.device_state.unblock = partial(abandon_unmet, queues)


def host_wait(
    wait: Callable[[int], bool], blocker: Blocker, timeout_s: float | None
) -> tuple[bool, Ended | None]:
    """Wait until ``wait(nanoseconds)`` is met, and return whether it is; if not, the processes that left it unmet."""
    thread, began, result = threading.get_native_id(), now(), "error"
    mine = thread, blocker.waited_for(), began
    host_waits[id(mine)] = mine   # a signal handler may wait during a wait
    try:
        found = _waited(wait, blocker, timeout_s)
        result = "met" if found[0] else "timeout"
        return found
    finally:
        host_waits.pop(id(mine), None)   # in a forked child it is gone
        if (note := tracing.note) is not None:
            note(("host wait", now(), thread, mine[1], began, result))


def _waited(
    wait: Callable[[int], bool], blocker: Blocker, timeout_s: float | None
) -> tuple[bool, Ended | None]:
    ended: Ended | None = None

    def met_or_lost(timeout_ns: int) -> bool:
        nonlocal ended
        if wait(timeout_ns):
            return True
        found = blocker.ended_peers()
        # The process can have met the wait just before its end.
        if found is None or wait(0):
            return found is not None
        ended = found
        return True

    return wait_in_slices(met_or_lost, timeout_s) and ended is None, ended
