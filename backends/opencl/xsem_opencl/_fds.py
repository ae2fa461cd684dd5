"""File descriptors that were given to a driver: who closes them, and when.

By the specification an import hands the fd over to OpenCL, which may close it at once, keep the number and close it
with the object, or forget it. NVIDIA's driver closes a semaphore's at once, and leaves imported memory's open until it
closes that with the object, whatever has the number by then (measured on an H200, driver 580.159). So the number stays
as it is as long as the object lives, and the kernel is asked once that is gone.
"""

from __future__ import annotations

import os

from xsem.spi import DriverFd, duplicate_fd, same_open_file
from xsem.types import OwnedHandle

__all__ = ["GivenFd"]


class GivenFd:
    """One fd, from before its import until its object is gone.

    Parameters
    ----------
    handle : OwnedHandle
        What is to be imported.
    ours : bool
        Nobody else will close it where the import fails.

    Attributes
    ----------
    given : OwnedHandle
        What the driver is to be given: `handle`, or a duplicate in place of number 0, which NVIDIA's driver takes for
        the end of a list of properties (CL_INVALID_PROPERTY, measured on an H200).
    """

    __slots__ = ("_at_driver", "_kept", "_left", "_mark", "_ours", "given")

    def __init__(self, handle: OwnedHandle, *, ours: bool = False) -> None:
        self._kept = duplicate_fd(handle.fileno())
        zero = handle.fileno() == 0
        self._ours = ours or zero
        self.given = duplicate_fd(0) if zero else handle
        self._at_driver = DriverFd(self.given, self._kept)
        self._left: int | None = None  # a bare number: to be forgotten must not close it
        self._mark: OwnedHandle | None = None

    def another(self) -> OwnedHandle:
        """A duplicate of the same file, for another import."""
        return duplicate_fd(self._kept.fileno())

    def refused(self) -> None:
        """The import failed; what became of the handle, the facade finds out."""
        if self._ours:
            self._at_driver.settle()
        self._kept.close()

    def imported(self) -> None:
        """The import succeeded: the number is the driver's, as long as the object lives."""
        left = self._at_driver.left_open()
        number = self.given.detach()
        if left:
            self._left = number

    def object_goes(self) -> None:
        """The object is about to be released: make the number a file that nobody else has.

        Where the driver closes it with the object, the next duplicate of the imported file may get it, on any thread:
        afterwards that one could not be told from what the driver left open.
        """
        number, self._left = self._left, None
        if number is None or not self._at_driver.left_open():
            return
        try:
            # Each open() creates a new open file, to which no other fd number refers.
            self._mark = OwnedHandle(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return  # none is free: better to leak one number than to close another's
        os.dup2(self._mark.fileno(), number, inheritable=False)
        self._left = number

    def object_gone(self) -> None:
        """The object has been released; close what the driver has left open."""
        number, mark = self._left, self._mark
        # If the kernel cannot tell, leak the number: closing it could close a file of other code.
        if number is not None and mark is not None and same_open_file(mark.fileno(), number):
            OwnedHandle(number).close()
        if mark is not None:
            mark.close()
        self._kept.close()
