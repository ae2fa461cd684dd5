"""How many operations a queue may have in flight, and when it needs a marker or a look at its markers."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["Room"]

MARK_EVERY: Final = 256
_NO_LIMIT: Final = 2**62


class Room:
    """The arithmetic of `max_pending`. Operations and markers both count as given to the driver."""

    __slots__ = ("_limit", "_state", "done", "each", "every", "marked", "polled")

    def __init__(self, state: Any, max_pending: int | None) -> None:
        self._state = state   # the `AppendState` of the queue, with `given` and `due`
        self._limit = max_pending or _NO_LIMIT
        self.every = min(MARK_EVERY, max(1, self._limit // 2))   # so many operations at most are without a marker
        self.each = False   # a marker behind each operation, while half of the room is left
        self.done = 0
        self.marked = 0   # `given` at the newest marker
        self.polled = 0   # `given` at the last look at the markers
        self._set_due()

    @property
    def left(self) -> int:
        """How many operations the driver takes now without blocking."""
        return self._limit - self.pending

    @property
    def pending(self) -> int:
        """The operations and markers not known to be done."""
        return int(self._state.given) - self.done

    @property
    def marker_due(self) -> bool:
        """Whether the queue needs a marker."""
        every = 1 if self.each and 2 * self.pending < self._limit else self.every
        return bool(self._state.given - self.marked >= every)

    @property
    def poll_due(self) -> bool:
        """Whether the queue needs a look at its markers."""
        return bool(self._state.given - self.polled >= self.every)

    def note_marker(self) -> None:
        """Note a marker behind everything given."""
        before, self.marked = self.marked, self._state.given
        if before < self.polled:   # otherwise `marked` is not the smaller of the two
            self._set_due()

    def note_poll(self) -> None:
        """Note a look at the markers."""
        self.polled = self._state.given
        self._set_due()

    def mark_each(self, each: bool) -> None:
        """Mark each operation from now on, or no longer. The caller holds the lock of the queue."""
        self.each = each
        self._set_due()

    def note_done(self, given: int) -> None:
        """Note that everything up to this number is done."""
        self.done = max(self.done, given)
        self._set_due()

    def _set_due(self) -> None:
        # A value computed earlier is never too large, because no term decreases.
        self._state.due = -1 if self.each else min(
            min(self.marked, self.polled) + self.every, self.done + self._limit) - 1
