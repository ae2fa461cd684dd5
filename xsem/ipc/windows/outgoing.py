"""One message that a pipe sends."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from xsem.ipc import wire
from xsem.ipc.windows.calls import OverlappedCall, PipeError
from xsem.ipc.windows.transit import Transit
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = ["Outgoing"]


class Outgoing:
    """A write of one message, and the duplicates of its handles, which stay open for the peer if it was sent."""

    # `payload` and `numbers` are those of `check_nt_content`.

    def __init__(
        self, handle: OwnedHandle, transit: Transit, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes,
        numbers: Sequence[int | None],
    ) -> None:
        self._transit = transit
        self._kept, receipt = transit.keep([number for number in numbers if number is not None])
        copies = iter([each.fileno() for each in self._kept])
        message = wire.encode_nt(descs, [None if number is None else next(copies) for number in numbers], payload,
                                 receipt if self._kept else 0)
        self._transfer = OverlappedCall(handle, "WriteFile", ctypes.create_string_buffer(message, len(message)))

    def __enter__(self) -> OverlappedCall:
        # Before the write: the receipt of a message that is not noted would count for a later one.
        self._transit.sent(self._kept)
        return self._transfer

    def __exit__(self, *exc: object) -> None:
        self._transfer.close()
        if self._transfer.code != 0:
            self._transit.take_back(self._kept)

    def check(self) -> None:
        """Raise `PipeError` unless the message was sent."""
        if self._transfer.code:
            raise PipeError("WriteFile", self._transfer.code)
