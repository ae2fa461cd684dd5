"""Tickets: short texts that stand for offered descriptors. ``docs/ipc.md`` describes the exchange."""

from __future__ import annotations

import base64
import binascii
import ctypes
import functools
import hashlib
import hmac
import os
import struct
import sys
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from xsem.data.peers import start_of
from xsem.data.running_system import system_id
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.runtime.timeouts import check_timeout

__all__ = [
    "MAX_TICKET_BYTES", "Fields", "Ticket", "boot", "check_lifetime", "check_system", "here", "is_running", "now_ns",
]

_PREFIX: Final = "xsem-ticket-1-"
_PREFIX_IN_DIRECTORY: Final = "xsem-ticket-2-"   # of the same length
_FIELDS: Final = struct.Struct("<16sQIQ8sQQ")
_MAC_BYTES: Final = 21   # the text then needs no padding
_LENGTH: Final = len(_PREFIX) + -(-(_FIELDS.size + _MAC_BYTES) // 3) * 4
MAX_TICKET_BYTES: Final = 256
_MAX_LIFETIME_S: Final = 10 * 365 * 86400


class Ticket(str):
    """Short text that stands for offered descriptors, the result of `offer`.

    A ticket is a str of 122 ASCII letters, digits, ``-`` and ``_``. Any channel that carries text or bytes can carry
    it, and any pickler takes it. It holds no file descriptor. Every process of the same user with the text can claim
    the descriptors, so treat the text as a password. `repr` hides the text.

    Raises
    ------
    BadArgumentError
        ``bad_ticket``: the text is not a ticket.

    Examples
    --------
    >>> import xsem
    >>> ticket = xsem.ipc.offer(xsem.SemaphoreDesc.sync_fd(-1), payload=b"frame 7")
    >>> with xsem.ipc.claim(str(ticket)) as message:    # in another process
    ...     message.payload
    b'frame 7'
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check the form of the text.

        Parameters
        ----------
        text : str
            The text of a ticket, for example from a message.

        Returns
        -------
        Ticket
            The ticket.

        Raises
        ------
        BadArgumentError
            ``bad_ticket``: the text is not a ticket.
        """
        if (not isinstance(text, str) or not text.startswith((_PREFIX, _PREFIX_IN_DIRECTORY))
                or len(text) != _LENGTH):
            raise _bad_ticket()
        ticket = super().__new__(cls, text)
        _decoded(ticket)
        return ticket

    def fields(self) -> tuple[Fields, bytes]:
        """Return the fields of the ticket, and the proof that the offering process wrote them.

        Returns
        -------
        Fields
            Process, number and lifetime of the offer.
        bytes
            The proof.

        Raises
        ------
        BadArgumentError
            ``bad_ticket``: the text is not a ticket.
        """
        data = _decoded(self)
        fields = Fields(*_FIELDS.unpack(data[: _FIELDS.size]))
        return replace(fields, in_directory=self.startswith(_PREFIX_IN_DIRECTORY)), data[_FIELDS.size :]

    def __repr__(self) -> str:
        return f"<Ticket of process {self.fields()[0].pid}>"


@dataclass(frozen=True, slots=True)
class Fields:
    """Content of a ticket."""

    boot: bytes
    network: int
    pid: int
    started: int
    address: bytes
    number: int
    deadline_ns: int
    in_directory: bool = False   # the offer has a socket file in a directory, which other network namespaces can open

    def ticket(self, key: bytes) -> Ticket:
        """Return the ticket, with a proof that only the owner of the key can compute."""
        data = self._packed() + self.proof(key)
        prefix = _PREFIX_IN_DIRECTORY if self.in_directory else _PREFIX
        return Ticket(prefix + base64.urlsafe_b64encode(data).decode("ascii"))

    def proof(self, key: bytes) -> bytes:
        """Return the proof of these fields."""
        return hmac.new(key, self._packed() + bytes(self.in_directory), hashlib.sha256).digest()[:_MAC_BYTES]

    @property
    def expired(self) -> bool:
        """Whether the lifetime is over."""
        return now_ns() > self.deadline_ns

    def _packed(self) -> bytes:
        return _FIELDS.pack(self.boot, self.network, self.pid, self.started, self.address, self.number,
                            self.deadline_ns)


def here(address: bytes, number: int, deadline_ns: int, *, in_directory: bool) -> Fields:
    """Return the fields of a ticket of this process."""
    pid = os.getpid()
    return Fields(boot(), _network(), pid, start_of(pid) or 0, address, number, deadline_ns, in_directory)


def check_system(fields: Fields) -> None:
    """Refuse a ticket of another machine or of another container."""
    if fields.boot != boot():
        raise BadArgumentError(
            "the ticket comes from another machine, or from before a restart: handles do not cross machines. Copy the "
            "data instead", reason="other_host")
    if fields.network != _network() and not fields.in_directory:
        raise BadArgumentError(
            "the ticket comes from a container with another network namespace, which cannot be reached from here. "
            "Mount a directory into both containers, and pass its path to offer(at=…) and claim(at=…)",
            reason="other_container")


def check_lifetime(lifetime_s: float) -> None:
    """Refuse a lifetime that is not a number of seconds, with the reason ``bad_timeout``."""
    check_timeout(lifetime_s)
    if lifetime_s is None or not 0 < lifetime_s <= _MAX_LIFETIME_S:
        raise BadArgumentError(f"lifetime_s is seconds > 0 and at most ten years, not {lifetime_s!r}",
                               reason="bad_timeout")


def is_running(fields: Fields) -> bool:
    """Return whether the offering process exists. A later process with the same number is another process."""
    return start_of(fields.pid) == fields.started


def now_ns() -> int:
    """Return the time since the start of the machine, the same clock in all its processes."""
    if sys.platform == "win32":
        return int(_tick_count()()) * 1_000_000   # time.monotonic has another clock from Python 3.13 on
    if sys.platform != "linux":
        raise UnsupportedError("tickets need abstract Unix sockets, which only Linux has, or the pipes of Windows",
                               capability="ipc.offer")
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@functools.cache
def _tick_count() -> Any:
    if sys.platform != "win32":
        raise NotImplementedError
    function = ctypes.WinDLL("kernel32").GetTickCount64
    function.restype = ctypes.c_uint64
    return function


def boot() -> bytes:
    """Return what tells this start of the machine from other machines and other starts."""
    try:
        return uuid.UUID(system_id()).bytes
    except ValueError:   # the name of the machine
        return hashlib.sha256(system_id().encode()).digest()[:16]


def _network() -> int:
    if sys.platform == "win32":   # under Wine, the file exists
        return 0
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return 0


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text[len(_PREFIX) :].encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _bad_ticket() from error


def _bad_ticket() -> BadArgumentError:
    # Without the text: it can be most of a valid ticket.
    return BadArgumentError("the text is not a ticket of xsem.ipc.offer", reason="bad_ticket")
