"""The driver of one open device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from xsem.errors import UnsupportedError
from xsem.spi.queue import QueueDriver
from xsem.spi.tokens import Token
from xsem.types import Capabilities

__all__ = ["DeviceDriver"]

_FIRST_PAUSE_S: Final = 20e-6
_LONGEST_PAUSE_S: Final = 250e-6
"""Longest pause between two queries of a fence.

With 1 ms, waits for 20 ms of copies ended 3 to 6 % late (H200, 580.159.04). A query costs some microseconds.
"""


class DeviceDriver(ABC):
    """One open device.

    A driver also inherits the class of each ability that its `capabilities` declare, for example `SemaphoreImport`. The
    facade checks the classes when it opens the device. The facade itself refuses a call that needs an undeclared
    capability. The driver checks no capability.

    The facade owns every token that a driver returns. The docstring of each method names the method that releases the
    token. The facade calls this release exactly once.

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
    undeclared_causes: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Why the device does not declare a capability: sentences by its name in `UnsupportedError.capability`, for example
    ``"semaphore.import.d3d12_fence"`` or ``"image_formats.bc7_unorm"``. The error of the refused call contains them."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The capabilities that the device declares. They are constant for the life of the driver."""

    @abstractmethod
    def create_queue(self) -> QueueDriver:
        """Create an in-order queue on a native queue that the driver owns.

        The facade also creates one queue for blocking copies (`HostMemory`).

        Returns
        -------
        QueueDriver
            A new driver at each call. The facade calls its `QueueDriver.close` once.

        Raises
        ------
        BusyError
            ``too_many_lists``: the device supports no more open queues.
        """

    @abstractmethod
    def query_fence(self, fence: Token) -> bool:
        """Query a fence. This method never blocks.

        Parameters
        ----------
        fence : Token
            A fence of an append, or of `BorrowedEvents.borrow_event`. The queue of the append may be closed already.

        Returns
        -------
        bool
            Whether the fence has been reached.

        Raises
        ------
        DriverError
            The fence can never be reached, because earlier work of its queue failed or the device is lost. The facade
            then treats the work of this queue as failed. The fence still needs its `release_fence`.
        """

    @abstractmethod
    def release_fence(self, fence: Token) -> None:
        """Release a fence. Called once, after the last append, query and wait with the fence.

        The fence may be unreached, and its queue may be closed already.

        Parameters
        ----------
        fence : Token
            As for `query_fence`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the device. Called once, after the release of all its queues, fences and other objects.

        This method may block.
        """

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
            True: the fence has been reached, and the method returns at once. False: `timeout_ns` elapsed first.

        Raises
        ------
        DriverError
            As for `query_fence`.
        """
        deadline = time.monotonic_ns() + timeout_ns
        pause = _FIRST_PAUSE_S
        while not self.query_fence(fence):
            left = deadline - time.monotonic_ns()
            if left <= 0:
                return False
            time.sleep(min(pause, left / 1e9))
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
        return True

    def time_fences(self, on: bool) -> bool:
        """Let the fences of later appends note when they are reached, or no longer. Called while appends run.

        Parameters
        ----------
        on : bool
            Whether a trace begins, or ends.

        Returns
        -------
        bool
            Whether the driver has the times, for `fence_time`. Default: False.
        """
        return False

    def fence_time(self, fence: Token) -> float | None:
        """Return when a fence was reached. Called in a thread of xsem, after `query_fence` has returned True.

        Parameters
        ----------
        fence : Token
            As for `query_fence`.

        Returns
        -------
        float or None
            The time in seconds of ``time.perf_counter()``. None: it is not known. Default: None.
        """
        return None

    def native_handle(self, token: Token | None) -> int:
        """Return the vendor's handle of an object.

        Parameters
        ----------
        token : Token or None
            Token of the object. None: the device itself, for example its context.

        Returns
        -------
        int
            The handle. The driver keeps ownership. Default: the token, if the token is an int.

        Raises
        ------
        UnsupportedError
            The object has no native handle.
        """
        if isinstance(token, int):
            return token
        raise UnsupportedError("this object has no native handle", capability="native_handle")
