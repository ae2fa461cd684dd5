"""Synthetic traces: files in the format of docs/reference/trace-format.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["LIST", "TraceFile", "Value", "frames", "use"]

LIST = 10_000_001
Value = dict[str, Any]


def use(name: str, value: int | None = None, semaphore: str = "") -> Value:
    return {"id": semaphore or f"label:{name}", "name": name, "value": value}


class TraceFile:
    """The trace of one process."""

    def __init__(self, path: Path, pid: int, name: str, *, boot: str = "boot", host: str = "here",
                 **header: Any) -> None:
        self.path, self.pid, self.tid, self.closed = path, pid, pid, True
        self.lines: list[str] = []
        self._seq = dict.fromkeys(range(LIST, LIST + 10), 0)
        self.event("M", "xsem", tid=0, args={"version": 1, "xsem": "0.3.0", "boot": boot, "host": host,
                                             "command": ["python", name], "wall_us": 0.0, **header})
        self.event("M", "process_name", tid=0, args={"name": name})
        self.event("M", "thread_name", tid=pid, args={"name": "MainThread"})

    def event(self, ph: str, name: str, *, tid: int | None = None, **more: Any) -> None:
        self.lines.append(json.dumps({"ph": ph, "name": name, "pid": self.pid, "tid": self.tid if tid is None else tid,
                                      **more}))

    def operation(self, operation: str, appended: float, begin: float = 0, end: float | None = None, *uses: Value,
                  signals: tuple[Value, ...] = (), tid: int = LIST, measured: str = "device",
                  refused: bool = False) -> None:
        """Append an operation; without `end` it stays pending."""
        if not refused:
            self._seq[tid] += 1
        args = {"list": f"host:0 list {tid - LIST + 1}", "seq": self._seq[tid] + refused, "operation": operation,
                "semaphores": list(uses), "signals": list(signals)}
        for name in (f"append {operation}", *([f"refused {operation}"] if refused else [])):
            self.event("i", name, s="t", cat="append", ts=appended, args={**args, "list_tid": tid})
        if end is not None:
            self.event("X", operation, tid=tid, cat="device", ts=begin, dur=end - begin,
                       args={**args, "appended": appended, "end": measured})

    def host(self, name: str, begin: float, end: float, *uses: Value, result: str = "met", **args: Any) -> None:
        self.event("X", name, cat="host", ts=begin, dur=end - begin,
                   args={"semaphores": list(uses), "result": result, **args})

    def host_signal(self, at: float, *uses: Value) -> None:
        self.event("i", "host signal", s="t", cat="host", ts=at, args={"semaphores": list(uses)})

    def ring(self, name: str, begin: float, end: float, number: int, skipped: int = 0) -> None:
        self.event("X", name, cat="ring", ts=begin, dur=end - begin,
                   args={"ring": "video", "number": number, "skipped": skipped})

    def write(self) -> Path:
        text = "[\n" + "".join(f"{each},\n" for each in self.lines) + ("]\n" if self.closed else "")
        self.path.write_text(text)
        return self.path


def frames(folder: Path, count: int = 8, *, late: int = 5) -> list[Path]:
    """Write the traces of a renderer and a viewer, whose frame number `late` is rendered for 9 ms in place of 3."""
    renderer = TraceFile(folder / "renderer.json", 101, "renderer.py")
    viewer = TraceFile(folder / "viewer.json", 202, "viewer.py")
    start, drawn, shown = 1_000_000.0, 1_000_000.0, 1_000_000.0
    for number in range(1, count + 1):
        appended, seen, length = drawn + 50, shown, 9000.0 if number == late else 3000.0
        free = max(appended, seen)   # the renderer waits until the viewer has done the frame before
        renderer.operation("wait", appended, appended, free, use("timeline 'shown'", number - 1))
        renderer.operation("work", appended + 20, free, free + length)
        renderer.operation("signal", appended + 40, free + length, free + length + 5, use("timeline 'drawn'", number))
        asked, drawn = shown + 100, free + length + 5
        viewer.operation("wait", asked, asked, max(asked, drawn) + 8, use("timeline 'drawn'", number))
        viewer.operation("work", asked + 30, max(asked, drawn) + 8, max(asked, drawn) + 1500)
        shown = max(asked, drawn) + 1510
        viewer.operation("signal", asked + 60, shown - 10, shown, use("timeline 'shown'", number))
        viewer.host("host wait", asked + 80, shown + 20, use("timeline 'shown'", number))
        viewer.ring("read", asked - 10, shown + 30, number)
        renderer.ring("write", appended - 10, appended + 60, number)
    viewer.operation("wait", shown + 200, 0, None, use("timeline 'drawn'", count + 1))
    viewer.operation("work", shown + 220)
    renderer.host("synchronize", start + 10, drawn + 2, list_tid=LIST, seq=3 * count)
    viewer.closed = False
    return [renderer.write(), viewer.write()]
