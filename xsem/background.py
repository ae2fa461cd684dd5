"""A thread of xsem's own that exists only while there is something for it to do."""

from __future__ import annotations

import _thread
import atexit
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Background", "exiting"]


class _Exit:
    under_way = False


def _at_exit() -> None:
    _Exit.under_way = True


atexit.register(_at_exit)


def exiting() -> bool:
    """Whether the interpreter is going down: from then on xsem makes no driver call of its own accord."""
    return _Exit.under_way


class Background:
    """Runs `work` on a daemon thread of its own whenever there is something to do.

    Parameters
    ----------
    name : str
        The thread's.
    work : callable
        Does what there is to do and returns when nothing is left.
    busy : callable
        Whether something is left to do; asked once more when `work` has returned.
    """

    def __init__(self, name: str, work: Callable[[], None], busy: Callable[[], bool]) -> None:
        self._name = name
        self._work = work
        self._busy = busy
        # Holds one element while no thread runs: pop() is an atomic claim that even a finalizer may make.
        self._idle: deque[None] = deque([None])

    def wake(self) -> None:
        """There is something to do. Takes no lock, so that a finalizer may call it."""
        if _Exit.under_way:
            return
        try:
            self._idle.pop()
        except IndexError:
            return  # it runs, and asks whether it is busy before it ends
        try:
            # Not threading.Thread: its start() takes locks, and a finalizer can run while this thread holds them.
            _thread.start_new_thread(self._launch, ())
        except RuntimeError:  # no more threads, or the interpreter is going down
            self._idle.append(None)

    def _launch(self) -> None:
        # This thread is unknown to threading, whose list would gain a dummy that outlives it as soon as somebody logs.
        try:
            threading.Thread(target=self._main, name=self._name, daemon=True).start()
        except RuntimeError:
            self._idle.append(None)

    def _main(self) -> None:
        while not _Exit.under_way:
            try:
                self._work()
            except BaseException:
                self._idle.append(None)
                raise
            self._idle.append(None)
            if not self._busy():
                return
            try:
                self._idle.pop()
            except IndexError:
                return  # another thread was started for what came in between
