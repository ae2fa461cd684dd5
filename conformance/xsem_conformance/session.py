"""One run of the suite: plan, run, waive, judge."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from xsem.types import Capabilities, DeviceInfo
from xsem_conformance import verdict, waivers
from xsem_conformance.checks import all_checks
from xsem_conformance.context import PATIENCE_S
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.planning import Planned, Surroundings, plan
from xsem_conformance.profiles import Profile
from xsem_conformance.refusals import undeclared
from xsem_conformance.requirements import Requirement, load
from xsem_conformance.runner import About, UnavailableError, Workers, look

__all__ = ["Run", "Survey", "refusal", "result", "run", "survey"]

_LEAST_S: Final = 3.0


@dataclass
class Run:
    """What a run found out.

    Attributes
    ----------
    device, exporter : DeviceInfo or None
        None where it could not be opened.
    results : list of Result
        One for each case.
    refusals : list of Result
        One for each capability that is not declared: UNSUPPORTED where the driver refuses it. They decide what comes
        of the cases that need it, and only through these the verdict: a waiver of the cases is enough.
    problems : list of str
        What is wrong with the run beside its cases: waivers, capabilities that the profile needs.
    code : dict or None
        Of which code the verdict is: see `report.code.of`.
    """

    device: DeviceInfo | None
    exporter: DeviceInfo | None
    capabilities: Capabilities | None
    profile: Profile
    requirements: Sequence[Requirement]
    began: dt.datetime
    results: list[Result] = field(default_factory=list)
    refusals: list[Result] = field(default_factory=list)
    quirks: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    code: dict[str, str] | None = None

    @property
    def status(self) -> int:
        """The exit status: see `verdict`."""
        return verdict.status(self.results, self.requirements, self.problems)


@dataclass(frozen=True)
class Survey:
    """What there is to be run: a device and an exporter, as far as they can be opened, and the cases.

    Attributes
    ----------
    unavailable : str
        Why the device cannot be opened; then its `capabilities` are None, and `cases` those of one that declares
        nothing.
    exporting : str
        The exporter, as `xsem.open_device` takes it.
    """

    device: DeviceInfo | None
    exporter: DeviceInfo | None
    capabilities: Capabilities | None
    cases: Sequence[Planned]
    unavailable: str = ""
    code: dict[str, str] | None = None
    exporting: str = ""

    @property
    def undeclared(self) -> list[str]:
        """What the driver is to be asked for, and must refuse."""
        if self.capabilities is None:
            return []
        return list(undeclared(self.capabilities))


def survey(device: str, exporter: str, requirements: Sequence[Requirement]) -> Survey:
    """Look at both devices and plan the cases.

    An `exporter` without an index stands for the device of this backend that has the UUID of `device`.

    Raises
    ------
    UnavailableError
        As in `run`.
    """
    backend = exporter.partition(":")[0]
    looked, why = _look(device)
    exported, _ = _look(exporter, looked.info if looked is not None else None)
    if looked is None:
        around = Surroundings(backend, Capabilities(), exporter_uuid=True, second_device=True)
        cases = plan(requirements, all_checks(), Capabilities(), around)
        return Survey(None, exported.info if exported else None, None, cases, why, exporting=exporter)
    around = Surroundings(
        backend, exported.capabilities if exported else Capabilities(),
        exporter_uuid=exported is not None and exported.info.uuid is not None, second_device=looked.second)
    return Survey(looked.info, exported.info if exported else None, looked.capabilities,
                  plan(requirements, all_checks(), looked.capabilities, around), code=looked.code,
                  exporting=f"{backend}:{exported.info.index}" if exported and exporter == backend else exporter)


def run(
    device: str, exporter: str, profile: Profile, waived: Sequence[waivers.Waiver],
    progress: Callable[[Result, int, int], object], *, only: Sequence[str] = (), quirks: bool = True,
    patience_s: float = PATIENCE_S,
) -> Run:
    """Run all cases of a device; `progress` is told each result, how many are done and how many there are.

    `only` limits the run to requirements whose id begins so.

    Raises
    ------
    UnavailableError
        `device` or `exporter` does not name a device (``usage``); `exporter` is another device (``other_device``).
    """
    began = dt.datetime.now(dt.UTC)
    requirements = [each for each in load().requirements.values() if not only or each.id.startswith(tuple(only))]
    found = survey(device, exporter, requirements)
    run_ = Run(found.device, found.exporter, found.capabilities, profile, requirements, began,
               code=found.code)
    if found.capabilities is None:
        run_.problems.append(f"{device} cannot be opened: {found.unavailable}")
        run_.results += [Result(each.case, Outcome.UNAVAILABLE, found.unavailable) for each in found.cases]
        return run_
    capabilities, cases = found.capabilities, found.cases
    needed = {each.undeclared for each in cases}
    asks = [each for each in found.undeclared if not only or each in needed]
    total = len(cases) + len(asks)
    with Workers(device, found.exporting, patience_s) as workers:
        for name in asks:
            run_.refusals.append(refusal(workers, name))
            progress(run_.refusals[-1], len(run_.refusals), total)
        refused = {each.case.requirement: each for each in run_.refusals}
        for planned in cases:
            run_.results.append(result(workers, planned, refused, patience_s))
            progress(run_.results[-1], len(run_.refusals) + len(run_.results), total)
        if quirks and not only:
            try:
                run_.quirks = workers.quirks()
            except UnavailableError as error:
                run_.quirks = {"problem": str(error)}
    run_.problems += waivers.apply(waived, run_.results, began.date())
    if not only:
        run_.problems += profile.lacking(capabilities)
        run_.problems += verdict.unmet(profile, requirements, run_.results)
    return run_


def refusal(workers: Workers, capability: str) -> Result:
    """What comes of asking the driver for a capability that is not declared."""
    return _tried(Case(capability), lambda: workers.refusal(capability))


def _tried(case: Case, act: Callable[[], Result]) -> Result:
    try:
        return act()
    except UnavailableError as error:
        return Result(case, Outcome.UNAVAILABLE, str(error))


def result(
    workers: Workers, planned: Planned, refused: Mapping[str, Result], patience_s: float = PATIENCE_S
) -> Result:
    """What comes of one case; `refused` is what came of asking for each capability that is not declared."""
    if planned.undeclared:
        asked = refused.get(planned.undeclared)
        if asked is not None and asked.outcome is not Outcome.UNSUPPORTED:
            unavailable = asked.outcome is Outcome.UNAVAILABLE   # it could not be asked: not the driver's fault
            return Result(planned.case, Outcome.UNAVAILABLE if unavailable else Outcome.FAIL, asked.detail)
        return Result(planned.case, Outcome.UNSUPPORTED, f"not declared: {planned.undeclared}")
    if planned.blocked:
        return Result(planned.case, Outcome.BLOCKED, planned.blocked)
    # Who has less patience with what must happen has less with what hangs.
    scale = min(1.0, patience_s / PATIENCE_S)
    deadline_s = planned.check.deadline_s * scale + _LEAST_S * (1 - scale)
    return _tried(planned.case, lambda: workers.run(planned.case, deadline_s,
                                                      spoils=planned.check.spoils))


def _look(name: str, importer: DeviceInfo | None = None) -> tuple[About | None, str]:
    """None and why where it cannot be opened: of an exporter the cases that need it say so."""
    try:
        return look(name, importer), ""
    except UnavailableError as error:
        if error.usage or error.other_device:
            raise
        return None, str(error)
