"""What is pending on a device, and why a wait ran out: the books turned into data and sentences."""

from __future__ import annotations

import bisect
import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from xsem.errors import ReleasedError, WaitTimeoutError, XsemError
from xsem.runtime.completion import CompletionTracker
from xsem.runtime.device_state import DeviceState
from xsem.runtime.operations import Operation
from xsem.runtime.prepared_append import PreparedOperation
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.types import Feature, PendingOp, SemaphoreKind

if TYPE_CHECKING:
    from xsem.runtime.queue import Queue

__all__ = [
    "Stuck",
    "device_pending",
    "host_wait_timeout",
    "overdue_lists",
    "queue_pending",
    "recorded_lists",
    "timeout_error",
]

Stuck: TypeAlias = tuple[str, int, list[PendingOp]]
"""A stuck list: its name, the number of the operation that holds it, and its pending operations."""


def device_pending(device_state: DeviceState) -> tuple[PendingOp, ...]:
    """All that is not known to be done on a device, list by list, oldest first in each; nothing once it is released."""
    with contextlib.suppress(ReleasedError), device_state.calling():
        look = _Look(device_state)
        return tuple(op for queue in device_state.live_queues() for _, _, ops in _stuck(queue, look) for op in ops)
    return ()


def overdue_lists(device_state: DeviceState, after_s: float) -> list[Stuck]:
    """Lists with an operation that is pending for `after_s` seconds or more, according to the driver.

    The driver may block this thread as long as a wait is unmet, for example in a kernel's first launch behind it.
    """
    found: list[Stuck] = []
    with contextlib.suppress(ReleasedError), device_state.calling():
        look = _Look(device_state)
        for queue in sorted(_overdue(device_state, after_s), key=lambda queue: not queue.may_wait):
            # A marker is appended under the list's lock. If the driver blocks this thread there, the lock must not be
            # that of a list which gets the missing signal. So the lists with waits come first.
            if queue.may_wait or not found:
                found += _stuck(queue, look)
    return found


def recorded_lists(device_state: DeviceState, after_s: float) -> list[Stuck]:
    """Like `overdue_lists`, from xsem's own records: no driver call, and no lock that an append holds during one."""
    look = _Look(device_state, ask=False)
    return [(queue.name, operations[0].seq, list(look.describe(queue, operations)))
            for queue in _overdue(device_state, after_s) if (operations := queue.pending())]


def _overdue(device_state: DeviceState, after_s: float) -> list[Queue]:
    limit = time.monotonic() - after_s
    return [queue for queue in device_state.live_queues()
            if (operations := queue.pending()) and operations[0].appended_at <= limit]


def _stuck(queue: CompletionTracker, look: _Look) -> list[Stuck]:
    queue.ensure_fence(queue.seq)
    queue.poll()
    operations = _not_done(queue.pending(), look)
    return [(queue.name, operations[0].seq, list(look.describe(queue, operations)))] if operations else []


def queue_pending(device_state: DeviceState, queue: CompletionTracker, up_to: int) -> list[PendingOp]:
    """Pending operations of a queue up to operation `up_to`, after a wait for that timed out.

    The operation that holds the others comes first, if it can be identified.
    """
    with contextlib.suppress(ReleasedError), device_state.calling():
        look = _Look(device_state)
        queue.poll()
        operations = [op for op in queue.pending() if op.seq <= up_to]
        # Whatever the values say, the last one was not done when the time was over.
        return list(look.describe(queue, _not_done(operations, look) or operations[-1:]))
    return []


def timeout_error(
    device_state: DeviceState, what: str, timeout_s: float | None, pending: Sequence[PendingOp]
) -> WaitTimeoutError:
    """The error for a host wait that ran out, with the stuck operation in words."""
    message = f"{what} was not done within {timeout_s:g} s" if timeout_s is not None else f"{what} was not done"
    causes: list[str] = []
    if pending:
        head, doubtful = pending[0], _doubtful(pending)
        if doubtful:
            message += (f"; one of {len(pending)} operations is stuck, and {device_state.info.id} cannot tell which: "
                        f"the first is {_sentence(head)}, the last wait is {_sentence(doubtful[-1])}")
            causes += _causes_of_one(doubtful)
        else:
            message += f"; pending first: {_sentence(head)}"
            if len(pending) > 1:
                message += f" (and {len(pending) - 1} more behind it)"
            causes += _causes(head)
        if doubtful or (_waits(head.operation) and head.semaphore is not None):
            causes += device_state.driver.timeout_causes
    return WaitTimeoutError(message, pending=tuple(pending), backend=device_state.info.backend,
                            likely_causes=tuple(causes))


def host_wait_timeout(
    device_state: DeviceState, state: SemaphoreState, value: int | None, timeout_s: float | None, age_s: float
) -> WaitTimeoutError:
    """The error for `Semaphore.host_wait`."""
    for queue in device_state.live_queues():
        queue.poll()
    look = _Look(device_state)
    op = PendingOp(
        operation="wait",
        semaphore=state.described,
        value=value,
        current_value=look.value(state),
        last_signalled_here=state.last_signalled,
        command_list="host",
        age_s=age_s,
        possible_signallers=look.signallers(state, value, None, None),
    )
    return timeout_error(device_state, f"the host's wait for {state.described}", timeout_s, (op,))


class _Look:
    """What one report needs to know of a device, each thing found out once."""

    def __init__(self, device_state: DeviceState, *, ask: bool = True) -> None:
        self._device_state = device_state
        self._ask = ask
        self._can_read = Feature.READ_VALUE in device_state.capabilities.features
        self._values: dict[SemaphoreState, int | None] = {}
        self._signals: dict[SemaphoreState, list[_Signals]] | None = None

    # ---- values
    def value(self, state: SemaphoreState) -> int | None:
        """A timeline's value now; None if neither the device nor an exporter in this process can read it."""
        if not self._ask or state.kind is not SemaphoreKind.TIMELINE:
            return None
        if state not in self._values:
            self._values[state] = self._read(state)
        return self._values[state]

    def _read(self, state: SemaphoreState) -> int | None:
        if not self._can_read:
            return None if state.origin is None else state.origin.value()
        # It may be released and waiting to be freed: that must not happen in the midst of this.
        with state.lifetime.visited() as there:
            if there:
                with contextlib.suppress(XsemError), self._device_state.driver.quiet():
                    return self._device_state.driver.semaphore_value(state.token)
        return None

    # ---- reports
    def describe(
        self, queue: CompletionTracker, operations: Sequence[Operation | PreparedOperation]
    ) -> Iterator[PendingOp]:
        """The entries as data."""
        now = time.monotonic()
        for op in operations:
            for state, value in op.targets or ((None, None),):
                yield PendingOp(
                    operation=op.operation,
                    semaphore=None if state is None else state.described,
                    value=value,
                    current_value=None if state is None else self.value(state),
                    last_signalled_here=None if state is None else state.last_signalled,
                    command_list=queue.name,
                    age_s=now - op.appended_at,
                    possible_signallers=(
                        self.signallers(state, value, queue, op) if state and _waits(op.operation) else ()
                    ),
                )

    def signallers(
        self, state: SemaphoreState, value: int | None, queue: CompletionTracker | None,
        wait: Operation | PreparedOperation | None,
    ) -> tuple[str, ...]:
        """Who could satisfy a wait, as far as this process can know."""
        if self._signals is None:
            self._signals = self._find_signals()
        found: list[str] = []
        for signals in self._signals.get(state, ()):
            # The first of a list is the one that matters; a frame loop has hundreds behind it.
            first = signals.first(value)
            if first is not None:
                seq, signalled = first
                behind = signals.queue is queue and wait is not None and seq > wait.seq
                what = "signal" if signalled is None else f"signal of {signalled}"
                found.append(f"{signals.queue.name} ({what} {_BEHIND if behind else 'pending'})")
        if state.imported:
            found.append("the exporter, or another importer of its handle")
        elif state.exported:
            found.append("an importer of the exported handle")
        return tuple(dict.fromkeys(found))

    def _find_signals(self) -> dict[SemaphoreState, list[_Signals]]:
        found: dict[SemaphoreState, list[_Signals]] = {}
        for queue in self._device_state.live_queues():
            here: dict[SemaphoreState, _Signals] = {}
            for op in queue.pending():
                for state, value in op.targets if op.operation == "signal" else op.signals:
                    if state not in here:
                        here[state] = _Signals(queue)
                        found.setdefault(state, []).append(here[state])
                    here[state].add(op.seq, value)
        return found


class _Signals:
    """The signals of one semaphore that are pending on one list, oldest first."""

    def __init__(self, queue: CompletionTracker) -> None:
        self.queue = queue
        self._signals: list[tuple[int, int | None]] = []
        self._highest: list[float] = []  # so far: rises, so that it can be searched, also where the values went back

    def add(self, seq: int, value: int | None) -> None:
        self._signals.append((seq, value))
        reach = math.inf if value is None else value
        self._highest.append(max(reach, self._highest[-1]) if self._highest else reach)

    def first(self, value: int | None) -> tuple[int, int | None] | None:
        """Number and value of the first that satisfies a wait for `value`."""
        at = 0 if value is None else bisect.bisect_left(self._highest, value)
        return self._signals[at] if at < len(self._signals) else None


def _not_done(
    operations: Sequence[Operation | PreparedOperation], look: _Look
) -> Sequence[Operation | PreparedOperation]:
    """The entries from the first on that is not known to be done. A queue is in order: what precedes that is done."""
    unmet = next((at for at, op in enumerate(operations) if _is_unmet_wait(op, look)), len(operations))
    start = max(_reached(operations, unmet), _left_its_value(operations, unmet, look))
    # From here on a value may have come from somebody else, so it counts only where no wait can hold the list.
    at = start
    while at < unmet:
        op = operations[at]
        if op.kept or (_waits(op.operation) and op.targets):
            if not _is_met(op, look):
                break
            if op.operation == "wait":
                start = at + 1 if start == at else start
        if op.operation == "signal" and _passed(op, look):
            start = at + 1
        at += 1
    return operations[start:]


def _reached(operations: Sequence[Operation | PreparedOperation], end: int) -> int:
    """Up to where the points of operations with events of their own are reached."""
    marked = [(at, op.fence) for at, op in enumerate(operations[:end]) if op.fence is not None]
    with contextlib.suppress(XsemError):
        count = bisect.bisect_left(marked, True, key=lambda each: not each[1].done())
        return marked[count - 1][0] + 1 if count else 0
    return 0


def _left_its_value(operations: Sequence[Operation | PreparedOperation], end: int, look: _Look) -> int:
    """Up to where a timeline has the very value that one of these operations gives it: nobody else signals that one."""
    for at in range(end, 0, -1):
        op = operations[at - 1]
        if _passed(op, look) and any(look.value(state) == value for state, value in op.targets):
            return at
    return 0


def _waits(operation: str) -> bool:
    """Whether what it names semaphores for is a wait: a replay is work, and names those that it waits for."""
    return operation in ("wait", "work")


def _passed(op: Operation | PreparedOperation, look: _Look) -> bool:
    return (
        op.operation == "signal" and not op.rewinds and bool(op.targets)
        and all(_at_least(look.value(state), value) for state, value in op.targets)
    )


def _is_met(op: Operation | PreparedOperation, look: _Look) -> bool:
    if _waits(op.operation) and not all(_at_least(look.value(state), value) for state, value in op.targets):
        return False
    with contextlib.suppress(XsemError):
        return all(fence.done() for fence in op.kept)
    return False


def _is_unmet_wait(op: Operation | PreparedOperation, look: _Look) -> bool:
    if not _waits(op.operation):
        return False
    for state, value in op.targets:
        current = look.value(state)
        if current is not None and value is not None and current < value:
            return True
    return False


def _at_least(current: int | None, value: int | None) -> bool:
    return current is not None and value is not None and current >= value


def _doubtful(pending: Sequence[PendingOp]) -> list[PendingOp]:
    """Waits that may each be the unmet one; empty if there is only one candidate."""
    head = pending[0]
    if _waits(head.operation) and None not in (head.value, head.current_value):
        return []
    unknown = [op for op in pending if _waits(op.operation) and op.semaphore is not None and op.current_value is None]
    # The waits of one batch have the same age.
    return unknown if any(op.age_s != head.age_s for op in unknown) else []


def _causes_of_one(waits: Sequence[PendingOp]) -> list[str]:
    who = dict.fromkeys(who for op in waits for who in op.possible_signallers if _BEHIND not in who)
    if not who:
        return _causes(waits[0])
    return ["the signal that one of these waits needs has not been submitted (Level Zero external semaphores, rule 5: "
            "producer first) by: " + ", ".join(who)]


_BEHIND = "behind this very wait"
_PENDING = " pending)"


def _fell(op: PendingOp) -> bool:
    """Whether the signal for this wait was appended here and is done, but the value is below it now."""
    now, last = op.current_value, op.last_signalled_here
    return (
        now is not None and last is not None and op.value is not None and now < op.value <= last
        and not any(_PENDING in who or _BEHIND in who for who in op.possible_signallers)
    )


def _sentence(op: PendingOp) -> str:
    text = f"{op.operation}"
    if op.semaphore is not None:
        text += f" {op.semaphore}"
    if op.value is not None:
        text += f" {'>=' if _waits(op.operation) else '='} {op.value}"
    if op.semaphore is not None:
        now = "unknown" if op.current_value is None else str(op.current_value)
        here = "nothing" if op.last_signalled_here is None else str(op.last_signalled_here)
        text += f" (now {now}, last signalled here {here})"
    return f"{text} on {op.command_list}, {op.age_s:.1f} s old"


def _causes(op: PendingOp) -> list[str]:
    if op.semaphore is None or not _waits(op.operation):
        return ["the device is still busy with it, or something outside this list holds it"]
    if _fell(op):
        fell = f"a signal of {op.current_value} was done after one of {op.last_signalled_here}"
        return [f"{fell}: lists that signal one timeline are not in order with each other; have one wait for the other"]
    if not op.possible_signallers:
        return [f"nobody known here can signal {op.semaphore}: no signal was appended, nor its handle exported"]
    causes = []
    if all(_BEHIND in who for who in op.possible_signallers):
        causes.append("the only signal known is queued behind the wait that needs it: append the signal first (Level "
                      "Zero external semaphores, rule 5: producer first)")
    else:
        causes.append("its signal has not been submitted (Level Zero external semaphores, rule 5: producer first) by: "
                      + ", ".join(op.possible_signallers))
    if op.current_value and op.value is not None and op.current_value < op.value:
        causes.append(f"the signaller stopped at {op.current_value}, or counts differently")
    return causes
