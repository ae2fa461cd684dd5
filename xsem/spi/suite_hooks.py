"""Native objects and failing work of a vendor API, for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from xsem.spi.queue import QueueDriver
from xsem.types import MemoryHandleType

__all__ = ["NativeArray", "NativeEvent", "NativeQueue", "SuiteHooks"]


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeQueue:
    """A native queue that the suite owns, in the role of an application.

    Attributes
    ----------
    stream : object
        The argument of `BorrowedQueues.borrow_queue`.
    handle : int or None
        The necessary value of `QueueDriver.native_handle` of the borrowed queue; None for any value.
    works : callable
        Runs an operation on the queue through the vendor's API, without xsem. Returns whether the operation completed.
    close : callable
        Destroys the queue.
    simultaneous : bool
        Calls of two threads on the queue may overlap: the vendor's API allows it, or the driver and `works` hold one
        lock around their calls.
    capture : callable or None
        Returns a context manager. Inside its block, the application captures the queue into a graph. The exit raises an
        error if the capture is invalid. None: the API has no captures.
    """

    stream: object
    handle: int | None = None
    works: Callable[[], bool]
    close: Callable[[], None] = _nothing
    simultaneous: bool = False
    capture: Callable[[], AbstractContextManager[object]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeEvent:
    """A native event that the suite owns, in the role of an application. The operation of the event is pending.

    Attributes
    ----------
    event : object
        The argument of `BorrowedEvents.borrow_event`.
    reach : callable
        Lets the operation of the event complete.
    works : callable
        Queries the event through the vendor's API, without xsem. Returns whether the event is reached.
    close : callable
        Destroys the event.
    """

    event: object
    reach: Callable[[], None]
    works: Callable[[], bool]
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeArray:
    """An array that the suite owns, in the role of another library. The functions hold no reference to the array.

    Attributes
    ----------
    array : object
        The argument of `Device.share`: an array of bytes with one dimension. Its memory is freed after the last
        reference to the array has gone.
    write : callable
        Writes bytes to the start of the array through the vendor's API, without xsem. Returns after the copy.
    read : callable
        Reads a number of bytes from the start of the array in the same way.
    freed : callable
        Returns whether the memory is freed. Afterwards, the suite calls no other function.
    """

    array: object
    write: Callable[[bytes], object]
    read: Callable[[int], bytes]
    freed: Callable[[], bool]


class SuiteHooks:
    """Abilities of a vendor API that the conformance suite needs, and that the driver interface does not contain.

    A method returns None if the backend does not offer the ability. The suite then reports the cases as not examined.
    xsem itself calls no hook.

    Examples
    --------
    >>> class AcmeHooks(SuiteHooks):
    ...     def native_queue(self):
    ...         return NativeQueue(stream=7, works=lambda: True)
    >>> AcmeHooks().native_queue().stream
    7
    """

    def native_queue(self) -> NativeQueue | None:
        """Create a native queue of the driver's device and context.

        Returns
        -------
        NativeQueue or None
            The queue. None: the backend does not offer it. Default: None.
        """
        return None

    def foreign_queue(self) -> NativeQueue | None:
        """Create a native queue of another device or context. `BorrowedQueues.borrow_queue` must refuse it.

        Returns
        -------
        NativeQueue or None
            The queue. None: the backend does not offer it. Default: None.
        """
        return None

    def native_event(self) -> NativeEvent | None:
        """Create a native event of the driver's device and context. `NativeEvent.reach` completes its operation.

        Returns
        -------
        NativeEvent or None
            The event. None: the backend does not offer it. Default: None.
        """
        return None

    def native_array(self, type: MemoryHandleType) -> NativeArray | None:
        """Allocate an array of at least 8,192 bytes that `MemorySharing.share_memory` shares as `type`.

        The array begins behind the start of its allocation, if the API permits it.

        Parameters
        ----------
        type : MemoryHandleType
            The type that the suite exports the array as.

        Returns
        -------
        NativeArray or None
            The array. None: the backend does not offer it. Default: None.
        """
        return None

    def spanning_array(self, type: MemoryHandleType) -> NativeArray | None:
        """Allocate an array of at least 8,192 bytes that spans several allocations, for a device with MEMORY_CHUNKS.

        Parameters
        ----------
        type : MemoryHandleType
            The type that the suite exports the array as.

        Returns
        -------
        NativeArray or None
            The array. None: the backend does not offer it. Default: None.
        """
        return None

    def unshareable_array(self, type: MemoryHandleType) -> NativeArray | None:
        """Allocate an array of at least 8,192 bytes that `MemorySharing.share_memory` must refuse for `type`.

        Parameters
        ----------
        type : MemoryHandleType
            The type that the suite tries to export the array as.

        Returns
        -------
        NativeArray or None
            The array. None: the backend does not offer it. Default: None.
        """
        return None

    def failing_work(self) -> Callable[[QueueDriver], None] | None:
        """Return a function that appends work to a queue of the driver. The work fails when the device executes it.

        Returns
        -------
        callable or None
            The function. None: the backend does not offer it. Default: None.
        """
        return None
