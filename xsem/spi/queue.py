"""The driver of one queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from xsem.spi.callers import Callers
from xsem.spi.tokens import Token
from xsem.types import SignalParams, WaitParams

__all__ = ["CopyQueue", "ImageQueue", "PreparedCall", "QueueDriver", "RecordingQueue", "SemaphoreQueue"]


class QueueDriver(ABC):
    """One in-order queue.

    A queue also inherits the class of each ability that the device declares, for example `SemaphoreQueue`.

    Order: an append has reached the vendor's driver, in program order, when it returns. A backend must not queue
    appends in a thread of its own. The exception is `host`: its queue is that thread.

    Whole or not at all: an append that raises has no effect.

    Failures: if earlier work of the queue failed, an append raises `DriverError` with ``from_earlier_work=True``.

    All appends share two parameters and the return value:

    - ``wait_fences``: fences of this device. The operation starts after all of them are reached.
    - ``want_fence``: True requests a fence, which is reached when the operation is complete.
    - Returns: a new fence if `want_fence` is True, otherwise None. The facade releases it with
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
    """Identity of the native queue. Two drivers with the same identity are one queue for the facade.

    If `BorrowedQueues.borrow_queue` returns a driver with a known identity, the facade closes the new driver at
    once."""
    native_handle: int | None = None
    """The vendor's handle of the queue. None: the queue has no such handle."""
    callers: Callers = Callers.ONE_AT_A_TIME
    """The threads that may call the queue. The value is constant for the life of the driver."""

    @abstractmethod
    def append_barrier(self, wait_fences: Sequence[Token], want_fence: bool) -> Token | None:
        """Append a barrier: later work waits for all earlier work and for `wait_fences`.

        The facade also uses the fence of a barrier as the marker after which it releases objects.

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
        """Close the queue. Called once. A borrowed queue is not closed.

        The queue is idle at this time, except a driver whose `identity` is known already.
        """

    # ---- optional, with working defaults
    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` now, on the caller's thread.

        `work` only enqueues commands on this queue. `host` differs: it puts `work` into its queue and calls it in turn.

        Parameters
        ----------
        work : callable
            Function of the application. Its exceptions pass through.
        """
        work()

    def is_capturing(self) -> bool:
        """Return whether another library's capture (CUDA graph) of the queue is active.

        The facade calls this method only if the application can capture the queue.
        """
        return False


class PreparedCall(Protocol):
    """A callable that appends a prepared wait or signal."""

    def __call__(self, values: Any, wait_fences: Sequence[Token], want_fence: bool, /) -> Token | None:
        """Append the wait or signal once.

        Parameters
        ----------
        values : int, None or tuple of int
            One timeline: an int. Several timelines: a tuple of ints. One binary semaphore: None. Each int is unsigned
            and has at most 64 bits.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.
        """


class SemaphoreQueue(QueueDriver):
    """A queue of a device that declares semaphores."""

    @abstractmethod
    def append_wait(
        self,
        semaphores: Sequence[Token],
        params: Sequence[WaitParams],
        wait_fences: Sequence[Token],
        acquire: Sequence[Token],
        want_fence: bool,
    ) -> Token | None:
        """Append a wait: later work waits for `wait_fences`, then for all semaphores.

        For an imported sync file, the facade calls this method at most once. For a sync file of
        `SemaphoreExport.create_semaphore`, the facade calls it at most once for each signal.

        Parameters
        ----------
        semaphores : sequence of Token
            The semaphores; not empty, no semaphore twice.
        params : sequence of WaitParams
            One item for each semaphore.
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
        """Append a signal: after earlier work and `wait_fences`, hand over the memory, then signal all semaphores.

        Parameters
        ----------
        semaphores : sequence of Token
            The semaphores; not empty, no semaphore twice.
        params : sequence of SignalParams
            One item for each semaphore.
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
        """Prepare a wait for timelines, or for one binary semaphore, for repeated appends without memory.

        Parameters
        ----------
        semaphores : sequence of Token
            The timelines, or the binary semaphore.

        Returns
        -------
        PreparedCall or None
            Each call appends the wait. The rules of all appends apply. None, the default: the facade calls
            `append_wait` each time.
        """
        return None

    def prepare_signal(self, semaphores: Sequence[Token]) -> PreparedCall | None:
        """Prepare a signal, as `prepare_wait` prepares a wait. None, the default: the facade calls `append_signal`."""
        return None


class CopyQueue(QueueDriver):
    """A queue with copies and fills. Needed for `CommandList.append_copy`, `append_fill` and blocking copies.

    A buffer is a mapping of `Memory.map_buffer` or a host buffer of `HostMemory.host_buffer`. An offset counts from the
    first byte of the buffer.
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
            Bytes to repeat. The length of the pattern divides `size`, and no shorter pattern gives the same bytes.
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
            ``bad_pattern``: the device cannot fill with this pattern at this address.
        """


class ImageQueue(QueueDriver):
    """A queue of a device that declares images."""

    @abstractmethod
    def append_level_copy(
        self, level: Token, buffer: Token, offset: int, read: bool, wait_fences: Sequence[Token], want_fence: bool
    ) -> Token | None:
        """Append a copy between an image level and a host buffer.

        Parameters
        ----------
        level : Token
            A level of `Images.mipmap_level`.
        buffer : Token
            A host buffer of `HostMemory.host_buffer`. The rows in it have no padding.
        offset : int
            Offset of the first row in the host buffer, in bytes.
        read : bool
            True: from the level to the host buffer. False: from the host buffer to the level.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.
        """


class RecordingQueue(QueueDriver):
    """A queue that records its appends. Declared by Feature.RECORDING."""

    @abstractmethod
    def begin_recording(self) -> None:
        """Begin a recording. Appends are recorded and not executed until `end_recording`."""

    @abstractmethod
    def end_recording(self) -> Token:
        """End the recording.

        Returns
        -------
        Token
            The recording. The facade releases it with `release_recording`.
        """

    @abstractmethod
    def replay(self, recording: Token, values: Sequence[tuple[Token, int, int]]) -> None:
        """Append the work of a recording with new timeline values.

        Parameters
        ----------
        recording : Token
            A recording of `end_recording`.
        values : sequence of (Token, int, int)
            Semaphore, value to wait for, value to signal. A timeline that is not listed keeps its recorded values.
        """

    @abstractmethod
    def release_recording(self, recording: Token) -> None:
        """Release a recording. Called once, when no replay of it is pending."""
