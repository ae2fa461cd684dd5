"""The mapped ranges of a memory. An overlapping range is refused unless the application permits it."""

from __future__ import annotations

from xsem.errors import BadArgumentError
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.native import Lock

__all__ = ["Mapping", "Mappings"]


class Mapping:
    """A range of a memory, for one buffer or image.

    Attributes
    ----------
    start, end : int
        Offsets in bytes; `end` is exclusive.
    lifetime : Lifetime or None
        Lifetime of the buffer or image. None while the range is only reserved.
    given_up : bool
        The range is free again: the mapping failed.
    """

    __slots__ = ("end", "given_up", "lifetime", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.lifetime: Lifetime | None = None
        self.given_up = False

    @property
    def in_use(self) -> bool:
        """Whether the range is occupied, so that another mapping must not overlap it."""
        if self.given_up:
            return False
        return self.lifetime is None or not self.lifetime.released or self.lifetime.held_by_others


class Mappings:
    """The mapped ranges of one memory.

    Parameters
    ----------
    lock : RLock
        The lock of the device's lifetimes.
    """

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._mappings: list[Mapping] = []

    def reserve(self, mapping: Mapping, overlap: bool) -> None:
        """Reserve a range before the driver's call. If two threads want the same bytes, one is refused.

        After any exception, also of the driver, the caller gives the mapping up.

        Parameters
        ----------
        mapping : Mapping
        overlap : bool
            Permit an overlap with ranges in use.

        Raises
        ------
        BadArgumentError
            ``overlap``: the range overlaps one in use.
        """
        with self._lock:
            others = [each for each in self._mappings if each.in_use]
            if not overlap:
                _refuse_overlap(mapping, others)
            self._mappings = [*others, mapping]


def _refuse_overlap(mapping: Mapping, others: list[Mapping]) -> None:
    start, end = mapping.start, mapping.end
    for each in others:
        if start < each.end and each.start < end:
            raise BadArgumentError(
                f"bytes {start} … {end} overlap a buffer or an image that is mapped already; use the buffer's view(), "
                "release it, or pass overlap=True",
                reason="overlap",
            )
