"""The messages that a pipe receives, as bytes."""

from __future__ import annotations

import ctypes

from xsem.errors import BadArgumentError
from xsem.ipc import wire
from xsem.ipc.pipes.calls import MORE_DATA, PipeError, Transfer
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
        self._transfer: Transfer | None = None
        self._longer = False

    def begin(self) -> Transfer:
        """Return a read, to be started."""
        self._transfer = Transfer(self._handle, "ReadFile", ctypes.create_string_buffer(wire.MAX_NT_MESSAGE_BYTES))
        return self._transfer

    def finished(self) -> bytes | None:
        """Return the message of the read that has ended. None: another read is needed.

        Raises
        ------
        BadArgumentError
            ``message_truncated``: the message is longer than the limit. It is read as a whole.
        PipeError
        """
        transfer, self._transfer = self._transfer, None
        if transfer is None or transfer.cancelled:
            return None
        if transfer.code == MORE_DATA:   # the next read continues the same message
            self._longer = True
            return None
        if transfer.code:
            raise PipeError("ReadFile", transfer.code)
        longer, self._longer = self._longer, False
        if longer:
            raise BadArgumentError(f"the message is longer than {wire.MAX_NT_MESSAGE_BYTES} bytes",
                                   reason="message_truncated")
        return transfer.data
