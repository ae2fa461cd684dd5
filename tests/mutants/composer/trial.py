"""One run of the suite on a driver with a composed fault, until the first failure of a MUST."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from composer.interface import attributes, methods
from xsem_conformance.outcomes import UNOBSERVED, Outcome, Result
from xsem_conformance.profiles import profiles
from xsem_conformance.requirements import load
from xsem_conformance.run.planning import Planned
from xsem_conformance.run.process import UnavailableError
from xsem_conformance.run.runner import Workers
from xsem_conformance.run.session import refusal, result, survey

__all__ = ["BASES", "Calibration", "Ended", "Place", "calibrate", "planned", "trial"]

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
PATIENCE_S = 0.5
CONFIRM_S = 6.0
BASES = {"host": "memory", "capable": "memory", "bridged": "memory", "cuda": "full"}
"""The profile of each sound driver."""
BAD = (Outcome.FAIL, Outcome.ERROR)


@dataclass(frozen=True)
class Place:
    """Where the runs find the plugin and write their notes."""

    folder: Path
    library: str

    @contextmanager
    def environment(self, base: str, fault: str, **more: str) -> Iterator[None]:
        """Set the environment of the suite's processes."""
        here = str(Path(__file__).resolve().parents[1])
        set_ = {"XSEM_PURE": "1", "XSEM_FAULT": fault, "XSEM_FAULT_BASE": base,
                "PYTHONPATH": os.pathsep.join([str(self.folder), here, *filter(None, [os.environ.get("PYTHONPATH")])]),
                **more}
        if base == "cuda":
            set_["LD_LIBRARY_PATH"] = self.library
        before = {key: os.environ.get(key) for key in set_}
        os.environ.update(set_)
        try:
            yield
        finally:
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


@dataclass
class Calibration:
    """A run without a fault: the calls and the seconds of each case.

    Attributes
    ----------
    calls : dict of str to set of str
        The called methods of each case, by its key.
    seconds : dict of str to float
    failed : list of str
        Failures without a fault. There must be none.
    planned : dict of str to Planned
        The cases, by key.
    """

    calls: dict[str, set[str]]
    seconds: dict[str, float]
    failed: list[str]
    planned: dict[str, Planned]

    def cases(self, key: str, *, full: bool) -> list[str]:
        """Return the cases that a fault in a method or attribute can change, the fast ones first.

        Parameters
        ----------
        full : bool
            False: at most two cases of one requirement, the first and the last.
        """
        # The reads of an attribute are not noted.
        wide = any(key == each.key for each in attributes())
        found = [each for each, calls in self.calls.items() if wide or key in calls]
        if not full:
            of: dict[str, list[str]] = {}
            for each in found:
                of.setdefault(each.partition("/")[0], []).append(each)
            found = [case for cases in of.values() for case in dict.fromkeys((cases[0], cases[-1]))]
        return sorted(found, key=lambda each: self.seconds[each])


@dataclass(frozen=True)
class Ended:
    """The result of a trial.

    Attributes
    ----------
    caught : str
        The key of the failed case, "profile" or "unavailable"; empty if the fault survives.
    detail : str
        The message.
    fired : bool
        Whether the fault changed a call.
    cases : int
        Number of cases that ran.
    """

    caught: str
    detail: str
    fired: bool
    cases: int
    seconds: float


def _planned(base: str) -> dict[str, Planned]:
    requirements = [each for each in load().requirements.values() if each.level == "MUST"]
    found = survey("mutant:0", "host:0", requirements)
    if found.capabilities is None:
        raise UnavailableError(f"{base}: {found.unavailable}")
    return {each.case.key: each for each in found.cases if not each.undeclared and not each.blocked}


def calibrate(place: Place, base: str) -> Calibration:
    """Run every case on the sound driver, and note its calls. The result is kept until a source changes."""
    kept = BUILD / f"composer-{base}-{_digest()}.pickle"
    if kept.exists():
        found: Calibration = pickle.loads(kept.read_bytes())
        return found
    made = _calibrated(place, base)
    if not made.failed:
        BUILD.mkdir(exist_ok=True)
        kept.write_bytes(pickle.dumps(made))
    return made


def planned(place: Place, base: str, only: Sequence[str]) -> Calibration:
    """Plan the cases of some requirements without a run: each can concern each method."""
    with place.environment(base, ""):
        cases = {key: each for key, each in _planned(base).items() if key.startswith(tuple(only))}
    keys = {each.key for each in methods()}
    return Calibration(dict.fromkeys(cases, keys), dict.fromkeys(cases, 0.0), [], cases)


def _digest() -> str:
    found = hashlib.sha256()
    for folder in ("xsem", "conformance", "backends", "tests/mutants"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml") and path.name not in ("allowed.toml", "compose.py"):
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _calibrated(place: Place, base: str) -> Calibration:
    made = Calibration({}, {}, [], {})
    trace = place.folder / f"trace-{base}-{os.getpid()}"
    with place.environment(base, "", XSEM_FAULT_TRACE=str(trace)):
        cases = made.planned = _planned(base)
        trace.write_text("")
        with Workers("mutant:0", "host:0", 10.0) as workers:
            for key, each in cases.items():
                ended = result(workers, each, {}, 10.0)
                if ended.outcome in UNOBSERVED:   # the driver lacks an ability without a capability, or a hook
                    os.truncate(trace, 0)
                    continue
                if ended.outcome is not Outcome.PASS:
                    made.failed.append(f"{key}: {ended.outcome.value}: {ended.detail}")
                made.calls[key] = set(trace.read_text().split())
                made.seconds[key] = ended.seconds
                os.truncate(trace, 0)
    return made


def trial(place: Place, base: str, fault: str, cases: Sequence[Planned] | None) -> Ended:
    """Run the cases in their order until one fails, and then once more to confirm the failure.

    The cases share a device. A fault in the first call on each object acts in the first case that calls its method, and
    in no later one. If no case fails, such a fault is tried once more, with a new process for each case.

    Parameters
    ----------
    cases : sequence of Planned or None
        None: the fault changes the capabilities. Plan its own cases, with refusals, and check the profile.
    """
    began = time.monotonic()
    fired = place.folder / f"fired-{os.getpid()}"
    fired.unlink(missing_ok=True)
    count = 0
    with place.environment(base, fault, XSEM_FAULT_FIRED=str(fired)):
        try:
            caught, detail, count = _whole(base, fired) if cases is None else _until_failure(cases, fired)
            if cases is not None and not caught and fault.endswith("@first"):
                caught, detail = _each_alone(cases)
        except UnavailableError as error:
            caught, detail = "unavailable", str(error)
    return Ended(caught, detail[:600], fired.exists(), count, time.monotonic() - began)


def _until_failure(cases: Sequence[Planned], fired: Path) -> tuple[str, str, int]:
    doubtful: list[Planned] = []
    count = 0
    with Workers("mutant:0", "host:0", PATIENCE_S) as workers:
        for each in cases:
            count += 1
            ended = result(workers, each, {}, PATIENCE_S)
            if ended.outcome is Outcome.UNAVAILABLE:
                return "unavailable", ended.detail, count
            if ended.outcome in BAD:
                acted = fired.exists()
                if acted and ended.seconds < PATIENCE_S and ended.outcome is Outcome.FAIL:
                    return each.case.key, ended.detail, count   # not for lack of patience
                # Without an act of the fault, the machine was too busy for the case: it needs more patience.
                again = _again([each])
                if not fired.exists():
                    continue
                if again is not None:
                    return each.case.key, again.detail, count
                doubtful.append(each)
                if len(doubtful) > 3:
                    break
    if doubtful:   # a failure that depends on the cases before it
        again = _again(cases[:cases.index(doubtful[-1]) + 1])
        if again is not None:
            return again.case.key, again.detail, count
    return "", "", count


def _each_alone(cases: Sequence[Planned]) -> tuple[str, str]:
    for each in cases:
        ended = _again([each])
        if ended is not None:
            return each.case.key, ended.detail
    return "", ""


def _again(cases: Sequence[Planned]) -> Result | None:
    """Return the first failure with more patience, in a new process."""
    with Workers("mutant:0", "host:0", CONFIRM_S) as workers:
        for each in cases:
            ended = result(workers, each, {}, CONFIRM_S)
            if ended.outcome in (*BAD, Outcome.UNAVAILABLE):
                return ended
    return None


def _whole(base: str, fired: Path) -> tuple[str, str, int]:
    requirements = [each for each in load().requirements.values() if each.level == "MUST"]
    found = survey("mutant:0", "host:0", requirements)
    if found.capabilities is None:
        return "unavailable", found.unavailable, 0
    lacking = profiles()[BASES[base]].lacking(found.capabilities)
    if lacking:
        return "profile", lacking[0], 0
    with Workers("mutant:0", "host:0", PATIENCE_S) as workers:
        for name in found.undeclared:
            if any(each.undeclared == name for each in found.cases):
                ended = refusal(workers, name)
                if ended.outcome is not Outcome.UNSUPPORTED:
                    return f"refusal {name}", ended.detail, 0
    return _until_failure([each for each in found.cases if not each.undeclared and not each.blocked], fired)
