"""The pending operations of a device as data, and the likely cause of a timed-out wait."""

from __future__ import annotations

import bisect
import contextlib
import math
from collections.abc import Iterator, Sequence
from time import perf_counter as now
from typing import TypeAlias

from xsem.data.signallers import Ended
from xsem.errors import ReleasedError, WaitTimeoutError, XsemError
from xsem.runtime.diagnostics.pending_signals import queued_signal
from xsem.runtime.diagnostics.timeout_error import Abandoned, timeout_error
from xsem.runtime.queues.operations import Fence, FencedQueue, Operation, is_wait
from xsem.runtime.queues.queue import Queue
from xsem.runtime.queues.queue_table import QueueTable
from xsem.runtime.semaphore_state import SemaphoreState, can_read, read_value
from xsem.types import PendingOp, SemaphoreKind, Signaller

__all__ = [
    "Stuck",
    "abandon_unmet",
    "device_pending",
    "ended_peers_of_queue",
    "ended_peers_of_semaphore",
    "host_wait_timeout",
    "overdue_lists",
    "queue_pending",
    "recorded_lists",
]

Stuck: TypeAlias = tuple[str, int, list[PendingOp]]
"""A stuck list: its name, the number of its first pending operation, and its pending operations."""


def device_pending(queues: QueueTable) -> tuple[PendingOp, ...]:
    """Return the operations of a device that are not known to be done, list by list, oldest first."""
    with contextlib.suppress(ReleasedError), queues.device_state.calling():
        look = _Look(queues)
        return tuple(op for queue in queues.live() for _, _, ops in _stuck(queue, look) for op in ops)
    return ()   # the device was released


def overdue_lists(queues: QueueTable, after_s: float) -> list[Stuck]:
    """Return the lists with an operation pending for `after_s` seconds or more, according to the driver."""
    # The driver may block this thread while a wait is unmet, for example while it loads a kernel behind the wait.
    found: list[Stuck] = []
    with contextlib.suppress(ReleasedError), queues.device_state.calling():
        _add_overdue(found, queues, after_s)
    return found


def _add_overdue(found: list[Stuck], queues: QueueTable, after_s: float) -> None:
    look = _Look(queues)
    for queue in sorted(_overdue(queues, after_s), key=lambda queue: not queue.wait_in_flight):
        # A marker is appended under the queue's lock, and the driver may block this thread there. The lock must not
        # belong to a queue that gets the missing signal. So the queues with waits come first.
        if queue.wait_in_flight or not found:
            found += _stuck(queue, look)


def recorded_lists(queues: QueueTable, after_s: float) -> list[Stuck]:
    """Return the lists of `overdue_lists` from xsem's own records."""
    # No driver call, and no lock that an append holds during a driver call: this must answer while the driver blocks
    # the thread that asks it.
    look = _Look(queues, ask=False)
    return [(queue.name, operations[0].seq, list(look.describe(queue, operations)))
            for queue in _overdue(queues, after_s) if (operations := queue.pending())]


def _overdue(queues: QueueTable, after_s: float) -> list[Queue]:
    limit = now() - after_s
    return [queue for queue in queues.live()
            if (operations := queue.pending()) and operations[0].appended_at <= limit]


def _stuck(queue: Queue, look: _Look) -> list[Stuck]:
    queue.look()
    operations = _not_done(queue.pending(), queue.markers(), look)
    return [(queue.name, operations[0].seq, list(look.describe(queue, operations)))] if operations else []


def queue_pending(queues: QueueTable, queue: FencedQueue, up_to: int) -> list[PendingOp]:
    """Return the pending operations of a queue up to operation `up_to`, after a wait for `up_to` timed out."""
    # The operation that holds the others comes first, if it can be identified.
    with contextlib.suppress(ReleasedError), queues.device_state.calling():
        return _pending_up_to(_Look(queues), queue, up_to)
    return []


def _pending_up_to(look: _Look, queue: FencedQueue, up_to: int) -> list[PendingOp]:
    queue.poll()
    operations = [op for op in queue.pending() if op.seq <= up_to]
    # At least the last operation was not done at the timeout, even if the values say otherwise now.
    return list(look.describe(queue, _not_done(operations, queue.markers(), look) or operations[-1:]))


def host_wait_timeout(
    queues: QueueTable, state: SemaphoreState, value: int | None, timeout_s: float | None, age_s: float,
    ended: Ended | Abandoned | None,
) -> WaitTimeoutError:
    """Return the error for a `Semaphore.host_wait` that timed out after `age_s` seconds, or that nothing will meet."""
    for queue in queues.live():
        queue.poll()
    look = _Look(queues)
    op = PendingOp(
        operation="wait",
        semaphore=state.described,
        value=value,
        current_value=look.value(state),
        last_signalled_here=state.last,
        command_list="host",
        age_s=age_s,
        signallers=look.signallers(state, value, None, None),
    )
    return timeout_error(queues.device_state, f"the host's wait for {state.described}", timeout_s, (op,), ended)


def ended_peers_of_semaphore(queues: QueueTable, state: SemaphoreState, value: int | None) -> Ended | None:
    """Return the ended processes that hold a host wait for `state`. Otherwise None."""
    return _Look(queues).ended_peers(state, value)


def ended_peers_of_queue(queues: QueueTable, queue: FencedQueue, up_to: int) -> tuple[int, Ended] | None:
    """Return the operation that holds those up to `up_to`, and the ended processes because of which it does."""
    # The value of a timeline, or the markers around the wait, tell that the wait is not met. By markers, a met wait can
    # seem unmet for a moment, when the queue has left the marker before it and not yet reached the one behind it.
    waits = {state for op in queue.pending() if op.seq <= up_to and is_wait(op.operation) for state, _ in op.targets}
    if not any(state.ended_signallers() for state in waits):
        return None
    queue.poll()
    look = _Look(queues)
    markers = queue.markers()
    left = _not_done([op for op in queue.pending() if op.seq <= up_to], markers, look)
    for op in left:
        for state, value in op.targets if is_wait(op.operation) else ():
            ended = look.ended_peers(state, value) if look.value(state) is not None else None
            if ended is not None:
                return op.seq, ended
    # The first operation, if it is a wait between two markers: the first one is reached, and the second one is not.
    behind = left and any(marker.seq == left[0].seq for marker in markers)
    if left and left[0].operation == "wait" and behind and _kept_done(left[0]):
        every = [look.ended_peers(state, value) for state, value in left[0].targets]
        if every[0] is not None and all(every):
            return left[0].seq, every[0]
    return None


def abandon_unmet(queues: QueueTable, queue: FencedQueue, up_to: int) -> None:
    """Abandon the timelines of the unmet waits up to `up_to` whose signallers have all ended."""
    look = _Look(queues)
    for op in queue.pending():
        for state, value in op.targets if op.seq <= up_to and is_wait(op.operation) else ():
            if state.page is not None and not state.page.read_only and value is not None and (
                    look.ended_peers(state, value) is not None) and (
                    # A lower one would be stored over the raised value. A later look finds it done.
                    state.last is None or queued_signal(queues, state, state.last) is None):
                with contextlib.suppress(XsemError):
                    state.page.abandon()
    queue.note_abandoned(up_to)


class _Look:
    """The facts about a device for one report. Each value is read at most once."""

    def __init__(self, queues: QueueTable, *, ask: bool = True) -> None:
        self._queues = queues
        self._device_state = queues.device_state
        self._ask = ask   # False: make no driver call, so that no value is known
        self._values: dict[SemaphoreState, int | None] = {}
        self._signals: dict[SemaphoreState, list[_Signals]] | None = None

    # ---- values
    def value(self, state: SemaphoreState) -> int | None:
        """Return a timeline's value now; None if neither the device nor an exporter in this process can read it."""
        if not self._ask or state.kind is not SemaphoreKind.TIMELINE:
            return None
        if state not in self._values:
            self._values[state] = self._read(state)
        return self._values[state]

    def _read(self, state: SemaphoreState) -> int | None:
        if not can_read(self._device_state, state):
            return None if state.origin is None else state.origin.value()
        # The semaphore may be released and not freed yet. It must not be freed during the read.
        with state.lifetime.visited() as there:
            if there:
                with contextlib.suppress(XsemError):
                    return read_value(self._device_state, state)
        return None

    # ---- peers
    def ended_peers(self, state: SemaphoreState, value: int | None) -> Ended | None:
        """Return the processes that could signal, if all have ended and no pending signal meets the wait."""
        ended = state.ended_signallers()
        if ended is None or _at_least(self.value(state), value) or self._signals_here(state, value):
            return None
        return None if _signals_elsewhere(state, value) else ended

    # ---- reports
    def describe(
        self, queue: FencedQueue, operations: Sequence[Operation]
    ) -> Iterator[PendingOp]:
        """Yield the operations as data, one item for each semaphore."""
        asked_at = now()
        for op in operations:
            for state, value in op.targets or ((None, None),):
                yield PendingOp(
                    operation=op.operation,
                    semaphore=None if state is None else state.described,
                    value=value,
                    current_value=None if state is None else self.value(state),
                    last_signalled_here=None if state is None else state.last,
                    command_list=queue.name,
                    age_s=asked_at - op.appended_at,
                    signallers=self.signallers(state, value, queue, op) if state and is_wait(op.operation) else (),
                    signal_first=state is not None and state.signal_first and is_wait(op.operation),
                )

    def signallers(
        self, state: SemaphoreState, value: int | None, queue: FencedQueue | None,
        wait: Operation | None,
    ) -> tuple[Signaller, ...]:
        """Return the possible signallers of a wait, as far as this process knows them."""
        found: list[Signaller] = []
        for signals in self._signals_of(state):
            # Only the first signal of a list matters. A frame loop has hundreds behind it.
            first = signals.first(value)
            if first is not None:
                seq, signalled = first
                behind = signals.queue is queue and wait is not None and seq > wait.seq
                found.append(Signaller(kind="list", command_list=signals.queue.name, value=signalled, behind=behind))
        if state.imported or state.exported:
            found.append(Signaller(kind="exporter" if state.imported else "importer",
                                   processes=state.signallers.processes()))
        return tuple(dict.fromkeys(found))

    def _signals_here(self, state: SemaphoreState, value: int | None) -> bool:
        return any(signals.first(value) is not None for signals in self._signals_of(state))

    def _signals_of(self, state: SemaphoreState) -> list[_Signals]:
        if self._signals is None:
            self._signals = self._find_signals()
        return self._signals.get(state, [])

    def _find_signals(self) -> dict[SemaphoreState, list[_Signals]]:
        found: dict[SemaphoreState, list[_Signals]] = {}
        for queue in self._queues.live():
            here: dict[SemaphoreState, _Signals] = {}
            for op in queue.pending():
                for state, value in op.targets if op.operation == "signal" else op.signals:
                    if state not in here:
                        here[state] = _Signals(queue)
                        found.setdefault(state, []).append(here[state])
                    here[state].add(op.seq, value)
        return found


def _signals_elsewhere(state: SemaphoreState, value: int | None) -> bool:
    """Return whether another import of the semaphore in this process has a pending signal, by xsem's own records."""
    for queues, other in [(queues(), other()) for queues, other in state.signallers.users]:
        if (queues is not None and other is not None and other is not state
                and _Look(queues, ask=False)._signals_here(other, value)):
            return True
    return False


class _Signals:
    """The pending signals of one semaphore on one queue, oldest first."""

    def __init__(self, queue: FencedQueue) -> None:
        self.queue = queue
        self._signals: list[tuple[int, int | None]] = []
        self._highest: list[float] = []  # the highest value up to each signal: sorted, also if the values went back

    def add(self, seq: int, value: int | None) -> None:
        self._signals.append((seq, value))
        reach = math.inf if value is None else value
        self._highest.append(max(reach, self._highest[-1]) if self._highest else reach)

    def first(self, value: int | None) -> tuple[int, int | None] | None:
        """Return number and value of the first signal that meets a wait for `value`; None if no signal does."""
        at = 0 if value is None else bisect.bisect_left(self._highest, value)
        return self._signals[at] if at < len(self._signals) else None


def _not_done(operations: Sequence[Operation], markers: Sequence[Fence], look: _Look) -> Sequence[Operation]:
    """Return the operations from the first one that is not known to be done."""
    # A queue is in order, so all operations before one that is done are done too.
    unmet = next((at for at, op in enumerate(operations) if _is_unmet_wait(op, look)), len(operations))
    start = max(_reached(operations[:unmet], markers), _left_its_value(operations, unmet, look))
    # From here on, another signaller may have made a value. So a value counts only where no wait can hold the queue.
    at = start
    while at < unmet:
        op = operations[at]
        if op.kept or (is_wait(op.operation) and op.targets):
            if not _is_met(op, look):
                break
            if op.operation == "wait":
                start = at + 1 if start == at else start
        if op.operation == "signal" and _passed(op, look):
            start = at + 1
        at += 1
    return operations[start:]


def _reached(operations: Sequence[Operation], markers: Sequence[Fence]) -> int:
    """Return the number of leading operations that are done, according to the markers."""
    with contextlib.suppress(XsemError):
        reached = bisect.bisect_left(markers, True, key=lambda marker: not marker.done())
        if reached:
            return bisect.bisect_right(operations, markers[reached - 1].seq, key=lambda op: op.seq)
    return 0


def _left_its_value(operations: Sequence[Operation], end: int, look: _Look) -> int:
    """Return the number of leading operations that are done, according to exact values."""
    # A timeline that has exactly the value of a signal got it from that signal, because no other signal has this value.
    for at in range(end, 0, -1):
        op = operations[at - 1]
        if _passed(op, look) and any(look.value(state) == value for state, value in op.targets):
            return at
    return 0


def _passed(op: Operation, look: _Look) -> bool:
    return (
        op.operation == "signal" and not op.rewinds and bool(op.targets)
        and all(_at_least(look.value(state), value) for state, value in op.targets)
    )


def _is_met(op: Operation, look: _Look) -> bool:
    if is_wait(op.operation) and not all(_at_least(look.value(state), value) for state, value in op.targets):
        return False
    return _kept_done(op)


def _kept_done(op: Operation) -> bool:
    with contextlib.suppress(XsemError):
        return all(fence.done() for fence in op.kept)
    return False


def _is_unmet_wait(op: Operation, look: _Look) -> bool:
    if not is_wait(op.operation):
        return False
    for state, value in op.targets:
        current = look.value(state)
        if current is not None and value is not None and current < value:
            return True
    return False


def _at_least(current: int | None, value: int | None) -> bool:
    return current is not None and value is not None and current >= value
