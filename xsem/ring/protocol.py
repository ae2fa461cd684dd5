"""The transitions of a ring of frames: what each process stores in the shared words, and in which order.

The words are in memory that all processes of a ring map. Each word has one writer, so that no step needs an atomic
exchange. Where one process announces something and then looks at the other's words, a fence stands between, so that at
least one of two processes sees the other. A process can be killed between any two steps: what it has stored till then
must be harmless. tests/ring/test_exploration.py explores every order of these steps, with a kill at each of them.

Frames have the numbers 1, 2, 3, … A consumer owns its place, and the words of that place, while it holds the place's
lock, which the kernel ends with the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

__all__ = [
    "Layout", "Words", "begin", "claim_slot", "clear", "commit", "demands", "drop", "holders", "is_dropped", "join",
    "leave", "reserve",
]

_JOINING: Final = 2**64 - 1
_HEAD: Final = 8   # words before those of the places


class Words(Protocol):
    """The shared words. Each access is one aligned load or store of 64 bits."""

    def load(self, at: int) -> int:
        """Return a word."""

    def store(self, at: int, value: int) -> None:
        """Set a word."""

    def fence(self) -> None:
        """Order the accesses before this call before those after it."""


class Layout:
    """The index of each word."""

    begun: Final = 0   # of the producer: the last frame that it has begun to write
    ended: Final = 1   # of the producer: 1 + the last frame of a ring that it has closed

    def __init__(self, slots: int, places: int) -> None:
        self.slots = slots
        self.places = places
        self._place = 2 + 2 * slots
        self._frames = _HEAD + places * self._place
        self.size = self._frames + slots

    def joined(self, place: int) -> int:
        """Of the consumer: the first frame that it gets; 0 while the place is free."""
        return _HEAD + place * self._place

    def dropped(self, place: int) -> int:
        """Of the producer: the frame before which it has given up the consumer that has the place."""
        return _HEAD + place * self._place + 1

    def held(self, place: int, entry: int) -> int:
        """Of the consumer: a frame that it reads. Only for the newest frame."""
        return _HEAD + place * self._place + 2 + 2 * entry

    def ticket(self, place: int, entry: int) -> int:
        """Of the consumer: the value of its timeline with which it gives that frame back."""
        return self.held(place, entry) + 1

    def frame(self, slot: int) -> int:
        """Of the producer: the frame in a slot; 0 while it has none. Only for the newest frame."""
        return self._frames + slot


# ---- places, under the lock of the place
def join(words: Words, layout: Layout, place: int) -> int:
    """Take a place. Return the first frame that the consumer gets."""
    _give_all_back(words, layout, place)   # those of a consumer that was killed
    words.store(layout.joined(place), _JOINING)
    words.fence()
    # A producer that does not see the announcement yet begins its next frame before this load.
    first = words.load(layout.begun) + 1
    words.store(layout.joined(place), first)
    return first


def leave(words: Words, layout: Layout, place: int) -> int:
    """Give a place up. Return the number that its timeline must get: the producer may wait for no higher one."""
    _give_all_back(words, layout, place)
    words.store(layout.joined(place), 0)
    words.fence()
    return words.load(layout.begun)


def _give_all_back(words: Words, layout: Layout, place: int) -> None:
    for entry in range(layout.slots):
        words.store(layout.held(place, entry), 0)
        words.store(layout.ticket(place, entry), 0)


clear = leave
"""The same for a place whose consumer has ended, by the producer, which has taken the lock of the place."""


# ---- every frame, in order
def begin(words: Words, layout: Layout, number: int) -> None:
    """Announce the frame that is written next."""
    words.store(layout.begun, number)
    words.fence()


def demands(
    words: Words, layout: Layout, number: int, joining: dict[int, int]
) -> Iterator[tuple[int, int, bool]]:
    """Yield each place that must be done with the slot of a begun frame: place, frame, and whether it is joining.

    A consumer that is joining has not told its first frame yet: ask again. `joining` keeps, between the calls, the
    frame at which each of them was seen.
    """
    least = number - layout.slots   # the frame that is in the slot now, if it is above 0
    for place in range(layout.places):
        first = words.load(layout.joined(place))
        if first == _JOINING:
            # Its first frame is not below the one at which it was seen, because it was not seen one frame earlier.
            first = joining.setdefault(place, number)
            if least >= first:
                yield place, least, True
            continue
        joining.pop(place, None)
        if 0 < first <= least and words.load(layout.dropped(place)) < first:
            yield place, least, False


def drop(words: Words, layout: Layout, place: int, number: int) -> None:
    """Give up the consumer of a place, before its slot gets the frame `number`."""
    words.store(layout.dropped(place), number)
    words.fence()


def is_dropped(words: Words, layout: Layout, place: int, first: int) -> bool:
    """Return whether the producer has given up the consumer that joined at frame `first`."""
    words.fence()   # what it has read is read before this
    return words.load(layout.dropped(place)) >= first


# ---- only the newest frame
def claim_slot(words: Words, layout: Layout, whole: int, done: Callable[[int], int]) -> int | None:
    """Take a slot for the next frame. `whole` is the newest whole frame, `done` gives the timeline of a place."""
    # A frame above `whole` is still being written. The newest whole frame stays, so that each consumer finds one.
    slots = sorted(range(layout.slots), key=lambda each: words.load(layout.frame(each)))
    for slot in slots:
        number = words.load(layout.frame(slot))
        if number >= whole and number:
            break
        if not number:
            return slot
        words.store(layout.frame(slot), 0)
        words.fence()
        # A consumer that has announced the frame is seen here, or it sees the 0.
        if not any(True for _ in holders(words, layout, number, done)):
            return slot
        words.store(layout.frame(slot), number)
    return None


def holders(words: Words, layout: Layout, number: int, done: Callable[[int], int]) -> Iterator[int]:
    """Yield the places that read a frame."""
    for place in range(layout.places):
        if any(words.load(layout.held(place, entry)) == number and done(place) < words.load(layout.ticket(place, entry))
               for entry in range(layout.slots)):
            yield place


def commit(words: Words, layout: Layout, slot: int, number: int) -> None:
    """Put a frame into its slot. Its signal comes after this."""
    words.store(layout.frame(slot), number)
    words.fence()


def reserve(words: Words, layout: Layout, place: int, entry: int, whole: int, ticket: int) -> int | None:
    """Keep the newest whole frame from being overwritten, and return its slot. None: there is a newer one."""
    # Not the number of the frame ends the hold: an earlier consumer of this place may have given the same frame back.
    slot = next((each for each in range(layout.slots) if words.load(layout.frame(each)) == whole), None)
    if slot is None:
        return None
    words.store(layout.ticket(place, entry), ticket)
    words.fence()
    words.store(layout.held(place, entry), whole)
    words.fence()
    if words.load(layout.frame(slot)) == whole:
        return slot
    words.store(layout.held(place, entry), 0)
    words.store(layout.ticket(place, entry), 0)
    return None
