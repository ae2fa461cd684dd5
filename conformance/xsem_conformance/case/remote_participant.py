"""A participant in its own process: ``python -m xsem_conformance.case.remote_participant ADDRESS DEVICE PARENT``.

A request is a message of `xsem.ipc` with descriptors and a JSON payload, ``{"operation": …, "arguments": […]}``. The
answer is ``{"result": …}`` or ``{"error": {…}}``. `RemoteParticipant` is the calling end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

import xsem
from xsem import ipc
from xsem.errors import BadArgumentError, XsemError
from xsem.types import MemoryDesc, SemaphoreDesc
from xsem_conformance.case.participant import OPERATIONS, LocalParticipant
from xsem_conformance.outcomes import BrokenError, Symptom, symptom_of
from xsem_conformance.system import endings, participants

__all__ = ["ParticipantFailedError", "ParticipantProcess", "RemoteParticipant", "SecondFailedError", "main"]

_ANSWER_S: Final = 60.0


class ParticipantFailedError(Exception):
    """The other process reports an error, or does not answer; `reason` is the reason of that error, or empty."""

    def __init__(self, message: str, *, reason: str = "", symptom: Symptom | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.symptom = symptom


class SecondFailedError(ParticipantFailedError, BrokenError):
    """The other process has the device under test open: its failure is a failure of the device, not of the suite."""


class ParticipantProcess(Protocol):
    """The process of a participant: the part of `subprocess.Popen` that this module uses."""

    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> object: ...


class RemoteParticipant:
    """A `Participant` in another process."""

    observer: ClassVar[Callable[[str, str, Sequence[Any], Callable[[], Any]], Any] | None] = None
    """Makes the requests of all participants. The arguments are the role, the operation, its arguments, the request."""
    launch: ClassVar[Callable[[str], tuple[participants.Channel, ParticipantProcess]]] = staticmethod(
        lambda device: participants.launch(__name__, device))
    """Starts a process for a device; returns the connection to the process, and the process."""

    def __init__(
        self, device: str, role: str = "exporter", failure: type[ParticipantFailedError] = ParticipantFailedError
    ) -> None:
        self.device = device
        self.role = role
        self._failure = failure
        self._channel, self._process = type(self).launch(device)

    def _ask(self, operation: str, *arguments: Any, descs: Sequence[SemaphoreDesc | MemoryDesc] = ()) -> Any:
        observer = type(self).observer
        if observer is None:
            return self._request(operation, arguments, descs)
        return observer(self.role, operation, arguments, lambda: self._request(operation, arguments, descs))

    def _request(
        self, operation: str, arguments: Sequence[Any], descs: Sequence[SemaphoreDesc | MemoryDesc]
    ) -> Any:
        try:
            asked = json.dumps({"operation": operation, "arguments": arguments})
            ipc.send(self._channel, *descs, payload=asked.encode())
            message = ipc.receive(self._channel, timeout_s=_ANSWER_S)
        except XsemError as error:
            raise self._failure(f"the {self.role}'s process does not answer: {error}") from error
        answer = json.loads(message.payload)
        if "error" in answer:
            message.close()
            said = answer["error"]
            symptom = said.get("symptom")
            raise self._failure(f"{self.role}, {operation}: {said['message']}", reason=said["reason"],
                                symptom=symptom and Symptom(symptom))
        given = [*message.semaphores, *message.memories]
        if given:
            return (answer["result"], given[0]) if answer["result"] is not None else given[0]
        return answer["result"]

    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("about")
        return found

    def new_list(self) -> int:
        return int(self._ask("new_list"))

    def create_semaphore(self, type: str, importer: str | None, initial_value: int = 0) -> tuple[int, SemaphoreDesc]:
        number, desc = self._ask("create_semaphore", type, importer, initial_value)
        return number, desc

    def export_semaphore(self, semaphore: int, importer: str | None) -> SemaphoreDesc:
        desc: SemaphoreDesc = self._ask("export_semaphore", semaphore, importer)
        return desc

    def export_read_only(self, semaphore: int, importer: str | None) -> SemaphoreDesc:
        desc: SemaphoreDesc = self._ask("export_read_only", semaphore, importer)
        return desc

    def import_semaphore(self, desc: SemaphoreDesc) -> int:
        return int(self._ask("import_semaphore", descs=[desc]))

    def create_memory(self, type: str, size: int, importer: str | None,
                      dedicated: bool = False) -> tuple[int, MemoryDesc]:
        number, desc = self._ask("create_memory", type, size, importer, dedicated)
        return number, desc

    def export_memory(self, memory: int, importer: str | None) -> MemoryDesc:
        desc: MemoryDesc = self._ask("export_memory", memory, importer)
        return desc

    def import_memory(self, desc: MemoryDesc) -> int:
        return int(self._ask("import_memory", descs=[desc]))

    def wait(self, commands: int, semaphores: Sequence[int], values: Sequence[int | None],
             acquire: Sequence[int] = ()) -> None:
        self._ask("wait", commands, list(semaphores), list(values), list(acquire))

    def signal(self, commands: int, semaphores: Sequence[int], values: Sequence[int | None],
               release: Sequence[int] = ()) -> None:
        self._ask("signal", commands, list(semaphores), list(values), list(release))

    def occupy(self, commands: int, seconds: float) -> int:
        return int(self._ask("occupy", commands, seconds))

    def reached(self, event: int) -> bool:
        return bool(self._ask("reached", event))

    def write(self, commands: int, memory: int, offset: int, data: str) -> None:
        self._ask("write", commands, memory, offset, data)

    def write_noise(self, commands: int, memory: int, size: int, seed: int) -> None:
        self._ask("write_noise", commands, memory, size, seed)

    def read(self, commands: int, memory: int, offset: int, size: int) -> int:
        return int(self._ask("read", commands, memory, offset, size))

    def fetch(self, reading: int) -> str:
        return str(self._ask("fetch", reading))

    def first_difference(self, reading: int, seed: int) -> int | None:
        found = self._ask("first_difference", reading, seed)
        return None if found is None else int(found)

    def done(self, commands: int) -> bool:
        return bool(self._ask("done", commands))

    def synchronize(self, commands: int, timeout_s: float) -> None:
        self._ask("synchronize", commands, timeout_s)

    def value(self, semaphore: int) -> int:
        return int(self._ask("value", semaphore))

    def host_signal(self, semaphore: int, value: int | None) -> None:
        self._ask("host_signal", semaphore, value)

    def host_wait(self, semaphore: int, value: int | None, timeout_s: float) -> None:
        self._ask("host_wait", semaphore, value, timeout_s)

    def meets_now(self, semaphore: int, value: int | None) -> bool:
        return bool(self._ask("meets_now", semaphore, value))

    def release(self, object_: int) -> None:
        self._ask("release", object_)

    def forget(self) -> None:
        self._ask("forget")

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def ends(self, timeout_s: float) -> bool:
        """Ask the process to exit by itself; return whether it exits in time. Otherwise it still runs."""
        self._channel.close()
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End the process: wait 5 s for its exit, then kill it."""
        if not self.ends(5):
            self.kill()


def main(connection: participants.Channel, name: str) -> None:
    """Serve until the other end closes."""
    try:
        device = xsem.open_device(name)
    except XsemError as error:
        _serve(connection, None, {"reason": error.reason, "message": error.message})
        return
    with device:
        _serve(connection, LocalParticipant(device), {})


def _serve(connection: participants.Channel, participant: LocalParticipant | None, failure: dict[str, str]) -> None:
    while True:
        try:
            message = ipc.receive(connection, timeout_s=None)
        except XsemError:
            return  # the other end has closed
        with message:
            answer, descs = _answer(participant, message) if participant is not None else ({"error": failure}, [])
        try:
            ipc.send(connection, *descs, payload=json.dumps(answer).encode())
        except BadArgumentError as error:
            if error.reason != "peer_closed":
                raise
            return
        finally:
            for desc in descs:
                desc.close()


def _answer(
    participant: LocalParticipant, message: ipc.Message
) -> tuple[dict[str, Any], list[SemaphoreDesc | MemoryDesc]]:
    asked = json.loads(message.payload)
    operation = asked["operation"]
    if operation not in OPERATIONS:
        return {"error": {"reason": "unknown_operation", "message": f"no operation {operation!r}"}}, []
    try:
        result = getattr(participant, operation)(*message.semaphores, *message.memories, *asked["arguments"])
    except Exception as error:
        reason, said = (error.reason, str(error)) if isinstance(error, XsemError) else (
            "", f"{type(error).__name__}: {error}")
        return {"error": {"reason": reason, "message": said, "symptom": symptom_of(error)[0]}}, []
    if isinstance(result, tuple):
        return {"result": result[0]}, [result[1]]
    if isinstance(result, SemaphoreDesc | MemoryDesc):
        return {"result": None}, [result]
    return {"result": result}, []


if __name__ == "__main__":
    endings.end_with(int(sys.argv[3]))
    endings.dump_stacks_to(sys.stderr.fileno())
    with participants.connected(sys.argv[1]) as _connection:
        main(_connection, sys.argv[2])
