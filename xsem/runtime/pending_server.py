"""Answers `xsem pending`: what this process waits for, told to a process of the same user."""

# A thread of its own answers, and makes no call of a driver without a time limit: the other threads may be blocked in
# one. The socket has no name in a file system, so nothing is left of it after a kill.

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from time import perf_counter as now
from typing import Any, Final, TypeVar

from xsem.data.peers import peer_user
from xsem.runtime.diagnostics.host_waits import host_waits
from xsem.runtime.forks import generation
from xsem.runtime.queues.queue import Queue
from xsem.runtime.semaphore_state import SemaphoreState, shared_name
from xsem.runtime.threads import enter_own_thread, exiting
from xsem.runtime.trace_file import process_name
from xsem.runtime.tracing import Stack, callers, place, queues

__all__ = ["address_of", "answer_questions"]

_T = TypeVar("_T")

_log = logging.getLogger("xsem")

_POLL_S: Final = 0.2   # for the drivers: a blocked one does not answer
_FRAMES: Final = 12   # of a stack
_OPERATIONS: Final = 100   # of a list, the oldest ones


class _Server:
    generation = -1   # of the process that has a thread
    socket: socket.socket | None = None
    polling: threading.Thread | None = None   # perhaps still in a blocked driver
    failed = False   # and it is logged


def address_of(pid: int | str, namespace: int) -> str:
    """Return the address of a process, by its number in its namespace. With no number, all addresses begin so."""
    return f"\0xsem-pending-{namespace}-{pid}"


def answer_questions() -> None:
    """Start the thread that answers, once in a process. Without it, nothing else is missing."""
    if _Server.generation == generation() or sys.platform != "linux":
        return
    _Server.generation = generation()
    with contextlib.suppress(OSError, RuntimeError):
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(address_of(os.getpid(), os.stat("/proc/self/ns/pid").st_ino))
            listening.listen()
            threading.Thread(target=_serve, args=(listening,), name="xsem-pending", daemon=True).start()
        except BaseException:
            listening.close()
            raise
        _Server.socket = listening


def _in_child() -> None:
    if _Server.socket is not None:
        _Server.socket.close()   # the parent's, whose address it would keep
        _Server.socket = None
    _Server.polling = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _serve(listening: socket.socket) -> None:
    if sys.platform != "linux":
        return
    enter_own_thread()
    asked = select.poll()
    asked.register(listening, select.POLLIN)
    while True:
        asked.poll()   # an accept that blocks holds the number of a file descriptor
        try:
            asking, _ = listening.accept()
        except OSError:   # for example without a free file descriptor
            time.sleep(_POLL_S)
            continue
        if exiting():
            asking.close()
            return
        with asking, contextlib.suppress(OSError):
            asking.settimeout(5)
            if peer_user(asking) in (0, os.geteuid()) and (answer := _guarded(_answer)) is not None:
                asking.sendall(json.dumps(answer).encode())
                asking.shutdown(socket.SHUT_WR)


def _guarded(step: Callable[[], _T]) -> _T | None:
    try:
        return step()
    except Exception:   # the next question may have an answer
        if not _Server.failed:
            _Server.failed = True
            _log.exception("a question of `xsem pending` has no answer")
        return None


def _answer() -> dict[str, Any]:
    polling = _Server.polling
    if polling is None or not polling.is_alive():
        polling = threading.Thread(target=_guarded, args=(_poll,), name="xsem-pending-poll", daemon=True)
        polling.start()
        _Server.polling = polling
    polling.join(_POLL_S)
    lists = [found for queue in queues() if (found := _of_list(queue)) is not None]
    waits = [_of_host(*each) for each in tuple(host_waits.values())]
    return {"version": 1, "pid": os.getpid(), "name": process_name(), "driver_answers": not polling.is_alive(),
            "lists": lists, "host_waits": waits, "threads": list(_threads())}


def _poll() -> None:
    enter_own_thread()
    for queue in queues():
        if queue.progress.operations and not exiting():
            queue.look()


def _of_list(queue: Queue) -> dict[str, Any] | None:
    operations = queue.pending()
    if not operations:
        return None
    asked_at = now()
    return {"list": queue.name, "pending": len(operations), "operations": [
        {"seq": op.seq, "operation": op.operation, "age_s": asked_at - op.appended_at,
         "semaphores": [_semaphore(*each) for each in op.targets],
         "signals": [_semaphore(*each) for each in op.signals],
         "stack": _lines(queue.progress.stack(op.seq))}
        for op in operations[:_OPERATIONS]]}


def _semaphore(state: SemaphoreState, value: int | None) -> dict[str, Any]:
    with state.lifetime.visited() as there:   # the page is unmapped when the semaphore is freed
        present = state.page.value if there and state.page is not None else None
    return {"id": shared_name(state), "name": state.described, "value": value, "present": present,
            "processes": [asdict(each) for each in state.signallers.processes()]}


def _of_host(thread: int, waited_for: tuple[Any, int | None], began: float) -> dict[str, Any]:
    what, number = waited_for
    found: dict[str, Any] = {"thread": thread, "age_s": now() - began}
    if isinstance(what, SemaphoreState):
        found["semaphores"] = [_semaphore(what, number)]
    elif what is not None:
        found |= {"list": what.name, "seq": number}
    return found


def _lines(stack: Stack) -> list[str]:
    return [place(*each) for each in stack]


def _threads() -> Iterator[dict[str, Any]]:
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None or thread.name.startswith("xsem-"):
            continue
        yield {"thread": thread.native_id, "name": thread.name, "stack": _lines(callers(frame, _FRAMES))}
