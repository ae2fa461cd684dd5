"""File descriptors that were given to a driver: who closes them, and when.

By the specification an import hands the fd over to OpenCL, which may close it at once, keep the number and close it
with the object, or forget it. NVIDIA's driver closes a semaphore's at once, and leaves imported memory's open until it
closes that with the object, whatever has the number by then (measured on an H200, driver 580.159). So the number stays
as it is as long as the object lives, and the kernel is asked once that is gone.
"""

from __future__ import annotations

from xsem.spi import duplicate_fd, same_open_file
from xsem.types import OwnedHandle

__all__ = ["GivenFd"]


class GivenFd:
    """One fd, from before its import until its object is gone.

    Parameters
    ----------
    handle : OwnedHandle
        What is to be imported.

    Attributes
    ----------
    given : OwnedHandle
        What the driver is to be given: `handle`, or a duplicate in place of number 0, which NVIDIA's driver takes for
        the end of a list of properties (CL_INVALID_PROPERTY, measured on an H200).
    """

    __slots__ = ("_kept", "_left", "_own", "given")

    def __init__(self, handle: OwnedHandle) -> None:
        self._kept = duplicate_fd(handle.fileno())
        self._own = handle.fileno() == 0
        self.given = duplicate_fd(0) if self._own else handle
        self._left: OwnedHandle | None = None

    def another(self) -> OwnedHandle:
        """A duplicate of the same file, for another import."""
        return duplicate_fd(self._kept.fileno())

    def refused(self) -> None:
        """The import failed; what became of the handle, the facade finds out."""
        if self._own:
            self._close_if_ours(self.given)
        self._kept.close()

    def imported(self) -> None:
        """The import succeeded: the number is the driver's, as long as the object lives."""
        number = self.given.detach()
        if same_open_file(self._kept.fileno(), number):
            self._left = OwnedHandle(number)

    def object_gone(self) -> None:
        """The object has been released; close what the driver has left open."""
        left, self._left = self._left, None
        if left is not None:
            self._close_if_ours(left)
        self._kept.close()

    def _close_if_ours(self, handle: OwnedHandle) -> None:
        # Where the kernel cannot tell: better to leak one number than to close another's.
        if same_open_file(self._kept.fileno(), handle.fileno()):
            handle.close()
        else:
            handle.detach()
