"""Abilities of a device that uses the application's own queues and events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

from xsem.errors import BadArgumentError
from xsem.spi.queue import QueueDriver
from xsem.spi.tokens import Token

__all__ = ["BorrowedEvents", "BorrowedQueues", "queue_handle"]


class BorrowedQueues(ABC):
    """Queues of the application. No capability declares this ability: a device that inherits the class has it."""

    @abstractmethod
    def borrow_queue(self, stream: object, in_order: bool) -> QueueDriver:
        """Borrow the application's own queue.

        Parameters
        ----------
        stream : object
            The queue, as an object or a native handle. The application keeps ownership. The driver keeps a reference to
            `stream` as long as it uses the queue.
        in_order : bool
            False: the queue may execute its commands in another order than they were appended.

        Returns
        -------
        QueueDriver
            A driver for the queue. Its `QueueDriver.close` does not close the queue.

        Raises
        ------
        WrongDeviceError
            The stream belongs to another device or context.
        BadArgumentError
            ``not_a_stream``: `stream` is an object of another framework. ``out_of_order``: the queue is out of order.
            ``null_stream``: `stream` is the bare int 0.
        """

    def queue_identity(self, stream: object) -> Hashable | None:
        """Return the identity of the application's own queue, without a driver call.

        The facade calls this method before `borrow_queue`. For a known identity, the facade uses the existing queue and
        does not call `borrow_queue`.

        Parameters
        ----------
        stream : object
            As for `borrow_queue`.

        Returns
        -------
        hashable or None
            The `QueueDriver.identity` of the queue. None, the default: the identity is unknown before `borrow_queue`.

        Raises
        ------
        WrongDeviceError, BadArgumentError
            As for `borrow_queue`, if the object itself shows the error.
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
            The event. Its owner has appended it already, and keeps ownership.

        Returns
        -------
        Token
            A fence. The facade releases it with `DeviceDriver.release_fence`.

        Raises
        ------
        BadArgumentError
            ``not_an_event``: `native` is an object of another framework.
        """


def queue_handle(stream: object, what: str) -> int:
    """Return the native handle of a queue that is an int, or an object with the int as `int_ptr`.

    Parameters
    ----------
    stream : object
        The queue.
    what : str
        Name of the native handle's type, for the message.

    Raises
    ------
    BadArgumentError
        ``not_a_stream``; ``null_stream``: the handle is 0.
    """
    handle = getattr(stream, "int_ptr", stream)
    if type(handle) is not int:
        raise BadArgumentError(f"{type(stream).__name__} is not a queue: a {what} as an int is needed",
                               reason="not_a_stream")
    if handle == 0:
        raise BadArgumentError(f"the queue is null: pass its {what}", reason="null_stream")
    return handle
