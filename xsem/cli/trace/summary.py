"""The facts of a trace, as data. All times are microseconds after its begin."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Any

from xsem.cli.trace.chain import Step, chain
from xsem.cli.trace.matching import blocked_us
from xsem.cli.trace.model import Match, Process, Slice, Trace

__all__ = ["summary"]


def summary(trace: Trace, steps: list[Step]) -> dict[str, Any]:
    """Return the facts of a trace that has been matched."""
    return {
        "schema": 1, "files": trace.files, "processes": [each.label for each in trace.processes],
        "events": sum(each["events"] for each in trace.files), "us": _us(trace.end - trace.begin),
        "waits": _waits(trace), "chain": _chain(trace, steps), "lists": _lists(trace), "host": _host(trace),
        "rings": _rings(trace), "pending": _pending(trace),
    }


def _us(time: float) -> float:
    return round(time, 1)


def _waits(trace: Trace) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[tuple[Slice, Match, float]]] = defaultdict(list)
    for wait in trace.waiting():
        for found in wait.met:
            groups[wait.place, found.use.key, found.use.name].append((wait, found, blocked_us(wait, found, trace.end)))
    return sorted((_group(trace, place, name, members) for (place, _, name), members in groups.items()),
                  key=lambda each: -each["blocked_us"])


def _group(trace: Trace, place: str, semaphore: str, members: list[tuple[Slice, Match, float]]) -> dict[str, Any]:
    """Return the facts about the waits of one list or thread for one semaphore."""
    wait, found, longest = max(members, key=lambda each: each[2])
    enders = Counter(each.signal.place for _, each, _ in members if each.signal is not None and each.how == "signal")
    return {
        "where": place, "semaphore": semaphore, "count": len(members),
        "at_once": sum(time == 0 and not each.queued for each, _, time in members),
        "blocked_us": _us(sum(time for *_, time in members)), "longest_us": _us(longest),
        "longest_at_us": _us(wait.begin - trace.begin),
        "longest_ended_by": _by(wait, found),
        "pending_by": next((_by(each, by) for each, by, _ in members if each.end is None), None),
        "ended_by": dict(enders.most_common()),
        "outside": sum(each.how == "outside" and wait.end is not None for wait, each, _ in members),
        "timeouts": sum(each.result == "timeout" for each, *_ in members),
        "pending": sum(each.end is None for each, *_ in members)}


def _by(wait: Slice, found: Match) -> str:
    if found.how == "start value":
        return "the start value"
    if found.signal is None:
        return "no signal yet" if wait.end is None else "a signaller outside the trace"
    text = f"{found.signal} of {found.signal.place}"
    return {"late": f"{wait.result}, without {text}",
            "expected": f"no signal yet; pending is {text}"}.get(found.how, text)


def _chain(trace: Trace, steps: list[Step]) -> dict[str, Any]:
    return {
        "us": _us(sum(each.end - each.begin for each in steps)), "shares": _shares(steps),
        "steps": [{"where": each.slice.place, "what": each.what, "event": str(each.slice), "seq": each.slice.seq,
                   "begin_us": _us(each.begin - trace.begin), "us": _us(each.end - each.begin)} for each in steps]}


def _shares(steps: list[Step]) -> list[dict[str, Any]]:
    """Return the time of each place in the chain, the largest first."""
    times: dict[tuple[str, str], float] = defaultdict(float)
    for each in steps:
        times[each.slice.place, each.what] += each.end - each.begin
    total = sum(times.values())
    return [{"where": where, "what": what, "us": _us(time), "share": round(time / total, 4)}
            for (where, what), time in sorted(times.items(), key=lambda each: -each[1])]


def _lists(trace: Trace) -> list[dict[str, Any]]:
    refused = Counter((each.process, each.text.partition(" to ")[2]) for each in trace.slices
                      if each.category == "append" and each.kind != "append")
    facts = []
    for (process, _), operations in trace.tracks("device").items():
        changes = sorted([(each.asked, 1) for each in operations]
                         + [(each.end, -1) for each in operations if each.end is not None])
        pending = most = 0
        at = trace.begin
        for time, change in changes:
            pending += change
            if pending > most:
                most, at = pending, time
        facts.append({
            "where": operations[0].place, "operations": len(operations), "most_pending": most,
            "most_pending_at_us": _us(at - trace.begin), "refused": refused[process, operations[0].track],
            "longest_ahead_us": _us(max(each.begin - each.asked for each in operations))})
    return facts


def _host(trace: Trace) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Slice]] = defaultdict(list)
    for each in trace.slices:
        if each.category == "host" and not each.signals:
            groups[each.place, each.kind].append(each)
    return [{"where": place, "what": kind, "count": len(members), "us": _us(sum(map(_length, members))),
             "longest_us": _us(max(map(_length, members))),
             "results": dict(Counter(each.result or "met" for each in members))}
            for (place, kind), members in groups.items()]


def _length(each: Slice) -> float:
    return each.until - each.begin


def _rings(trace: Trace) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[Slice]] = defaultdict(list)
    waits: dict[tuple[Process, int | None], list[Slice]] = defaultdict(list)
    for each in trace.slices:
        if each.ring is not None:
            groups[each.ring[0], each.place, each.kind].append(each)
    for each in trace.waiting():
        waits[each.process, each.tid if each.appended is None else each.host_tid].append(each)
    facts = []
    for (ring, place, kind), frames in groups.items():
        between = [later.begin - each.begin for each, later in pairwise(frames)]
        facts.append({
            "ring": ring, "where": place, "what": kind, "frames": len(frames),
            "skipped": sum(each.ring[2] for each in frames if each.ring is not None),
            "median_us": _us(median(map(_length, frames))), "longest_us": _us(max(map(_length, frames))),
            "median_between_us": _us(median(between)) if between else None,
            "longest_between_us": _us(max(between)) if between else None,
            "slowest": [_slow(trace, each, waits[each.process, each.tid])
                        for each in sorted(frames, key=_length, reverse=True)[:3]]})
    return facts


def _slow(trace: Trace, frame: Slice, waits: Iterable[Slice]) -> dict[str, Any]:
    """Return a slow frame, and the longest wait that its thread made or appended in it, with the chain behind it."""
    inside = [(blocked_us(wait, found, trace.end), found, wait) for wait in waits
              if frame.begin <= wait.asked <= frame.until for found in wait.met]
    facts: dict[str, Any] = {"number": frame.ring[1] if frame.ring else None, "at_us": _us(frame.begin - trace.begin),
                             "us": _us(_length(frame)), "waited_us": 0.0, "waited_for": None, "ended_by": None,
                             "chain": []}
    time, found, wait = max(inside, key=lambda each: each[0], default=(0.0, None, None))
    if found is not None and wait is not None and time > 0:
        facts |= {"waited_us": _us(time), "waited_for": str(found.use), "ended_by": _by(wait, found),
                  "chain": _shares(chain(trace, wait, frame.begin))}
    return facts


def _pending(trace: Trace) -> list[dict[str, Any]]:
    facts = []
    for operations in trace.tracks("device").values():
        pending = [each for each in operations if each.end is None]
        if pending:
            first = pending[0]
            facts.append({"where": first.place, "count": len(pending), "first": str(first), "seq": first.seq,
                          "since_us": _us(first.begin - trace.begin), "us": _us(trace.end - first.begin),
                          "signalled_by": [_by(first, each) for each in first.met]})
    return facts
