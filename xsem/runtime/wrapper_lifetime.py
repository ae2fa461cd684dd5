"""The lifetime of an object without a driver object of its own: a list on a borrowed stream, or an event."""

from __future__ import annotations

from xsem.errors import ReleasedError
from xsem.runtime.lifetime import Lease, Lifetime, Usable

__all__ = ["WrapperLifetime"]


class WrapperLifetime(Usable):
    """The lifetime of an object without a driver object of its own."""

    # An application can create such objects in each frame. The release frees no driver object, so the releaser does not
    # register the lifetime.

    __slots__ = ("_parent", "_what", "released")

    def __init__(self, what: str, parent: Lifetime) -> None:
        self._what = what
        self._parent = parent   # the device or the queue, whose release releases this object as well
        self.released = False   # the object itself

    def is_released(self) -> bool:
        """Return whether the object or its parent was released."""
        return self.released or self._parent.released

    def check(self) -> None:
        """Refuse a use after release."""
        if self.released or self._parent.released:
            raise ReleasedError(f"the {self._what} has been released", reason="released")

    def held(self) -> Lease:
        """Refuse a released object, and hold the parent during a driver call."""
        self.check()
        return self._parent.held()

    def release(self) -> None:
        """Release the object. A second call has no effect."""
        self.released = True

    def drop(self) -> None:
        """Release the object from a finalizer."""
        self.released = True
