"""Run cases in a process that may hang or crash. Each hang or crash affects only one case."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Self

from xsem_conformance.case.holding import TOO_SOON
from xsem_conformance.case.polling import PATIENCE_S
from xsem_conformance.outcomes import Case, Failure, Frame, NotRunError, Outcome, Result, Symptom, with_output
from xsem_conformance.run import worker
from xsem_conformance.run.frames import frames_in, shortened
from xsem_conformance.run.hangs import Hangs
from xsem_conformance.run.process import HangsError, WorkerProcess, start
from xsem_conformance.system import endings

__all__ = ["DiedError", "Workers"]

_TRIES: Final = 3
_STOPPED: Final = "the run was stopped"
_TOO_LATE: Final = "the time limit of the run was reached"


class DiedError(Exception):
    """The worker process died outside the cases. The message is the cause of the death."""


@dataclass(frozen=True)
class _Lost:
    """The end of a process that hung or died in place of an answer."""

    why: str
    printed: str
    failure: Failure


class Workers:
    """Run cases one after the other in a worker process, and replace a killed process."""

    # An object is a context manager. The exit of the context ends the process.

    def __init__(
        self, device: str, exporter: str, patience_s: float = PATIENCE_S, *, hangs: Hangs | None = None,
        ends_at: float | None = None, portable: bool = False,
    ) -> None:
        self._names = (device, exporter, patience_s)
        self._portable = portable
        self._hangs = hangs or Hangs(patience_s, most=0)
        self._ends_at = ends_at
        self._worker: WorkerProcess | None = None
        self._package = ""
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # After an exception, for example from Ctrl-C, the worker may hang in a case.
        self._renew(grace_s=0 if exc[0] is not None or self._stopped else 10)

    def stop(self) -> None:
        """End the current case, from another thread. This case and each later case count as not run."""
        self._stopped = True
        current = self._worker
        if current is not None:
            current.process.kill()

    def _ready(self) -> WorkerProcess:
        if self._worker is None:
            self._worker, about = start(*self._names, portable=self._portable)
            self._package = about.package
        return self._worker

    def _ask(self, key: str, deadline_s: float) -> dict[str, Any] | _Lost:
        """Return the answer to a request."""
        left = float("inf") if self._ends_at is None else self._ends_at - time.monotonic()
        if self._stopped or left <= 0:
            raise NotRunError(_STOPPED if self._stopped else _TOO_LATE)
        current = self._ready()
        current.ask(key, {} if key == worker.QUIRKS else self._hangs.skipped())
        why = hung_in = stack = said = ""
        try:
            answer = current.answer(min(deadline_s, left), None if key == worker.QUIRKS else self._hangs)
            if answer is not None:
                return answer
        except HangsError as error:
            if self._ends_at is not None and time.monotonic() >= self._ends_at:
                self._renew(grace_s=0)
                raise NotRunError(_TOO_LATE) from error
            why, hung_in, said = str(error) if error.slow else f"hangs: {error}", error.call, current.tail()
            stack = current.stacks(of_all=hung_in != "" and not hung_in.startswith("device"))
        except BaseException:
            # Ctrl-C, or the deadline of a test runner. The outstanding answer must not reach a later request.
            self._renew(grace_s=0)
            raise
        self._worker = None
        status = current.close(grace_s=0 if why else 5)
        died = not why
        if self._stopped:
            current.forget()
            raise NotRunError(_STOPPED)
        if died:
            why, said, stack = endings.death(status), current.tail(), current.stacks(of_all=False)
        elif hung_in:
            self._hangs.hung(hung_in, key)
        stack = shortened(stack)
        calls, first, left_out = current.log.calls()
        current.forget()
        return _Lost(why, said, Failure(calls, first, left_out, frames_in(stack, self._package), stack, hung_in, died))

    def run(self, case: Case, deadline_s: float, *, spoils: bool = False) -> Result:
        """Run one case, and again if only its time was too short."""
        tries = 1
        while (result := self._result(case, case.key, deadline_s)).seen.endswith(TOO_SOON) and tries < _TRIES:
            tries += 1
        if spoils:
            self._renew(grace_s=5)
        return result

    def _renew(self, grace_s: float) -> None:
        if self._worker is not None:
            last, self._worker = self._worker, None
            last.close(grace_s=grace_s)
            last.forget()

    def refusal(self, capability: str, deadline_s: float = 30) -> Result:
        """Call an undeclared capability of the device. The outcome is UNSUPPORTED if xsem refuses the call."""
        return self._result(Case(capability), worker.REFUSAL + capability, deadline_s)

    def quirks(self, deadline_s: float = 120) -> dict[str, Any]:
        """Return the measurements of `xsem_conformance.case.quirks`. After a hang, the only key is "problem"."""
        answer = self._ask(worker.QUIRKS, deadline_s)
        if not isinstance(answer, _Lost):
            return dict(answer["quirks"])
        said = with_output(answer.why, answer.printed)
        if answer.failure.died:
            raise DiedError(said)
        return {"problem": said}

    def _result(self, case: Case, key: str, deadline_s: float) -> Result:
        began = time.monotonic()
        answer = self._ask(key, deadline_s)
        if isinstance(answer, _Lost):
            return Result(case, Outcome.FAIL, answer.why, round(time.monotonic() - began, 3), answer.failure,
                          printed=answer.printed)
        if answer["refused"]:
            # An operation that the case appended before the refused call may still be pending.
            if any(each.startswith(("device: append", "device: prepared")) for each in answer["returned"]):
                self._renew(grace_s=0)
            raise NotRunError(answer["refused"])
        self._hangs.ended(answer["returned"])
        result = Result(case, Outcome(answer["outcome"]), answer["seen"], answer["seconds"])
        if result.outcome in (Outcome.FAIL, Outcome.ERROR):
            if self._worker is not None:
                calls, first, left_out = self._worker.log.calls()
                symptom = answer["symptom"]
                result.failure = Failure(
                    calls, first, left_out, tuple(Frame(**each) for each in answer["frames"]),
                    symptom=symptom and Symptom(symptom), side=answer["side"],
                    handle_types=tuple(answer["handle_types"]))
            # A failed case may leave pending waits. Pending waits would block the next case.
            self._renew(grace_s=0)
        return result
