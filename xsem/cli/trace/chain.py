"""The longest chain of dependencies: back from the last event, always to what it waited for."""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import NamedTuple

from xsem.cli.trace.matching import ended_by
from xsem.cli.trace.model import Process, Slice, Trace

__all__ = ["Step", "chain"]


class Step(NamedTuple):
    """A part of the chain: in the place of `slice`, from `begin` to `end`."""

    slice: Slice
    what: str
    begin: float
    end: float


def chain(trace: Trace, last: Slice | None = None, since: float = -inf) -> list[Step]:
    """Return the steps from `last`, by default the last event, to the first after `since`. They touch each other."""
    host = trace.tracks("host")
    if last is None:
        done = [each for each in trace.slices if each.end is not None and each.category in ("device", "host")]
        last = max(done, key=lambda each: each.until, default=None)
    current, time = last, trace.end if last is None or last.end is None else last.end
    steps: list[Step] = []
    seen: set[Slice] = set()
    while current is not None and current not in seen and time > since:
        seen.add(current)
        cause = _cause(current)
        if cause is not None and cause.end is not None:
            steps.append(Step(current, f"{current.kind}, after its signal" if current.waits else current.kind,
                              min(cause.end, time), time))
            current = cause
        else:
            steps.append(Step(current, current.kind, min(current.begin, time), time))
            current = _before(current, host, steps)
        time = steps[-1].begin
    return [each._replace(begin=max(each.begin, since)) for each in steps if each.end > max(each.begin, since)]


def _cause(each: Slice) -> Slice | None:
    """Return the operation or signal whose end ended this one, or None if it was not held."""
    cause = each.target if each.category == "host" and not each.waits else ended_by(each)
    return cause if cause is not None and cause.end is not None and cause.end > each.begin else None


def _before(each: Slice, host: dict[tuple[Process, int], list[Slice]], steps: list[Step]) -> Slice | None:
    """Return what came before: the operation before it in the list, or the thread that appended or called it."""
    previous, tid, time = each.before, each.tid, each.begin
    if each.appended is not None:
        if previous is not None and previous.end is not None and previous.end >= each.appended:
            return previous
        if each.host_tid is None:
            return None
        tid, time = each.host_tid, each.appended
        events = host.get((each.process, tid), [])
        place = bisect_right(events, time, key=lambda event: event.until)
        previous = events[place - 1] if place else None
    begin = time if previous is None else previous.until
    program = Slice(each.process, tid, "host", "program", begin, time)
    steps.append(Step(program, "program", min(begin, steps[-1].begin), steps[-1].begin))
    return previous
