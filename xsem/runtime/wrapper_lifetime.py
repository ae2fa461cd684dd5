"""The lifetime of an object without a driver object of its own: a list on a borrowed stream, or an event."""

from __future__ import annotations

from xsem.errors import ReleasedError
from xsem.runtime.lifetime import Lease, Lifetime, Usable

__all__ = ["WrapperLifetime", "new_wrapper_lifetime"]


class WrapperLifetime(Usable):
    """The lifetime of an object without a driver object of its own."""

    # An application can create such objects in each frame. The release frees no driver object, so the releaser does not
    # register the lifetime.

    __slots__ = ("_over", "_parent", "_what")

    _over: bool
    _parent: Lifetime
    _what: str

    def is_released(self) -> bool:
        """Return whether the object or its parent was released."""
        return self._over or self._parent.released

    def check(self) -> None:
        """Refuse a use after release."""
        if self._over or self._parent.released:
            raise ReleasedError(f"the {self._what} has been released", reason="released")

    def held(self) -> Lease:
        """Refuse a released object, and hold the parent during a driver call."""
        self.check()
        return self._parent.held()

    def release(self) -> None:
        """Release the object. A second call has no effect."""
        self._over = True

    def drop(self) -> None:
        """Release the object from a finalizer."""
        self._over = True


def new_wrapper_lifetime(what: str, parent: Lifetime) -> WrapperLifetime:
    """Create the lifetime of an object. The release of its parent, the device or the queue, releases it as well."""
    # Like `new_operation`, this is a function for speed.
    lifetime = WrapperLifetime.__new__(WrapperLifetime)
    lifetime._what = what
    lifetime._parent = parent
    lifetime._over = False
    return lifetime
