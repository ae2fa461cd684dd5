"""The process that runs checks for `runner`.

Its command is ``python -m xsem_conformance.run.worker IN OUT DEVICE EXPORTER PATIENCE PARENT [IMPORTER UUID]``.

The process reads one key of a case per line, and writes one line of JSON after each case. If it hangs or crashes, the
runner kills it, reports it, and starts another process.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import time
import traceback
from typing import Any, TextIO

import xsem
from xsem.errors import BadArgumentError, UnsupportedError, WrongDeviceError, XsemError
from xsem.facade.discovery import exporter_for
from xsem.plugins import registry
from xsem.spi import ImportFailure
from xsem_conformance import backend_code
from xsem_conformance.case.context import CaseContext
from xsem_conformance.case.endings import end_with
from xsem_conformance.case.quirks import measure
from xsem_conformance.case.refusals import refuses
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.outcomes import BlockedError, Case, NotExaminedError, Outcome
from xsem_conformance.suite import all_checks

__all__ = ["main"]

REFUSAL = "refusal:"
QUIRKS = "quirks"


def main(
    keys: TextIO, answers: TextIO, device: str, exporter: str, patience_s: float,
    importer: tuple[str, str] | None = None,
) -> int:
    """Answer each key until the end of `keys`.

    Parameters
    ----------
    keys, answers : file
        The keys of the cases, one in a line; the answers, one line of JSON each.
    device, exporter : str
        Names as for `xsem.open_device`.
    patience_s : float
        Seconds until an expected result counts as missing.
    importer : tuple of str, optional
        The name and the UUID of the device that imports the objects of `device`.

    Returns
    -------
    int
        The exit status: 0, or 3 if the device cannot be opened.
    """
    try:
        if importer is not None:
            device = exporter_for(device, *importer)
        context = CaseContext(device, exporter, patience_s)
        about = (context.device.info, context.device.capabilities, len(xsem.devices(context.device.info.backend)) > 1,
                 backend_code.of(registry().get(context.device.info.backend)))
    except Exception as error:   # a backend may be broken in any way
        said = str(error) if isinstance(error, XsemError) else f"{type(error).__name__}: {error}"
        _say(answers, unavailable=said, usage=isinstance(error, BadArgumentError),
             other_device=isinstance(error, WrongDeviceError))
        return 3
    _say(answers, about=base64.b64encode(pickle.dumps(about)).decode())
    for line in keys:
        key = line.strip()
        began = time.monotonic()
        if key == QUIRKS:
            _say(answers, quirks=measure(context))
            continue
        outcome, detail = _run(context, key)
        _say(answers, key=key, outcome=outcome.value, detail=detail, seconds=round(time.monotonic() - began, 4))
    context.close()
    return 0


def _run(context: CaseContext, key: str) -> tuple[Outcome, str]:
    try:
        if key.startswith(REFUSAL):
            with context.fresh():
                return refuses(context, key.removeprefix(REFUSAL))
        case = Case.from_key(key)
        kind, _, plain = case.handle_type.rpartition(".")
        case = Case(case.requirement, plain, case.exporter, case.direction, kind)
        with context.fresh():
            said = all_checks()[case.requirement].run(context, case)
        return Outcome.PASS, said or ""
    except AssertionError as error:
        return Outcome.FAIL, str(error) or _where(error)
    except BlockedError as error:
        return Outcome.BLOCKED, str(error)
    except NotExaminedError as error:
        return Outcome.UNSUPPORTED, str(error)
    except ParticipantFailedError as error:
        return Outcome.ERROR, str(error)
    except (UnsupportedError, ImportFailure) as error:
        return Outcome.FAIL, f"declared, but refused: {error}"
    except XsemError as error:
        return Outcome.FAIL, f"{type(error).__name__}: {error} ({_where(error)})"
    except Exception as error:
        return Outcome.ERROR, f"{type(error).__name__}: {error} ({_where(error)})"


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "suite" in frame.filename]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{os.path.basename(last.filename)}:{last.lineno}"


def _say(answers: TextIO, **what: Any) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    end_with(int(sys.argv[6]))
    with open(int(sys.argv[1]), encoding="utf-8") as _keys, open(int(sys.argv[2]), "w", encoding="utf-8") as _answers:
        sys.exit(main(_keys, _answers, sys.argv[3], sys.argv[4], float(sys.argv[5]),
                      (sys.argv[7], sys.argv[8]) if len(sys.argv) > 8 else None))
