"""The page: one HTML file with the summary, all tracks and their arrows. It loads nothing from the network."""

# Its Content-Security-Policy allows only its own style and script, by their hashes. The script draws what is visible.

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from importlib import resources
from string import Template
from typing import Any, Final

from xsem.cli.trace.chain import Step
from xsem.cli.trace.model import Process, Slice, Trace
from xsem.cli.trace.tables import Table, headlines, tables

__all__ = ["page"]

_LANES: Final = 5   # for events of the host inside others
_NAMED: Final = 3   # in the title
_HOW: Final = {"outside": "no signal in the trace", "start value": "the start value",
               "late": "ended without its signal", "expected": "its signal is pending"}


def page(trace: Trace, steps: list[Step], facts: dict[str, Any]) -> str:
    """Return the page of a trace that has been matched."""
    def load(name: str) -> str:
        return resources.files("xsem.cli.trace").joinpath(name).read_text(encoding="utf-8")

    names, style, script = facts["processes"], load("page.css"), load("page.js")
    # In a script element, only "<" could end the data.
    data = json.dumps(_data(trace, steps), separators=(",", ":")).replace("<", "\\u003c")
    return Template(load("page.html")).substitute(
        title=escape(f"Trace of {', '.join(names)}" if len(names) <= _NAMED else f"Trace of {len(names)} processes"),
        style=style, script=script, data=data,
        policy=f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}",
        headlines="".join(f"<li>{escape(each)}</li>" for each in headlines(facts)),
        tables="".join(map(_table, tables(facts))))


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _table(each: Table) -> str:
    head = "".join(f"<th scope=col>{escape(title)}" for title in each.columns)
    body = "".join("<tr>" + "".join(f"<td{' class=long' * (len(cell) > 30)}>{escape(cell)}" for cell in row)
                   for row in each.rows)
    return (f"<details><summary>{escape(each.title)}</summary><div class=wide tabindex=0 role=region "
            f'aria-label="{escape(each.title)}"><table><thead><tr>{head}<tbody>{body}</table></div></details>')


def _data(trace: Trace, steps: list[Step]) -> dict[str, Any]:
    """Return the slices as columns, sorted by their begin, with each text once."""
    lists = trace.tracks("device")
    behind = {operations[0]: len(operations) - 1 for each in lists.values()
              if (operations := [one for one in each if one.end is None])}
    shown = [each for each in trace.slices if not each.queued]
    shown.sort(key=lambda each: (each.begin, -(each.end or trace.end)))
    number = {each: place for place, each in enumerate(shown)}
    # Lists before threads: the device is what a reader looks for.
    order = {process: place for place, process in enumerate(trace.processes)}
    tracks = {key: place for place, key in enumerate(sorted(
        {(each.process, each.tid) for each in shown}, key=lambda key: (order[key[0]], key not in lists, key[1])))}
    texts: dict[str, int] = {}
    columns: dict[str, list[Any]] = defaultdict(list)
    for each, lane in zip(shown, _lanes(shown, trace.end), strict=True):
        columns["track"].append(tracks[each.process, each.tid])
        columns["lane"].append(lane)
        columns["begin"].append(round(each.begin - trace.begin, 2))
        columns["length"].append(round((trace.end if each.end is None else each.end) - each.begin, 2))
        columns["kind"].append(texts.setdefault(each.kind, len(texts)))
        columns["text"].append(texts.setdefault(str(each), len(texts)))
        columns["note"].append(texts.setdefault(_note(each, behind.get(each)), len(texts)))
        columns["appended"].append(None if each.appended is None else round(each.appended - trace.begin, 2))
        columns["seq"].append(each.seq)
        columns["target"].append(number.get(each.target, -1) if each.target is not None else -1)
    arrows = [(number[found.signal], number[wait]) for wait in shown for found in wait.met
              if found.how == "signal" and found.signal is not None]
    return {**columns, "texts": list(texts), "arrows": arrows, "us": round(trace.end - trace.begin, 2),
            "tracks": [[process.label, _name(process, tid)] for process, tid in tracks],
            "chain": sorted({number[each.slice] for each in steps
                             if each.slice in number and each.what == each.slice.kind})}


def _name(process: Process, tid: int) -> str:
    return process.tracks.get(tid, f"thread {tid}")


def _lanes(shown: Iterable[Slice], end: float) -> Iterable[int]:
    """Yield the row of each event in its track: an event inside another one is below it."""
    around: dict[tuple[Process, int], list[float]] = defaultdict(list)
    for each in shown:
        ends = around[each.process, each.tid]
        while ends and ends[-1] <= each.begin:
            ends.pop()
        yield 0 if each.category == "device" else min(len(ends), _LANES - 1)
        ends.append(end if each.end is None else each.end)


def _note(each: Slice, behind: int | None) -> str:
    """Return what the times, the result and the semaphores of an event mean."""
    notes = [each.result and f"result: {each.result}", each.line and f"appended by {each.line}"]
    if each.end is None:
        notes.append(f"pending at the end, with {behind or 0} operations behind it")
    elif each.category == "device":
        notes.append("times of the device" if each.by_device else
                     f"seen at the end, up to {each.process.resolution_us:g} us late")
    if each.ring is not None and each.ring[2]:
        notes.append(f"{each.ring[2]} frames skipped")
    notes += [f"{found.use}: {_HOW[found.how]}" for found in each.met if found.how in _HOW]
    return "; ".join(filter(None, notes))
