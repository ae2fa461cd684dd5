"""Every order of the steps of some processes on shared words, with a process killed at any of them.

A step is one access to a word that another process may see or change, and what its process does after it alone. A
state is kept once, also if two equal processes have changed their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Memory", "Process", "State", "explore"]


class _EndOfStep(BaseException):
    """No error: the process would make a second access."""


@dataclass(frozen=True)
class Process:
    """A process: what it knows between its operations, and what it has read in the present one."""

    known: Hashable
    read: tuple[int | bool, ...] = ()
    alive: bool = True   # False: killed, or ended by itself


@dataclass(frozen=True)
class State:
    """The words, the owner of each lock, and the processes."""

    words: tuple[int, ...]
    owners: tuple[int | None, ...]
    processes: tuple[Process, ...]


class Memory:
    """The words and locks for one step of a process. Accesses before the step are answered from what was read."""

    def __init__(self, state: State, number: int, alone: Alone) -> None:
        self.words, self.owners = list(state.words), list(state.owners)
        self.read = list(state.processes[number].read)
        self._alive = [each.alive for each in state.processes]
        self._number = number
        self._alone = alone
        self._at, self._stepped = 0, False

    def _access(self, act: Callable[[], int | bool], alone: bool = False) -> Any:
        if self._at == len(self.read):
            if self._stepped and not alone:
                raise _EndOfStep
            self._stepped = self._stepped or not alone
            self.read.append(act())
        self._at += 1
        return self.read[self._at - 1]

    def load(self, at: int) -> int:
        """Load a word."""
        return int(self._access(lambda: self.words[at], self._alone(self._number, at, False)))

    def store(self, at: int, value: int) -> None:
        """Store a word."""
        def act() -> int:
            self.words[at] = value
            return 0

        self._access(act, self._alone(self._number, at, True))

    def fence(self) -> None:
        """Do nothing: the steps of this model are in one order for all."""

    def lock(self, number: int) -> bool:
        """Take a lock, and return whether it was free."""
        def act() -> bool:
            if self.owners[number] is not None:
                return False
            self.owners[number] = self._number
            return True

        return bool(self._access(act))

    def unlock(self, number: int) -> None:
        """Give a lock back."""
        def act() -> int:
            self.owners[number] = None
            return 0

        self._access(act)

    def alive(self, process: int) -> bool:
        """Return whether another process runs."""
        return bool(self._access(lambda: self._alive[process]))


Alone = Callable[[int, int, bool], bool]
"""Whether a process alone has part in an access: process, word, and whether it is a store."""
Operation = Callable[[Memory, Any], Hashable]
"""One operation of a process: takes what it knows, and returns what it knows afterwards; None at its end."""


def explore(first: State, operation: Callable[[int], Operation], alone: Alone, kills: int) -> int:
    """Explore all states. Raises AssertionError for one from which no end is reachable. Returns how many there are."""
    begin = (first, kills)
    before: dict[tuple[State, int], list[tuple[State, int]]] = {begin: []}
    ends, todo = [], [begin]
    while todo:
        here = todo.pop()
        following = list(_steps(*here, operation, alone))
        if not any(each.alive for each in here[0].processes):
            ends.append(here)
        for there in following:
            if there not in before:
                before[there] = []
                todo.append(there)
            before[there].append(here)
    good, todo = set(ends), ends
    while todo:
        for each in before[todo.pop()]:
            if each not in good:
                good.add(each)
                todo.append(each)
    stuck = next((each for each in before if each not in good), None)
    assert stuck is None, f"no end is reachable from {stuck}"
    return len(before)


def _steps(
    state: State, kills: int, operation: Callable[[int], Operation], alone: Alone
) -> Iterator[tuple[State, int]]:
    for number, process in enumerate(state.processes):
        if not process.alive:
            continue
        memory = Memory(state, number, alone)
        try:
            known = operation(number)(memory, process.known)
            after = replace(process, known=known, read=(), alive=known is not None)
        except _EndOfStep:
            after = replace(process, read=tuple(memory.read))
        yield _after(state, number, after, memory), kills
        if kills:
            yield _after(state, number, Process(None, alive=False), Memory(state, number, alone)), kills - 1


def _after(state: State, number: int, process: Process, memory: Memory) -> State:
    owners = memory.owners if process.alive else [None if each == number else each for each in memory.owners]
    processes = [*state.processes[:number], process, *state.processes[number + 1:]]
    others = processes[1:]
    order = sorted(range(len(others)), key=lambda each: hash(others[each]))
    renumbered: dict[int | None, int | None] = {None: None, 0: 0}
    renumbered |= {each + 1: place + 1 for place, each in enumerate(order)}
    return State(tuple(memory.words), tuple(renumbered[each] for each in owners),
                 (processes[0], *[others[each] for each in order]))
