"""Explore the protocol of a ring: every order of the steps of a producer and two consumers, and a kill at each step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from ring.exploration import Memory, Operation, Process, State, explore

from xsem.ring import protocol
from xsem.ring.protocol import Layout

PRODUCER, PLACES = 0, 2


class Ring:
    """The words of a ring, its timelines and what its slots contain, in the words of the model."""

    def __init__(self, slots: int) -> None:
        self.layout = Layout(slots, PLACES)
        self.committed = self.layout.size
        self.published = self.committed + 1
        self.done = self.published + 1   # one for each place
        self.data = self.done + PLACES   # one for each slot: the frame that is there, or 0 while it is written
        self.size = self.data + slots

    def alone(self, process: int, at: int, store: bool) -> bool:
        """Whether a process alone has part in an access: no other one uses the word, or no other one stores there."""
        layout = self.layout
        if at < 8 or at >= self.data or at in (self.committed, self.published) or (at >= layout.frame(0) and (
                at < layout.size)) or at in [layout.dropped(place) for place in range(PLACES)]:
            return process == PRODUCER and not store
        return False


class Writer(NamedTuple):
    number: int
    joining: tuple[tuple[int, int], ...] = ()
    begun: bool = False
    waits: tuple[tuple[int, int, bool], ...] = ()   # those of the device, as `demands` yields them


class Reader(NamedTuple):
    place: int
    last: int
    left: int


def take_place(ring: Ring, memory: Memory, reads: int, *, from_start: bool) -> Reader | None:
    for place in range(PLACES):
        if memory.lock(place):
            first = protocol.join(memory, ring.layout, place)
            raise_done(ring, memory, place, first - 1)
            return Reader(place, 0 if from_start else first - 1, reads)
    return None


def leave(ring: Ring, memory: Memory, known: Reader) -> None:
    raise_done(ring, memory, known.place, protocol.leave(memory, ring.layout, known.place))
    memory.unlock(known.place)


def raise_done(ring: Ring, memory: Memory, place: int, value: int) -> None:
    if memory.load(ring.done + place) < value:
        memory.store(ring.done + place, value)


def clear(ring: Ring, memory: Memory, place: int) -> None:
    if memory.lock(place):   # its consumer has ended
        raise_done(ring, memory, place, protocol.clear(memory, ring.layout, place))
        memory.unlock(place)


def write_data(ring: Ring, memory: Memory, slot: int, number: int) -> None:
    memory.store(ring.data + slot, 0)
    memory.store(ring.data + slot, number)


def read_data(ring: Ring, memory: Memory, known: Reader, slot: int, number: int, done: int) -> Reader:
    assert memory.load(ring.data + slot) == number, "a torn or old frame"   # at any moment until it is given back
    memory.store(ring.done + known.place, done)
    return known._replace(last=number, left=known.left - 1)


def fifo(slots: int, frames: int, reads: int, *, on_device: bool = False) -> tuple[Ring, Operation, Operation]:
    """Every frame in order. The waits of a device are chosen once, and those of the host anew at each look."""
    ring = Ring(slots)
    layout = ring.layout

    def write(memory: Memory, known: Writer) -> Writer | None:
        number, joining = known.number, dict(known.joining)
        if number > frames:
            return None
        if not known.begun:
            protocol.begin(memory, layout, number)
            return known._replace(begun=True)
        waits = []
        for place, least, is_joining in known.waits or protocol.demands(memory, layout, number, joining):
            if is_joining or memory.load(ring.done + place) < least:
                if not on_device or is_joining or known.waits:
                    clear(ring, memory, place)
                    return known._replace(joining=tuple(sorted(joining.items())))
                waits.append((place, least, False))
        if waits:
            return known._replace(joining=tuple(sorted(joining.items())), waits=tuple(waits))
        write_data(ring, memory, number % slots, number)
        memory.store(ring.published, number)
        memory.store(ring.committed, number)
        return Writer(number + 1, tuple(sorted(joining.items())))

    def read(memory: Memory, known: Reader) -> Reader | None:
        if known.place < 0:
            return take_place(ring, memory, reads, from_start=False) or known
        number = known.last + 1
        if known.left and memory.load(ring.committed) < number:
            ended = not memory.alive(PRODUCER) and memory.load(ring.committed) < number
            return known._replace(left=0) if ended else known
        if known.left:
            return read_data(ring, memory, known, number % slots, number, number)
        leave(ring, memory, known)
        return None

    return ring, write, read


def mailbox(slots: int, frames: int, reads: int) -> tuple[Ring, Operation, Operation]:
    """The newest frame."""
    ring = Ring(slots)
    layout = ring.layout

    def write(memory: Memory, known: Writer) -> Writer | None:
        number = known.number
        if number > frames:
            return None
        slot = protocol.claim_slot(memory, layout, memory.load(ring.published),
                                   lambda place: memory.load(ring.done + place))
        if slot is None:
            for place in range(PLACES):
                clear(ring, memory, place)
            return known
        write_data(ring, memory, slot, number)
        protocol.commit(memory, layout, slot, number)
        memory.store(ring.published, number)
        return Writer(number + 1)

    def read(memory: Memory, known: Reader) -> Reader | None:
        if known.place < 0:
            return take_place(ring, memory, reads, from_start=True) or known
        whole = memory.load(ring.published)
        if known.left and whole <= known.last:
            ended = not memory.alive(PRODUCER) and memory.load(ring.published) <= known.last
            return known._replace(left=0) if ended else known
        done, entry = memory.load(ring.done + known.place), known.left % slots
        if known.left and done < memory.load(layout.ticket(known.place, entry)):
            return known
        if known.left:
            ticket = done + 1
            slot = protocol.reserve(memory, layout, known.place, entry, whole, ticket)
            return known if slot is None else read_data(ring, memory, known, slot, whole, ticket)
        leave(ring, memory, known)
        return None

    return ring, write, read


def explored(policy: Callable[[int, int, int], tuple[Ring, Operation, Operation]], consumers: int, slots: int,
             frames: int, reads: int) -> int:
    ring, write, read = policy(slots, frames, reads)
    readers = [Process(Reader(-1, 0, reads))] * consumers
    first = State((0,) * ring.size, (None,) * PLACES, (Process(Writer(1)), *readers))
    return explore(first, lambda number: write if number == PRODUCER else read, ring.alone, kills=1)


POLICIES = [fifo, pytest.param(functools.partial(fifo, on_device=True), id="fifo on a device"), mailbox]


@pytest.mark.parametrize("policy", POLICIES)
def test_frames_arrive_whole_and_everyone_gets_on(policy: Any) -> None:
    assert explored(policy, consumers=1, slots=2, frames=4, reads=2) > 1000


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slots", [2, 3])
def test_frames_of_two_consumers_arrive_whole(policy: Any, slots: int) -> None:
    assert explored(policy, consumers=2, slots=slots, frames=slots + 1, reads=1) > 100_000
