"""The options of the demo in both processes, and the notes between the processes."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeAlias

import xsem
from xsem import ipc
from xsem.cli.status import BAD_ANSWER, explain, status_of
from xsem.errors import BackendUnavailableError, BadArgumentError, XsemError, what
from xsem.types import MemoryHandleType, SemaphoreHandleType

__all__ = ["Line", "PeerError", "Plan", "hear", "opened", "say", "say_failed"]

Line: TypeAlias = socket.socket | ipc.Pipe   # the connection between the two processes


class PeerError(XsemError):
    """The compute process failed or has ended. `status` is the exit status of the command."""

    def __init__(self, message: str, *, status: int = BAD_ANSWER, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.status = status


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
        """Shape of a frame: rows, columns, RGBA."""
        return (self.height, self.width, 4)

    @property
    def type(self) -> SemaphoreHandleType:
        """Handle type of the semaphores."""
        if sys.platform == "win32":
            return SemaphoreHandleType.OPAQUE_WIN32 if self.binary else SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32
        return SemaphoreHandleType.OPAQUE_FD if self.binary else SemaphoreHandleType.TIMELINE_SEMAPHORE_FD

    @property
    def memory_type(self) -> MemoryHandleType:
        """Handle type of the memory."""
        return MemoryHandleType.OPAQUE_WIN32 if sys.platform == "win32" else MemoryHandleType.OPAQUE_FD

    def drawn(self, frame: int) -> int | None:
        """Return the timeline's value when `frame` is drawn; None for a binary semaphore."""
        return None if self.binary else 2 * frame + 1

    def filtered(self, frame: int) -> int | None:
        """Return the timeline's value when `frame` is filtered; None for a binary semaphore."""
        return None if self.binary else 2 * frame + 2

    def to_json(self) -> str:
        """Return the plan as text, for the other process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of `to_json`."""
        return cls(**json.loads(text))


def opened(device: str) -> xsem.Device:
    """Open a device. A driver error of this call does not count as a wrong result of the device."""
    try:
        return xsem.open_device(device)
    except XsemError as error:
        if status_of(error) != BAD_ANSWER:
            raise
        raise BackendUnavailableError(
            f"{device} cannot be opened: {error.message}", reason=error.reason, backend=error.backend, call=error.call,
            code=error.code, code_name=error.code_name, likely_causes=error.likely_causes) from error


def say(sock: Line, **note: Any) -> None:
    """Send a note to the other process."""
    try:
        ipc.send(sock, payload=json.dumps(note).encode())
    except BadArgumentError as error:
        raise _ended(error) from error


def say_failed(sock: Line, error: Exception) -> None:
    """Send this process's error and its exit status to the other process."""
    told = error if isinstance(error, XsemError) else PeerError(explain(error), reason="compute_failed")
    say(sock, failed=f"compute process: {what(told)}", reason=told.reason, causes=told.likely_causes,
        status=status_of(error))


def hear(sock: Line, timeout_s: float) -> dict[str, Any]:
    """Wait for the next note of the other process; raise the PeerError that it reports."""
    try:
        with ipc.receive(sock, timeout_s=timeout_s) as message:
            note: dict[str, Any] = json.loads(message.payload)
    except BadArgumentError as error:
        raise _ended(error) from error
    if "failed" in note:
        raise PeerError(note["failed"], reason=note["reason"], likely_causes=tuple(note["causes"]),
                        status=note["status"])
    return note


def _ended(error: BadArgumentError) -> XsemError:
    """Return PeerError for the end of the other process, and any other error as it is."""
    if error.reason != "peer_closed":
        return error
    return PeerError("the other process has ended", reason="peer_closed")
