"""Callbacks when points are reached: one thread per device that exists only while somebody waits for one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from xsem.errors import ReleasedError

__all__ = ["Notifier"]

_log = logging.getLogger("xsem")

_PAUSE_FIRST_S: Final = 0.0002
_PAUSE_LAST_S: Final = 0.005


class _Watched:
    __slots__ = ("callback", "reached")

    def __init__(self, reached: Callable[[], bool], callback: Callable[[], object]) -> None:
        self.reached = reached
        self.callback = callback


class Notifier:
    """Polls points: no driver tells Python of an event, and a wait of one would keep the others waiting."""

    def __init__(self, name: str, polling: Callable[[], AbstractContextManager[None]]) -> None:
        self._name = name
        # Entered around each look at the points; keeps the device open that long, and raises once it is released.
        self._polling = polling
        self._changed = threading.Condition()
        self._watched: list[_Watched] = []
        self._thread: threading.Thread | None = None

    def add(self, reached: Callable[[], bool], callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called once, on the notifier's thread, when `reached` answers True or raises.

        Returns
        -------
        callable
            Takes the request back; the callback may be running by then.
        """
        watched = _Watched(reached, callback)
        with self._changed:
            self._watched.append(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"xsem-notify-{self._name}", daemon=True)
                self._thread.start()
            self._changed.notify()

        def remove() -> None:
            with self._changed:
                if watched in self._watched:
                    self._watched.remove(watched)
                    self._changed.notify()

        return remove

    def _run(self) -> None:
        pause_s = _PAUSE_FIRST_S
        known = 0
        while True:
            with self._changed:
                if not self._watched:
                    self._thread = None
                    return
                watched = list(self._watched)
            if len(watched) > known:
                pause_s = _PAUSE_FIRST_S
            known = len(watched)
            for each in self._settled(watched):
                with self._changed:
                    if each not in self._watched:
                        continue
                    self._watched.remove(each)
                pause_s = _PAUSE_FIRST_S
                _call(each.callback)
            del watched
            with self._changed:
                if len(self._watched) == known:
                    self._changed.wait(pause_s)
            pause_s = min(pause_s * 1.5, _PAUSE_LAST_S)

    def _settled(self, watched: list[_Watched]) -> list[_Watched]:
        try:
            with self._polling():
                return [each for each in watched if _answer(each.reached)]
        except ReleasedError:
            return watched  # so that nobody waits for ever


def _answer(reached: Callable[[], bool]) -> bool:
    try:
        return reached()
    except Exception:
        # Never to be reached: whoever is called learns that from the event.
        return True


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a done callback raised")
