"""Pending signals of a timeline: appended and not known to be done."""

from __future__ import annotations

from xsem.runtime.device_state import DeviceState
from xsem.runtime.queues.queue_table import QueueTable
from xsem.runtime.semaphore_state import SemaphoreState, can_read, read_value

__all__ = ["queued_signal"]


def queued_signal(queues: QueueTable, state: SemaphoreState, last: int) -> tuple[str, int | None] | None:
    """Return the list and the value of a pending signal of a timeline, or None if all signals are done."""
    # A timeline that has reached the value of a signal has received that signal. So one read of the value is enough,
    # unless a signal is pending or the values went back here.
    uses = [(queue, seq) for queue, seq in state.lifetime.uses.copy().items() if queue.done_seq < seq]
    if not uses:
        return None
    now = _value(queues.device_state, state)
    if now >= last and not state.rewound:
        return None
    found = _find(queues, state, now)
    if found is not None:
        for queue, seq in uses:
            queue.ensure_marker(seq)
            queue.poll()
        found = _find(queues, state, _value(queues.device_state, state))
    return found


def _value(device_state: DeviceState, state: SemaphoreState) -> int:
    """Return the value of the timeline; -1 if the device cannot read it."""
    return read_value(device_state, state) if can_read(device_state, state) else -1


def _find(queues: QueueTable, state: SemaphoreState, now: int) -> tuple[str, int | None] | None:
    for queue in queues.live():
        for op in queue.pending():
            for target, value in op.targets if op.operation == "signal" else op.signals:
                if target is state and (value is None or value > now or op.rewinds):
                    return queue.name, value
    return None
