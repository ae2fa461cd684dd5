"""One run of the suite: plan the cases, run them, apply the waivers, compute the verdict."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from xsem.types import Capabilities, DeviceInfo
from xsem_conformance import verdict, waivers
from xsem_conformance.case.polling import PATIENCE_S
from xsem_conformance.case.refusals import undeclared
from xsem_conformance.outcomes import Case, Outcome, Result
from xsem_conformance.profiles import Profile
from xsem_conformance.requirements import Requirement, load
from xsem_conformance.run.planning import Planned, Surroundings, plan
from xsem_conformance.run.runner import About, UnavailableError, Workers, look
from xsem_conformance.suite import all_checks

__all__ = ["Run", "Survey", "refusal", "result", "run", "survey"]

_LEAST_S: Final = 3.0


@dataclass
class Run:
    """The results of a run.

    Attributes
    ----------
    device, exporter : DeviceInfo or None
        None if it could not be opened.
    results : list of Result
        One for each case.
    refusals : list of Result
        One for each undeclared capability: UNSUPPORTED if it is refused. They decide the outcome of the cases
        that need the capability. They enter the verdict only through these cases, so a waiver of the cases is enough.
    problems : list of str
        Problems outside the cases: waivers, and capabilities that the profile needs.
    code : dict or None
        The identity of the tested code: see `backend_code.of`.
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
        """Return the exit status: see `verdict`."""
        return verdict.status(self.results, self.requirements, self.problems)


@dataclass(frozen=True)
class Survey:
    """The plan of a run: the cases, and the device and the exporter if they can be opened.

    Attributes
    ----------
    unavailable : str
        The reason why the device cannot be opened. In this case `capabilities` is None, and `cases` are those of a
        device that declares nothing.
    exporting : str
        The name of the exporter for `xsem.open_device`.
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
        """The undeclared capabilities that xsem must refuse."""
        if self.capabilities is None:
            return []
        return list(undeclared(self.capabilities))


def survey(device: str, exporter: str, requirements: Sequence[Requirement]) -> Survey:
    """Inspect both devices and plan the cases.

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
    """Run all cases of a device.

    Parameters
    ----------
    device, exporter : str
        Names as for `xsem.open_device`.
    profile : Profile
        The profile that the device must reach.
    waived : sequence of Waiver
        The known failures.
    progress : callable
        Called after each case with the result, the number of finished cases and the total.
    only : sequence of str
        Prefixes of ids: they limit the run to these requirements, and it measures no quirks.
    quirks : bool
        Whether to measure the quirks.
    patience_s : float
        Seconds until an expected result counts as missing.

    Returns
    -------
    Run
        The results. A device that cannot be opened gives the outcome UNAVAILABLE.

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
    """Call an undeclared capability of the device, and return the result."""
    return _tried(Case(capability), lambda: workers.refusal(capability))


def _tried(case: Case, act: Callable[[], Result]) -> Result:
    try:
        return act()
    except UnavailableError as error:
        return Result(case, Outcome.UNAVAILABLE, str(error))


def result(
    workers: Workers, planned: Planned, refused: Mapping[str, Result], patience_s: float = PATIENCE_S
) -> Result:
    """Run one case; return its result. `refused` holds the result for each undeclared capability."""
    if planned.undeclared:
        asked = refused.get(planned.undeclared)
        if asked is not None and asked.outcome is not Outcome.UNSUPPORTED:
            unavailable = asked.outcome is Outcome.UNAVAILABLE   # without an answer, the device has not failed
            return Result(planned.case, Outcome.UNAVAILABLE if unavailable else Outcome.FAIL, asked.detail)
        return Result(planned.case, Outcome.UNSUPPORTED, f"not declared: {planned.undeclared}")
    if planned.blocked:
        return Result(planned.case, Outcome.BLOCKED, planned.blocked)
    # A shorter patience shortens the deadline of a check as well.
    scale = min(1.0, patience_s / PATIENCE_S)
    deadline_s = planned.check.deadline_s * scale + _LEAST_S * (1 - scale)
    return _tried(planned.case, lambda: workers.run(planned.case, deadline_s,
                                                      spoils=planned.check.spoils))


def _look(name: str, importer: DeviceInfo | None = None) -> tuple[About | None, str]:
    """Inspect a device; return None and the reason if it cannot be opened. The cases then report a missing exporter."""
    try:
        return look(name, importer), ""
    except UnavailableError as error:
        if error.usage or error.other_device:
            raise
        return None, str(error)
