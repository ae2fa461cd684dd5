"""The process of a worker: start, requests and answers, end, output and stacks."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

from xsem.cli.interpreter import python
from xsem.types import Capabilities, DeviceInfo, SemaphoreHandleType
from xsem_conformance.case.endings import ASK_FOR_STACKS
from xsem_conformance.case.polling import PATIENCE_S
from xsem_conformance.run import worker
from xsem_conformance.run.call_log import SIZE, CallLog
from xsem_conformance.run.hangs import Hangs

__all__ = ["About", "HangsError", "UnavailableError", "WorkerProcess", "death", "look", "start"]

_START_S: Final = 120.0
_ANSWERS_S: Final = 20.0
_TAIL: Final = 2000
_LOOK_S: Final = 0.25
"""Time between two reads of the call log of a running case."""
_STACKS_S: Final = 2.0
"""Longest time for the dump of the stacks of a hanging process."""


class UnavailableError(Exception):
    """The device cannot be opened; the message is the reason.

    Attributes
    ----------
    usage : bool
        Whether the name is wrong: no device has this name.
    other_device : bool
        Whether the exporter is another device than the importer.
    """

    def __init__(self, message: str, *, usage: bool = False, other_device: bool = False) -> None:
        super().__init__(message)
        self.usage = usage
        self.other_device = other_device


@dataclass(frozen=True)
class About:
    """The description of a device, from its own process.

    Attributes
    ----------
    info, capabilities
        As in `xsem.Device`.
    second : bool
        Whether the backend has another device.
    package : str
        The module of the plugin: see `backend_code.package_of`.
    code : dict or None
        See `backend_code.of`. Only `look` with `with_code` sets the code, because its digests read whole libraries.
    """

    info: DeviceInfo
    capabilities: Capabilities
    second: bool
    package: str
    code: dict[str, Any] | None = None


class HangsError(Exception):
    """A process does not answer in time. `call` is the call in progress; empty if no call is in progress."""

    def __init__(self, message: str, call: str = "") -> None:
        super().__init__(message)
        self.call = call


class WorkerProcess:
    """One process, the pipes to it, the log of its calls, and the files with its output and its stacks."""

    def __init__(self, device: str, exporter: str, patience_s: float, importer: DeviceInfo | None = None) -> None:
        their_requests, self._requests = os.pipe()
        self._answers, their_answers = os.pipe()
        with contextlib.ExitStack() as files:
            self._said, self._stacks, calls = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            calls.truncate(SIZE)
            self.log = CallLog(calls.fileno())
            given = [their_requests, their_answers, calls.fileno(), self._stacks.fileno()]
            try:
                # A separate session, so that the exporter's process ends with the worker.
                self.process = subprocess.Popen(  # noqa: S603 - this interpreter and this package
                    [*python(), "-m", worker.__name__, *map(str, given), device, exporter,
                     str(patience_s), str(os.getpid()), *_told(importer)],
                    pass_fds=given, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
                    start_new_session=True,
                )
            finally:
                os.close(their_requests)
                os.close(their_answers)
            calls.close()
            self._files = files.pop_all()
        self._text = b""

    def ask(self, key: str, skipped: Mapping[str, str], **more: Any) -> None:
        """Send a request: the key of a case, the calls that the case must not make, and further fields."""
        request = json.dumps({"key": key, "skipped": skipped, **more}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, request)

    def answer(self, timeout_s: float, hangs: Hangs | None = None) -> dict[str, Any] | None:
        """Return the next answer, or None if the process has ended.

        Raises
        ------
        HangsError
            No answer arrives in time, or a call takes longer than `hangs` allows.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._text:
            left = deadline - time.monotonic()
            if left <= 0:
                call = self._in_flight()[0]
                inside = f": {call.replace(': ', ', ')} does not return" if call else ""
                raise HangsError(f"no result after {timeout_s:g} s{inside}", call)
            if not select.select([self._answers], [], [], min(left, _LOOK_S))[0]:
                call, seconds = self._in_flight()
                limit = hangs.limit_s(call) if call and hangs is not None else None
                if limit is not None and seconds > limit:
                    raise HangsError(f"{call.replace(': ', ', ')} does not return within {limit:g} s", call)
                continue
            part = os.read(self._answers, 1 << 16)
            if not part:
                return None
            self._text += part
        line, _, self._text = self._text.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _in_flight(self) -> tuple[str, float]:
        return self.log.in_flight() or ("", 0.0)

    def tail(self) -> str:
        """Return the end of the output of the worker and of its exporter."""
        return _read(self._said, -_TAIL)

    def stacks(self, *, of_all: bool) -> str:
        """Return the stacks of the process. With `of_all`, return also the stacks of the other participants.

        A hanging process writes its stacks after a signal. A crashed process has already written its stacks.
        """
        if sys.platform != "win32" and self.process.poll() is None and ASK_FOR_STACKS is not None:
            before = os.fstat(self._said.fileno()).st_size
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if of_all else os.kill)(self.process.pid, ASK_FOR_STACKS)   # the worker leads its group
                _written(self._stacks)
                if of_all:
                    _written(self._said, before)
                    return f"{_read(self._stacks)}\n\nin the other process:\n{_read(self._said, before)}"
        return _read(self._stacks)

    def close(self, *, grace_s: float) -> int:
        """End the process and return its exit status. Its log and files stay readable until `forget`."""
        os.close(self._requests)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=grace_s)
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        status = self.process.wait()
        os.close(self._answers)
        return status

    def forget(self) -> None:
        """Close the log and the files."""
        self.log.close()
        self._files.close()


def _read(file: IO[bytes], start: int = 0) -> str:
    """Return the text of a file from a position on; a negative position counts from the end.

    The process writes at the position of the same open file. A read must therefore not move this position.
    """
    size = os.fstat(file.fileno()).st_size
    begin = max(0, size + start) if start < 0 else start
    return _bytes_of(file, begin, size - begin).decode(errors="replace").strip()


def _bytes_of(file: IO[bytes], begin: int, count: int) -> bytes:
    if sys.platform != "win32":
        return os.pread(file.fileno(), count, begin)
    file.seek(begin)
    return file.read(count)


def _written(file: IO[bytes], before: int = 0) -> None:
    """Wait until a file has grown and no longer grows."""
    deadline, size = time.monotonic() + _STACKS_S, before
    while time.monotonic() < deadline:
        time.sleep(0.05)
        now = os.fstat(file.fileno()).st_size
        if now == size and now > before:
            return
        size = now


def _told(importer: DeviceInfo | None) -> list[str]:
    return [] if importer is None or importer.uuid is None else [importer.id, importer.uuid.hex]


def start(
    device: str, exporter: str, patience_s: float, importer: DeviceInfo | None = None
) -> tuple[WorkerProcess, About]:
    """Start a process, and wait until it has opened the device.

    Raises
    ------
    UnavailableError
        The process cannot open the device.
    """
    started = WorkerProcess(device, exporter, patience_s, importer)
    try:
        first = started.answer(_START_S)
    except HangsError:
        first = {"unavailable": f"the device did not open within {_START_S:g} s"}
    except BaseException:
        started.close(grace_s=0)
        started.forget()
        raise
    if first is None or "unavailable" in first:
        # The process prints the reason at its exit, after it has closed the pipe.
        status = started.close(grace_s=5 if first is None else 0)
        said = (first or {}).get("unavailable") or f"{death(status)}; it printed:\n{started.tail()}"
        started.forget()
        raise UnavailableError(said, usage=bool((first or {}).get("usage")),
                               other_device=bool((first or {}).get("other_device")))
    return started, About(*pickle.loads(base64.b64decode(first["about"])))  # noqa: S301 - our own process wrote it


def death(status: int) -> str:
    """Return the cause of an unexpected end of the process."""
    return f"the process died: {signal.Signals(-status).name if status < 0 else f'status {status}'}"


def look(
    device: str, importer: DeviceInfo | None = None, exports: Iterable[SemaphoreHandleType] = (), *,
    with_code: bool = False,
) -> About:
    """Ask a device in a separate process for its description.

    Parameters
    ----------
    device : str
        Name as for `xsem.open_device`.
    importer : DeviceInfo, optional
        The device that imports the objects of `device`: see `xsem.facade.discovery.exporter_for`.
    exports : iterable of SemaphoreHandleType
        The types that the importer imports. `device` must create a semaphore of one of these types that it exports.
    with_code : bool
        Whether to ask for the identity of the code.

    Returns
    -------
    About
        The description.

    Raises
    ------
    UnavailableError
        The device cannot be opened, does not answer, creates no semaphore, or is another device than the importer.
    """
    looked, about = start(device, device, PATIENCE_S, importer)
    asked = sorted(each.value for each in exports)
    why = _asked_to_create(looked, asked) if asked else ""
    if with_code:
        about = dataclasses.replace(about, code=_asked_for_code(looked))
    looked.close(grace_s=0 if why else 10)
    looked.forget()
    if why:
        raise UnavailableError(why)
    return about


def _asked_for_code(looked: WorkerProcess) -> dict[str, Any] | None:
    looked.ask(worker.CODE, {})
    try:
        return (looked.answer(_ANSWERS_S) or {}).get("code")
    except HangsError:
        return None


def _asked_to_create(looked: WorkerProcess, types: list[str]) -> str:
    looked.ask(worker.EXPORTER, {}, types=types)
    try:
        answer = looked.answer(_ANSWERS_S)
    except HangsError:
        return f"the device does not create a semaphore within {_ANSWERS_S:g} s"
    return "the process dies during the creation of a semaphore" if answer is None else str(answer["unusable"])
