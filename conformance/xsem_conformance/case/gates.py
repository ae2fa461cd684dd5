"""Events of several lists of the device. A separate wait holds each list back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from xsem import CommandList, Event
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, value_of

__all__ = ["Gates"]

_MOST: Final = 3


class Gates:
    """Lists of the device that wait for the exporter: at most three, and at most `independent_lists` - 1."""

    def __init__(self, context: CaseContext, type: str, signals: int | None = None) -> None:
        # `signals` is a list of the exporter for the signals: some exporters have few queues.
        count = max(1, min(_MOST, context.device.capabilities.independent_lists - 1))
        self._context = context
        self._type = type
        self._lists = [context.here.get(context.here.new_list()) for _ in range(count)]
        self._semaphores: list[Shared] = []
        self._exporter = context.ends(IN)[0]
        self._signals = self._exporter.new_list() if signals is None else signals

    def __len__(self) -> int:
        return len(self._lists)

    def close(self, work: Callable[[CommandList], object] | None = None) -> list[Event]:
        """Append a wait and then `work` to each list. Return one event for each list, behind the wait and the work."""
        self._semaphores = [self._context.semaphore(self._type) for _ in self._lists]
        events = []
        for commands, semaphore in zip(self._lists, self._semaphores, strict=True):
            event = self._context.device.create_event()
            commands.append_wait(self._context.here.get(semaphore.here), value_of(self._type))
            if work is not None:
                work(commands)
            commands.append_barrier(signal_event=event)
            events.append(event)
        return events

    def close_around(self, places: Sequence[tuple[int, int]]) -> list[list[Event]]:
        """Return `count` events for each (count, index): that at the index is of list 1, the others of later lists."""
        # With a single list, only one event is possible.
        first, *later = self.close()
        while len(later) < max(count for count, _ in places) - 1:
            event = self._context.device.create_event()
            self._lists[1 + len(later) % (len(self._lists) - 1)].append_barrier(signal_event=event)
            later.append(event)
        return [[*later[:index], first, *later[index:count - 1]] for count, index in places]

    def open(self, index: int) -> None:
        """Signal the semaphore of one list."""
        self._exporter.signal(self._signals, self._semaphores[index], value_of(self._type))
        self._exporter.finish(self._signals, "a signal")

    def open_all_but(self, missing: int) -> None:
        """Signal the semaphores of all lists except one, and wait until these lists are idle."""
        for index, commands in enumerate(self._lists):
            if index != missing:
                self.open(index)
                commands.synchronize(timeout_s=self._context.patience_s)
