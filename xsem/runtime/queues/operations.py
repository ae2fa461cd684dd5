"""The appends of a queue, its operations in flight, and the driver's fences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from xsem.errors import BusyError, DriverError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.lifetime import Lifetime, QueueProgress
from xsem.runtime.quick import EventFence, QuickQueue
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import QueueDriver, Token

__all__ = ["Append", "DriverCall", "Fence", "FencedQueue", "Operation", "OperationName", "Targets", "Work",
           "is_wait", "quick_queue"]

OperationName: TypeAlias = Literal["wait", "signal", "work", "copy", "fill", "barrier"]
Targets: TypeAlias = Sequence[tuple[SemaphoreState, int | None]]


class FencedQueue(Protocol):
    """The queue of a fence, for users of the fence."""

    name: str

    def fail(self, failure: DriverError) -> None:
        """Note that the work of the queue failed."""

    def poll(self) -> None:
        """Query the driver for the progress of the queue."""

    def reached(self, seq: int) -> None:
        """Note that all operations up to this one are done."""

    def note_abandoned(self, seq: int) -> None:
        """Note a failure if a timeline was abandoned before it met a wait up to this operation."""

    def check_waits(self, seq: int) -> None:
        """Raise the failure if a wait up to this operation ended without its signal, because of an abandonment."""

    def pending(self) -> list[Operation]:
        """Return the operations in flight, oldest first."""

    def markers(self) -> list[Fence]:
        """Return the fences of the queue that are not known to be reached, oldest first."""


class _Queries:
    """The queries of a fence."""

    __slots__ = ()

    device_state: DeviceState
    token: Token
    queue: FencedQueue | None
    seq: int
    captured: bool

    def done(self) -> bool:
        """Return whether the fence is reached (DriverError: it never will be). Never blocks."""
        return self._asked(self.device_state.query_fence)

    def query(self) -> bool:
        """Return what `done` does, without the bridged signals before the fence."""
        return self._asked(self.device_state.driver.query_fence)

    def _asked(self, ask: Callable[[Token], bool]) -> bool:
        try:
            done = ask(self.token)
        except DriverError as failure:
            if self.queue is not None:
                self.queue.fail(failure)
            raise
        if done and self.queue is not None:
            self.queue.check_waits(self.seq)
        return done

    def wait(self, timeout_ns: int) -> bool:
        """Block until the fence is reached (DriverError: never) or the time is over; return whether it is reached."""
        device_state = self.device_state
        try:
            done = device_state.driver.wait_fence(self.token, timeout_ns)
            if done and device_state.bridge is not None:
                device_state.bridge.turn()
        except DriverError:
            if self.queue is not None:
                self.queue.poll()
            raise
        if done and self.queue is not None:
            self.queue.check_waits(self.seq)
        return done

    def reached_at(self) -> float | None:
        """Return when the fence, which is reached, was reached, as time.perf_counter() says; None if unknown."""
        with self.device_state.lifetime.visited() as there:
            return self.device_state.driver.fence_time(self.token) if there else None

    def check_running(self) -> None:
        """Refuse the fence of a captured operation."""
        # A captured operation runs at the launch of its graph. A query would break the capture with
        # CUDA_ERROR_CAPTURED_EVENT.
        if self.captured:
            raise BusyError("the event's operation was captured or recorded, not executed: wait for the event only "
                            "inside that capture", reason="capturing")


class Fence(_Queries):
    """A completion token of the driver."""

    # After the collection of a fence, a later call on the device releases the token. The close of the device releases
    # all tokens. A caller keeps the device open during each query (`DeviceState.calling`, `Lifetime.visited`).

    __slots__ = ("__weakref__", "_key", "captured", "device_state", "queue", "seq", "token")

    def __init__(self, device_state: DeviceState, token: Token, queue: FencedQueue | None, seq: int) -> None:
        self.device_state = device_state
        self.token = token
        self.queue = queue   # None for the fence of a borrowed event
        self.seq = seq   # number of the operation on `queue`
        self.captured = False   # the operation was captured or recorded, not executed
        self._key = device_state.add_fence(token)

    def __del__(self) -> None:
        key = getattr(self, "_key", None)   # None if the constructor did not finish
        if key is not None:
            self.device_state.detach_fence(key)


def is_wait(operation: str) -> bool:
    """Return whether the semaphores of the operation are waited for. A replay is work, and lists those of its waits."""
    return operation in ("wait", "work")


def quick_queue(queue: Any, calls: Any) -> Any:
    """Return the quick appends of a queue; None without the compiled file, or without its driver's `QueueCalls`."""
    return None if QuickQueue is None or calls is None else QuickQueue(queue, calls, _QuickFence)


if EventFence is not None:
    class _QuickFence(EventFence, _Queries):  # type: ignore[misc]
        """The fence of a quick append. Its event returns to the driver's unused ones by itself."""

        __slots__ = ("__weakref__",)


class Operation(NamedTuple):
    """One appended operation in flight."""

    seq: int   # number of the operation on its queue, which the append assigns
    append: Append
    # Timelines: one int, or a tuple of ints. One binary semaphore without a parameter object, or an append without
    # semaphores: None. All other cases, also ``allow_rewind``: a list of parameter objects.
    params: Any
    kept: Sequence[Fence]   # wait fences, kept until the operation is done
    appended_at: float   # of time.perf_counter; on Windows, time.monotonic of Python 3.12 advances only every 16 ms

    @property
    def operation(self) -> OperationName:
        """The kind of the operation."""
        return self.append.operation

    @property
    def targets(self) -> Targets:
        """Semaphores and values of a wait or a signal, or of the waits of a replay."""
        return self.append.targets(self.params)

    @property
    def signals(self) -> Targets:
        """Semaphores and values of the signals of a replay. Empty for other operations."""
        return self.append.signals(self.params)

    @property
    def rewinds(self) -> bool:
        """Whether the operation is a signal with ``allow_rewind``."""
        return self.append.rewinds(self.params)


class Append:
    """The kind, the objects and the driver's call of an append."""

    # The parameters belong to the `Operation`, so one `Append` can serve many operations.

    __slots__ = ("bridged", "lifetimes", "may_wait", "operation", "paged", "reenters", "unreadable")

    def __init__(
        self, operation: OperationName, lifetimes: Sequence[Lifetime] = (), *, may_wait: bool = False
    ) -> None:
        self.operation: OperationName = operation
        self.lifetimes = lifetimes   # of the objects of the operation
        self.may_wait = may_wait   # the operation can hold the queue behind an unmet wait
        self.reenters = False   # the driver's call can itself append to this queue
        # Semaphores of a wait whose values the device cannot read. Only markers tell whether the wait is met.
        self.unreadable: tuple[SemaphoreState, ...] = ()
        # Timelines that the driver does not know. The bridge of the device waits for them and signals them.
        self.bridged: tuple[SemaphoreState, ...] = ()
        # Semaphores of a wait that a process can abandon. The queue looks for that before it counts the wait as done.
        self.paged: tuple[SemaphoreState, ...] = ()

    def begin(self, queue: QueueProgress, seq: int, params: Any, recording: bool) -> Any:
        """Note the use of the objects, then check and change the state of the semaphores. The driver's call follows."""
        # Returns the changes for `take_back` and `settle`, or None. If a semaphore refuses the operation, nothing has
        # changed. `recording` tells whether the queue records the operation.
        for lifetime in self.lifetimes:
            lifetime.use(queue, seq)

    def take_back(self, params: Any, changes: Any) -> None:
        """Undo the changes of semaphore state, because the driver did not get the operation or refused it."""
        changes.take_back()

    def settle(self, changes: Any) -> None:
        """Keep the changes of semaphore state, because the driver has the operation."""
        changes.settle()

    def call(self, params: Any, fences: Sequence[Token], memories: Sequence[Token], want_fence: bool) -> Token | None:
        """Make the driver's call. Return the token of a fence if `want_fence` is True."""
        raise NotImplementedError

    def targets(self, params: Any) -> Targets:
        """Return the semaphores and values of a wait or a signal, or of the waits of a replay."""
        return ()

    def signals(self, params: Any) -> Targets:
        """Return the semaphores and values of the signals of a replay. Empty for other operations."""
        return ()

    def rewinds(self, params: Any) -> bool:
        """Return whether a signal has ``allow_rewind``, that is, accepts a value not above the last value."""
        return False


class DriverCall(Append):
    """One call of a driver's method with fixed arguments: a barrier, a copy or a fill."""

    __slots__ = ("_arguments", "_function")

    def __init__(
        self, operation: OperationName, function: Callable[..., Token | None], arguments: Sequence[Any] = (),
        lifetimes: Sequence[Lifetime] = (),
    ) -> None:
        super().__init__(operation, lifetimes)
        self._function = function
        self._arguments = arguments

    def call(self, params: Any, fences: Sequence[Token], memories: Sequence[Token], want_fence: bool) -> Token | None:
        """Call the method."""
        if not self._arguments:
            return self._function(fences, want_fence)
        return self._function(*self._arguments, fences, want_fence)


class Work(Append):
    """Work of the application. The function can itself append to the queue."""

    __slots__ = ("_driver", "_work")

    def __init__(self, driver: QueueDriver, work: Callable[[], object]) -> None:
        super().__init__("work")
        self.reenters = True
        self._driver = driver
        self._work = work

    def call(self, params: Any, fences: Sequence[Token], memories: Sequence[Token], want_fence: bool) -> None:
        """Give the function to the driver."""
        self._driver.append_work(self._work)
