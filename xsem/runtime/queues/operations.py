"""One appended operation, and the driver's fence that tells its completion."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from xsem.errors import BusyError, DriverError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.queues.prepared_append import PreparedAppend
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import Token

__all__ = ["Fence", "FencedQueue", "Operation", "OperationFacts", "OperationName", "PreparedOperation",
           "Targets"]

OperationName: TypeAlias = Literal["wait", "signal", "work", "copy", "fill", "barrier"]
Targets: TypeAlias = Sequence[tuple[SemaphoreState, int | None]]


class FencedQueue(Protocol):
    """The queue of a fence, as the users of the fence see it."""

    name: str

    def fail(self, failure: DriverError) -> None:
        """Note that the work of the queue failed."""

    def poll(self) -> None:
        """Ask the driver how far the queue is."""

    def reached(self, seq: int) -> None:
        """Note that all operations up to this one are done."""

    def pending(self) -> list[Operation | PreparedOperation]:
        """Return the operations that are not known to be done, oldest first."""


class Fence:
    """A completion token of the driver; given back when nothing refers to it any more, or when the device closes.

    A caller keeps the device open during each query (`DeviceState.calling`, `Lifetime.visited`).
    """

    __slots__ = ("__weakref__", "_key", "captured", "device_state", "queue", "seq", "token")

    def __init__(
        self, device_state: DeviceState, token: Token, queue: FencedQueue | None, seq: int, *,
        captured: bool = False,
    ) -> None:
        self.device_state = device_state
        self.token = token
        self.queue = queue
        self.seq = seq
        self.captured = captured
        self._key = device_state.add_fence(token)

    def done(self) -> bool:
        """Whether it is reached; raises if it never will be."""
        driver = self.device_state.driver
        try:
            with driver.quiet():
                return driver.done(self.token)
        except DriverError as failure:
            if self.queue is not None:
                self.queue.fail(failure)
            raise

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is reached or the time is over."""
        driver = self.device_state.driver
        try:
            with driver.quiet():
                return driver.wait(self.token, timeout_ns)
        except DriverError:
            if self.queue is not None:
                self.queue.poll()
            raise

    def check_running(self) -> None:
        """Refuse a point of a captured operation.

        Raises
        ------
        BusyError
            ``capturing``: what was captured runs when its graph is launched, and to ask would break the capture
            (CUDA_ERROR_CAPTURED_EVENT).
        """
        if self.captured:
            raise BusyError("the event's operation was captured or recorded, not executed: it can be waited for inside "
                            "that capture alone", reason="capturing")

    def __del__(self) -> None:
        # Where the constructor failed there is no key.
        key = getattr(self, "_key", None)
        if key is not None:
            self.device_state.detach_fence(key)


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


OperationFacts: TypeAlias = tuple[int, PreparedAppend, Any, float]
"""Of an append: its number, what was appended, the values, and when. `PreparedOperation` is made of it for who asks."""


class PreparedOperation(NamedTuple):
    """What `xsem.runtime.queues.operations.OperationName` is of other operations."""

    seq: int
    prepared: PreparedAppend
    values: Any
    appended_at: float

    @property
    def kept(self) -> tuple[()]:
        """It waits for no points."""
        return ()

    @property
    def fence(self) -> None:
        """It has none."""

    @property
    def rewinds(self) -> bool:
        """It may not."""
        return False

    @property
    def signals(self) -> tuple[()]:
        """For replays."""
        return ()

    @property
    def operation(self) -> Literal["wait", "signal"]:
        """Which."""
        return self.prepared.operation

    @property
    def targets(self) -> Sequence[tuple[SemaphoreState, int | None]]:
        """The semaphores, with their values."""
        return self.prepared.targets(self.values)
