"""What the books say of one appended operation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal, TypeAlias

from xsem.runtime.device_state import Fence
from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["Operation", "OperationName", "Targets"]

OperationName: TypeAlias = Literal["wait", "signal", "work", "copy", "fill", "barrier"]
Targets: TypeAlias = Sequence[tuple[SemaphoreState, int | None]]


class Operation:
    """One appended operation. `kept` is what must live until it is done: points that it waits for.

    `targets` are the semaphores of a wait or signal; of a replay those that it waits for, and `signals` those that it
    signals.
    """

    __slots__ = ("appended_at", "fence", "kept", "operation", "rewinds", "seq", "signals", "targets")

    def __init__(
        self, operation: OperationName, targets: Targets, kept: Sequence[Fence], rewinds: bool, signals: Targets = (),
    ) -> None:
        self.seq = 0   # its number on the list, assigned by the append
        self.operation = operation
        self.targets = targets
        self.kept = kept
        self.fence: Fence | None = None
        self.rewinds = rewinds
        self.signals = signals
        self.appended_at = time.monotonic()
