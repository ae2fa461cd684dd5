"""One run of the suite: plan, run, waive, judge."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import xsem
from xsem.errors import BadArgumentError, XsemError
from xsem.types import Capabilities, DeviceInfo
from xsem_conformance import verdict, waivers
from xsem_conformance.bench import PATIENCE_S
from xsem_conformance.checks import all_checks
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.planning import Planned, Surroundings, plan
from xsem_conformance.profiles import Profile
from xsem_conformance.refusals import undeclared
from xsem_conformance.requirements import Requirement, load
from xsem_conformance.runner import UnavailableError, Workers

__all__ = ["Run", "run"]

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

    @property
    def status(self) -> int:
        """The exit status: see `verdict`."""
        return verdict.status(self.results, self.requirements, self.problems)


def run(
    device: str, exporter: str, profile: Profile, waived: Sequence[waivers.Waiver],
    progress: Callable[[Result, int, int], object], *, only: Sequence[str] = (), quirks: bool = True,
    patience_s: float = PATIENCE_S,
) -> Run:
    """Run all cases of a device; `progress` is told each result, how many are done and how many there are.

    `only` limits the run to requirements whose id begins so.

    Raises
    ------
    BadArgumentError
        `device` or `exporter` is no name of a device.
    """
    began = dt.datetime.now(dt.UTC)
    requirements = [each for each in load().requirements.values() if not only or each.id.startswith(tuple(only))]
    exported = _look(exporter)
    try:
        with xsem.open_device(device) as opened:
            info, capabilities = opened.info, opened.capabilities
    except BadArgumentError:
        raise
    except Exception as error:   # a backend may be broken in any way
        why = str(error) if isinstance(error, XsemError) else f"{type(error).__name__}: {error}"
        run_ = Run(None, exported[0] if exported else None, None, profile, requirements, began)
        run_.problems.append(f"{device} cannot be opened: {why}")
        around = Surroundings(exporter.partition(":")[0], Capabilities(), exporter_uuid=True, second_device=True)
        for planned in plan(requirements, all_checks(), Capabilities(), around):
            run_.results.append(Result(planned.case, Outcome.UNAVAILABLE, why))
        return run_
    run_ = Run(info, exported[0] if exported else None, capabilities, profile, requirements, began)
    around = Surroundings(
        exporter.partition(":")[0], exported[1] if exported else Capabilities(),
        exporter_uuid=exported is not None and exported[0].uuid is not None,
        second_device=len(xsem.devices(info.backend)) > 1)
    cases = plan(requirements, all_checks(), capabilities, around)
    asks = list(undeclared(capabilities)) if any(each.undeclared for each in cases) else []
    total = len(cases) + len(asks)
    with Workers(device, exporter, patience_s) as workers:
        for name in asks:
            run_.refusals.append(_tried(Case(name), lambda name=name: workers.refusal(name)))  # type: ignore[misc]
            progress(run_.refusals[-1], len(run_.refusals), total)
        refused = {each.case.requirement: each for each in run_.refusals}
        for planned in cases:
            run_.results.append(_result(workers, planned, refused, patience_s))
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


def _tried(case: Case, act: Callable[[], Result]) -> Result:
    try:
        return act()
    except UnavailableError as error:
        return Result(case, Outcome.UNAVAILABLE, str(error))


def _result(workers: Workers, planned: Planned, refused: dict[str, Result], patience_s: float) -> Result:
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
    return _tried(planned.case, lambda: workers.run(planned.case, deadline_s))


def _look(name: str) -> tuple[DeviceInfo, Capabilities] | None:
    try:
        with xsem.open_device(name) as device:
            return device.info, device.capabilities
    except BadArgumentError:
        raise
    except Exception:   # the cases that need it say why
        return None
