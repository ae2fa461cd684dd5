"""File descriptors passed to a driver: which side closes them, and when."""

from __future__ import annotations

import os

from xsem.spi import DriverFd, HandleState, duplicate_fd, same_open_file
from xsem.types import OwnedHandle

__all__ = ["GivenFd"]


# According to the specification, an import transfers the fd to OpenCL. An implementation may close it at once, keep it
# and close it with the object, or never close it. NVIDIA's driver closes a semaphore's fd at once. It keeps the number
# of a memory's fd and closes that number with the object, even if the number refers to another file by then (measured
# on an H200, driver 580.159). Therefore xsem keeps the number open while the object lives, and after the release of the
# object it asks the kernel what the number refers to.
class GivenFd:
    """One fd, from before its import until its object is released."""

    __slots__ = ("_after_success", "_at_driver", "_kept", "_left", "_mark", "_ours", "given")

    def __init__(self, handle: OwnedHandle, *, ours: bool = False) -> None:
        self._kept = duplicate_fd(handle.fileno())
        zero = handle.fileno() == 0
        # Whether this object owns `given`. Otherwise the facade does, and acts on the state from `imported`.
        self._ours = ours or zero
        self._after_success: HandleState = "left" if zero else "taken"
        # The driver gets a duplicate in place of the number 0, because NVIDIA's takes 0 for the end of a list of
        # properties (CL_INVALID_PROPERTY, measured on an H200).
        self.given = duplicate_fd(0) if zero else handle
        self._at_driver = DriverFd(self.given, self._kept)
        self._left: int | None = None  # an int and not an OwnedHandle: garbage collection must not close it
        self._mark: OwnedHandle | None = None

    def another(self) -> OwnedHandle:
        """Return a duplicate of the same file for another import, owned by the caller."""
        return duplicate_fd(self._kept.fileno())

    def refused(self) -> None:
        """Record that the import failed, and close the fd if this object owns it and the driver left it open."""
        if self._ours:
            self._at_driver.settle()
        self._kept.close()

    def imported(self) -> HandleState:
        """Record that the driver owns the number until the release of the object; return the state of the handle."""
        # Only the release needs the answer of the kernel. The query is here, because a number that the driver has
        # closed can soon belong to another owner of the same file.
        if self._at_driver.left_open():
            self._left = self._at_driver.number
        if self._ours:
            self.given.detach()
        return self._after_success

    def object_goes(self) -> None:
        """Prepare the release of the object: let the number refer to a file that has no other number."""
        # If the driver closes the number with the object, another thread may reuse the number for a duplicate of the
        # imported file. That duplicate would be indistinguishable from a number that the driver left open.
        number, self._left = self._left, None
        if number is None or not self._at_driver.left_open():
            return
        try:
            # Each open() creates a new open file, to which no other fd number refers.
            self._mark = OwnedHandle(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return  # no number is free: leak one rather than close a file of other code
        os.dup2(self._mark.fileno(), number, inheritable=False)
        self._left = number

    def object_gone(self) -> None:
        """Close the number if the release of the object left it open."""
        number, mark = self._left, self._mark
        # If the kernel cannot tell, leak the number: closing it could close a file of other code.
        if number is not None and mark is not None and same_open_file(mark.fileno(), number):
            OwnedHandle(number).close()
        if mark is not None:
            mark.close()
        self._kept.close()
