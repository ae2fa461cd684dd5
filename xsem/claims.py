"""Claims that end with the call that made them, however it ends.

A call that takes something for itself and gives it back in ``finally`` keeps it for ever where Ctrl-C comes just before
the giving back, or inside it. A claim ends with one assignment, and there Ctrl-C cannot come.
"""

from __future__ import annotations

__all__ = ["Claim", "Claimed"]


class Claim:
    """One call's, made before its ``try``.

    Attributes
    ----------
    over : bool
        Set first in ``finally``: what was claimed is free.
    """

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


class Claimed:
    """Which call has something for itself now."""

    __slots__ = ("_by",)

    def __init__(self) -> None:
        self._by: Claim | None = None

    @property
    def live(self) -> bool:
        """Whether any call has it."""
        return self._by is not None and not self._by.over

    def take(self, claim: Claim) -> None:
        """Have this call have it from now on."""
        self._by = claim

    def take_back(self, claim: Claim) -> bool:
        """Undo `take`, once; whether it was this call that took it last."""
        if self._by is not claim:
            return False
        self._by = None
        return True
