"""Offers of this process: the side that keeps the descriptors until their tickets are claimed.

One thread serves all offers of a process. The thread exists while an offer exists. Only this thread opens sockets, so
Ctrl-C, which Python delivers to the main thread, cannot interrupt between an opening and its owner. The main thread
adds an offer by one assignment to a dictionary and removes it by one `pop`.
"""

from __future__ import annotations

import array
import contextlib
import errno
import hmac
import itertools
import logging
import os
import select
import socket
import sys
import time
from collections.abc import Iterable
from typing import Final

from xsem.data.handles import own, store
from xsem.data.peers import peer_user
from xsem.errors import BadArgumentError, BadHandleError, BusyError, DriverError, XsemError
from xsem.ipc.tickets import MAX_TICKET_BYTES, Fields, Ticket, here, now_ns
from xsem.runtime.threads import Background, exiting
from xsem.types import OwnedHandle

__all__ = ["FORGED", "GRANTED", "OTHER_USER", "OVER", "SPENT", "Server", "server"]

# The first byte of an answer. A message follows GRANTED, and nothing follows the others.
GRANTED, OTHER_USER, FORGED, OVER, SPENT = range(5)

_log = logging.getLogger("xsem")

_SLICE_S: Final = 1.0
_START_S: Final = 30.0
_MAX_CONNECTIONS: Final = 64
_SEND_BUFFER: Final = 1 << 18


class _Offer:
    """A message with the duplicates of its file descriptors. The last reference closes the duplicates."""

    def __init__(self, data: bytes, claims: int, deadline_ns: int) -> None:
        self.data = data
        self.claims = claims
        self.deadline_ns = deadline_ns
        self.handles: list[OwnedHandle] = []
        self.failure: OSError | None = None

    def duplicate(self, fds: Iterable[int]) -> None:
        for fd in fds:
            store(self.handles, own, os.dup, fd)

    def close(self) -> None:
        for handle in self.handles:
            handle.close()


class _Session:
    """The sockets of the thread. `close` closes all of them."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []   # first the listener, then the connections, oldest first

    def listen(self, name: bytes) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        store(self.sockets, socket.socket, socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sockets[0].setblocking(False)
        self.sockets[0].bind(name)
        self.sockets[0].listen(_MAX_CONNECTIONS)

    def accept(self) -> None:
        """Accept a connection. Close it at once if it belongs to another user."""
        if sys.platform == "win32":
            raise NotImplementedError
        connection, _ = self.sockets[0].accept()
        self.sockets.append(connection)
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if peer_user(connection) != os.geteuid():
            with contextlib.suppress(OSError):
                connection.send(bytes([OTHER_USER]))
            self.drop(connection)
        if len(self.sockets) > _MAX_CONNECTIONS:
            self.drop(self.sockets[1])

    def ready(self, timeout_s: float) -> list[socket.socket]:
        """Return the sockets that have a connection or data."""
        if sys.platform == "win32":
            raise NotImplementedError
        poller = select.poll()
        for sock in self.sockets:
            poller.register(sock, select.POLLIN)
        numbers = {number for number, _ in poller.poll(timeout_s * 1000)}
        return [sock for sock in self.sockets if sock.fileno() in numbers]

    def drop(self, connection: socket.socket) -> None:
        self.sockets.remove(connection)
        connection.close()

    def close(self) -> None:
        while self.sockets:
            self.sockets.pop().close()


class Server:
    """All offers of a process, and the thread that serves them."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._address = os.urandom(8)
        self._numbers = itertools.count()
        self._offers: dict[int, _Offer] = {}
        self._session = _Session()
        self._listening = False
        self._background = Background("xsem-offers", self._serve, self._busy)

    @property
    def idle(self) -> bool:
        """Whether no offer exists and every socket is closed."""
        return not self._offers and not self._session.sockets

    def add(self, data: bytes, fds: Iterable[int], claims: int, deadline_ns: int) -> Ticket:
        """Keep duplicates of the file descriptors and return the ticket. After an error or Ctrl-C nothing is kept.

        Raises
        ------
        BusyError
            ``no_thread``, ``fd_limit``.
        """
        number = next(self._numbers)
        try:
            offer = _Offer(data, claims, deadline_ns)
            offer.duplicate(fds)
            ticket = here(self._address, number, deadline_ns).ticket(self._key)
            self._offers[number] = offer
            self._wait_until_served(offer)
            if now_ns() > deadline_ns:   # perhaps before the thread began
                self._offers.pop(number, None)
            return ticket
        except BaseException as error:
            # The offer has no other reference than the thread's, which may be sending the file descriptors.
            self._offers.pop(number, None)
            if isinstance(error, OSError):
                raise _system_error(error) from error
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
        self._session.close()
        for offer in self._offers.values():
            offer.close()

    # ---- on the thread
    def _busy(self) -> bool:
        return bool(self._offers)

    def _serve(self) -> None:
        session = self._session
        if not self._offers:   # taken back before this thread began
            return
        try:
            session.listen(Fields(b"", 0, 0, 0, self._address, 0, 0).name)
        except OSError as error:
            session.close()
            for number in list(self._offers):
                failed = self._offers.pop(number, None)
                if failed is not None:
                    failed.failure = error
            return
        try:
            while not exiting() and self._goes_on():
                self._turn(session)
        finally:
            self._listening = False
            session.close()

    def _goes_on(self) -> bool:
        """Remove the offers whose lifetime is over, and return whether an offer is left."""
        now = now_ns()
        for number, offer in list(self._offers.items()):
            if now > offer.deadline_ns:
                self._remove(number)
        # In this order: see `_wait_until_served`.
        self._listening = False
        if not self._offers:
            return False
        self._listening = True
        return True

    def _turn(self, session: _Session) -> None:
        now = now_ns()
        nearest = min((offer.deadline_ns for offer in list(self._offers.values())), default=now)
        for sock in session.ready(min(_SLICE_S, max(0.0, (nearest - now) / 1e9 + 0.001))):
            if sock not in session.sockets:
                continue
            if sock is session.sockets[0]:
                try:
                    session.accept()
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        time.sleep(0.05)   # the claim waits until this process can open a file descriptor
                continue
            try:
                self._answer(sock)
            except OSError as error:   # the claiming process ended; the claim does not count
                _log.debug("a claim of a ticket failed: %s", error)
            session.drop(sock)

    def _answer(self, sock: socket.socket) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        request = sock.recv(MAX_TICKET_BYTES)
        if not request:
            return
        number, verdict = self._judge(request)
        offer = self._offers.get(number) if verdict == GRANTED else None
        if offer is None:
            sock.send(bytes([SPENT if verdict == GRANTED else verdict]), socket.MSG_NOSIGNAL)
            return
        numbers = array.array("i", [handle.fileno() for handle in offer.handles])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if numbers else []
        sock.sendmsg([bytes([GRANTED]), offer.data], rights, socket.MSG_NOSIGNAL)
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
            offer.close()


def _system_error(error: OSError) -> XsemError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return BusyError("this process can open no more file descriptors, which an offer needs", reason="fd_limit")
    if error.errno == errno.EBADF:
        return BadHandleError("a file descriptor was closed during the call", reason="closed_fd")
    return DriverError(f"the kernel refused the socket of an offer: {error.strerror}", reason="system_call_failed",
                       call="bind", code=error.errno, code_name=errno.errorcode.get(error.errno or 0))


class _Process:
    server = Server()


def server() -> Server:
    """Return the server of this process."""
    return _Process.server


def _in_child() -> None:
    before = _Process.server
    _Process.server = Server()
    before.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
