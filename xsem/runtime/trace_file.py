"""Writes the notes of a process into a file that viewers of traces open (docs/reference/trace-format.md)."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import logging
import os
import socket
import sys
import threading
import time
import weakref
from collections import deque
from io import FileIO
from pathlib import Path
from time import perf_counter as now
from types import CodeType
from typing import Any, Final

from xsem.errors import BadArgumentError, BusyError, XsemError
from xsem.runtime.queues.operations import Fence
from xsem.runtime.queues.queue import Queue
from xsem.runtime.semaphore_state import SemaphoreState, can_read, read_value, shared_name
from xsem.runtime.threads import enter_own_thread, exiting
from xsem.runtime.tracing import Note, Stack, place, queues, tracing

__all__ = ["TraceFile", "process_name"]

_log = logging.getLogger("xsem")

_LOOK_S: Final = 0.001   # between two looks at the markers: an end is seen so much later
_FIRST_LIST: Final = 10_000_000   # above the numbers of threads
_BOOT: Final = "/proc/sys/kernel/random/boot_id"


class _Track:
    """What the file tells of one list so far."""

    def __init__(self, tid: int, name: str) -> None:
        self.tid = tid
        self.facts = f'"list":{json.dumps(name)},"list_tid":{tid},"seq":'   # followed by the number of an operation
        self.running: deque[tuple[Any, ...]] = deque()   # operations without an end in the file
        self.texts: dict[int, str] = {}   # what `_of` has made for their appends, by number
        self.end = 0.0   # of the last operation
        self.last = 0   # its number
        self._asked: weakref.ref[Fence] | None = None   # the last one, which is often behind many operations
        self._reached: float | None = None

    def reached(self, fence: Fence) -> float | None:
        """Return when the device reached a fence, and ask it once."""
        if self._asked is None or self._asked() is not fence:
            self._asked, self._reached = weakref.ref(fence), fence.reached_at()
        return self._reached


class TraceFile:
    """The file of one process, and the thread that writes it until `close`."""

    def __init__(self, path: str | os.PathLike[str], *, device_times: bool = False) -> None:
        self._one = tracing.one
        if not self._one.acquire(blocking=False):
            raise BusyError("a trace is recorded already, and a process records one at a time", reason="tracing")
        try:
            self._begin(path, device_times)
        except BaseException:
            self._one.release()
            raise

    def _begin(self, path: str | os.PathLike[str], device_times: bool) -> None:
        self._notes: deque[Note] = deque()
        self._pid = os.getpid()
        self._named: set[int] = set()   # tracks with a name in the file
        self._tracks: weakref.WeakKeyDictionary[Queue, _Track] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count(_FIRST_LIST)
        self._places: dict[tuple[int, int], tuple[CodeType, str]] = {}   # as text; the code keeps its `id`
        self._names: weakref.WeakKeyDictionary[SemaphoreState, str] = weakref.WeakKeyDictionary()   # as text
        self._ids: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
        self._unnamed = itertools.count(1)
        self._over = threading.Event()
        self._lines = ["[\n"]
        self._put(ph="M", name="xsem", tid=0, args={
            "version": 1, "xsem": _version(), "boot": _boot(), "host": socket.gethostname(), "command": sys.argv,
            "wall_us": (time.time() - now()) * 1e6, "resolution_us": _LOOK_S * 1e6})
        self._put(ph="M", name="process_name", tid=0, args={"name": process_name()})
        self._file = _created(path)
        try:
            self._flush()   # at once, because the process may soon be killed
            self._thread = threading.Thread(target=self._work, name="xsem-trace", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError, MemoryError) as error:
            self._file.close()
            if os.path.isfile(path):   # not a device
                os.unlink(path)
            raise _refused(path, error) from error
        tracing.device_times = device_times
        tracing.note = self._note
        for queue in queues():
            queue.trace()
        atexit.register(self.close)

    def close(self) -> None:
        """Write what is left, and close the file. A second call has no effect."""
        atexit.unregister(self.close)
        if os.getpid() == self._pid:
            self._over.set()
            self._thread.join(5)   # the driver may block it

    def _note(self, note: Note) -> None:
        # A queue whose lock was held at the end of the trace still calls it.
        if not self._over.is_set():
            self._notes.append(note)

    # ---- the thread
    def _work(self) -> None:
        enter_own_thread()
        try:
            self._write_until_over()
            self._write()
            self._put(ph="M", name="xsem end", tid=0, args={})   # Perfetto refuses an empty object
            self._lines[-1] = self._lines[-1].removesuffix(",\n") + "]\n"
            self._flush()
        except OSError as error:   # the program goes on
            _log.warning("the trace ends here, because it cannot be written: %s", error.strerror)
        finally:
            self._over.set()
            self._file.close()
            tracing.note = None
            for queue in queues():
                queue.trace()
            self._one.release()

    def _write_until_over(self) -> None:
        try:
            while not self._over.wait(_LOOK_S):
                if not exiting():
                    self._look()
                self._write()
        except OSError:
            raise
        except Exception:
            _log.exception("the trace ends here")

    def _look(self) -> None:
        """See which operations are done: by markers, and those that run ahead by the values of their signals."""
        for queue in queues():
            if queue.progress.operations:
                queue.look()
                self._write()
                if not queue.room.each:   # otherwise each operation has a marker of its own
                    self._see_signals(queue)

    def _see_signals(self, queue: Queue) -> None:
        track, seen = self._track(queue), 0
        for operation in track.running:
            if operation[1].operation == "signal":
                if not all(_is_there(queue, *each) for each in operation[1].targets(operation[2])):
                    break
                seen = operation[0]
        at = now()
        while track.running and track.running[0][0] <= seen:
            self._ended(at, track, track.running.popleft())

    def _write(self) -> None:
        if not self._notes:
            return
        while self._notes:
            note = self._notes.popleft()
            _WRITERS[note[0]](self, *note[1:])
        self._flush()

    def _flush(self) -> None:
        text, self._lines = "".join(self._lines).encode(), []
        while text:
            text = text[self._file.write(text):]

    def _put(self, **event: Any) -> None:
        self._lines.append(json.dumps({"pid": self._pid, **event}, separators=(",", ":")) + ",\n")

    # ---- tracks and semaphores
    def _thread_named(self, thread: int) -> int:
        if thread not in self._named:
            self._named.add(thread)
            name = next((each.name for each in threading.enumerate() if each.native_id == thread), f"thread {thread}")
            self._put(ph="M", name="thread_name", tid=thread, args={"name": name})
        return thread

    def _track(self, queue: Queue) -> _Track:
        track = self._tracks.get(queue)
        if track is None:
            track = self._tracks[queue] = _Track(next(self._numbers), queue.name)
            self._put(ph="M", name="thread_name", tid=track.tid, args={"name": queue.name})
        return track

    # The text of frequent events is put together here, because this thread delays the others as long as it runs.
    def _semaphore(self, state: SemaphoreState, value: int | None) -> str:
        name = self._names.get(state)
        if name is None:
            # The imports of an exported handle share their signallers with the exported semaphore.
            key: object = state.signallers if state.page is None else state
            known = self._ids.get(key)
            if known is None:
                known = self._ids[key] = shared_name(state) or f"{self._pid}:{next(self._unnamed)}"
            name = self._names[state] = f'{{"id":{json.dumps(known)},"name":{json.dumps(state.described)},"value":'
        return f"{name}{'null' if value is None else value}}}"

    def _semaphores(self, targets: Any) -> str:
        return ",".join([self._semaphore(*each) for each in targets])

    def _of(self, track: _Track, operation: tuple[Any, ...]) -> str:
        seq, append, params = operation[:3]
        return (f'{track.facts}{seq},"operation":"{append.operation}","semaphores":'
                f'[{self._semaphores(append.targets(params))}],"signals":'
                f'[{self._semaphores(append.signals(params))}]')

    def _stack(self, stack: Stack) -> str:
        for code, at in stack:
            if (id(code), at) not in self._places:
                self._places[id(code), at] = code, json.dumps(place(code, at))
        return ",".join([self._places[id(code), at][1] for code, at in stack])

    def _event(self, phase: str, category: str, name: str, tid: int, at: float, args: str) -> None:
        self._lines.append(f'{{"pid":{self._pid},"ph":{phase},"cat":"{category}","name":"{name}","tid":{tid},'
                           f'"ts":{at * 1e6:.3f},"args":{{{args}}}}},\n')

    # ---- one for each kind of note
    def _appended(
        self, at: float, thread: int, queue: Queue, operation: tuple[Any, ...], stack: Stack
    ) -> None:
        track = self._track(queue)
        told = self._of(track, operation)
        self._event('"i","s":"t"', "append", f"append {operation[1].operation}", self._thread_named(thread), at,
                    f'{told},"stack":[{self._stack(stack)}]')
        if operation[0] > track.last:
            track.running.append(operation)
            track.texts[operation[0]] = told

    def _refused(self, at: float, thread: int, queue: Queue, operation: tuple[Any, ...]) -> None:
        track = self._track(queue)
        self._event('"i","s":"t"', "append", f"refused {operation[1].operation}", self._thread_named(thread), at,
                    self._of(track, operation))
        with contextlib.suppress(ValueError):
            track.running.remove(operation)
        track.texts.pop(operation[0], None)

    def _done(self, at: float, thread: int, queue: Queue, operation: tuple[Any, ...], fence: Fence | None) -> None:
        track = self._track(queue)
        running = track.running
        while running and running[0][0] < operation[0]:
            self._ended(at, track, running.popleft())
        if running and running[0][0] == operation[0]:
            running.popleft()
        if track.last < operation[0]:
            reached = track.reached(fence) if fence is not None else None
            measured = reached is not None and fence is not None and fence.seq == operation[0]
            self._ended(at if reached is None else min(at, reached), track, operation, "device" if measured else "seen")

    def _ended(self, at: float, track: _Track, operation: tuple[Any, ...], how: str = "seen") -> None:
        told = track.texts.pop(operation[0], None) or self._of(track, operation)
        begin = max(operation[4], track.end)
        track.end, track.last = at, operation[0]
        self._event(f'"X","dur":{max(0.0, at - begin) * 1e6:.3f}', "device", operation[1].operation, track.tid, begin,
                    f'{told},"appended":{operation[4] * 1e6:.3f},"end":"{how}"')

    def _host_wait(
        self, at: float, thread: int, waited_for: tuple[Any, int | None], began: float, result: str
    ) -> None:
        what, number = waited_for
        name, facts = "synchronize", f'"result":"{result}"'
        if isinstance(what, SemaphoreState):
            name, facts = "host wait", f'{facts},"semaphores":[{self._semaphore(what, number)}]'
        elif what is not None:
            facts += f",{self._track(what).facts}{number}"
        self._event(f'"X","dur":{(at - began) * 1e6:.3f}', "host", name, self._thread_named(thread), began, facts)

    def _host_signal(self, at: float, thread: int, state: SemaphoreState, value: int | None) -> None:
        self._event('"i","s":"t"', "host", "host signal", self._thread_named(thread), at,
                    f'"semaphores":[{self._semaphore(state, value)}]')

    def _fact(self, at: float, thread: int, category: str, name: str, facts: dict[str, Any]) -> None:
        self._put(ph="i", s="t", cat=category, name=name, tid=self._thread_named(thread), ts=at * 1e6, args=facts)

    def _block(self, at: float, thread: int, category: str, name: str, began: float, facts: dict[str, Any]) -> None:
        self._put(ph="X", cat=category, name=name, tid=self._thread_named(thread), ts=began * 1e6,
                  dur=(at - began) * 1e6, args=facts)


_WRITERS: Final[dict[str, Any]] = {
    "appended": TraceFile._appended, "refused": TraceFile._refused, "done": TraceFile._done,
    "host wait": TraceFile._host_wait, "host signal": TraceFile._host_signal, "fact": TraceFile._fact,
    "block": TraceFile._block,
}


def process_name() -> str:
    """Return the name of the program, for example ``viewer`` or, of ``python -m viewer``, the same."""
    path = Path(sys.argv[0])
    name = path.parent.name if path.stem == "__main__" else path.stem
    return "python" if name in ("", "-c") else name


def _created(path: str | os.PathLike[str]) -> FileIO:
    """Create the file, without a buffer, of which a forked child would write its copy."""
    try:
        return open(os.fspath(path), "wb", buffering=0)
    except (OSError, TypeError, ValueError) as error:   # such as a number, or a zero byte
        raise _refused(path, error) from error


def _refused(path: object, error: Exception) -> BadArgumentError:
    why = error.strerror if isinstance(error, OSError) else error
    return BadArgumentError(f"the trace cannot be written to {str(path)!r}: {why}", reason="trace_not_writable")


def _version() -> str:
    return str(sys.modules["xsem"].__version__)   # not an import: the package imports this module


def _is_there(queue: Queue, state: SemaphoreState, value: int | None) -> bool:
    """Return whether a signal of the list is known to be done, by the value of its timeline."""
    with contextlib.suppress(XsemError), state.lifetime.visited() as there:
        return (there and value is not None and can_read(queue.device_state, state)
                and read_value(queue.device_state, state) >= value)
    return False


def _boot() -> str:
    try:
        return Path(_BOOT).read_text().strip()
    except OSError:
        return ""
