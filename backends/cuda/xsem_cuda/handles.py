"""Tokens of driver objects. Each native handle is given up exactly once."""

from __future__ import annotations

from typing import Any

__all__ = ["Owned"]


class Owned:
    """A native handle that is destroyed exactly once.

    Attributes
    ----------
    native : object
        The bindings' handle object.
    address : int
        The handle as a number.
    """

    __slots__ = ("_left", "address", "native")

    def __init__(self, native: Any) -> None:
        self.native = native
        self.address = int(native)
        self._left = [native]

    def give_up(self) -> Any | None:
        """Return the handle in the first call and None afterwards.

        A second cuDestroyExternalSemaphore crashes the process (measured).
        """
        try:
            return self._left.pop()
        except IndexError:
            return None
