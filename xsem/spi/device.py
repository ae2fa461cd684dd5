"""The driver of one open device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from xsem.errors import UnsupportedError
from xsem.spi.queue import QueueDriver
from xsem.spi.tokens import Token
from xsem.types import Capabilities

__all__ = ["DeviceDriver"]


class DeviceDriver(ABC):
    """One open device.

    A driver also inherits the class of each ability that its `capabilities` declare, for example `SemaphoreImport`. The
    facade checks this when the device is opened. The facade refuses what `capabilities` do not declare, so a driver
    receives no such call.

    The facade owns every token that a driver returns. It releases each token exactly once, with the release method that
    the method names.

    Examples
    --------
    >>> class AcmeDevice(DeviceDriver):
    ...     capabilities = Capabilities()   # declares nothing
    ...     def create_queue(self):
    ...         return AcmeQueue()
    ...     def query_fence(self, fence):
    ...         return True
    ...     def release_fence(self, fence): ...
    ...     def close(self): ...
    >>> AcmeDevice().wait_fence(1, timeout_ns=0)
    True
    """

    timeout_causes: Sequence[str] = ()
    """Likely causes of a timeout that are specific to this driver, one sentence each."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the device declares. The value is constant for the life of the driver."""

    @abstractmethod
    def create_queue(self) -> QueueDriver:
        """Create an in-order queue of the driver's own.

        Returns
        -------
        QueueDriver
            The facade calls its `QueueDriver.close` once.
        """

    @abstractmethod
    def query_fence(self, fence: Token) -> bool:
        """Query a fence. This method never blocks.

        Parameters
        ----------
        fence : Token
            A fence of an append, or of `BorrowedEvents.borrow_event`.

        Returns
        -------
        bool
            Whether the fence has been reached.

        Raises
        ------
        DriverError
            The fence can never be reached, because earlier work of its queue failed or the device is lost.
        """

    @abstractmethod
    def release_fence(self, fence: Token) -> None:
        """Release a fence. Called once, when no append, wait or query uses the fence any more."""

    @abstractmethod
    def close(self) -> None:
        """Close the device. Called once, after everything that was opened through it has been released."""

    # ---- optional, with working defaults
    def wait_fence(self, fence: Token, timeout_ns: int) -> bool:
        """Block until a fence is reached. The default polls `query_fence`.

        The facade divides long waits into calls of at most 50 ms.

        Parameters
        ----------
        fence : Token
            As for `query_fence`.
        timeout_ns : int
            Longest time to block, in nanoseconds.

        Returns
        -------
        bool
            True if the fence has been reached; False if `timeout_ns` elapsed first.

        Raises
        ------
        DriverError
            As for `query_fence`.
        """
        deadline = time.monotonic_ns() + timeout_ns
        pause = 20e-6
        while not self.query_fence(fence):
            left = deadline - time.monotonic_ns()
            if left <= 0:
                return False
            time.sleep(min(pause, left / 1e9))
            pause = min(pause * 1.5, 1e-3)
        return True

    def native_handle(self, token: Token | None) -> int:
        """Return the vendor's handle of an object.

        Parameters
        ----------
        token : Token or None
            Token of the object; None for the device's own handle, for example a context.

        Returns
        -------
        int
            The handle. The driver keeps ownership. Default: the token itself if it is an int.

        Raises
        ------
        UnsupportedError
            The object has no native handle.
        """
        if isinstance(token, int):
            return token
        raise UnsupportedError("this object has no native handle", capability="native_handle")
