"""The messages that a pipe receives, as bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from xsem.errors import BadArgumentError
from xsem.ipc import wire
from xsem.ipc.windows.calls import MORE_DATA, OverlappedCall, PipeError, give_receipt
from xsem.types import OwnedHandle

__all__ = ["Incoming"]


class Incoming:
    """The messages of a pipe, in order. One call at a time uses it."""

    def __init__(self, handle: OwnedHandle) -> None:
        self._handle = handle   # borrowed
        # After an interrupt behind its end, the next call gets its message.
        self._read: OverlappedCall | None = None
        self._longer = False

    def begin(self) -> OverlappedCall:
        """Return a read, to be started."""
        self._read = OverlappedCall(self._handle, "ReadFile", ctypes.create_string_buffer(wire.MAX_NT_MESSAGE_BYTES))
        return self._read

    def finished(self) -> bytes | None:
        """Return the message of the read that has ended; it stays here until `drop`. None: another read is needed."""
        read = self._read
        if read is None:
            return None
        if not read.cancelled and read.code != MORE_DATA:
            if read.code == 0 and not self._longer:
                return read.data
            self._read = None
            if read.code:   # the rest of a longer message, if any, is still in the pipe
                raise PipeError("ReadFile", read.code)
            self._longer = False
            raise BadArgumentError(f"the message is longer than {wire.MAX_NT_MESSAGE_BYTES} bytes",
                                   reason="message_truncated")
        if not read.cancelled:
            self._longer = True   # the next read continues the same message, which is too long, and is refused
        self._read = None
        return None

    def drop(self, receipts: Sequence[OwnedHandle]) -> None:
        """Drop the message, and count it on the sender's semaphores for receipts."""
        # In this order: after the receipt, the sender closes the handles, so the message must not be received again.
        self._read = None
        for each in receipts:
            give_receipt(each.fileno())
