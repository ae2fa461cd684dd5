"""What appears in this process in each call of a driver. The recorder makes every call through `watched`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, TypeVar

__all__ = ["Listing", "watched", "watching"]

Listing = Callable[[], Mapping[Hashable, str]]
"""Lists what this process has of one kind, for example its open files: the name of each."""

_T = TypeVar("_T")


class _Watch:
    """The last call in which each item appeared."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.calls: dict[Hashable, str] = {}


_ON: Final[list[_Watch]] = []   # at most one: a process runs one case at a time


@contextlib.contextmanager
def watching(listing: Listing) -> Iterator[Mapping[Hashable, str]]:
    """Look at the list around each call until the end of the block. Yield the call in which each item appeared."""
    watch = _Watch(listing)
    _ON.append(watch)
    try:
        yield watch.calls
    finally:
        _ON.remove(watch)


def watched(call: str, act: Callable[[], _T]) -> _T:
    """Make a call, and look at the lists around it if there is a watch."""
    if not _ON:
        return act()
    watch = _ON[-1]
    before = watch.listing()
    try:
        return act()
    finally:
        for each in watch.listing().keys() - before.keys():
            watch.calls[each] = call
