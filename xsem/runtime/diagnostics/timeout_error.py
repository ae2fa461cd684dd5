"""The error of a timed-out host wait: the pending operations in words, with the likely causes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from xsem.data.signallers import Ended
from xsem.errors import WaitTimeoutError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.queues.operations import is_wait
from xsem.types import PendingOp

__all__ = ["Abandoned", "timeout_error"]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The value at which a timeline was abandoned."""

    value: int

    def __str__(self) -> str:
        return f"the timeline was abandoned at {self.value}"


def timeout_error(
    device_state: DeviceState, what: str, timeout_s: float | None, pending: Sequence[PendingOp],
    ended: Ended | Abandoned | None = None,
) -> WaitTimeoutError:
    """Return the error for the host's wait for `what`, which timed out, or which nothing will meet."""
    # The first pending operation holds the others, if that is known.
    causes: list[str] = []
    if ended is not None:
        message = f"{what} cannot be done: {ended}"
    else:
        message = f"{what} was not done within {timeout_s:g} s" if timeout_s is not None else f"{what} was not done"
    if pending:
        head, doubtful = pending[0], _doubtful(pending)
        if doubtful:
            message += (f"; one of {len(pending)} operations is stuck, and {device_state.info.id} cannot tell which: "
                        f"the first is {_sentence(head)}, the last wait is {_sentence(doubtful[-1])}")
            causes += _order_of(doubtful) + _causes_of_one(doubtful)
        else:
            message += f"; pending first: {_sentence(head)}"
            if len(pending) > 1:
                message += f" (and {len(pending) - 1} more behind it)"
            causes += _order_of([head]) + _causes(head)
        if doubtful or (is_wait(head.operation) and head.semaphore is not None):
            causes += device_state.driver.timeout_causes
        else:
            causes.append(_waits_of_other_lists(device_state))
    reason = "peer_ended"
    if ended is None:
        reason = "timeout"
    elif isinstance(ended, Abandoned):
        reason = "abandoned"
    error = WaitTimeoutError(message, reason=reason, pending=tuple(pending), backend=device_state.info.backend,
                             likely_causes=tuple(causes))
    if sys.platform == "linux":
        error.add_note(f"while a program waits, xsem pending {os.getpid()} tells what for, and --all tells both sides; "
                       "xsem trace -- COMMAND tells who ended each wait")
    return error


def _doubtful(pending: Sequence[PendingOp]) -> list[PendingOp]:
    """Return the waits that may be the unmet one; empty if only one operation can be."""
    head = pending[0]
    if is_wait(head.operation) and None not in (head.value, head.current_value):
        return []
    unknown = [op for op in pending if is_wait(op.operation) and op.semaphore is not None and op.current_value is None]
    # The waits of one batch have the same age.
    return unknown if any(op.age_s != head.age_s for op in unknown) else []


def _causes_of_one(waits: Sequence[PendingOp]) -> list[str]:
    who = dict.fromkeys(who for op in waits for who in op.signallers if not who.behind)
    if not who:
        return _causes(waits[0])
    return ["the signal that one of these waits needs has not been submitted by: " + ", ".join(map(str, who))]


def _order_of(waits: Sequence[PendingOp]) -> list[str]:
    late = dict.fromkeys(str(op.semaphore) for op in waits if op.signal_first)
    rule = ("this device takes a wait for a binary semaphore only after its signal was appended "
            "(Capabilities.wait_before_signal), and a wait that came first may never end: append the signal first, or "
            "use a timeline")
    return [f"{', '.join(late)}: {rule}"] if late else []


def _fell(op: PendingOp) -> bool:
    """Return whether the signal of this wait was appended here and is done, but the value is lower now."""
    now, last = op.current_value, op.last_signalled_here
    return (
        now is not None and last is not None and op.value is not None and now < op.value <= last
        and not any(who.kind == "list" for who in op.signallers)
    )


def _waits_of_other_lists(device_state: DeviceState) -> str:
    """Return the cause that can hold back a list without a wait of its own."""
    count = device_state.capabilities.independent_lists
    waiting = "a waiting list or stream stops" if count == 1 else f"{count} waiting lists or streams stop"
    return f"{waiting} all others of {device_state.info.id} (Capabilities.independent_lists)"


def _sentence(op: PendingOp) -> str:
    text = f"{op.operation}"
    if op.semaphore is not None:
        text += f" {op.semaphore}"
    if op.value is not None:
        text += f" {'>=' if is_wait(op.operation) else '='} {op.value}"
    if op.semaphore is not None:
        now = "unknown" if op.current_value is None else str(op.current_value)
        here = "nothing" if op.last_signalled_here is None else str(op.last_signalled_here)
        text += f" (now {now}, last signalled here {here})"
    return f"{text} on {op.command_list}, {op.age_s:.1f} s old"


def _causes(op: PendingOp) -> list[str]:
    if op.semaphore is None or not is_wait(op.operation):
        return ["the device is still busy with this operation, or something outside this list holds it back"]
    if _fell(op):
        fell = f"a signal of {op.current_value} was done after one of {op.last_signalled_here}"
        return [f"{fell}: lists that signal one timeline are not in order with each other; have one wait for the other"]
    if not op.signallers:
        # A signal that is done may have been appended here: its value was lower, or another wait consumed it.
        why = "no signal that meets this wait is pending here, and its handle was not exported"
        return [f"no known signaller for {op.semaphore}: {why}"]
    causes = []
    if all(who.behind for who in op.signallers):
        causes.append("the only signal known is queued behind the wait that needs it: append the signal first")
    else:
        missing = "has not arrived from" if op.signal_first else "has not been submitted by"
        causes.append(f"its signal {missing}: " + ", ".join(op.possible_signallers))
    if op.current_value and op.value is not None and op.current_value < op.value:
        causes.append(f"the signaller stopped at {op.current_value}, or counts differently")
    return causes
