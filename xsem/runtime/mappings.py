"""The mapped ranges of a memory. An overlapping range is refused unless the application permits it."""

from __future__ import annotations

from xsem.data.locks import Lock
from xsem.errors import BadArgumentError
from xsem.runtime.lifetime import Lifetime

__all__ = ["Mapping", "Mappings"]


class Mapping:
    """A range of a memory, for one buffer or image."""

    __slots__ = ("end", "given_up", "lifetime", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end   # exclusive
        self.lifetime: Lifetime | None = None   # of the buffer or image; None while the range is only reserved
        self.given_up = False   # the mapping failed, so the range is free again

    @property
    def in_use(self) -> bool:
        """Whether the range is occupied, so that another mapping must not overlap it."""
        if self.given_up:
            return False
        return self.lifetime is None or not self.lifetime.released or self.lifetime.held_by_others


class Mappings:
    """The mapped ranges of one memory."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock   # of the device's lifetimes
        self._mappings: list[Mapping] = []

    def reserve(self, mapping: Mapping, overlap: bool) -> None:
        """Reserve a range before the driver's call, so that of two threads that want the same bytes one is refused."""
        # After any exception, also of the driver, the caller gives the mapping up.
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
