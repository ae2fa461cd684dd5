"""What recvmsg returned for one message: every file descriptor has an owner, from the system call on."""

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

__all__ = ["Arrivals"]

_SCM_RIGHTS: Final = getattr(socket, "SCM_RIGHTS", 1)
_SCM_PIDFD: Final = 4  # Linux >= 6.5, for SO_PASSPIDFD: a file descriptor of the sender's process
# SO_PASSCRED, SO_PASSSEC and SO_PASSPIDFD, which the application may have set, bring more than file descriptors.
_OTHER_ANCILLARY: Final = 512
_RECEIVE_FLAGS: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0) | getattr(socket, "MSG_DONTWAIT", 0)

_Answer: TypeAlias = tuple[bytes, list[tuple[int, int, bytes]], int, Any]
# One file descriptor, or nothing once it is closed. Its owners share the list: only one of them can pop the number.
_Slot: TypeAlias = list[int]


class Arrivals:
    """Data and file descriptors so far. `close` closes what `take` did not hand out, also after an interrupt.

    Attributes
    ----------
    handles : list of OwnedHandle
        The descriptors of SCM_RIGHTS, in order. A pidfd is closed when it comes.
    """

    def __init__(self) -> None:
        self._answers: list[_Answer] = []
        self._slots: list[tuple[list[_Slot], list[_Slot]]] = []  # of each answer: of SCM_RIGHTS, and unasked for
        self.handles: list[OwnedHandle] = []

    @property
    def begun(self) -> bool:
        """Whether at least one byte came."""
        for data, *_ in self._answers:  # noqa: SIM110 - a generator that Ctrl-C closes would swallow it
            if data:
                return True
        return False

    def receive(self, sock: socket.socket, size: int, max_fds: int) -> tuple[bytes, bool, int]:
        """Call recvmsg once, with room for `size` bytes and `max_fds` file descriptors.

        Returns
        -------
        tuple of bytes, bool and int
            The data, whether ancillary data came with it, and the flags.
        """
        if sys.platform == "win32":
            raise NotImplementedError
        space = socket.CMSG_SPACE(max_fds * array.array("i").itemsize) + _OTHER_ANCILLARY
        # One call of C from the kernel's answer to its owner: Ctrl-C comes before or after it.
        self._answers.extend(map(sock.recvmsg, (size,), (space,), (_RECEIVE_FLAGS,)))
        self._sort()
        rights, unasked = self._slots[-1]
        _close(unasked)
        self.handles += [_share(slot) for slot in rights]
        data, ancillary, flags, _ = self._answers[-1]
        return data, bool(ancillary), flags

    def take(self) -> list[OwnedHandle]:
        """Hand out the descriptors: the handles own them from now on."""
        # In this order: an answer without slots would be sorted again, and its numbers closed a second time.
        self._answers.clear()
        self._slots.clear()
        return self.handles

    def close(self) -> None:
        """Close what was not handed out; harmless the second time."""
        self._sort()
        for rights, unasked in self._slots:
            _close(rights + unasked)

    def _sort(self) -> None:
        """Give each number of each answer a slot, once."""
        for answer in self._answers[len(self._slots) :]:
            self._slots.append((_slots(answer, _SCM_RIGHTS), _slots(answer, _SCM_PIDFD)))


def _slots(answer: _Answer, kind: int) -> list[_Slot]:
    numbers = array.array("i")
    for level, each, content in answer[1]:
        if level == socket.SOL_SOCKET and each == kind:
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return [[number] for number in numbers if number >= 0]  # SCM_PIDFD is an error code where the sender has ended


def _share(slot: _Slot) -> OwnedHandle:
    """An `OwnedHandle` of the slot's number; not made of the number, which would have two owners for a moment."""
    handle = OwnedHandle.__new__(OwnedHandle)
    handle._slot = slot
    return handle


def _close(slots: Sequence[_Slot]) -> None:
    while any(slots):
        with contextlib.suppress(OSError):  # other code closed that number: the rest must be closed all the same
            # One call of C from the lists to the kernel: Ctrl-C comes before or after it.
            deque(map(os.close, map(list.pop, filter(None, slots))), maxlen=0)
