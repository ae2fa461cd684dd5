"""The watchdog of a device: it reports pending operations while the host waits in another library's call."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from xsem.errors import BadArgumentError, OutOfMemoryError
from xsem.runtime.diagnostics.pending_operations import Stuck, overdue_lists, recorded_lists
from xsem.runtime.queues.queue_table import QueueTable
from xsem.runtime.threads import Background, Pause, exiting
from xsem.types import PendingOp

__all__ = ["Report", "watch"]

_log = logging.getLogger("xsem")

# Limits of the interval between two looks: a look costs time, and a platform limits the timeout of a wait.
_SHORTEST_S: Final = 0.01
_LONGEST_S: Final = 3600.0
_NEVER_S: Final = 1e9
# Time limit for the driver's answer. After it, the report comes from xsem's own records.
_ANSWER_S: Final = 1.0

Report: TypeAlias = Callable[[tuple[PendingOp, ...]], object]
"""The application's report function; its argument is the pending operations of newly stuck lists."""


def watch(queues: QueueTable, after_s: float, report: Report | None) -> None:
    """Start the watchdog of the device, or replace it. By default, it logs each operation as a warning."""
    if isinstance(after_s, bool) or not isinstance(after_s, int | float) or not after_s > 0:
        raise BadArgumentError(f"after_s is seconds > 0, not {after_s!r}", reason="bad_timeout")
    if report is not None and not callable(report):
        raise BadArgumentError(f"report must be callable, not {type(report).__name__}", reason="not_callable")
    after_s = min(after_s, _NEVER_S)
    stop = threading.Event()
    thread = threading.Thread(
        target=_run, args=(weakref.ref(queues), stop, after_s, report or _warn),
        name=f"xsem-watch-{queues.device_state.info.id}", daemon=True,
    )
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise OutOfMemoryError(f"the watchdog's thread cannot be started: {error}", reason="out_of_memory") from error
    queues.device_state.stop_watching()
    queues.device_state.stop_watching = stop.set


def _run(table: weakref.ref[QueueTable], stop: threading.Event, after_s: float, report: Report) -> None:
    reported: set[tuple[str, int]] = set()
    asker: _Asker | None = None
    while not stop.wait(max(min(after_s, _LONGEST_S) / 4, _SHORTEST_S)):
        queues = table()
        if queues is None or queues.device_state.lifetime.released or exiting():
            return
        asker = asker or _Asker(f"xsem-ask-{queues.device_state.info.id}", after_s)
        reported = _look(queues, after_s, report, reported, asker)
        # No reference during the wait: a device that the application drops must be collected.
        del queues


class _Asker:
    """Queries the driver for overdue lists on a separate thread, because the driver may block that thread."""

    def __init__(self, name: str, after_s: float) -> None:
        # A new marker is not reached at once, even if all work before it is done. So the driver is queried for a list
        # after half the time, and again when the list is overdue.
        self._after_s = after_s / 2
        self._asked: deque[weakref.ref[QueueTable]] = deque()
        self._answers: deque[list[Stuck] | None] = deque()
        self._nap = Pause()
        self._open = False  # True while a question waits for its answer
        self._thread = Background(name, self._work, lambda: bool(self._asked))

    def ask(self, queues: QueueTable) -> list[Stuck] | None:
        """Return the overdue lists; None if the driver does not answer within `_ANSWER_S`."""
        if self._open:
            try:
                self._answers.popleft()  # the answer to an old question is dropped
            except IndexError:
                if self._thread.stalled:
                    self._thread.ensure()
                return None
        elif not recorded_lists(queues, self._after_s):
            return []  # no list is overdue, so no driver call is needed
        self._asked.append(weakref.ref(queues))
        self._open = True
        deadline = time.monotonic() + (_ANSWER_S if self._thread.ensure() else 0)
        while not self._answers and (left_s := deadline - time.monotonic()) > 0:
            self._nap.wait(left_s)
        try:
            answer = self._answers.popleft()
        except IndexError:
            return None
        self._open = False
        return answer

    def _work(self) -> None:
        while self._asked:
            queues = self._asked.popleft()()
            answer: list[Stuck] | None = None
            try:
                answer = overdue_lists(queues, self._after_s) if queues is not None else []
            except Exception:
                _log.warning("watch() cannot ask the driver what is done", exc_info=True)
            finally:
                self._answers.append(answer)
                self._nap.end()
            del queues


def _look(
    queues: QueueTable, after_s: float, report: Report, reported: set[tuple[str, int]], asker: _Asker
) -> set[tuple[str, int]]:
    """Report the lists that are newly stuck, and return name and first pending operation of each stuck list."""
    found = asker.ask(queues)
    answered = found is not None
    stuck: set[tuple[str, int]] = set()
    fresh: list[PendingOp] = []
    for name, head, ops in recorded_lists(queues, after_s) if found is None else found:
        if ops[0].age_s >= after_s:
            stuck.add((name, head))
            if (name, head) not in reported:
                fresh += ops
    if fresh:
        if not answered:
            _log.warning(
                "%s does not answer: its driver blocks the thread that asks it. The report comes from xsem's own "
                "records; some of its operations may be done%s", queues.device_state.info.id,
                "".join(f"; likely: {cause}" for cause in queues.device_state.driver.timeout_causes),
            )
        try:
            report(tuple(fresh))
        except BaseException:  # also SystemExit: it would end the watch without a message
            _log.exception("the report function of watch() raised")
    return stuck


def _warn(pending: tuple[PendingOp, ...]) -> None:
    for op in pending:
        _log.warning(
            "pending for %.1f s: %s %s %s on %s (now %s, last signalled here %s, could be signalled by: %s)%s",
            op.age_s, op.operation, op.semaphore or "", "" if op.value is None else op.value, op.command_list,
            "unknown" if op.current_value is None else op.current_value, op.last_signalled_here,
            ", ".join(op.possible_signallers) or "no known signaller",
            f"; xsem pending {os.getpid()} tells more, and with --all both sides" if sys.platform == "linux" else "",
        )
