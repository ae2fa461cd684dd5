"""Results of recvmsg for one message. Every file descriptor has an owner from the system call on."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from xsem.types import OwnedHandle

__all__ = ["ReceivedHandles"]

_SCM_RIGHTS: Final = getattr(socket, "SCM_RIGHTS", 1)
_SCM_CREDENTIALS: Final = 2
_CREDENTIALS_BYTES: Final = 12   # pid, uid, gid
_SCM_PIDFD: Final = 4  # Linux >= 6.5, for SO_PASSPIDFD: a file descriptor of the sender's process
# Room for other ancillary data: the application may have set SO_PASSCRED, SO_PASSSEC or SO_PASSPIDFD.
_OTHER_ANCILLARY: Final = 512
_RECEIVE_FLAGS: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0) | getattr(socket, "MSG_DONTWAIT", 0)

_Answer: TypeAlias = tuple[bytes, list[tuple[int, int, bytes]], int, Any]
# One file descriptor; empty after it is closed. Its owners share the list, and only one of them can pop the number.
_Slot: TypeAlias = list[int]


class ReceivedHandles:
    """Data and file descriptors received so far.

    `close` closes the file descriptors that `take` did not hand out, also after Ctrl-C.

    Attributes
    ----------
    handles : list of OwnedHandle
        The file descriptors of SCM_RIGHTS, in order. A received pidfd is closed at once.
    """

    def __init__(self) -> None:
        self._answers: list[_Answer] = []
        self._slots: list[tuple[list[_Slot], list[_Slot]]] = []  # per answer: slots of SCM_RIGHTS, slots of pidfds
        self.handles: list[OwnedHandle] = []

    @property
    def begun(self) -> bool:
        """True if at least one byte was received."""
        for data, *_ in self._answers:  # noqa: SIM110 - a generator that Ctrl-C closes would suppress the interrupt
            if data:
                return True
        return False

    @property
    def credentials(self) -> bytes | None:
        """The ``struct ucred`` of the sender. None if the application has not set SO_PASSCRED on the socket."""
        for _, ancillary, *_ in self._answers:
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == _SCM_CREDENTIALS and len(content) == _CREDENTIALS_BYTES:
                    return content
        return None

    def receive(self, sock: socket.socket, size: int, max_fds: int) -> tuple[bytes, bool, int]:
        """Call recvmsg once, with space for `size` bytes and `max_fds` file descriptors.

        Returns
        -------
        tuple of bytes, bool and int
            The data, True if ancillary data came with it, and the flags.
        """
        if sys.platform == "win32":
            raise NotImplementedError
        space = socket.CMSG_SPACE(max_fds * array.array("i").itemsize) + _OTHER_ANCILLARY
        # One call of C stores the kernel's answer with its owner: Ctrl-C takes effect before or after it.
        self._answers.extend(map(sock.recvmsg, (size,), (space,), (_RECEIVE_FLAGS,)))
        self._sort()
        rights, unasked = self._slots[-1]
        _close(unasked)
        self.handles += [_share(slot) for slot in rights]
        data, ancillary, flags, _ = self._answers[-1]
        return data, bool(ancillary), flags

    def take(self) -> list[OwnedHandle]:
        """Hand out the handles: the caller owns them from now on."""
        # The answers are cleared first: `_sort` would create slots again for an answer without slots, and its numbers
        # would be closed twice.
        self._answers.clear()
        self._slots.clear()
        return self.handles

    def close(self) -> None:
        """Close the file descriptors that `take` did not hand out. A second call has no effect."""
        self._sort()
        for rights, unasked in self._slots:
            _close(rights + unasked)

    def _sort(self) -> None:
        """Create a slot for each number of each answer that has no slots yet."""
        for answer in self._answers[len(self._slots) :]:
            self._slots.append((_slots(answer, _SCM_RIGHTS), _slots(answer, _SCM_PIDFD)))


def _slots(answer: _Answer, kind: int) -> list[_Slot]:
    numbers = array.array("i")
    for level, each, content in answer[1]:
        if level == socket.SOL_SOCKET and each == kind:
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return [[number] for number in numbers if number >= 0]  # SCM_PIDFD holds an error code if the sender has ended


def _share(slot: _Slot) -> OwnedHandle:
    """Return an `OwnedHandle` that shares the slot. `OwnedHandle(number)` would briefly be a second owner."""
    handle = OwnedHandle.__new__(OwnedHandle)
    handle._slot = slot
    return handle


def _close(slots: Sequence[_Slot]) -> None:
    while any(slots):
        with contextlib.suppress(OSError):  # other code closed the number; the other numbers must still be closed
            # One call of C takes the numbers and closes them: Ctrl-C takes effect before or after it.
            deque(map(os.close, map(list.pop, filter(None, slots))), maxlen=0)
