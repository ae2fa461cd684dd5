"""One Chrome trace of all files, with flow events from each signal to the waits that it ended."""

from __future__ import annotations

import json
from typing import Any, Final

from xsem.cli.trace.files import MERGED
from xsem.cli.trace.model import Process, Slice, Trace

__all__ = ["merged"]

_LEAST_US: Final = 0.001   # a flow begins and ends in a slice that has a length


def merged(trace: Trace) -> bytes:
    """Return the file: the events as they were, and the flows."""
    pids: dict[Process, int] = {}
    for process in trace.processes:   # processes of two containers can have one number
        pids[process] = process.pid if process.pid not in pids.values() else 1_000_000_000 + len(pids)
    flows = [(found.signal, wait) for wait in trace.waiting() for found in wait.met
             if found.how == "signal" and found.signal is not None and wait.end is not None]
    ends = {(pids[each.process], each.tid, each.begin) for flow in flows for each in flow}
    events: list[dict[str, Any]] = [{"ph": "M", "name": MERGED, "pid": 0, "tid": 0, "args": {}}]
    for process, event in trace.raw:
        new = event | {"pid": pids[process]}
        if (new["pid"], event.get("tid"), event.get("ts")) in ends and event.get("cat") in ("device", "host"):
            new |= {"ph": "X", "dur": max(_LEAST_US, event.get("dur", 0))}
        events.append(new)
    for number, (signal, wait) in enumerate(flows):
        for each, kind in ((signal, {"ph": "s"}), (wait, {"ph": "f", "bp": "e"})):
            events.append({**kind, "id": number, "cat": "semaphore", "name": "signal to wait",
                           "pid": pids[each.process], "tid": each.tid, "ts": _inside(each)})
    return ("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n").encode()


def _inside(each: Slice) -> float:
    return max(each.begin, each.until - _LEAST_US)
