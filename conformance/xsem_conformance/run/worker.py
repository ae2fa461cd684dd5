"""The process that runs checks for `runner`.

Its command is ``python -m xsem_conformance.run.worker IN OUT LOG STACKS DEVICE EXPORTER PATIENCE PARENT [NAME UUID |
portable]``: both pipes, the `CallLog` and a file for stacks, as `launching.inherited` numbers them, then the other
arguments of `main`.

The process reads one request per line, and writes one line of JSON after each case. If the process hangs or crashes,
the runner ends the process, reports the failure, and starts another process.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import pickle
import sys
import time
import zlib
from dataclasses import dataclass
from typing import Any, TextIO

import xsem
from xsem.errors import BadArgumentError, UnsupportedError, WrongDeviceError, XsemError
from xsem.facade.discovery import exporter_for
from xsem.plugins import registry
from xsem.spi import ImportFailure
from xsem_conformance import backend_code
from xsem_conformance.case.context import CaseContext
from xsem_conformance.case.quirks import measure
from xsem_conformance.case.refusals import refuses
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.outcomes import (
    BlockedError,
    Case,
    Frame,
    NotDeclaredError,
    NotExaminedError,
    Outcome,
    Symptom,
    symptom_of,
)
from xsem_conformance.run.call_log import CallLog
from xsem_conformance.run.frames import frames_of, where
from xsem_conformance.run.recorder import Recorder
from xsem_conformance.suite import all_checks
from xsem_conformance.system import endings, launching

__all__ = ["Judged", "judged", "main", "run_case", "run_check"]

REFUSAL = "refusal:"
QUIRKS = "quirks"
EXPORTER = "exporter"
CODE = "code"


def main(
    requests: TextIO, answers: TextIO, log: CallLog, device: str, exporter: str, patience_s: float,
    importer: tuple[str, str] | None = None, *, portable: bool = False,
) -> int:
    """Open the device, and answer each request. Return the exit status: 3 if the device cannot be opened."""
    # A request is a line with the key of a case and the calls that the case must not make. `importer` is the name and
    # the UUID of the device that imports the objects of `device`.
    recorder = Recorder(log)
    try:
        name = device.partition(":")[0]
        if name.isidentifier():
            _say(answers, doing=f"the import of the plugin of {name!r}")
            with contextlib.suppress(XsemError):   # `open_device` raises the right error
                recorder.attach(registry().get(name))
        _say(answers, doing=f"the opening of {device}")
        if importer is not None:
            device = exporter_for(device, *importer)
        context = CaseContext(device, exporter, patience_s, portable=portable)
        backend = registry().get(context.device.info.backend)
        package = backend_code.package_of(backend)
        about = (context.device.info, context.device.capabilities, len(xsem.devices(context.device.info.backend)) > 1,
                 package)
    except Exception as error:   # a backend may be broken in any way
        said = str(error) if isinstance(error, XsemError) else f"{type(error).__name__}: {error}"
        _say(answers, unavailable=said, usage=isinstance(error, BadArgumentError),
             other_device=isinstance(error, WrongDeviceError))
        return 3
    _say(answers, about=base64.b64encode(pickle.dumps(about)).decode())
    second: CaseContext | None = None
    recorder.when_refused = context.expect_no_frees
    for line in requests:
        asked = json.loads(line)
        key, recorder.skipped = asked["key"], asked["skipped"]
        recorder.new_case()
        began = time.monotonic()
        if key == QUIRKS:
            _say(answers, quirks=measure(context))
            continue
        if key == CODE:
            _say(answers, code=backend_code.of(backend, context.device.info.index))
            continue
        if key == EXPORTER:
            _say(answers, unusable=_unusable(context, asked["types"]))
            continue
        if not _on_second(key):
            found = run_case(context, key, package)
        else:
            try:
                second = second or CaseContext(device, exporter, patience_s, portable=portable)
            except Exception as error:
                found = judged(error, package)
            else:
                recorder.when_refused = second.expect_no_frees
                found = run_case(second, key, package)
                recorder.when_refused = context.expect_no_frees
        _say(answers, key=key, **dataclasses.asdict(found), seconds=round(time.monotonic() - began, 4),
             refused=recorder.refused, returned=recorder.returned(), handle_types=recorder.handle_types())
    if second is not None:
        second.close()
    context.close()
    return 0


def _on_second(key: str) -> bool:
    """Return whether a case runs on a second driver of its process, beside the first: about half, always the same."""
    return "/" in key and zlib.crc32(key.encode()) % 2 == 1


@dataclass(frozen=True)
class Judged:
    """The end of a check, with the lines of the backend's package that led to a failure."""

    outcome: Outcome
    seen: str
    frames: tuple[Frame, ...] = ()
    symptom: Symptom | None = None
    side: str = ""


def run_case(context: CaseContext, key: str, package: str) -> Judged:
    """Run a case, or ask for a refusal."""
    try:
        if key.startswith(REFUSAL):
            with context.fresh():
                return Judged(*refuses(context, key.removeprefix(REFUSAL)))
        return Judged(Outcome.PASS, run_check(context, Case.from_key(key)))
    except Exception as error:
        return judged(error, package)


def run_check(context: CaseContext, case: Case) -> str:
    """Run the check of a case, and return its observation. An exception means that the case did not pass: `judged`."""
    kind, _, plain = case.handle_type.rpartition(".")
    with context.fresh():
        return all_checks()[case.requirement].run(context, Case(
            case.requirement, plain, case.exporter, case.direction, kind)) or ""


def judged(error: Exception, package: str) -> Judged:
    """Judge an exception of a check."""
    frames = frames_of(error, package)
    outcome, seen = _judged(error, f"{frames[-1].file}:{frames[-1].line}" if frames else where(error))
    return Judged(outcome, seen, frames, *symptom_of(error))


def _judged(error: Exception, place: str) -> tuple[Outcome, str]:
    if isinstance(error, AssertionError):
        return Outcome.FAIL, str(error) or place
    if isinstance(error, BlockedError):
        return Outcome.BLOCKED, str(error)
    if isinstance(error, NotDeclaredError):
        return Outcome.UNSUPPORTED, str(error)
    if isinstance(error, NotExaminedError):
        return Outcome.NOT_EXAMINED, str(error)
    if isinstance(error, ParticipantFailedError):
        return Outcome.ERROR, str(error)
    if isinstance(error, (UnsupportedError, ImportFailure)):
        return Outcome.FAIL, f"declared, but refused: {error}"
    outcome = Outcome.FAIL if isinstance(error, XsemError) else Outcome.ERROR
    return outcome, f"{type(error).__name__}: {error} ({place})"


def _unusable(context: CaseContext, types: list[str]) -> str:
    """Return the reason why the device creates no semaphore of these types; empty if it creates one."""
    declared = {each.value for each in context.device.capabilities.semaphore_export}
    why = ""
    for type in types:
        if type not in declared:
            continue
        try:
            number, desc = context.here.create_semaphore(type, None)
        except Exception as error:   # a backend may be broken in any way
            why = f"the device cannot create a semaphore of type {type}: {error}"
            continue
        desc.close()
        context.here.release(number)
        return ""
    return why


def _say(answers: TextIO, **what: Any) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    endings.end_with(int(sys.argv[8]))
    if sys.platform == "linux":
        from xsem_conformance.run.fork_server import serve_forks

        all_checks()   # the import of all modules that the participants need
        _work = serve_forks()
        if _work is not None:
            _work()
            sys.exit()
    _in, _out, _calls, _stacks = (launching.received(int(number), flags) for number, flags in zip(
        sys.argv[1:5], (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR), strict=True))
    endings.dump_stacks_to(_stacks)
    with open(_in, encoding="utf-8") as _requests, open(_out, "w", encoding="utf-8") as _answers:
        sys.exit(main(_requests, _answers, CallLog(_calls), sys.argv[5], sys.argv[6], float(sys.argv[7]),
                      (sys.argv[9], sys.argv[10]) if len(sys.argv) > 10 else None,
                      portable=sys.argv[9:] == ["portable"]))
