"""Events of several lists of the device. A separate wait holds each list back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from xsem import CommandList, Event
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.polling import none_of

__all__ = ["Gates", "up_to_eight_events_count"]

_MOST: Final = 3
_MOST_EVENTS: Final = 8
_MOST_LISTS: Final = 24


class Gates:
    """Lists of the device that wait for the exporter: at most three, and at most `independent_lists` - 1."""

    def __init__(self, context: CaseContext, type: str, signals: int | None = None) -> None:
        # `signals` is a list of the exporter for the signals: some exporters have few queues.
        count = max(1, min(_MOST, context.device.capabilities.independent_lists - 1))
        self._context = context
        self.type = type
        self._lists = [context.here.get(context.here.new_list()) for _ in range(count)]
        self._semaphores: list[Shared] = []
        self._exporter = context.ends(IN)[0]
        self._signals = self._exporter.new_list() if signals is None else signals

    def __len__(self) -> int:
        return len(self._lists)

    def close(self, work: Callable[[CommandList], object] | None = None) -> list[Event]:
        """Append a wait and then `work` to each list. Return one event for each list, behind the wait and the work."""
        self._semaphores = [self._context.semaphore(self.type) for _ in self._lists]
        events = []
        for commands, semaphore in zip(self._lists, self._semaphores, strict=True):
            event = self._context.device.create_event()
            commands.append_wait(self._context.here.get(semaphore.here), value_of(self.type))
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
        self._exporter.signal(self._signals, self._semaphores[index], value_of(self.type))
        self._exporter.finish(self._signals, "a signal")

    def open_all_but(self, missing: int) -> None:
        """Signal the semaphores of all lists except one, and wait until these lists are idle."""
        for index, commands in enumerate(self._lists):
            if index != missing:
                self.open(index)
                commands.synchronize(timeout_s=self._context.patience_s)


_Append = Callable[[CommandList, Sequence[Event], Event], None]
"""An append to a list, with the events to wait for and the event of its end."""


def up_to_eight_events_count(
    context: CaseContext, gates: Gates, appends: Mapping[str, _Append],
    observed: Callable[[], object] = lambda: None,
) -> None:
    """Make each append with 1 to 8 events, on lists that are observed together. Each event is the last one once."""
    # `observed` looks at other effects of the appends while one of their events is held back.
    width = max(1, min(_MOST_LISTS, context.device.capabilities.independent_lists - len(gates) - 2))
    counts: Sequence[int] = range(1, _MOST_EVENTS + 1) if width > _MOST_EVENTS else (2, _MOST_EVENTS)
    if len(gates) == 1:
        counts = (1,)
    # A device with few lists would need an observation for each place.
    places = [(what, count, index) for what in appends for count in counts
              for index in (range(count) if width > _MOST_EVENTS else sorted({0, count // 2, count - 1}))]
    lists = [context.here.get(context.here.new_list()) for _ in range(width)]
    for start in range(0, len(places), width):
        shared = places[start:start + width]
        events = gates.close_around([(count, index) for _, count, index in shared])
        ends = [context.device.create_event() for _ in shared]
        for (what, _, _), commands, awaited, end in zip(shared, lists, events, ends, strict=False):
            appends[what](commands, awaited, end)
        gates.open_all_but(0)
        none_of(*((end.query, f"{what} was done before event {index + 1} of its {count}")
                  for (what, count, index), end in zip(shared, ends, strict=True)))
        observed()
        gates.open(0)
        for end in ends:
            end.wait(timeout_s=context.patience_s)
