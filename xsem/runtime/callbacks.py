"""Completion callbacks of fences. One thread per device calls them; it exists only while a request is open."""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter as now
from typing import Final, Protocol

from xsem.errors import DriverError
from xsem.runtime.threads import Background, Pause, exiting

__all__ = ["Blocked", "Callback", "Completion", "Notifier"]

_log = logging.getLogger("xsem")

_PAUSE_FIRST_S: Final = 0.0002
_PAUSE_LAST_S: Final = 0.005
_LOOK_S: Final = 0.05

Callback = Callable[[Exception | None], object]
"""Called with None when the fence is reached; with the driver's error or a ReleasedError if it never will be."""

Blocked = Callable[[], Exception | None]
"""Returns the error of a wait that no process is left to meet; otherwise None. It may query the device."""


class Completion(Protocol):
    """A fence, as the notifier sees it."""

    @property
    def queue(self) -> object | None: ...
    @property
    def seq(self) -> int: ...
    def done(self) -> bool: ...


class _Request:
    __slots__ = ("_blocked", "_look_at", "callback", "fence")

    def __init__(self, fence: Completion, callback: Callback, blocked: Blocked | None) -> None:
        self.fence = fence
        self._blocked = blocked
        self._look_at = 0.0
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None

    def failure(self) -> Exception | None:
        """Return the error of a wait that no process is left to meet. Look seldom, because a look takes long."""
        if self._blocked is None or now() < self._look_at:
            return None
        self._look_at = now() + _LOOK_S
        return self._blocked()

    def call(self, outcome: Exception | None) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            try:
                callback(outcome)
            except BaseException:   # also SystemExit: it would end the thread, so that the other callbacks never run
                _log.exception("a done callback raised")


class Notifier:
    """Polls fences. No driver notifies Python of an event, and a blocking wait for one would delay all others."""

    def __init__(self, name: str, polling: Callable[[], AbstractContextManager[object]]) -> None:
        # The context of each poll. It keeps the device open, and raises after the device's release.
        self._polling = polling
        self._new: deque[_Request] = deque()
        self._nap = Pause()
        # The requests of the thread. Not a local variable: after an exception the thread continues with them.
        self._requests: list[_Request] = []
        self.thread = Background(f"xsem-notify-{name}", self._work, self._busy)

    @property
    def stalled(self) -> bool:
        """Whether requests are open and no thread polls them. `thread.ensure` tries again."""
        return self.thread.stalled

    def _busy(self) -> bool:
        return bool(self._requests or self._new)

    def add(self, fence: Completion, callback: Callback, blocked: Blocked | None = None) -> Callable[[], None]:
        """Request one call of `callback` on the notifier's thread, and return a function that cancels the request."""
        # The call comes when the fence is reached, or when it never will be. The error of `blocked` is such an outcome,
        # too; it is queried seldom, and only for the first unreached fence of a queue. A cancel can come while the
        # callback runs.
        request = _Request(fence, callback, blocked)
        self._new.append(request)
        self._nap.end()
        self.thread.ensure()
        return request.cancel

    def _work(self) -> None:
        pause_s = _PAUSE_FIRST_S
        while not exiting():
            before = len(self._requests)
            if self._requests:
                self._nap.wait(pause_s)
            while self._new:   # no other thread takes requests
                self._requests.append(self._new.popleft())
            changed = len(self._requests) > before
            changed |= self._call_settled()
            pause_s = _PAUSE_FIRST_S if changed else min(pause_s * 1.5, _PAUSE_LAST_S)
            if not self._busy():
                return

    def _call_settled(self) -> bool:
        # A separate function: its loop variables end here. In the caller they would keep an event and its device alive
        # during the pause.
        for request, outcome in self._settled(self._requests):
            request.call(outcome)
        count = len(self._requests)
        self._requests = [request for request in self._requests if request.callback is not None]
        return len(self._requests) < count

    def _settled(self, requests: list[_Request]) -> list[tuple[_Request, Exception | None]]:
        settled: list[tuple[_Request, Exception | None]] = []
        unreached: dict[object, int] = {}
        try:
            with self._polling():
                for request in requests:
                    fence = request.fence
                    # A queue is in order: no fence behind an unreached one is reached.
                    if fence.queue is not None and unreached.get(fence.queue, fence.seq + 1) <= fence.seq:
                        continue
                    try:
                        if fence.done():
                            settled.append((request, None))
                            continue
                        failure = request.failure()
                        if failure is not None:
                            # A process can have met the wait just before its end.
                            settled.append((request, None if fence.done() else failure))
                        elif fence.queue is not None:
                            unreached[fence.queue] = min(fence.seq, unreached.get(fence.queue, fence.seq))
                    except BaseException as error:
                        settled.append((request, _outcome(error)))
        except Exception as error:
            # The device was released: call every callback, so that no task waits for ever. Each gets a copy, because
            # different tasks raise them.
            known = {request for request, _ in settled}
            settled += [(request, copy.copy(error)) for request in requests if request not in known]
        return settled


def _outcome(error: BaseException) -> Exception:
    """Turn an exception of `Completion.done` into the argument of a callback."""
    if isinstance(error, Exception):
        return error
    failure = DriverError(f"the driver raised {type(error).__name__} in a query of the event",
                          reason="work_failed", from_earlier_work=True)
    failure.__cause__ = error
    return failure
