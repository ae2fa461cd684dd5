"""The process of a worker: start, requests and answers, end, output and stacks."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import pickle
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from xsem.cli.interpreter import python
from xsem.cli.questions import innermost
from xsem.types import Capabilities, DeviceInfo, SemaphoreHandleType
from xsem_conformance.case.polling import PATIENCE_S
from xsem_conformance.outcomes import with_output
from xsem_conformance.run import worker
from xsem_conformance.run.call_log import SIZE, CallLog
from xsem_conformance.run.hangs import Hangs, in_words
from xsem_conformance.system import endings, launching

__all__ = ["About", "HangsError", "UnavailableError", "WorkerProcess", "look", "start"]

_START_S: Final = 120.0
_OPEN_S: Final = 5.0
_ANSWERS_S: Final = 20.0
_TAIL: Final = 2000
_LOOK_S: Final = 0.25
"""Time between two reads of the call log of a running case."""
_SLOW_S: Final = 1.0
"""A call in flight for less time does not hang, even if the time of its case is over."""
_STACKS_S: Final = 2.0
"""Longest time for the dump of the stacks of a hanging process."""


class UnavailableError(Exception):
    """The device cannot be opened; the message is the reason, with the output of a process that died."""

    def __init__(self, why: str, *, printed: str = "", usage: bool = False, other_device: bool = False) -> None:
        super().__init__(with_output(why, printed))
        self.why = why
        self.printed = printed
        self.usage = usage                 # the name is wrong: no device has this name
        self.other_device = other_device   # the exporter is another device than the importer


@dataclass(frozen=True)
class About:
    """The description of a device, from its own process."""

    info: DeviceInfo   # as in `xsem.Device`
    capabilities: Capabilities
    second: bool   # whether the backend has another device
    package: str   # the module of the plugin: see `backend_code.package_of`
    # See `backend_code.of`. Only `look` with `with_code` sets it, because its digests read whole libraries.
    code: dict[str, Any] | None = None


class HangsError(Exception):
    """A process does not answer in time. `call` is the call in progress; empty if no call is in progress."""

    def __init__(self, message: str, call: str = "", *, slow: bool = False) -> None:
        super().__init__(message)
        self.call = call
        self.slow = slow   # the calls return, but the case needs more time than it has


class WorkerProcess:
    """One process, the pipes to it, the log of its calls, and the files with its output and its stacks."""

    def __init__(
        self, device: str, exporter: str, patience_s: float, importer: DeviceInfo | None = None, *,
        portable: bool = False,
    ) -> None:
        their_requests, self._requests = os.pipe()
        answers, their_answers = os.pipe()
        with contextlib.ExitStack() as files:
            self._said, self._stacks = (files.enter_context(launching.Output()) for _ in range(2))
            calls = files.enter_context(tempfile.TemporaryFile())
            calls.truncate(SIZE)
            self.log = CallLog(calls.fileno())
            given = launching.inherited([their_requests, their_answers, calls.fileno(), self._stacks.file.fileno()])
            try:
                self.process = launching.start(
                    [*python(), "-m", worker.__name__, *map(str, given), device, exporter,
                     str(patience_s), str(os.getpid()), *(["portable"] if portable else _told(importer))],
                    given, self._said)
            finally:
                os.close(their_requests)
                os.close(their_answers)
            self._group, self._answers = launching.Group(self.process), launching.Answers(answers)
            calls.close()
            self._files = files.pop_all()
        self._text = b""

    def ask(self, key: str, skipped: Mapping[str, str], **more: Any) -> None:
        """Send a request: the key of a case, the calls that the case must not make, and further fields."""
        request = json.dumps({"key": key, "skipped": skipped, **more}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, request)

    def answer(self, timeout_s: float, hangs: Hangs | None = None) -> dict[str, Any] | None:
        """Return the next answer, or None if the process has ended."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._text:
            left = deadline - time.monotonic()
            if left <= 0:
                call, seconds = self._in_flight()
                if call and seconds < min(_SLOW_S, timeout_s / 2):
                    raise HangsError(f"too slow: no result after {timeout_s:g} s; its calls return, {self._slowest()}",
                                     slow=True)
                inside = f": {in_words(call)} does not return" if call else ""
                raise HangsError(f"no result after {timeout_s:g} s{inside}", call)
            part = self._answers.receive(min(left, _LOOK_S))
            if part is None:
                call, seconds = self._in_flight()
                limit = hangs.limit_s(call) if call and hangs is not None else None
                if limit is not None and seconds > limit:
                    raise HangsError(f"{in_words(call)} does not return within {limit:g} s", call)
                continue
            if not part:
                return None
            self._text += part
        line, _, self._text = self._text.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _slowest(self) -> str:
        returned = [(each.seconds, each.name) for each in self.log.calls()[0] if each.seconds is not None]
        if not returned:
            return "none of them within the log"
        seconds, call = max(returned)
        return f"the slowest of the log is {in_words(call)} with {seconds:.3f} s"

    def _in_flight(self) -> tuple[str, float]:
        return self.log.in_flight() or ("", 0.0)

    def tail(self) -> str:
        """Return the end of the output of the worker and of its exporter."""
        return _read(self._said, -_TAIL)

    def stacks(self, *, of_all: bool) -> str:
        """Return the stacks of the process. With `of_all`, return also the stacks of the other participants."""
        # A hanging process writes its stacks after a signal. A crashed process has already written its stacks.
        if self.process.poll() is None:
            before = self._said.size()
            self._group.ask_for_stacks(of_all=of_all)
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
        self._group.kill()
        status = self.process.wait()
        self._answers.close()
        return status

    def forget(self) -> None:
        """Close the log and the files."""
        self.log.close()
        self._files.close()


def _read(file: launching.Output, start: int = 0) -> str:
    """Return the text of a file from a position on; a negative position counts from the end."""
    size = file.size()
    begin = max(0, size + start) if start < 0 else start
    return file.read(begin, size - begin).decode(errors="replace").strip()


def _written(file: launching.Output, before: int = 0) -> None:
    """Wait until a file has grown and no longer grows."""
    deadline, size = time.monotonic() + _STACKS_S, before
    while time.monotonic() < deadline:
        time.sleep(0.05)
        now = file.size()
        if now == size and now > before:
            return
        size = now


def _told(importer: DeviceInfo | None) -> list[str]:
    return [] if importer is None or importer.uuid is None else [importer.id, importer.uuid.hex]


def start(
    device: str, exporter: str, patience_s: float, importer: DeviceInfo | None = None, *, portable: bool = False
) -> tuple[WorkerProcess, About]:
    """Start a process, and wait until it has opened the device."""
    # The import of the plugin and the opening may each take `patience_s`, but a short patience counts as 5 s.
    started = WorkerProcess(device, exporter, patience_s, importer, portable=portable)
    doing, limit_s = "its start", _START_S
    try:
        while (first := started.answer(limit_s)) is not None and "doing" in first:
            doing, limit_s = first["doing"], max(patience_s, _OPEN_S) + launching.MORE_S
    except HangsError:
        stack = innermost(started.stacks(of_all=False))
        first = {"unavailable": f"{doing} does not end within {limit_s:g} s (--patience){stack}"}
    except BaseException:
        started.close(grace_s=0)
        started.forget()
        raise
    if first is None or "unavailable" in first:
        # The process prints the reason at its exit, after it has closed the pipe.
        status = started.close(grace_s=5 if first is None else 0)
        died = f"{doing}: {endings.death(status)}{innermost(started.stacks(of_all=False))}"
        printed = started.tail()
        started.forget()
        if first is None:
            raise UnavailableError(died, printed=printed)
        raise UnavailableError(first["unavailable"] or died, usage=bool(first.get("usage")),
                               other_device=bool(first.get("other_device")))
    return started, About(*pickle.loads(base64.b64decode(first["about"])))  # noqa: S301 - our own process wrote it


def look(
    device: str, importer: DeviceInfo | None = None, exports: Iterable[SemaphoreHandleType] = (), *,
    with_code: bool = False, patience_s: float = PATIENCE_S,
) -> About:
    """Ask a device in a separate process for its description."""
    # `importer` imports the objects of `device`: see `xsem.facade.discovery.exporter_for`. It imports the types
    # `exports`, and `device` must create a semaphore of one of these types that it exports.
    looked, about = start(device, device, patience_s, importer)
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
