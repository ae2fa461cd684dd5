"""Handles of messages that a peer on Windows has not received yet."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

from xsem.data.file_descriptors import duplicate_fd
from xsem.data.locks import Lock
from xsem.ipc.windows.calls import count_receipts, create_receipts
from xsem.types import OwnedHandle

if sys.platform == "win32":
    from xsem.data.windows.processes import has_ended

__all__ = ["Transit", "settle_all"]

# Handles of closed pipes. They stay open until their peer has received them or has ended.
_left: Final[list[Transit]] = []
# No thread closes handles that another thread looks at. Re-entrant, because a finalizer can close a pipe.
_lock: Final = Lock()


class Transit:
    """Duplicates of the handles of sent messages, oldest first."""

    # The receiver duplicates the handles from this process, and then counts the message on a semaphore for receipts. A
    # duplicate lives until its message is counted, or until the peer has ended.
    def __init__(self, process: OwnedHandle) -> None:
        self.process = process   # of the peer; this object owns the handle
        self._messages: deque[Sequence[OwnedHandle]] = deque()
        self._receipts: OwnedHandle | None = None

    def keep(self, numbers: Sequence[int]) -> tuple[list[OwnedHandle], int]:
        """Return duplicates of the handles of a message, and the number of the semaphore for receipts."""
        if self._receipts is None:
            self._receipts = create_receipts()
        kept: list[OwnedHandle] = []
        try:
            for number in numbers:
                kept.append(duplicate_fd(number, for_driver=False))   # noqa: PERF401 - an error closes those so far
        except BaseException:
            for each in kept:
                each.close()
            raise
        return kept, self._receipts.fileno()

    def sent(self, handles: Sequence[OwnedHandle]) -> None:
        """Keep the duplicates of a message until the peer has received it."""
        if handles:   # otherwise, the message has no receipt
            self._messages.append(handles)

    def take_back(self, handles: Sequence[OwnedHandle]) -> None:
        """Close the duplicates of the last message, which was not sent."""
        with _lock:
            if self._messages and self._messages[-1] is handles:
                self._messages.pop()
            for each in handles:
                each.close()

    @property
    def peer_ended(self) -> bool:
        """Whether the peer's process has ended."""
        if sys.platform == "win32":
            return has_ended(self.process.fileno())
        raise NotImplementedError

    @property
    def messages(self) -> int:
        """Number of messages whose handles the peer has not received."""
        return len(self._messages)

    def settle(self) -> None:
        """Close the duplicates of the messages that the peer has received. If the peer has ended, close all."""
        with _lock:
            if not self._messages:
                return
            count = len(self._messages)
            if not self.peer_ended and self._receipts is not None:
                count = min(count, count_receipts(self._receipts.fileno()))
            self._close(count)

    def lost(self) -> None:
        """Close the duplicates of all messages. The peer has closed the pipe, so it cannot receive them."""
        with _lock:
            self._close(len(self._messages))

    def _close(self, count: int) -> None:
        for _ in range(count):
            for handle in self._messages.popleft():
                handle.close()

    def close(self) -> None:
        """End the use by the pipe. The duplicates of messages in transit stay open for the peer."""
        self.settle()
        if self._messages:
            _left.append(self)
        else:
            self.free()

    def free(self) -> None:
        """Close all handles."""
        self.lost()
        if self._receipts is not None:
            self._receipts.close()
        self.process.close()


def settle_all() -> None:
    """Close the duplicates of closed pipes whose peer has received them or has ended."""
    with _lock:
        for transit in _left.copy():
            transit.settle()
            if not transit.messages:
                transit.free()
                _left.remove(transit)
