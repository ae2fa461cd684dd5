"""The messages that a pipe receives, as bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from xsem.errors import BadArgumentError
from xsem.ipc import wire
from xsem.ipc.pipes.calls import MORE_DATA, PipeError, Transfer, give_receipts
from xsem.types import OwnedHandle

__all__ = ["Incoming"]


class Incoming:
    """The messages of a pipe, in order. One call at a time uses it.

    If a call is interrupted after its read has ended, the next call gets the message.

    Parameters
    ----------
    handle : OwnedHandle
        The pipe, borrowed.
    """

    def __init__(self, handle: OwnedHandle) -> None:
        self._handle = handle
        self._reads: list[Transfer] = []   # at most one
        self._longer = False

    def begin(self) -> Transfer:
        """Return a read, to be started."""
        self._reads[:] = [
            Transfer(self._handle, "ReadFile", ctypes.create_string_buffer(wire.MAX_NT_MESSAGE_BYTES))]
        return self._reads[0]

    def finished(self) -> bytes | None:
        """Return the message of the read that has ended. None: another read is needed.

        The message stays here until `drop`.

        Raises
        ------
        BadArgumentError
            ``message_truncated``: the message is longer than the limit. It is read as a whole.
        PipeError
        """
        if not self._reads:
            return None
        read = self._reads[0]
        if not read.cancelled and read.code != MORE_DATA:
            if read.code == 0 and not self._longer:
                return read.data
            self._reads.clear()
            if read.code:   # the rest of a longer message, if any, is still in the pipe
                raise PipeError("ReadFile", read.code)
            self._longer = False   # last: an interrupt before it costs the next message, and no rest becomes a message
            raise BadArgumentError(f"the message is longer than {wire.MAX_NT_MESSAGE_BYTES} bytes",
                                   reason="message_truncated")
        if not read.cancelled:
            self._longer = True   # the next read continues the same message
        self._reads.clear()
        return None

    def drop(self, receipts: Sequence[OwnedHandle]) -> None:
        """Drop the message, and count it on the sender's semaphores for receipts. Ctrl-C does not separate the two."""
        give_receipts([each.fileno() for each in receipts], self._reads.clear)
