"""The options of the demo in both processes, the notes between the processes, and the device that a note describes."""

from __future__ import annotations

import json
import socket
import uuid
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeAlias

import xsem
from xsem import ipc
from xsem.cli.status import BAD_ANSWER, explain, status_of
from xsem.errors import BackendUnavailableError, BadArgumentError, XsemError, what
from xsem.types import Capabilities, DeviceInfo, MemoryHandleType, SemaphoreHandleType, SemaphoreKind

__all__ = ["Line", "PeerError", "Plan", "described", "hear", "importer_of", "opened", "say", "say_failed"]

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
    def kind(self) -> SemaphoreKind:
        """Kind of the semaphores."""
        return SemaphoreKind.BINARY if self.binary else SemaphoreKind.TIMELINE

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


def described(device: xsem.Device) -> dict[str, Any]:
    """Return what the other process needs to know of an importing device, as a note."""
    info, capabilities = device.info, device.capabilities
    return {"id": info.id, "backend": info.backend, "index": info.index, "name": info.name,
            "uuid": None if info.uuid is None else info.uuid.hex,
            "driver_uuid": None if info.driver_uuid is None else info.driver_uuid.hex,
            "semaphores": sorted(capabilities.semaphore_import), "memories": sorted(capabilities.memory_import)}


def importer_of(note: dict[str, Any]) -> tuple[DeviceInfo, Capabilities]:
    """Return the device of such a note, for `xsem.negotiate`."""
    gpu, driver = (None if note[key] is None else uuid.UUID(note[key]) for key in ("uuid", "driver_uuid"))
    return (DeviceInfo(id=note["id"], backend=note["backend"], index=note["index"], name=note["name"], uuid=gpu,
                       driver_uuid=driver),
            Capabilities(semaphore_import=frozenset(map(SemaphoreHandleType, note["semaphores"])),
                         memory_import=frozenset(map(MemoryHandleType, note["memories"]))))


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
