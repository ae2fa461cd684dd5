"""Native objects and failing work of a vendor API, for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xsem.spi.queue import QueueDriver

__all__ = ["NativeEvent", "NativeQueue", "SuiteHooks"]


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeQueue:
    """A queue that the suite's application owns.

    Attributes
    ----------
    stream : object
        The argument of `BorrowedQueues.borrow_queue`.
    handle : int or None
        The vendor's handle, if `QueueDriver.native_handle` of the borrowed queue must be equal to it.
    works : callable
        Runs an operation on the queue through the vendor's API, without xsem. Returns whether the operation completed.
    close : callable
        Destroys the queue.
    """

    stream: object
    handle: int | None = None
    works: Callable[[], bool]
    close: Callable[[], None] = _nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeEvent:
    """An event that the suite's application owns. Its operation is held back.

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


class SuiteHooks:
    """Abilities of a vendor API that the conformance suite needs and the driver interface does not contain.

    Each method returns None if the backend does not offer it. The suite then reports the cases as not examined. xsem
    itself calls no hook.

    Examples
    --------
    >>> class AcmeHooks(SuiteHooks):
    ...     def native_queue(self):
    ...         return NativeQueue(stream=7, works=lambda: True)
    >>> AcmeHooks().native_queue().stream
    7
    """

    def native_queue(self) -> NativeQueue | None:
        """Create a native queue of the driver's device and context."""
        return None

    def foreign_queue(self) -> NativeQueue | None:
        """Create a native queue of another device or context. `BorrowedQueues.borrow_queue` must refuse it."""
        return None

    def native_event(self) -> NativeEvent | None:
        """Create a native event of the driver's device and context, with an operation that is held back."""
        return None

    def failing_work(self) -> Callable[[QueueDriver], None] | None:
        """Return a function that appends work to a queue of the driver. The work fails when the device executes it."""
        return None
