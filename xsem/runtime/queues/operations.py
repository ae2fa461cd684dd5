"""Appended operations, and the driver's fences that tell their completion."""

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
    """The queue of a fence, as users of the fence see it."""

    name: str

    def fail(self, failure: DriverError) -> None:
        """Note that the work of the queue failed."""

    def poll(self) -> None:
        """Query the driver for the progress of the queue."""

    def reached(self, seq: int) -> None:
        """Note that all operations up to this one are done."""

    def pending(self) -> list[Operation | PreparedOperation]:
        """Return the operations that are not known to be done, oldest first."""


class Fence:
    """A completion token of the driver. It is released when it is collected, or when the device closes.

    A caller keeps the device open during each query (`DeviceState.calling`, `Lifetime.visited`).

    Attributes
    ----------
    queue : FencedQueue or None
        None for the fence of a borrowed event.
    seq : int
        Number of the operation on `queue`.
    captured : bool
        The operation was captured or recorded, not executed.
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
        """Return whether the fence is reached. Never blocks.

        Raises
        ------
        DriverError
            The fence will never be reached.
        """
        driver = self.device_state.driver
        try:
            with driver.quiet():
                return driver.done(self.token)
        except DriverError as failure:
            if self.queue is not None:
                self.queue.fail(failure)
            raise

    def wait(self, timeout_ns: int) -> bool:
        """Block until the fence is reached or the time is over. Return whether it is reached.

        Raises
        ------
        DriverError
            The fence will never be reached.
        """
        driver = self.device_state.driver
        try:
            with driver.quiet():
                return driver.wait(self.token, timeout_ns)
        except DriverError:
            if self.queue is not None:
                self.queue.poll()
            raise

    def check_running(self) -> None:
        """Refuse the fence of a captured operation.

        Raises
        ------
        BusyError
            ``capturing``: a captured operation runs when its graph is launched. A query would break the capture
            (CUDA_ERROR_CAPTURED_EVENT).
        """
        if self.captured:
            raise BusyError("the event's operation was captured or recorded, not executed: wait for the event only "
                            "inside that capture", reason="capturing")

    def __del__(self) -> None:
        # The attribute is missing if the constructor failed.
        key = getattr(self, "_key", None)
        if key is not None:
            self.device_state.detach_fence(key)


class Operation:
    """One appended operation.

    Attributes
    ----------
    seq : int
        Number of the operation on its queue; assigned by the append.
    targets : sequence
        Semaphores and values of a wait or a signal. For a replay: those that it waits for.
    signals : sequence
        Semaphores and values that a replay signals. Empty for other operations.
    kept : sequence of Fence
        The fences that the operation waits for. They must live until it is done.
    fence : Fence or None
        Fence of the operation itself, if the append wanted one.
    rewinds : bool
        A signal with ``allow_rewind``: its value need not be above the one before.
    """

    __slots__ = ("appended_at", "fence", "kept", "operation", "rewinds", "seq", "signals", "targets")

    def __init__(
        self, operation: OperationName, targets: Targets, kept: Sequence[Fence], rewinds: bool, signals: Targets = (),
    ) -> None:
        self.seq = 0
        self.operation = operation
        self.targets = targets
        self.kept = kept
        self.fence: Fence | None = None
        self.rewinds = rewinds
        self.signals = signals
        self.appended_at = time.monotonic()


OperationFacts: TypeAlias = tuple[int, PreparedAppend, Any, float]
"""A prepared append in flight: number, prepared append, values, time. `PreparedOperation` is the form for readers."""


class PreparedOperation(NamedTuple):
    """One use of a prepared append, with the attributes of an `Operation`."""

    seq: int
    prepared: PreparedAppend
    values: Any
    appended_at: float

    @property
    def kept(self) -> tuple[()]:
        """Empty: the operation waits for no fences."""
        return ()

    @property
    def fence(self) -> None:
        """None: the operation has no fence of its own."""

    @property
    def rewinds(self) -> bool:
        """False: the value of a prepared signal always rises."""
        return False

    @property
    def signals(self) -> tuple[()]:
        """Empty: the operation is not a replay."""
        return ()

    @property
    def operation(self) -> Literal["wait", "signal"]:
        """The kind of the operation."""
        return self.prepared.operation

    @property
    def targets(self) -> Sequence[tuple[SemaphoreState, int | None]]:
        """The semaphores, with their values."""
        return self.prepared.targets(self.values)
