"""Run cases in a process that may hang or crash: each hang or crash costs one case only."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Final, Self

from xsem.types import Capabilities, DeviceInfo
from xsem_conformance.case.polling import PATIENCE_S
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.run import worker

__all__ = ["About", "UnavailableError", "Workers", "look"]

_START_S: Final = 120.0
_TAIL: Final = 2000


class UnavailableError(Exception):
    """The device cannot be opened; the message says why.

    Attributes
    ----------
    usage : bool
        Whether no device has this name.
    other_device : bool
        Whether the exporter is another device than the importer.
    """

    def __init__(self, message: str, *, usage: bool = False, other_device: bool = False) -> None:
        super().__init__(message)
        self.usage = usage
        self.other_device = other_device


@dataclass(frozen=True)
class About:
    """The description of a device by itself.

    Attributes
    ----------
    info, capabilities
        As in `xsem.Device`.
    second : bool
        Whether the backend has another device.
    code : dict or None
        See `backend_code.of`.
    """

    info: DeviceInfo
    capabilities: Capabilities
    second: bool
    code: dict[str, str] | None = None


class _Worker:
    """One process and the pipes to it."""

    def __init__(self, device: str, exporter: str, patience_s: float, importer: DeviceInfo | None = None) -> None:
        their_keys, self._keys = os.pipe()
        self._answers, their_answers = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        try:
            # A separate session, so that the exporter's process ends with the worker.
            self.process = subprocess.Popen(  # noqa: S603 - this interpreter and this package
                [sys.executable, "-m", worker.__name__, str(their_keys), str(their_answers), device, exporter,
                 str(patience_s), str(os.getpid()), *_told(importer)],
                pass_fds=[their_keys, their_answers], stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
                start_new_session=True,
            )
        finally:
            os.close(their_keys)
            os.close(their_answers)
        self._text = b""

    def ask(self, key: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._keys, key.encode() + b"\n")

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next answer, or None if the process has ended.

        Raises
        ------
        TimeoutError
            No answer arrives in time.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError
            part = os.read(self._answers, 1 << 16)
            if not part:
                return None
            self._text += part
        line, _, self._text = self._text.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def tail(self) -> str:
        """Return the end of the output of the worker and its exporter."""
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - _TAIL))
        return self._said.read().decode(errors="replace").strip()

    def close(self, *, grace_s: float) -> int:
        """End the process; return its exit status."""
        os.close(self._keys)
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


def _told(importer: DeviceInfo | None) -> list[str]:
    return [] if importer is None or importer.uuid is None else [importer.id, importer.uuid.hex]


def _started(
    device: str, exporter: str, patience_s: float, importer: DeviceInfo | None = None
) -> tuple[_Worker, About]:
    started = _Worker(device, exporter, patience_s, importer)
    try:
        first = started.answer(_START_S)
    except TimeoutError:
        first = {"unavailable": f"it did not open in {_START_S:g} s"}
    except BaseException:
        started.close(grace_s=0)
        started._said.close()
        raise
    if first is None or "unavailable" in first:
        # The process prints the reason at its exit, after it has closed the pipe.
        status = started.close(grace_s=5 if first is None else 0)
        said = (first or {}).get("unavailable") or f"{_end(status)}; it printed:\n{started.tail()}"
        started._said.close()
        raise UnavailableError(said, usage=bool((first or {}).get("usage")),
                               other_device=bool((first or {}).get("other_device")))
    return started, About(*pickle.loads(base64.b64decode(first["about"])))  # noqa: S301 - our own process wrote it


def _end(status: int) -> str:
    return f"the process died: {signal.Signals(-status).name if status < 0 else f'status {status}'}"


def look(device: str, importer: DeviceInfo | None = None) -> About:
    """Ask a device in a separate process for its description.

    Parameters
    ----------
    device : str
        Name as for `xsem.open_device`.
    importer : DeviceInfo, optional
        The device that imports the objects of `device`: see `xsem.facade.discovery.exporter_for`.

    Returns
    -------
    About
        Info, capabilities and the identity of the code.

    Raises
    ------
    UnavailableError
        The device cannot be opened, does not answer, or is another device than the importer.
    """
    looked, about = _started(device, device, PATIENCE_S, importer)
    looked.close(grace_s=10)
    looked._said.close()
    return about


class Workers:
    """Run cases one after the other in a worker process, and replace a killed process by another.

    Use it as a context manager: its exit ends the process.

    Parameters
    ----------
    device, exporter : str
        Names as for `xsem.open_device`.
    patience_s : float
        Seconds until an expected result counts as missing.
    """

    def __init__(self, device: str, exporter: str, patience_s: float = PATIENCE_S) -> None:
        self._names = (device, exporter, patience_s)
        self._worker: _Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # After an exception, for example from Ctrl-C, the worker may hang in a case.
        self._renew(grace_s=0 if exc[0] is not None else 10)

    def _ready(self) -> _Worker:
        if self._worker is None:
            self._worker, _ = _started(*self._names)
        return self._worker

    def _ask(self, key: str, deadline_s: float) -> tuple[dict[str, Any] | None, str]:
        current = self._ready()
        current.ask(key)
        why = ""
        try:
            answer = current.answer(deadline_s)
            if answer is not None:
                return answer, ""
        except TimeoutError:
            why = f"hangs: no result after {deadline_s:g} s"
        except BaseException:
            # Ctrl-C, or the deadline of a test runner: the outstanding answer must not reach a later question.
            self._worker = None
            current.close(grace_s=0)
            current._said.close()
            raise
        status = current.close(grace_s=0 if why else 5)
        if not why:
            why = _end(status)
        said = current.tail()
        current._said.close()
        self._worker = None
        return None, why + (f"; it printed:\n{said}" if said else "")

    def run(self, case: Case, deadline_s: float, *, spoils: bool = False) -> Result:
        """Run one case.

        Parameters
        ----------
        case : Case
            The case.
        deadline_s : float
            A case that takes longer counts as hanging: the worker is killed.
        spoils : bool
            Whether the next case gets another process.

        Returns
        -------
        Result
            The result; FAIL if the process hangs or dies.

        Raises
        ------
        UnavailableError
            The device cannot be opened.
        """
        result = self._result(case, case.key, deadline_s)
        if spoils:
            self._renew(grace_s=5)
        return result

    def _renew(self, grace_s: float) -> None:
        if self._worker is not None:
            last, self._worker = self._worker, None
            last.close(grace_s=grace_s)
            last._said.close()

    def refusal(self, capability: str, deadline_s: float = 30) -> Result:
        """Call an undeclared capability of the device. The outcome is UNSUPPORTED if xsem refuses the call."""
        return self._result(Case(capability), worker.REFUSAL + capability, deadline_s)

    def quirks(self, deadline_s: float = 120) -> dict[str, Any]:
        """Return the measurements of `xsem_conformance.case.quirks`."""
        answer, why = self._ask(worker.QUIRKS, deadline_s)
        return {"problem": why} if answer is None else dict(answer["quirks"])

    def _result(self, case: Case, key: str, deadline_s: float) -> Result:
        began = time.monotonic()
        answer, why = self._ask(key, deadline_s)
        if answer is None:
            return Result(case, Outcome.FAIL, why, round(time.monotonic() - began, 3))
        if answer["outcome"] in (Outcome.FAIL, Outcome.ERROR):
            # A failed case may leave pending waits, and these would block the next case.
            self._renew(grace_s=0)
        return Result(case, Outcome(answer["outcome"]), answer["detail"], answer["seconds"])
