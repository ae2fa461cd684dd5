"""A participant of one case, and the objects that both sides of a case share."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import xsem
from xsem_conformance.case.participant import Participant
from xsem_conformance.case.polling import none_of
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.outcomes import BrokenError, Symptom

__all__ = ["CaseParticipant", "Shared", "stay_pending"]


@dataclass(frozen=True)
class Shared:
    """An object of the exporter that the device imported: its number on either side."""

    here: int   # the number in the device's participant
    there: int   # the number in the exporter's participant


class CaseParticipant:
    """A participant of one case, with shared objects as arguments in place of numbers."""

    def __init__(self, side: Participant, pick: Callable[[Shared], int], name: str, patience_s: float) -> None:
        self.side = side
        self._patience_s = patience_s
        self.name = name
        self._pick = pick
        about = side.about()
        self._early = frozenset(about["wait_before_signal"])
        self.independent_lists = int(about["independent_lists"])

    def waits_early(self, type: str) -> bool:
        """Return whether this side may append a wait before any submission of its signal."""
        return type in self._early

    def new_list(self) -> int:
        """Create a command list; return its number."""
        return self.side.new_list()

    def release(self, number: int) -> None:
        """Release a list, or a reading, before the end of the case: some devices have few queues."""
        self.side.release(number)

    def wait(self, commands: int, shared: Shared | Sequence[Shared], value: int | Sequence[int | None] | None = None,
             memory: Shared | Collection[Shared] = ()) -> None:
        """Append a wait for one or several semaphores, and acquire the memory."""
        self.side.wait(commands, *self._numbers(shared, value, memory))

    def signal(self, commands: int, shared: Shared | Sequence[Shared], value: int | Sequence[int | None] | None = None,
               memory: Shared | Collection[Shared] = ()) -> None:
        """Release the memory to the other side, and append a signal of one or several semaphores."""
        self.side.signal(commands, *self._numbers(shared, value, memory))

    def _numbers(
        self, shared: Shared | Sequence[Shared], value: int | Sequence[int | None] | None,
        memory: Shared | Collection[Shared],
    ) -> tuple[list[int], list[int | None], list[int]]:
        several, memories = ([each] if isinstance(each, Shared) else each for each in (shared, memory))
        values = list(value) if isinstance(value, Sequence) else [value] * len(several)
        return [self._pick(each) for each in several], values, [self._pick(each) for each in memories]

    def occupy(self, commands: int, seconds: float) -> int:
        """Append work that takes about `seconds`, and at most half the patience. Return the event of its end."""
        return self.side.occupy(commands, min(seconds, self._patience_s / 2))

    def reached(self, event: int) -> bool:
        """Return whether the event is reached."""
        return self.side.reached(event)

    def write(self, commands: int, memory: Shared, data: bytes, offset: int = 0) -> None:
        """Append a copy of `data` to the memory."""
        self.side.write(commands, self._pick(memory), offset, base64.b64encode(data).decode())

    def write_noise(self, commands: int, memory: Shared, size: int, *, seed: int) -> None:
        """Append a copy to the start of the memory: `size` bytes of `noise`, as `first_difference` expects them."""
        self.side.write_noise(commands, self._pick(memory), size, seed)

    def read(self, commands: int, memory: Shared, size: int, offset: int = 0) -> int:
        """Append a copy from the memory; return a number for `fetch`."""
        return self.side.read(commands, self._pick(memory), offset, size)

    def fetch(self, reading: int) -> bytes:
        """Return the bytes that `read` copied; the list must be idle."""
        return base64.b64decode(self.side.fetch(reading))

    def first_difference(self, reading: int, *, seed: int) -> int | None:
        """Return the offset of the first read byte that differs from `write_noise`; None if all bytes are equal."""
        return self.side.first_difference(reading, seed)

    def value(self, shared: Shared) -> int:
        """Return the current value of a timeline."""
        return self.side.value(self._pick(shared))

    def done(self, commands: int) -> bool:
        """Return whether the list is idle."""
        return self.side.done(commands)

    def stays_pending(self, commands: int, what: str) -> None:
        """Check that the list is not idle and stays so."""
        stay_pending((self, commands, what))

    def finish(self, commands: int, what: str, symptom: Symptom = Symptom.NOT_DONE) -> None:
        """Check that the list becomes idle."""
        try:
            self.side.synchronize(commands, self._patience_s)
        except (xsem.WaitTimeoutError, ParticipantFailedError) as error:
            if error.reason != "timeout":
                raise
            raise BrokenError(f"{self.name}: {what} was not done {self._patience_s:g} s after its signal",
                              symptom=symptom, side=self.name) from error


def stay_pending(*lists: tuple[CaseParticipant, int, str]) -> None:
    """Check that all lists are not idle and stay so, in the time of one. Each list has its participant and its text."""
    none_of(*((functools.partial(end.done, commands), f"{end.name}: {what} was done before its signal")
              for end, commands, what in lists))
