"""A watchdog for waits that happen in somebody else's call, where no timeout of xsem's can help."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Final, TypeAlias

from xsem.background import exiting
from xsem.diagnosis import stuck_lists
from xsem.errors import BadArgumentError
from xsem.session import Session
from xsem.types import PendingOp

__all__ = ["Report", "watch"]

_log = logging.getLogger("xsem")

# A look costs little, but not nothing; and no wait may be longer than the platform's longest.
_SHORTEST_S: Final = 0.01
_LONGEST_S: Final = 3600.0

Report: TypeAlias = Callable[[tuple[PendingOp, ...]], object]


def watch(session: Session, after_s: float, report: Report | None) -> None:
    """Start the device's watchdog, or replace the one it has."""
    if isinstance(after_s, bool) or not isinstance(after_s, int | float) or not after_s > 0:
        raise BadArgumentError(f"after_s is seconds > 0, not {after_s!r}", reason="bad_timeout")
    if report is not None and not callable(report):
        raise BadArgumentError(f"report must be callable, not {type(report).__name__}", reason="not_callable")
    stop = threading.Event()
    session.stop_watching()
    session.stop_watching = stop.set
    thread = threading.Thread(
        target=_run, args=(weakref.ref(session), stop, after_s, report or _warn), name=f"xsem-watch-{session.info.id}",
        daemon=True,
    )
    thread.start()


def _run(session_ref: weakref.ref[Session], stop: threading.Event, after_s: float, report: Report) -> None:
    reported: set[tuple[str, int]] = set()
    while not stop.wait(max(min(after_s, _LONGEST_S) / 4, _SHORTEST_S)):
        session = session_ref()
        if session is None or session.record.released or exiting():
            return
        reported = _look(session, after_s, report, reported)
        # Not held over the wait: a device that the application drops must be collected.
        del session


def _look(session: Session, after_s: float, report: Report, reported: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Report the lists that are stuck and were not reported for the same operation; what is reported by now."""
    stuck: set[tuple[str, int]] = set()
    fresh: list[PendingOp] = []
    for name, head, ops in stuck_lists(session):
        if ops[0].age_s >= after_s:
            stuck.add((name, head))
            if (name, head) not in reported:
                fresh += ops
    if fresh:
        try:
            report(tuple(fresh))
        except Exception:
            _log.exception("the report function of watch() raised")
    return stuck


def _warn(pending: tuple[PendingOp, ...]) -> None:
    for op in pending:
        _log.warning(
            "pending for %.1f s: %s %s %s on %s (now %s, last signalled here %s, could be signalled by: %s)",
            op.age_s, op.operation, op.semaphore or "", "" if op.value is None else op.value, op.command_list,
            op.current_value, op.last_signalled_here, ", ".join(op.possible_signallers) or "nobody known",
        )
