"""One run of the suite: plan the cases, run them, apply the waivers, compute the verdict."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from xsem.types import Capabilities, DeviceInfo
from xsem_conformance import baseline, verdict, waivers
from xsem_conformance.case.polling import PATIENCE_S
from xsem_conformance.case.refusals import undeclared
from xsem_conformance.outcomes import Case, NotRunError, Outcome, Result
from xsem_conformance.profiles import Profile
from xsem_conformance.requirements import Requirement, load
from xsem_conformance.run.hangs import MOST_HANGS, Hangs
from xsem_conformance.run.planning import Planned, Surroundings, no_common_type, only_portable, plan
from xsem_conformance.run.pool import Pool
from xsem_conformance.run.process import About, UnavailableError, look
from xsem_conformance.run.runner import DiedError, Workers
from xsem_conformance.suite import all_checks
from xsem_conformance.system import launching

__all__ = ["Limits", "Run", "Survey", "UnknownCaseError", "chosen", "refusal", "result", "run", "survey", "unavailable"]

_LEAST_S: Final = 3.0
_QUIRKS: Final = "quirks"


@dataclass
class Run:
    """The results of a run."""

    device: DeviceInfo | None   # None if it could not be opened
    exporter: DeviceInfo | None
    capabilities: Capabilities | None
    profile: Profile
    requirements: Sequence[Requirement]
    began: dt.datetime
    results: list[Result] = field(default_factory=list)   # one for each case
    # One for each undeclared capability: UNSUPPORTED if xsem refuses it. The result decides the outcome of the cases
    # that need the capability. The verdict contains only these cases, so a waiver of the cases is sufficient.
    refusals: list[Result] = field(default_factory=list)
    quirks: dict[str, Any] = field(default_factory=dict)
    # Problems outside the cases: waivers, capabilities that the profile needs, a device that cannot be opened, and a
    # process that died in the measurement of quirks.
    problems: list[str] = field(default_factory=list)
    code: dict[str, str] | None = None   # the identity of the tested code: see `backend_code.of`
    not_run: dict[Case, str] = field(default_factory=dict)   # the planned cases without a result, each with the reason
    seconds: float = 0.0   # so far
    partial: bool = False   # the run tried only a part of the requirements, so it does not decide the conformance
    expected: Sequence[baseline.Expected] | None = None   # the entries of the baseline; None for a run without one

    @property
    def status(self) -> int:
        """Return the exit status: see `verdict`. A run with cases in `not_run` never has the status GOOD."""
        found = verdict.status(self.results, self.requirements, self.problems)
        return verdict.NOT_TRIED if found == verdict.GOOD and self.not_run else found

    @property
    def compared(self) -> baseline.Compared | None:
        """The failures beside the baseline; None for a run without a baseline."""
        if self.expected is None:
            return None
        return baseline.compare(self.expected, self.results, [each.key for each in self.not_run])

    @property
    def unexplained(self) -> list[str]:
        """The problems that the baseline, if there is one, does not explain."""
        compared = self.compared
        return self.problems if compared is None else baseline.unexplained(
            compared, self.results, self.requirements, self.problems, self.profile)

    @property
    def exit_status(self) -> int:
        """The status of the command: `status`, or with a baseline the status without the expected failures."""
        compared = self.compared
        if compared is None:
            return self.status
        found = baseline.status(compared, self.results, self.requirements, self.unexplained)
        return verdict.NOT_TRIED if found == verdict.GOOD and self.not_run else found

    @property
    def incomplete(self) -> str:
        """The reasons why cases were not run, in one sentence; empty for a complete run."""
        if not self.not_run:
            return ""
        reasons = "; ".join(f"{reason} ({count})" if len(set(self.not_run.values())) > 1 else reason
                            for reason, count in Counter(self.not_run.values()).most_common(3))
        return f"{len(self.not_run)} of {len(self.results) + len(self.not_run)} cases were not run: {reasons}"


@dataclass(frozen=True)
class Limits:
    """The limits of a run."""

    jobs: int = 1   # workers at once
    failures: int = 0   # of a MUST, after which no further case begins; 0 for no limit
    seconds: float | None = None   # of all cases together
    hangs: int = MOST_HANGS   # cases in a row that hang in one call, after which no case makes it; 0 for no limit


@dataclass(frozen=True)
class Survey:
    """The plan of a run: the cases, and the device and the exporter if they can be opened."""

    device: DeviceInfo | None
    exporter: DeviceInfo | None
    capabilities: Capabilities | None
    cases: Sequence[Planned]
    # The error of a device that cannot be opened. `capabilities` is then None, and `cases` are the cases of a device
    # without declared capabilities.
    missing: UnavailableError | None = None
    code: dict[str, str] | None = None
    exporting: str = ""   # the name of the exporter for `xsem.open_device`

    @property
    def unavailable(self) -> str:
        """The reason why the device cannot be opened; empty if it can."""
        return "" if self.missing is None else str(self.missing)

    @property
    def undeclared(self) -> list[str]:
        """The undeclared capabilities that xsem must refuse."""
        if self.capabilities is None:
            return []
        return list(undeclared(self.capabilities))


def survey(
    device: str, exporter: str, requirements: Sequence[Requirement], patience_s: float = PATIENCE_S, *,
    portable: bool = False,
) -> Survey:
    """Inspect both devices and plan the cases."""
    # An `exporter` without an index selects the device of this backend with the UUID of `device`. With `portable`, the
    # exporter may be any device. The opening of each device may take `patience_s`.
    backend = exporter.partition(":")[0]
    try:
        looked = look(device, with_code=True, patience_s=patience_s)
    except UnavailableError as error:
        if error.usage:
            raise
        return _of_missing(error, exporter, requirements, patience_s)
    exported = _exporter(exporter, looked, patience_s, portable=portable)
    around = Surroundings(backend, exported.capabilities, exporter_uuid=exported.info.uuid is not None and not portable,
                          second_device=looked.second, portable=portable)
    return Survey(looked.info, exported.info, looked.capabilities,
                  plan(requirements, all_checks(), looked.capabilities, around), code=looked.code,
                  exporting=f"{backend}:{exported.info.index}" if exporter == backend else exporter)


def _exporter(name: str, importer: About, patience_s: float, *, portable: bool) -> About:
    imports = importer.capabilities.semaphore_import
    try:
        if portable:
            found = look(name, None, (each for each in imports if each.portable), patience_s=patience_s)
            exporter = dataclasses.replace(found, capabilities=only_portable(found.capabilities))
        else:
            exporter = look(name, importer.info, imports, patience_s=patience_s)
    except UnavailableError as error:
        if error.usage or error.other_device:
            raise
        raise UnavailableError(f"the exporter {name} cannot be used: {error}") from error
    if why := no_common_type(importer.capabilities, exporter.capabilities):
        raise UnavailableError(f"the exporter {name} cannot be used: {why}")
    return exporter


def _of_missing(why: UnavailableError, exporter: str, requirements: Sequence[Requirement], patience_s: float) -> Survey:
    """Return the plan for a device that cannot be opened: the cases of a device without declared capabilities."""
    try:
        exported = look(exporter, patience_s=patience_s).info
    except UnavailableError as error:
        if error.usage:
            raise
        exported = None
    around = Surroundings(exporter.partition(":")[0], Capabilities(), exporter_uuid=True, second_device=True)
    cases = plan(requirements, all_checks(), Capabilities(), around)
    return Survey(None, exported, None, cases, why, exporting=exporter)


def run(
    device: str, exporter: str, profile: Profile, waived: Sequence[waivers.Waiver],
    progress: Callable[[Run, Result], object], *, only: Sequence[str] = (), cases: Sequence[str] = (),
    quirks: bool = True, patience_s: float = PATIENCE_S, limits: Limits = Limits(),
    expected: Sequence[baseline.Expected] | None = None,
) -> Run:
    """Run all cases of a device, call `progress` after each, and measure the quirks."""
    # The entries of `expected` do not change the results.
    # `only` (prefixes of ids) and `cases` (keys) limit the run, which then measures no quirks. An expected result
    # counts as missing after `patience_s`.
    began, clock = dt.datetime.now(dt.UTC), time.monotonic()
    requirements = [each for each in load().requirements.values() if not only or each.id.startswith(tuple(only))]
    found = survey(device, exporter, requirements, patience_s, portable=profile.portable)
    wanted = chosen(found.cases, cases)
    partial = bool(only or cases)
    run_ = Run(found.device, found.exporter, found.capabilities, profile, requirements, began, code=found.code,
               partial=partial, expected=_concerned(expected, wanted, partial=partial))
    if found.missing is not None:
        run_.problems.append(f"{device} cannot be opened: {found.missing}")
        run_.results += [unavailable(each.case, found.missing) for each in wanted]
        return run_
    run_.not_run = {each.case: "the run was ended" for each in wanted}
    waived = waivers.concerned(waived, only, cases)
    needed = {each.undeclared for each in wanted}
    asks = [each for each in found.undeclared if not partial or each in needed]
    hangs = Hangs(patience_s, limits.hangs)
    work = _Work(run_, asks, wanted, waived, progress, patience_s, limits.failures, hangs, clock)
    ends_at = None if limits.seconds is None else clock + limits.seconds
    workers = [Workers(device, found.exporting, patience_s, hangs=hangs, ends_at=ends_at, portable=profile.portable)
               for _ in range(max(1, min(limits.jobs, len(wanted))))]
    tasks: list[str | Planned] = [*asks, *wanted]
    with workers[0]:
        Pool(workers, work.act).run([*tasks, _QUIRKS] if quirks and not partial else tasks)
    run_.refusals = work.refusals()
    run_.problems += waivers.apply(waived, run_.results, began.date(), [each.key for each in run_.not_run])
    if not partial:
        run_.problems += profile.lacking(found.capabilities or Capabilities())
        if not run_.not_run:
            run_.problems += verdict.unmet(profile, requirements, run_.results)
    run_.seconds = round(time.monotonic() - clock, 3)
    return run_


def _concerned(
    entries: Sequence[baseline.Expected] | None, wanted: Sequence[Planned], *, partial: bool
) -> Sequence[baseline.Expected] | None:
    """Return the entries of a run of a part of the suite. The other entries are not unused in this run."""
    if entries is None or not partial:
        return entries
    return [each for each in entries if any(each.matches(planned.case.key) for planned in wanted)]


class UnknownCaseError(ValueError):
    """The device has no case with this key; the message names its cases of the same requirement."""


def chosen(cases: Sequence[Planned], keys: Sequence[str]) -> list[Planned]:
    """Return the cases with these keys, or all cases without keys."""
    for key in keys:
        if not any(each.case.key == key for each in cases):
            alike = [each.case.key for each in cases if each.case.requirement == key.partition("/")[0]]
            raise UnknownCaseError(f"the case {key!r} does not exist here; "
                                   + (f"cases of this requirement: {', '.join(alike)}" if alike else
                                      "a case is named ID/handle_type/exporter/direction"))
    return [each for each in cases if not keys or each.case.key in keys]


class _Work:
    """The tasks of the workers: refusals of undeclared capabilities (their names), then cases, then the quirks."""

    def __init__(
        self, run_: Run, asks: Sequence[str], cases: Sequence[Planned], waived: Sequence[waivers.Waiver],
        progress: Callable[[Run, Result], object], patience_s: float, most_failures: int, hangs: Hangs, clock: float,
    ) -> None:
        self._run = run_
        self._places = {each.case: place for place, each in enumerate(cases)}
        self._waived = waived
        self._progress = progress
        self._patience_s = patience_s
        self._most_failures = most_failures
        self._hangs = hangs
        self._clock = clock
        self._lock = threading.Lock()
        self._refused: dict[str, Future[Result]] = {name: Future() for name in asks}
        self._failures = 0
        self._levels = {each.id: each.level for each in run_.requirements}

    def act(self, workers: Workers, task: str | Planned) -> None:
        """Run one task."""
        if task == _QUIRKS:
            self._measure(workers)
            return
        if isinstance(task, str):
            self._ask(workers, task)
            return
        if why := self._too_many():
            self._skip(task.case, why)
            return
        try:
            # Workers take the refusals before the cases. The refusal of this case is therefore done or in progress.
            asked = self._refused.get(task.undeclared)
            found = result(workers, task, {} if asked is None else {task.undeclared: asked.result()}, self._patience_s)
        except NotRunError as error:
            self._skip(task.case, str(error))
            return
        with self._lock:
            self._add(found)

    def refusals(self) -> list[Result]:
        """Return the results of the finished refusals."""
        return [each.result() for each in self._refused.values() if each.done() and each.exception() is None]

    def _ask(self, workers: Workers, name: str) -> None:
        future = self._refused[name]
        try:
            future.set_result(refusal(workers, name))
        except BaseException as error:   # also Ctrl-C: another worker may wait for the future
            future.set_exception(error)
            if not isinstance(error, NotRunError):
                raise

    def _measure(self, workers: Workers) -> None:
        """Measure the quirks as the last task, but not after a limit: skipped calls would hang again."""
        why = next(iter(self._hangs.skipped().values()), "") or self._too_many()
        try:
            self._run.quirks = {"problem": f"not measured: {why}"} if why else workers.quirks()
        except DiedError as error:   # no driver may end the application's process
            self._run.quirks = {"problem": str(error)}
            self._run.problems.append(f"the measurement of quirks: {error}")
        except (NotRunError, UnavailableError) as error:
            self._run.quirks = {"problem": str(error)}

    def _too_many(self) -> str:
        return f"{self._failures} cases failed" if 0 < self._most_failures <= self._failures else ""

    def _skip(self, case: Case, why: str) -> None:
        with self._lock:
            self._run.not_run[case] = why

    def _add(self, found: Result) -> None:
        waivers.apply(self._waived, [found], self._run.began.date())
        self._run.not_run.pop(found.case, None)
        self._run.results.append(found)
        self._run.results.sort(key=lambda each: self._places[each.case])
        self._run.refusals = self.refusals()
        self._run.seconds = round(time.monotonic() - self._clock, 3)
        wrong = found.outcome in (Outcome.FAIL, Outcome.ERROR)
        self._failures += wrong and self._levels[found.case.requirement] == "MUST"
        self._progress(self._run, found)


def refusal(workers: Workers, capability: str) -> Result:
    """Call an undeclared capability of the device, and return the result."""
    return _tried(Case(capability), lambda: workers.refusal(capability))


def _tried(case: Case, act: Callable[[], Result]) -> Result:
    try:
        return act()
    except UnavailableError as error:
        return unavailable(case, error)


def unavailable(case: Case, error: UnavailableError) -> Result:
    """Return the result of a case on a device that cannot be opened."""
    return Result(case, Outcome.UNAVAILABLE, error.why, printed=error.printed)


def result(
    workers: Workers, planned: Planned, refused: Mapping[str, Result], patience_s: float = PATIENCE_S
) -> Result:
    """Run one case and return its result. `refused` holds the results of the refusals by capability."""
    if planned.undeclared:
        asked = refused.get(planned.undeclared)
        if asked is not None and asked.outcome is not Outcome.UNSUPPORTED:
            # Without an answer, the device has not failed.
            outcome = asked.outcome if asked.outcome is Outcome.UNAVAILABLE else Outcome.FAIL
            return Result(planned.case, outcome, asked.seen, printed=asked.printed)
        return Result(planned.case, Outcome.UNSUPPORTED, f"not declared: {planned.undeclared}")
    if planned.inapplicable:
        return Result(planned.case, Outcome.UNSUPPORTED, planned.inapplicable)
    if planned.blocked:
        return Result(planned.case, Outcome.BLOCKED, planned.blocked)
    # A shorter patience shortens the deadline of a check as well.
    scale = min(1.0, patience_s / PATIENCE_S)
    deadline_s = planned.check.deadline_s * scale + _LEAST_S * (1 - scale) + launching.MORE_S
    return _tried(planned.case, lambda: workers.run(planned.case, deadline_s,
                                                      spoils=planned.check.spoils))
