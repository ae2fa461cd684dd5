"""Run one case in this process, so that a debugger can follow it."""

from __future__ import annotations

import faulthandler
import sys
import tempfile
import traceback

from xsem.cli.text import printable
from xsem.plugins import registry
from xsem_conformance import backend_code
from xsem_conformance.case.context import CaseContext
from xsem_conformance.outcomes import UNOBSERVED, Case, Outcome
from xsem_conformance.requirements import load
from xsem_conformance.run.call_log import SIZE, CallLog
from xsem_conformance.run.recorder import Recorder
from xsem_conformance.run.session import chosen, survey
from xsem_conformance.run.worker import Judged, judged, run_check
from xsem_conformance.suite import all_checks

__all__ = ["debug"]


def _tell(call: str) -> None:
    print(printable(call), file=sys.stderr, flush=True)


def debug(device: str, exporter: str, key: str, patience_s: float, *, portable: bool = False) -> int:
    """Run a case in this process. Print each call before it is made, and the whole traceback."""
    # A case that hangs does not end. After the deadline of the case, the function prints the stacks of all threads
    # repeatedly.
    found = survey(device, exporter, list(load().requirements.values()), patience_s, portable=portable)
    [planned] = chosen(found.cases, [key])
    why = found.unavailable or planned.undeclared or planned.inapplicable or planned.blocked
    if why:
        print(f"the case does not run on {device}: {why}")
        return 3
    checked = all_checks()[planned.case.requirement]
    print(f"{planned.requirement.id}, {planned.requirement.level}: {planned.requirement.text}", file=sys.stderr)
    with tempfile.TemporaryFile() as calls:
        calls.truncate(SIZE)
        backend = registry().get(device.partition(":")[0])
        recorder = Recorder(CallLog(calls.fileno()), tell=_tell)
        recorder.attach(backend)
        context = CaseContext(device, found.exporting, patience_s, portable=portable)
        recorder.new_case()
        faulthandler.dump_traceback_later(checked.deadline_s, repeat=True)
        try:
            ended = Judged(Outcome.PASS, run_check(context, Case.from_key(key)))
        except Exception as error:
            traceback.print_exception(error)
            ended = judged(error, backend_code.package_of(backend))
        finally:
            faulthandler.cancel_dump_traceback_later()
            recorder.detach()
        print(f"{ended.outcome.value} {key}{f': {ended.seen}' if ended.seen else ''}")
        context.close()
    return 0 if ended.outcome is Outcome.PASS else 3 if ended.outcome in {Outcome.BLOCKED, *UNOBSERVED} else 1
