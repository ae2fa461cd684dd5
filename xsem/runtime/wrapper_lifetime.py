"""The lifetime of an object without a driver object of its own: a list on a borrowed stream, or an event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xsem.errors import ReleasedError
from xsem.runtime.lifetime import Lifetime, Usable

__all__ = ["WrapperLifetime"]


class WrapperLifetime(Usable):
    """The lifetime of an object without a driver object of its own.

    An application can create such objects in each frame. The release frees nothing in the driver, so the releaser does
    not register the object.

    Parameters
    ----------
    what : str
        Name of the object in messages.
    parent : Lifetime
        Lifetime of the device or of the queue. The release of the parent also releases this object.
    """

    __slots__ = ("_over", "_parent", "_what")

    def __init__(self, what: str, parent: Lifetime) -> None:
        self._what = what
        self._parent = parent
        self._over = False

    def is_released(self) -> bool:
        """Return whether the object or its parent was released."""
        return self._over or self._parent.released

    def check(self) -> None:
        """Refuse a use after release.

        Raises
        ------
        ReleasedError
            ``released``.
        """
        if self._over or self._parent.released:
            raise ReleasedError(f"the {self._what} has been released", reason="released")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Refuse a released object, and hold its parent during a driver call."""
        self.check()
        with self._parent.held():
            yield

    def release(self) -> None:
        """Release the object. A second call has no effect."""
        self._over = True

    def drop(self) -> None:
        """Release the object from a finalizer."""
        self._over = True
