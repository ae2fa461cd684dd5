"""The exchange of tickets on Windows: over a named pipe.

The claiming process sends the text of the ticket as a message without descriptors. The answer is a message with one
byte, the verdict. After GRANTED, the offered message follows.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from xsem.data.file_descriptors import duplicate_fd
from xsem.data.peers import Peer
from xsem.data.signallers import signallers_of_all
from xsem.errors import BadArgumentError, BusyError, XsemError
from xsem.ipc.message import Message, check_nt_content
from xsem.ipc.ticket_verdicts import GRANTED, OTHER_USER, absent, refusal
from xsem.ipc.tickets import Fields, Ticket
from xsem.ipc.windows.calls import OverlappedCall, PipeError, wait_for_any
from xsem.ipc.windows.connections import connect
from xsem.ipc.windows.deadlines import Deadline
from xsem.ipc.windows.instances import Instances
from xsem.ipc.windows.names import PREFIX
from xsem.ipc.windows.pipe import Pipe
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

if sys.platform == "win32":
    from xsem.data.windows.processes import user_of

__all__ = ["Content", "Send", "Session", "ask"]

_log = logging.getLogger("xsem")

_NOW: Final = Deadline(0.0)
_MAX_CONNECTIONS: Final = 60   # a wait takes 64 events
_RECEIPT_S: Final = 30.0


class Content:
    """The message of an offer. The last reference closes the duplicates of its NT handles."""

    # The handles of the descriptors are borrowed until `keep`.
    def __init__(
        self, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes | bytearray | memoryview
    ) -> None:
        self.payload, self._numbers = check_nt_content(descs, payload)
        self.descs = list(descs)
        self._signallers = signallers_of_all(descs)
        self.handles: list[OwnedHandle] = []

    def keep(self) -> None:
        """Duplicate the NT handles."""
        for at, number in enumerate(self._numbers):
            if number is not None:
                self.handles.append(duplicate_fd(number, for_driver=False))
                self.descs[at] = replace(self.descs[at], handle=self.handles[-1])
        for each in self._signallers:
            each.opened(self)

    @property
    def open(self) -> bool:
        """Whether a process may still claim the message."""
        return any(not handle.closed for handle in self.handles)

    def claimed_by(self, peer: Peer) -> None:
        """Note the process that claims the message."""
        for each in self._signallers:
            each.receiver(peer)

    def close(self) -> None:
        """Close the duplicates."""
        for handle in self.handles:
            handle.close()


Send: TypeAlias = Callable[[int, Content | None], None]


class _Connection:
    """A claiming process. It has sent nothing yet, or it receives its answer."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.answered_s: float | None = None
        self.read = self._begin()

    def _begin(self) -> OverlappedCall:
        read = self.pipe._incoming.begin()
        read.start()
        return read

    def send(self, verdict: int, content: Content | None) -> None:
        self.pipe.send((), bytes([verdict]), timeout_s=0)
        if content is not None:
            content.claimed_by(self.pipe.peer)
            self.pipe.send(content.descs, content.payload, timeout_s=0)

    def serve(self, answer: Callable[[bytes, Send], None]) -> bool:
        """Answer the request that has come. Return False for a second request."""
        self.read.close()
        try:
            data = self.pipe._incoming.finished()
        except PipeError as error:
            raise self.pipe._refusal(error) from error
        if data is None or self.answered_s is not None:
            return False
        with self.pipe._message(data) as request:
            answer(request.payload, self.send)
        self.answered_s = time.monotonic()
        self.read = self._begin()   # it ends when the claiming process closes the pipe
        return True

    @property
    def owes(self) -> bool:
        """Whether the claiming process has not taken the handles of its message yet."""
        self.pipe._transit.settle()
        return (self.answered_s is not None and self.pipe._transit.messages > 0
                and time.monotonic() < self.answered_s + _RECEIPT_S)

    def close(self) -> None:
        self.read.close()
        self.pipe.close()


class Session:
    """The pipes of the thread that serves offers."""

    def __init__(self, directory: str | None = None) -> None:   # a directory has no pipes
        self._instances: list[Instances] = []   # at most one
        self._arrivals: list[OverlappedCall] = []     # at most one
        self._connections: list[_Connection] = []   # oldest first

    @property
    def closed(self) -> bool:
        """Whether every pipe is closed."""
        return not self._instances and not self._connections

    @property
    def owes(self) -> bool:
        """Whether a claimed message needs this session: its receiver has not taken the handles from this process."""
        return any(each.owes for each in self._connections)

    def abandon(self) -> None:
        """Close all pipes, as `close`. Windows has no forked children."""
        self.close()

    def listen(self, address: bytes) -> None:
        """Begin to listen."""
        try:
            self._instances.append(Instances(_name(address), _own_user()))
            self._await_arrival()
        except PipeError as error:
            raise error.error() from error

    def _await_arrival(self) -> None:
        arrival = self._instances[0].arrival()
        arrival.start()
        self._arrivals[:] = [arrival]

    def turn(self, timeout_s: float, answer: Callable[[bytes, Send], None]) -> None:
        """Wait for connections and requests, and answer them. `answer` gets a function that sends the answer."""
        calls = [self._arrivals[0], *[each.read for each in self._connections]]
        # A call that ended at its start sets no event.
        at_once = any(each.code is not None for each in calls)
        wait_for_any([each.event for each in calls], 0.0 if at_once else timeout_s)
        for each in list(self._connections):
            if not each.read.wait(_NOW):
                continue
            try:
                goes_on = each.serve(answer)
            except XsemError as error:
                if each.answered_s is None:   # otherwise, it is the usual end of the connection
                    _log.debug("a claim of a ticket failed: %s", error)
                goes_on = False
            if not goes_on:
                self._drop(each)
        if self._arrivals[0].wait(_NOW):
            self._accept()

    def _accept(self) -> None:
        arrival = self._arrivals[0]
        arrival.close()
        try:
            pipe = self._instances[0].accepted(arrival)
            if pipe is not None:
                self._connections.append(_Connection(pipe))
        except BusyError:
            time.sleep(0.05)   # the claim waits until this process can open a handle
        if len(self._connections) > _MAX_CONNECTIONS:
            self._drop(self._connections[0])
        self._await_arrival()

    def _drop(self, connection: _Connection) -> None:
        # Close first: other threads read `closed`, which must not be true before.
        connection.close()
        self._connections.remove(connection)

    def close(self) -> None:
        """Close all pipes."""
        while self._connections:
            self._drop(self._connections[-1])
        for arrival in self._arrivals:
            arrival.close()
        self._arrivals.clear()
        while self._instances:
            self._instances[-1].close()   # in the order of `_drop`
            self._instances.pop()


def ask(ticket: Ticket, fields: Fields, timeout_s: float | None, directory: str | None = None) -> Message:
    """Claim the message of a ticket, with the errors of `xsem.ipc.claim`."""
    deadline = Deadline(timeout_s)
    try:
        with connect(_name(fields.address), timeout_s=deadline.left_s) as pipe:
            if pipe.peer != Peer(fields.pid, fields.started):
                raise absent(fields)
            pipe.send((), ticket.encode("ascii"), timeout_s=deadline.left_s)
            with pipe.receive(timeout_s=deadline.left_s) as answer:
                verdict = answer.payload
            if verdict != bytes([GRANTED]):
                raise refusal(verdict[0])
            return pipe.receive(timeout_s=deadline.left_s)
    except BadArgumentError as error:
        if error.reason == "other_user":
            raise refusal(OTHER_USER) from error
        if error.reason in ("no_listener", "peer_closed", "sender_ended"):
            raise absent(fields) from error
        raise


def _own_user() -> str:
    if sys.platform == "win32":
        return user_of()
    raise NotImplementedError


def _name(address: bytes) -> str:
    return f"{PREFIX}xsem-offers-{address.hex()}"
