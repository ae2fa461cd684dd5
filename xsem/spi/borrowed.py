"""Abilities to use the application's own queues and events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

from xsem.errors import BadArgumentError
from xsem.spi.queue import QueueDriver
from xsem.spi.tokens import Token

__all__ = ["BorrowedEvents", "BorrowedQueues", "queue_handle"]


class BorrowedQueues(ABC):
    """Queues of the application. No capability declares this ability: the driver of the device inherits the class."""

    @abstractmethod
    def borrow_queue(self, stream: object, in_order: bool) -> QueueDriver:
        """Borrow the application's own queue.

        Parameters
        ----------
        stream : object
            The queue, as an object or a native handle. The application keeps ownership, on success and on failure. The
            driver keeps a reference to `stream` until `QueueDriver.close`.
        in_order : bool
            False: the queue can reorder its commands. The driver orders its appends with barriers, or raises
            ``out_of_order``. A driver ignores `in_order` if every queue of the API is in order.

        Returns
        -------
        QueueDriver
            A driver for the queue. Its `QueueDriver.close` does not destroy the native queue. If the vendor's API
            forbids simultaneous calls on one native queue, `QueueDriver.callers` is `Callers.APPLICATION`: the
            application calls the native queue without xsem's lock.

        Raises
        ------
        WrongDeviceError
            ``wrong_device``, ``wrong_context``: the queue belongs to another device or context.
        BadArgumentError
            ``not_a_stream``: `stream` is not a queue of this API. ``out_of_order``: the queue is out of order, and the
            driver does not support such queues. ``null_stream``: `stream` is the bare int 0.
        """

    def queue_identity(self, stream: object) -> Hashable | None:
        """Return the identity of the application's own queue, without a call of the vendor's API.

        The facade calls this method before `borrow_queue`. If the facade knows the identity, it uses the existing queue
        and does not call `borrow_queue`.

        Parameters
        ----------
        stream : object
            As for `borrow_queue`.

        Returns
        -------
        hashable or None
            The `QueueDriver.identity` of the queue. None: only `borrow_queue` can find the identity. Default: None.

        Raises
        ------
        WrongDeviceError, BadArgumentError
            As for `borrow_queue`, for errors that need no call of the vendor's API.
        """
        return None


class BorrowedEvents(ABC):
    """Events of the application. Declared by Feature.NATIVE_EVENTS."""

    @abstractmethod
    def borrow_event(self, native: object) -> Token:
        """Borrow an event of another library as a fence.

        Parameters
        ----------
        native : object
            The event. The application has appended the event's operation, and keeps ownership, on success and on
            failure. The driver keeps a reference to `native` until `DeviceDriver.release_fence`.

        Returns
        -------
        Token
            A fence. The facade releases it with `DeviceDriver.release_fence`, which does not destroy the event.

        Raises
        ------
        BadArgumentError
            ``not_an_event``: `native` is not an event of this API. ``null_event``: the handle is 0.
            ``event_not_recorded``: the event has no operation.
        WrongDeviceError
            ``wrong_device``, ``wrong_context``: the event belongs to another device or context.
        """


def queue_handle(stream: object, what: str) -> int:
    """Return the native handle of a queue, for `BorrowedQueues.borrow_queue` and `BorrowedQueues.queue_identity`.

    Parameters
    ----------
    stream : object
        The queue: an int, or an object with an int as `int_ptr`.
    what : str
        Name of the native handle's type, for the message.

    Returns
    -------
    int
        The native handle. It is not 0.

    Raises
    ------
    BadArgumentError
        ``not_a_stream``: `stream` has another form. ``null_stream``: the handle is 0.
    """
    handle = getattr(stream, "int_ptr", stream)
    if type(handle) is not int:
        raise BadArgumentError(f"{type(stream).__name__} is not a queue: a {what} as an int is needed",
                               reason="not_a_stream")
    if handle == 0:
        raise BadArgumentError(f"the queue is null: pass its {what}", reason="null_stream")
    return handle
