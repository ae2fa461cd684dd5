"""Turns the events of all files into slices. All texts are made printable here, once."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from xsem.cli.status import UsageError
from xsem.cli.text import printable
from xsem.cli.trace.files import File, read_files
from xsem.cli.trace.model import Process, Slice, Trace, Use

__all__ = ["read"]

_RESOLUTION_US: Final = 1000.0   # of a file that says nothing
_CATEGORIES: Final = frozenset({"append", "device", "host", "message", "object", "ring"})


def read(paths: Iterable[Path]) -> Trace:
    """Read all files, and all files of folders."""
    trace = Trace()
    for file in read_files(paths):
        reader = _FileReader(trace, file)
        reader.take()
        trace.slices += reader.operations.values()
        trace.files.append({"path": file.name, "events": len(file.events), "cut": file.cut})
    _finish(trace)
    return trace


class _FileReader:
    """Turns the events of one file into slices."""

    def __init__(self, trace: Trace, file: File) -> None:
        self._trace, self._file = trace, file
        self._processes: dict[int, Process] = {}
        self.operations: dict[tuple[int, int, int], Slice] = {}   # by pid, list and number, without refused ones
        self._awaited: list[tuple[Slice, tuple[int, int, int]]] = []

    def take(self) -> None:
        for number, event in enumerate(self._file.events, 1):
            try:
                self._take(event)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise UsageError("FILE", f"{self._file.name} is damaged: event {number} does not follow the format "
                                         f"({type(error).__name__}: {printable(str(error))})") from error
        for waiting, key in self._awaited:   # a number also stands for all operations before it
            waiting.target = self.operations.get(key)

    def _take(self, event: dict[str, Any]) -> None:
        process = self._process(event["pid"])
        self._trace.raw.append((process, event))
        args, kind = event.get("args", {}), event["name"]
        if event["ph"] == "M":
            if kind == "process_name":
                process.label = printable(args["name"])
            elif kind == "thread_name":
                process.tracks[int(event["tid"])] = printable(args["name"])
            return
        category = event.get("cat")
        if event["ph"] not in ("i", "X") or category not in _CATEGORIES:
            return   # of a later xsem
        begin = _number(event["ts"])
        new = Slice(process, int(event["tid"]), category, printable(kind), begin,
                    begin + max(0.0, _number(event.get("dur", 0))), result=printable(args.get("result", "")))
        if category == "append":
            self._append(process, new, args)
        elif category == "device":
            self._device(process, new, args)
        else:
            self._host(process, new, args)

    def _append(self, process: Process, new: Slice, args: dict[str, Any]) -> None:
        key = process.pid, int(args["list_tid"]), int(args["seq"])
        process.tracks.setdefault(key[1], printable(args["list"]))
        new.seq, new.text = key[2], f"{printable(args['operation'])} to {process.tracks[key[1]]}"
        if new.kind.startswith("refused"):
            self.operations.pop(key, None)
        else:
            new.kind = "append"
            # Another thread may have seen the end, and written it before.
            new.target = self.operations.setdefault(key, self._operation(process, key, args, new.begin))
            new.target.host_tid = new.tid
            new.target.line = printable(next(iter(args.get("stack", ())), ""))
        self._trace.slices.append(new)

    def _operation(self, process: Process, key: tuple[int, int, int], args: dict[str, Any], appended: float) -> Slice:
        operation, uses = printable(args["operation"]), self._uses(process, args.get("semaphores"))
        signals = self._uses(process, args.get("signals")) + (uses if operation == "signal" else ())
        return Slice(process, key[1], "device", operation, appended, None, uses if operation == "wait" else (), signals,
                     key[2], appended)

    def _device(self, process: Process, new: Slice, args: dict[str, Any]) -> None:
        key = process.pid, new.tid, int(args["seq"])
        process.tracks.setdefault(new.tid, printable(args["list"]))
        found = self.operations.get(key)
        if found is None:   # the append is not in the file
            found = self.operations[key] = self._operation(process, key, args, _number(args["appended"]))
        found.begin, found.end, found.by_device = new.begin, new.end, args.get("end") == "device"

    def _host(self, process: Process, new: Slice, args: dict[str, Any]) -> None:
        uses = self._uses(process, args.get("semaphores"))
        new.waits, new.signals = ((), uses) if new.kind == "host signal" else (uses, ())
        if new.category == "ring":
            new.ring = printable(args["ring"]), int(args["number"]), int(args.get("skipped", 0))
            new.text = f"frame {new.ring[1]}"
        elif new.category in ("message", "object"):
            what = args.get("what", [])
            new.text = ", ".join(printable(each) for each in ([what] if isinstance(what, str) else what))
        elif args.get("seq") is not None and args.get("list_tid") is not None:
            key = process.pid, int(args["list_tid"]), int(args["seq"])
            self._awaited.append((new, key))
            new.text = f"until {process.tracks.get(key[1], 'list')} is at {key[2]}"
        self._trace.slices.append(new)

    def _uses(self, process: Process, given: list[dict[str, Any]] | None) -> tuple[Use, ...]:
        return tuple(Use(self._key(process, each["id"]), printable(each.get("name") or each["id"]),
                         None if each.get("value") is None else int(each["value"])) for each in given or ())

    def _key(self, process: Process, semaphore: str) -> str:
        # Another process may have the same number, in another container or at another time.
        shared = semaphore.startswith(("page:", "label:"))
        return semaphore if shared else f"{self._file.name} {process.pid} {semaphore}"

    def _process(self, pid: int) -> Process:
        if pid not in self._processes:
            resolution = self._file.header.get("resolution_us")
            self._processes[pid] = Process(int(pid), _RESOLUTION_US if resolution is None else _number(resolution))
            self._trace.processes.append(self._processes[pid])
        return self._processes[pid]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value} is not a time")
    return float(value)


def _finish(trace: Trace) -> None:
    """Give each process a name of its own, and each event the one before it."""
    count = Counter(each.label for each in trace.processes)
    for process in trace.processes:
        process.label += f" [{process.pid}]" if count[process.label] > 1 else ""
    for track in (*trace.tracks("device").values(), *trace.tracks("host").values()):
        for before, each in itertools.pairwise(track):
            each.before = before
            if each.end is None:
                each.queued = before.end is None
                each.begin = max(each.begin, before.until)
    trace.slices.sort(key=lambda each: each.begin)
    trace.begin = min((each.asked for each in trace.slices), default=0.0)
    trace.end = max((each.until for each in trace.slices), default=0.0)
