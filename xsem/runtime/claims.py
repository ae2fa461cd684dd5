"""Reservations of an object for one call.

A function call in ``finally`` is not a safe end of a claim. Ctrl-C before it or inside it would leave the object
claimed for ever. A claim therefore ends with one assignment, because Ctrl-C cannot interrupt an assignment.
"""

from __future__ import annotations

__all__ = ["Claim", "Claimed", "new_claim"]


class Claim:
    """The claim of one call. The call makes it before its ``try``.

    Attributes
    ----------
    over : bool
        The claim has ended. The call sets this first in its ``finally`` block.
    """

    __slots__ = ("over",)

    over: bool


def new_claim() -> Claim:
    """Create a claim. It is a function for the reason of `new_operation`."""
    claim = Claim.__new__(Claim)
    claim.over = False
    return claim


class Claimed:
    """The claim on one object, if any. It is an attribute of the object."""

    __slots__ = ("_by",)

    def __init__(self) -> None:
        self._by: Claim | None = None

    def live(self) -> bool:
        """Return whether a claim holds the object now."""
        return self._by is not None and not self._by.over

    def take(self, claim: Claim) -> None:
        """Let this claim hold the object from now on."""
        self._by = claim

    def take_back(self, claim: Claim) -> bool:
        """Undo `take`, at most once. Return False if this claim does not hold the object any more."""
        if self._by is not claim:
            return False
        self._by = None
        return True
