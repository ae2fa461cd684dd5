"""The appends of a queue, its operations in flight, and the driver's fences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from xsem.errors import BusyError, DriverError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.lifetime import Lifetime, User
from xsem.runtime.native import now
from xsem.runtime.queues.semaphore_changes import StateChanges
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import QueueDriver, Token

__all__ = ["NOT_NOTED", "Append", "DriverCall", "Fence", "FencedQueue", "Operation", "OperationName", "Targets", "Work",
           "new_fence", "new_operation"]

OperationName: TypeAlias = Literal["wait", "signal", "work", "copy", "fill", "barrier"]
Targets: TypeAlias = Sequence[tuple[SemaphoreState, int | None]]

NOT_NOTED: Final = object()
"""Value of `Operation.before` until the append stores the earlier state of its semaphores."""


class FencedQueue(Protocol):
    """The queue of a fence, for users of the fence."""

    name: str

    def fail(self, failure: DriverError) -> None:
        """Note that the work of the queue failed."""

    def poll(self) -> None:
        """Query the driver for the progress of the queue."""

    def reached(self, seq: int) -> None:
        """Note that all operations up to this one are done."""

    def pending(self) -> list[Operation]:
        """Return the operations in flight, oldest first."""

    def marked_at(self, seq: int) -> bool:
        """Return whether a marker directly behind this operation is not known to be reached."""


class Fence:
    """A completion token of the driver."""

    # After the collection of a fence, a later call on the device releases the token. The close of the device releases
    # all tokens. A caller keeps the device open during each query (`DeviceState.calling`, `Lifetime.visited`).

    __slots__ = ("__weakref__", "_key", "captured", "device_state", "queue", "seq", "slots", "token")

    device_state: DeviceState
    token: Token
    queue: FencedQueue | None   # None for the fence of a borrowed event
    seq: int   # number of the operation on `queue`
    captured: bool   # the operation was captured or recorded, not executed
    # For a marker, the number of all operations and markers given to the driver of the queue up to it; otherwise 0.
    slots: int
    _key: int

    def done(self) -> bool:
        """Return whether the fence is reached (DriverError: it never will be). Never blocks."""
        driver = self.device_state.driver
        try:
            return driver.query_fence(self.token)
        except DriverError as failure:
            if self.queue is not None:
                self.queue.fail(failure)
            raise

    def wait(self, timeout_ns: int) -> bool:
        """Block until the fence is reached (DriverError: never) or the time is over; return whether it is reached."""
        driver = self.device_state.driver
        try:
            return driver.wait_fence(self.token, timeout_ns)
        except DriverError:
            if self.queue is not None:
                self.queue.poll()
            raise

    def check_running(self) -> None:
        """Refuse the fence of a captured operation."""
        # A captured operation runs at the launch of its graph. A query would break the capture with
        # CUDA_ERROR_CAPTURED_EVENT.
        if self.captured:
            raise BusyError("the event's operation was captured or recorded, not executed: wait for the event only "
                            "inside that capture", reason="capturing")

    def __del__(self) -> None:
        # The attribute is missing if `new_fence` did not finish.
        key = getattr(self, "_key", None)
        if key is not None:
            self.device_state.detach_fence(key)


class Append:
    """The kind, the objects and the driver's call of an append."""

    # The parameters belong to the `Operation`, so one `Append` can serve many operations.

    __slots__ = ("lifetimes", "may_wait", "operation", "reenters", "unreadable")

    def __init__(
        self, operation: OperationName, lifetimes: Sequence[Lifetime] = (), *, may_wait: bool = False
    ) -> None:
        self.operation: OperationName = operation
        self.lifetimes = lifetimes   # of the objects of the operation
        self.may_wait = may_wait   # the operation can hold the queue behind an unmet wait
        self.reenters = False   # the driver's call can itself append to this queue
        # Semaphores of a wait whose values the device cannot read. Only markers tell whether the wait is met.
        self.unreadable: tuple[SemaphoreState, ...] = ()

    def begin(self, op: Operation, user: User, recording: bool) -> None:
        """Note the use of the objects, then check and change the state of the semaphores. The driver's call follows."""
        # `user` is the queue, and `recording` tells whether the queue records the operation. If a semaphore refuses the
        # operation, `take_back` undoes the changes made so far.
        for lifetime in self.lifetimes:
            lifetime.use(user, op.seq)

    def take_back(self, op: Operation) -> None:
        """Undo the changes of semaphore state after a failure of the append."""
        if op.changes is not None:
            op.changes.take_back()

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


class Operation:
    """One appended operation."""

    __slots__ = ("append", "appended_at", "before", "changes", "fence", "kept", "params", "seq")

    seq: int   # number of the operation on its queue, which the append assigns
    append: Append
    # Timelines: one int, or a tuple of ints. One binary semaphore without a parameter object, or an append without
    # semaphores: None. All other cases, also ``allow_rewind``: a list of parameter objects.
    params: Any
    kept: Sequence[Fence]   # wait fences, kept until the operation is done
    fence: Fence | None   # of the operation, if the append requested one
    before: Any   # earlier values of the signalled timelines, for `Append.take_back`
    changes: StateChanges | None   # of the state of other semaphores
    appended_at: float

    def change_states(self) -> StateChanges:
        """Begin changes of semaphore state, which `Append.take_back` undoes."""
        self.changes = changes = StateChanges()
        return changes

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


# Functions in place of constructors: a constructor gets its arguments in a tuple, also in C code. The tuple takes as
# long as the rest of an append.
def new_fence(device_state: DeviceState, token: Token, queue: FencedQueue | None, seq: int) -> Fence:
    """Create the fence of operation `seq`, and register its token with the device."""
    fence = Fence.__new__(Fence)
    fence.device_state = device_state
    fence.token = token
    fence.queue = queue
    fence.seq = seq
    fence.captured = False
    fence.slots = 0
    fence._key = device_state.add_fence(token)
    return fence


def new_operation(append: Append, params: Any, kept: Sequence[Fence]) -> Operation:
    """Create an operation without a number."""
    op = Operation.__new__(Operation)
    op.seq = 0
    op.append = append
    op.params = params
    op.kept = kept
    op.fence = None
    op.before = NOT_NOTED
    op.changes = None
    op.appended_at = now()
    return op
