"""The driver of one queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from xsem.spi.callers import Callers
from xsem.spi.tokens import Token
from xsem.types import SignalParams, WaitParams

__all__ = [
    "CopyQueue",
    "CudaStreamQueue",
    "NativeAppend",
    "PreparedCall",
    "QueueCalls",
    "QueueDriver",
    "RecordingQueue",
    "SemaphoreQueue",
]


class QueueCalls(NamedTuple):
    """The C functions of a queue around its appends, for xsem's compiled part. See `QueueDriver.native_calls`.

    The result of each function is an int, 0 for success. The callable beside its address gets each other result. The
    callable raises the error, or returns to repeat the call.

    Attributes
    ----------
    queue : int
        The native queue.
    is_captured : tuple of int and callable
        ``(queue, int *)``: writes a number other than 0 while the queue is captured.
    wait_event : tuple of int and callable
        ``(queue, event, 0)``: later work waits for a recorded event.
    record_event : tuple of int and callable
        ``(event, queue)``: records an event behind all appended work.
    events : deque of int
        Unused events of the device. xsem takes an event from the left, and later puts it back.
    token : callable
        Makes the fence of a recorded event, for `DeviceDriver.query_fence` and for other appends. xsem does not call
        `DeviceDriver.release_fence` for such a fence.
    carried : list
        Not empty while a fence needs more than its event. xsem then calls the methods.
    """

    queue: int
    is_captured: tuple[int, Callable[[int], object]]
    wait_event: tuple[int, Callable[[int], object]]
    record_event: tuple[int, Callable[[int], object]]
    events: deque[int]
    token: Callable[[int], Token]
    carried: list[Any]


class QueueDriver(ABC):
    """One in-order queue.

    A queue also inherits the class of each ability that the device declares, for example `SemaphoreQueue`.

    Order: when an append returns, the operation has reached the vendor's driver, in program order. A backend does not
    keep appends for a thread of its own. The exception is a backend without a vendor's driver, for example `host`.

    Atomicity: if an append raises an error, it has appended nothing.

    Failures: if earlier work of the queue failed, an append raises `DriverError` with ``from_earlier_work=True``. The
    failure ends only its queue: other queues of the device work. An exception is a `DeviceLostError`, which ends the
    device.

    All appends have two parameters and the return value in common:

    - ``wait_fences``: fences of this device, also of other queues. The facade refuses events of another device. The
      operation begins when all of them are reached.
    - ``want_fence``: True requests a fence. The fence is reached when the operation and all earlier operations of the
      queue are complete.
    - Returns: a new fence if `want_fence` is True, otherwise None. The facade releases the fence with
      `DeviceDriver.release_fence`.

    Examples
    --------
    >>> class AcmeQueue(QueueDriver):
    ...     identity = 1   # the native queue
    ...     def append_barrier(self, wait_fences, want_fence):
    ...         return 7 if want_fence else None
    ...     def close(self): ...
    >>> AcmeQueue().append_barrier((), want_fence=True)
    7
    """

    identity: Hashable
    """Identity of the native queue on this device. The facade treats two drivers with one identity as one queue.

    If `BorrowedQueues.borrow_queue` returns a driver with a known identity, the facade uses the existing driver and
    closes the new driver at once."""
    native_handle: int | None = None
    """The vendor's handle of the queue. None: the queue has no handle."""
    callers: Callers = Callers.ONE_AT_A_TIME
    """The threads that may call the methods of the queue. The value is constant for the life of the driver.

    With the default, xsem's own threads append markers also to a borrowed queue, while the application may call the
    native queue itself. A driver of a borrowed queue declares `Callers.APPLICATION`, unless the vendor's API allows
    simultaneous calls on one native queue, as CUDA and OpenCL do."""
    native_calls: QueueCalls | None = None
    """C functions that xsem's compiled part calls in place of the methods, where both would do the same."""

    @abstractmethod
    def append_barrier(self, wait_fences: Sequence[Token], want_fence: bool) -> Token | None:
        """Append a barrier: later work waits for all earlier work and for `wait_fences`.

        The facade also appends barriers of its own (markers). Their fences tell which operations are done.

        Parameters
        ----------
        wait_fences, want_fence
            As described in the class.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the driver of the queue. Called once. A borrowed native queue stays open.

        All appended work is done, with two exceptions. The work of a queue that failed may be pending. A second driver
        of a known `identity` is closed while the first driver is in use.
        """

    # ---- optional, with working defaults
    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` now, on the caller's thread. `host` instead calls `work` on the thread of its queue, in order.

        `work` only enqueues commands on the native queue. `work` may also call xsem: then the driver receives appends
        to this queue inside this call.

        Parameters
        ----------
        work : callable
            Function of the application. Its exceptions pass through this method.
        """
        work()

    def is_capturing(self) -> bool:
        """Return whether the application or another library captures the queue into a graph.

        The facade calls this method only if the application can capture the queue.

        Returns
        -------
        bool
            True during a capture. Default: False.
        """
        return False


class CudaStreamQueue(QueueDriver):
    """Queues that are CUDA streams. No capability declares this ability: the driver of the queue inherits the class."""

    @abstractmethod
    def cuda_stream(self) -> tuple[int, int]:
        """Return the stream for ``CommandList.__cuda_stream__`` and for the current stream of torch and CuPy.

        Returns
        -------
        tuple of int
            The CUstream, never 0, and the number of its device in CUDA. CU_STREAM_LEGACY (1) is the default stream. The
            owner of the stream keeps ownership.

        Raises
        ------
        BadArgumentError
            ``per_thread_stream``: the handle names another stream on this thread.
        """


class NativeAppend(NamedTuple):
    """The call of a C function that a `PreparedCall` makes between the calls for its fences.

    A `PreparedCall` with an attribute ``native`` of this type lets xsem's compiled part make the call itself.

    Attributes
    ----------
    function : tuple of int and callable
        Address of a C function, and what to call with each result other than 0, as for `QueueCalls`.
    arguments : tuple of int
        The arguments of each call: at most four pointers or ints.
    values : bytearray
        Each call first writes value n as a 64-bit number of this machine to the bytes from ``offset + n * stride`` on,
        and nothing for None. The length is the number of values times `stride`.
    stride : int
        Distance between two values in bytes, at least 8.
    kept : object
        Owner of the memory to which the arguments point.
    offset : int
        Place of the first value, at most ``stride - 8``.
    """

    function: tuple[int, Callable[[int], object]]
    arguments: tuple[int, ...]
    values: bytearray
    stride: int
    kept: object
    offset: int = 0


class PreparedCall(Protocol):
    """A callable that appends a prepared wait or signal."""

    def __call__(self, values: Any, wait_fences: Sequence[Token], want_fence: bool, /) -> Token | None:
        """Append the wait or signal once.

        Parameters
        ----------
        values : int, None or tuple of int
            One timeline: an int. Several timelines: a tuple of ints. One binary semaphore: None. Each int is in the
            range of uint64_t.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.
        """


class SemaphoreQueue(QueueDriver):
    """Waits and signals. Declared by `Capabilities.semaphore_import` or `Capabilities.semaphore_export`."""

    @abstractmethod
    def append_wait(
        self,
        semaphores: Sequence[Token],
        params: Sequence[WaitParams],
        wait_fences: Sequence[Token],
        acquire: Sequence[Token],
        want_fence: bool,
    ) -> Token | None:
        """Append a wait: later work waits for `wait_fences` and for all semaphores. Then the device takes over memory.

        For an imported sync file, the facade calls this method at most once. For a sync file of
        `SemaphoreExport.create_semaphore`, the facade calls it at most once for each signal.

        Parameters
        ----------
        semaphores : sequence of Token
            At least one semaphore, and each semaphore once.
        params : sequence of WaitParams
            One item for each semaphore, in the same order.
        acquire : sequence of Token
            Memory that the device takes over after the wait. Empty unless `Capabilities.needs_handover` is declared.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.
        """

    @abstractmethod
    def append_signal(
        self,
        semaphores: Sequence[Token],
        params: Sequence[SignalParams],
        wait_fences: Sequence[Token],
        release: Sequence[Token],
        want_fence: bool,
    ) -> Token | None:
        """Append a signal: after earlier work and `wait_fences`, hand over memory, then signal all semaphores.

        Parameters
        ----------
        semaphores : sequence of Token
            At least one semaphore, and each semaphore once.
        params : sequence of SignalParams
            One item for each semaphore, in the same order.
        release : sequence of Token
            Memory that the device hands over before the signal. Empty unless `Capabilities.needs_handover` is declared.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.
        """

    def prepare_wait(self, semaphores: Sequence[Token]) -> PreparedCall | None:
        """Prepare a wait for repeated appends without memory and without other parameters than values.

        Parameters
        ----------
        semaphores : sequence of Token
            One or several timelines, or one binary semaphore.

        Returns
        -------
        PreparedCall or None
            A callable that appends the wait. The rules for appends apply to each call. None: the facade calls
            `append_wait` each time. Default: None.
        """
        return None

    def prepare_signal(self, semaphores: Sequence[Token]) -> PreparedCall | None:
        """Prepare a signal, as `prepare_wait` prepares a wait. After None, the facade calls `append_signal`.

        Parameters
        ----------
        semaphores : sequence of Token
            One or several timelines, or one binary semaphore.

        Returns
        -------
        PreparedCall or None
            A callable that appends the signal. None: the facade calls `append_signal` each time. Default: None.
        """
        return None


class CopyQueue(QueueDriver):
    """Copies and fills. No capability declares this ability: the driver of the queue inherits the class.

    `CommandList.append_copy`, `CommandList.append_fill` and the blocking copies of buffers need this class. Blocking
    copies also need `HostMemory`.

    A buffer is a mapping of `Memory.map_buffer` or a host buffer of `HostMemory.host_buffer`. An offset counts from the
    first byte of the buffer. The facade checks that the ranges lie in the buffers.
    """

    @abstractmethod
    def append_copy(
        self, dst: Token, dst_offset: int, src: Token, src_offset: int, size: int, wait_fences: Sequence[Token],
        want_fence: bool,
    ) -> Token | None:
        """Append a copy between buffers.

        Parameters
        ----------
        dst, src : Token
            The buffers. The two ranges do not overlap.
        dst_offset, src_offset : int
            Offsets in bytes.
        size : int
            Number of bytes.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.
        """

    @abstractmethod
    def append_fill(
        self, dst: Token, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Token], want_fence: bool
    ) -> Token | None:
        """Append a fill of a buffer with a repeated pattern.

        Parameters
        ----------
        dst : Token
            The buffer.
        offset : int
            Offset of the first byte to fill.
        pattern : bytes
            Bytes to repeat. The length of the pattern divides `size`. The facade passes the shortest pattern that gives
            the same bytes.
        size : int
            Number of bytes to fill.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.

        Raises
        ------
        BadArgumentError
            ``bad_pattern``: the device cannot fill with a pattern of this length, or not at this offset.
        """


class RecordingQueue(QueueDriver):
    """Recordings of appends. Declared by Feature.RECORDING."""

    @abstractmethod
    def begin_recording(self) -> None:
        """Begin a recording. Until `end_recording`, the queue records its appends and does not execute them."""

    @abstractmethod
    def end_recording(self) -> Token:
        """End the recording.

        Returns
        -------
        Token
            The recording. The facade releases it with `release_recording`.

        Raises
        ------
        XsemError
            The queue has no valid recording. The queue executes its appends again.
        """

    @abstractmethod
    def replay(self, recording: Token, values: Sequence[tuple[Token, int, int]]) -> None:
        """Append the work of a recording, with new timeline values. The rules for appends apply.

        Parameters
        ----------
        recording : Token
            A recording of `end_recording`.
        values : sequence of (Token, int, int)
            Timeline, value to wait for, value to signal. A timeline that does not occur keeps its recorded values.
        """

    @abstractmethod
    def release_recording(self, recording: Token) -> None:
        """Release a recording. Called once, when no replay of the recording is pending, before `close`.

        xsem's releasing thread makes this call, also for a queue with `Callers.APPLICATION`.

        Parameters
        ----------
        recording : Token
            The recording.
        """
