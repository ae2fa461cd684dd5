"""Several locks for one block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from operator import call, itemgetter

__all__ = ["Locks"]


class Locks:
    """Locks for a ``try`` statement. Ctrl-C at any place leaves none of them held.

    CPython can raise KeyboardInterrupt at the start of a Python function and after a call. So `ExitStack` can lose a
    lock, at its beginning and at its end. Here C code calls each lock and notes the result, without a place for
    KeyboardInterrupt in between. `leave` is one call of C code.

    Parameters
    ----------
    locks : sequence of context manager
        `enter` acquires them in this order.

    Attributes
    ----------
    leave : callable
        Releases the locks that `enter` has acquired, in the order of the acquisition. Later calls have no effect.

    Examples
    --------
    >>> import threading
    >>> first, second = threading.Lock(), threading.Lock()
    >>> locks = Locks([first, second])
    >>> try:
    ...     locks.enter()
    ...     print(first.locked(), second.locked())
    ... finally:
    ...     _ = locks.leave()
    True True
    >>> first.locked(), second.locked()
    (False, False)
    """

    __slots__ = ("_entering", "_held", "leave")

    def __init__(self, locks: Sequence[AbstractContextManager[object]]) -> None:
        self._held: list[object] = []
        self._entering = map(call, [each.__enter__ for each in locks])
        exits = [partial(each.__exit__, None, None, None) for each in locks]
        # `zip` ends behind the last lock that was acquired. `deque` consumes the iterator and keeps nothing.
        self.leave: Callable[[], object] = partial(
            deque, map(call, map(itemgetter(0), zip(exits, self._held, strict=False))), 0)

    def enter(self) -> None:
        """Acquire all locks. On an exception, `leave` is still necessary."""
        self._held.extend(self._entering)
