"""One message that a pipe sends."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from xsem.ipc import wire
from xsem.ipc.pipes.calls import PipeError, Transfer
from xsem.ipc.pipes.transit import Transit
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = ["Outgoing"]


class Outgoing:
    """A write of one message, and the duplicates of its handles. The caller enters it twice, as a `Transfer`.

    At the end of ``with``, the duplicates stay open for the peer if the message was sent. Otherwise they are closed.

    Parameters
    ----------
    handle : OwnedHandle
        The pipe, borrowed.
    transit : Transit
        The duplicates of earlier messages.
    descs, payload, numbers
        The message, as `check_nt_content` returns it.
    """

    def __init__(
        self, handle: OwnedHandle, transit: Transit, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes,
        numbers: Sequence[int | None],
    ) -> None:
        self._transit = transit
        self._kept, receipt = transit.keep([number for number in numbers if number is not None])
        copies = iter([each.fileno() for each in self._kept])
        message = wire.encode_nt(descs, [None if number is None else next(copies) for number in numbers], payload,
                                 receipt if self._kept else 0)
        self._transfer = Transfer(handle, "WriteFile", ctypes.create_string_buffer(message, len(message)))

    def __enter__(self) -> Transfer:
        return self._transfer

    def __exit__(self, *exc: object) -> None:
        self._transfer.__exit__()
        if self._transfer.code == 0:
            self._transit.sent(self._kept)
        else:
            for each in self._kept:
                each.close()

    def check(self) -> None:
        """Raise `PipeError` unless the message was sent."""
        if self._transfer.code:
            raise PipeError("WriteFile", self._transfer.code)
