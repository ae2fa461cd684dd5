"""What was asked for, as both processes know it, and the notes that they pass."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import Any, Self

from xsem import ipc
from xsem.errors import BadArgumentError, XsemError
from xsem.types import SemaphoreHandleType

__all__ = ["PeerError", "Plan", "hear", "say"]


class PeerError(XsemError):
    """The compute process failed; `reason` is the one that it gives."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of ``xsem demo``."""

    device: str
    exporter: str
    binary: bool
    without_wait: bool
    frames: int
    width: int
    height: int
    timeout_s: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns, RGBA."""
        return (self.height, self.width, 4)

    @property
    def type(self) -> SemaphoreHandleType:
        """What the two processes synchronise with."""
        return SemaphoreHandleType.OPAQUE_FD if self.binary else SemaphoreHandleType.TIMELINE_SEMAPHORE_FD

    def drawn(self, frame: int) -> int | None:
        """The timeline's value when `frame` is drawn; None for a binary semaphore."""
        return None if self.binary else 2 * frame + 1

    def filtered(self, frame: int) -> int | None:
        """The timeline's value when `frame` is filtered."""
        return None if self.binary else 2 * frame + 2

    def to_json(self) -> str:
        """For the other process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """In the other process."""
        return cls(**json.loads(text))


def say(sock: socket.socket, **note: Any) -> None:
    """Pass a note to the other process."""
    ipc.send(sock, payload=json.dumps(note).encode())


def hear(sock: socket.socket, timeout_s: float) -> dict[str, Any]:
    """Wait for the other process's next note.

    Raises
    ------
    PeerError
        It says that it failed, or it has ended.
    """
    try:
        with ipc.receive(sock, timeout_s=timeout_s) as message:
            note: dict[str, Any] = json.loads(message.payload)
    except BadArgumentError as error:
        if error.reason != "peer_closed":
            raise
        raise PeerError("the other process has ended", reason=error.reason) from error
    except ConnectionResetError as error:
        raise PeerError("the other process has ended", reason="peer_closed") from error
    if "failed" in note:
        raise PeerError(note["failed"], reason=note["reason"])
    return note
