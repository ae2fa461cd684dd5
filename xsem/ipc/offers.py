"""Offers of this process: the side that keeps the descriptors until their tickets are claimed.

One thread serves all offers of a process. The thread exists while an offer exists. `ticket_sockets` carries the claims
on Linux, and `windows.ticket_pipes` on Windows.
"""

from __future__ import annotations

import heapq
import hmac
import itertools
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Container
from typing import ClassVar, Final

from xsem.errors import BadArgumentError, BusyError, XsemError
from xsem.ipc.ticket_verdicts import FORGED, GRANTED, OVER, SPENT
from xsem.ipc.tickets import Ticket, here, now_ns
from xsem.runtime.subinterpreters import check_main_interpreter
from xsem.runtime.threads import Background, exiting

if sys.platform == "win32":
    from xsem.ipc.windows.ticket_pipes import Content, Send, Session
else:
    from xsem.ipc.ticket_sockets import Content, Send, Session

__all__ = ["Server", "server"]

_SLICE_S: Final = 1.0
_START_S: Final = 30.0
_MOST_STALE: Final = 100


class _Offer:
    """A message, and how often and how long it can be claimed. The last reference closes its duplicates."""

    def __init__(self, content: Content, claims: int, deadline_ns: int) -> None:
        self.content = content
        self.claims = claims
        self.deadline_ns = deadline_ns
        self.failure: XsemError | None = None


class _Deadlines:
    """Ends of the lifetimes of offers, nearest first. A claim costs the same for any number of offers."""

    # Any thread adds an offer. Only the thread that serves offers calls the other methods.
    def __init__(self) -> None:
        self._added: deque[tuple[int, int]] = deque()   # end and number
        self._heap: list[tuple[int, int]] = []   # also of offers that no longer exist
        self._most = _MOST_STALE   # length from which those are removed

    def add(self, deadline_ns: int, number: int) -> None:
        """Add an offer."""
        self._added.append((deadline_ns, number))

    def nearest(self) -> int | None:
        """Return a time before which no lifetime ends. None: no offer exists."""
        return self._heap[0][0] if self._heap else None

    def passed(self, now: int, offers: Container[int]) -> list[int]:
        """Remove the ends that have passed, and return their numbers. `offers` are the numbers that exist."""
        while self._added:
            heapq.heappush(self._heap, self._added.popleft())
        if len(self._heap) > self._most:
            self._heap = sorted(each for each in self._heap if each[1] in offers)
            self._most = 2 * len(self._heap) + _MOST_STALE
        numbers = []
        while self._heap and self._heap[0][0] < now:
            numbers.append(heapq.heappop(self._heap)[1])
        return numbers


class Server:
    """The offers of a process at one place, and the thread that serves them."""

    def __init__(self, directory: str | None = None) -> None:
        self._key = os.urandom(32)
        self._address = os.urandom(8)
        self._numbers = itertools.count()
        self._offers: dict[int, _Offer] = {}
        self._deadlines = _Deadlines()
        self._session = Session(directory)
        self._in_directory = directory is not None
        self._listening = False
        self._background = Background("xsem-offers", self._serve, self._busy, joined=False)

    @property
    def idle(self) -> bool:
        """Whether no offer exists and the session is closed."""
        return not self._offers and self._session.closed

    def add(self, content: Content, claims: int, deadline_ns: int) -> Ticket:
        """Keep duplicates of the handles and return the ticket. After an error nothing is kept."""
        check_main_interpreter()
        number = next(self._numbers)
        try:
            offer = _Offer(content, claims, deadline_ns)
            content.keep()
            ticket = here(self._address, number, deadline_ns, in_directory=self._in_directory).ticket(self._key)
            self._offers[number] = offer
            self._wait_until_served(offer)
            self._deadlines.add(deadline_ns, number)   # from now on, the thread removes it
            if now_ns() > deadline_ns:   # perhaps before the thread began
                self._offers.pop(number, None)
            return ticket
        except BaseException:
            # The offer has no other reference than the thread's, which may be sending the handles.
            self._offers.pop(number, None)
            raise

    def _wait_until_served(self, offer: _Offer) -> None:
        # The offer was added before: a thread that stops listening sees it and goes on, or this loop sees that it
        # stopped.
        end = time.monotonic() + _START_S
        while not self._listening and now_ns() <= offer.deadline_ns:
            if offer.failure is not None:
                raise offer.failure
            if not self._background.wake() or exiting() or time.monotonic() > end:
                raise BusyError("the thread that serves offers cannot be started now", reason="no_thread")
            time.sleep(0.001)

    def abandon(self) -> None:
        """Close everything in a forked child. The parent serves its offers."""
        self._session.abandon()
        for offer in self._offers.values():
            offer.content.close()

    # ---- on the thread
    def _busy(self) -> bool:
        return bool(self._offers)

    def _serve(self) -> None:
        session = self._session
        if not self._offers:   # taken back before this thread began
            return
        try:
            session.listen(self._address)
        except XsemError as error:
            session.close()
            for number in list(self._offers):
                failed = self._offers.pop(number, None)
                if failed is not None:
                    failed.failure = error
            return
        try:
            while not exiting() and self._goes_on(session):
                session.turn(self._pause_s(), self._answer)
        finally:
            self._listening = False
            session.close()

    def _goes_on(self, session: Session) -> bool:
        """Remove the offers whose lifetime is over, and return whether an offer or a claimed message is left."""
        for number in self._deadlines.passed(now_ns(), self._offers):
            self._remove(number)
        # In this order: see `_wait_until_served`.
        self._listening = False
        if not self._offers and not session.owes:
            return False
        self._listening = True
        return True

    def _pause_s(self) -> float:
        nearest = self._deadlines.nearest()
        return _SLICE_S if nearest is None else min(_SLICE_S, max(0.0, (nearest - now_ns()) / 1e9 + 0.001))

    def _answer(self, request: bytes, send: Send) -> None:
        """Answer a request. If `send` raises, the claim does not count."""
        number, verdict = self._judge(request)
        offer = self._offers.get(number) if verdict == GRANTED else None
        if offer is None:
            send(SPENT if verdict == GRANTED else verdict, None)
            return
        send(GRANTED, offer.content)
        offer.claims -= 1
        if offer.claims <= 0:
            self._remove(number)

    def _judge(self, request: bytes) -> tuple[int, int]:
        try:
            fields, proof = Ticket(request.decode("ascii", "replace")).fields()
        except BadArgumentError:
            return 0, FORGED
        if not hmac.compare_digest(proof, fields.proof(self._key)):
            return 0, FORGED
        return fields.number, OVER if fields.expired else GRANTED

    def _remove(self, number: int) -> None:
        offer = self._offers.pop(number, None)
        if offer is not None:
            offer.content.close()


class _Process:
    server = Server()
    # By the path. The thread of a server keeps it alive while it has an offer.
    in_directories: ClassVar[weakref.WeakValueDictionary[str, Server]] = weakref.WeakValueDictionary()


def server(directory: str | None = None) -> Server:
    """Return the server of this process, or the one for this directory."""
    if directory is None:
        return _Process.server
    return _Process.in_directories.setdefault(directory, Server(directory))


def _in_child() -> None:
    before = [_Process.server, *_Process.in_directories.values()]
    _Process.server = Server()
    _Process.in_directories = weakref.WeakValueDictionary()
    for each in before:
        each.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
