"""Conformance in the modes of Intel's driver: which cases are not met, and that no false order passes.

    PYTHONPATH=tests python -m support.levelzero_outcomes LOADER MODE

Exit 1: another case is not met, too few are met, a case passed while the driver let a wait through, or calls on one
list overlapped. Exit 3: the loader is unavailable.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from support.paths import DRIVERS

__all__ = ["LIMIT_S", "MODES", "Case", "Outcomes", "mistakes", "outcomes", "run"]

LIMIT_S: Final = 140   # below the faulthandler_timeout of pyproject.toml
_SLOW_S: Final = 1200   # each refused signal leaves a wait behind, and the end of the case waits for it
_CANNOT: Final = 3
_MOST_AGAIN: Final = 10
# Cases that pass also while a wait is let through, because nothing resets a binary semaphore: the first counts
# descriptors, and the second appends each signal before its wait if the device has one queue.
_NO_ORDER: Final = ("XSEM-LIFE-012", "XSEM-DEV-005/semaphore.opaque_fd")
_OVERLAPS: Final = 3   # index in the file of SIMZE_COUNTERS

# No wait of Intel's driver resets a binary semaphore. So the second import of the first two finds it signalled, and
# the exporter's wait of the last passes.
_NOT_RESET: Final = ("XSEM-DEV-005/semaphore.opaque_fd/host/-", "XSEM-LIFE-004/opaque_fd/host/-",
                     "XSEM-KILL-004/opaque_fd/host/-")


class Expected(NamedTuple):
    """The least number of cases that are met, those that are not, and a refusal that fails any other case."""

    met: int
    not_met: tuple[str, ...] = _NOT_RESET
    refusal: str = ""


EXPECTED: Final = {
    "intel": Expected(350), "fifo": Expected(345), "host_functions": Expected(345),
    # The whole process of LIST-005 ends, because the case destroys a list that still waits.
    "lifo": Expected(300, (*_NOT_RESET, "XSEM-LIST-005/opaque_fd/host/-", "XSEM-LIST-005/timeline_semaphore_fd/host/-"),
                     "behind an unmet wait: synchronize"),
    # The device has one list, so each signal of DEV-005 comes before its wait.
    "one_engine": Expected(312, _NOT_RESET[1:]),
}


def _build(number: int) -> str:
    return str(1 << 24 | 14 << 16 | number)


MODES: Final[dict[str, dict[str, str]]] = {
    "intel": {"SIMZE_MODE": "intel"},
    # 26.22: signals come after their event.
    "fifo": {"SIMZE_MODE": "intel", "SIMZE_CONTROLLER": "fifo", "SIMZE_LAG_US": "1000",
             "SIMZE_DRIVER_VERSION": _build(38646)},
    # 25.27: a signal behind an unmet wait also blocks the thread of the driver.
    "lifo": {"SIMZE_MODE": "intel", "SIMZE_CONTROLLER": "lifo", "SIMZE_LAG_US": "1000",
             "SIMZE_DRIVER_VERSION": _build(34303)},
    # 26.35: host functions of the engines.
    "host_functions": {"SIMZE_MODE": "intel", "SIMZE_CONTROLLER": "host-functions",
                       "SIMZE_DRIVER_VERSION": _build(39758)},
    # 26.22 on a GPU with one engine: an unmet wait also stalls the wait that tells the end of signals.
    "one_engine": {"SIMZE_MODE": "intel", "SIMZE_CONTROLLER": "fifo", "SIMZE_LAG_US": "1000",
                   "SIMZE_DRIVER_VERSION": _build(38646), "SIMZE_QUEUES": "1", "SIMZE_COPY_QUEUES": "0",
                   "SIMZE_ENGINES": "1"},
    # A GPU with one queue: an unmet wait stalls all lists.
    "one_queue": {"SIMZE_QUEUES": "1", "SIMZE_ENGINES": "1"},
}
"""Settings of the simulated driver, by mode."""


class Case(NamedTuple):
    """The outcome of a case, the number of waits that the driver let through meanwhile, and the suite's detail."""

    outcome: str
    through: int = 0
    detail: str = ""


class Outcomes(NamedTuple):
    """The result of a run: the cases by key, and how often a list was called during another call on it."""

    cases: dict[str, Case]
    overlaps: int


def outcomes(mode: str, loader: str = "bookworm") -> Outcomes:
    """Run all cases. On a busy machine a late operation looks like a blocked one, so a few other outcomes run again.

    Raises
    ------
    FileNotFoundError
        The loader is unavailable.
    """
    found = run(mode, loader)
    other = [key for key, case in found.cases.items() if _is_other(mode, key, case)]
    if not 0 < len(other) < _MOST_AGAIN:
        return found
    again = run(mode, loader, *other)
    return Outcomes({**found.cases, **again.cases}, found.overlaps + again.overlaps)


def mistakes(mode: str, found: Outcomes) -> list[str]:
    """Return what is not as expected, and what no run may show."""
    said = [f"{key}: {case.outcome}: {case.detail}" for key, case in sorted(found.cases.items())
            if _is_other(mode, key, case)]
    said += [f"{key}: not run" for key in EXPECTED[mode].not_met if key not in found.cases]
    met = sum(case.outcome == "PASS" for case in found.cases.values())
    if met < EXPECTED[mode].met:
        said.append(f"{met} cases met, not {EXPECTED[mode].met}")
    said += [f"{key} passed while the driver let a wait through" for key, case in found.cases.items()
             if case.through and case.outcome == "PASS" and not key.startswith(_NO_ORDER)]
    if found.overlaps:
        said.append(f"{found.overlaps} calls on a list overlapped")
    return said


def _is_other(mode: str, key: str, case: Case) -> bool:
    expected, failed = EXPECTED[mode], case.outcome in ("FAIL", "ERROR")
    if key in expected.not_met:
        return not failed
    return failed and not (expected.refusal and expected.refusal in case.detail)


def run(mode: str, loader: str, *only: str) -> Outcomes:
    """Run all cases once, or only these.

    Raises
    ------
    FileNotFoundError
        The loader is unavailable.
    """
    with tempfile.TemporaryDirectory() as folder:
        counters = Path(folder) / "counters"
        environment = {**os.environ, **MODES[mode], "SIMZE_COUNTERS": str(counters)}
        limit_s = _SLOW_S if mode == "lifo" else LIMIT_S
        ran = subprocess.run(
            [str(DRIVERS / "run"), "levelzero", "--loader", loader, "--", sys.executable,
             str(DRIVERS / "conformance_outcomes.py"), "levelzero:0", *only],
            check=False, capture_output=True, text=True, timeout=limit_s, env=environment)
        if ran.returncode == _CANNOT:
            raise FileNotFoundError(ran.stderr.strip())
        assert ran.returncode == 0, ran.stderr
        overlaps = struct.unpack_from("4Q", counters.read_bytes())[_OVERLAPS]
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return Outcomes({key: Case(*found) for key, *found in lines}, overlaps)


def main(loader: str, mode: str) -> int:
    """Print the result of one mode behind one loader."""
    try:
        found = outcomes(mode, loader)
    except FileNotFoundError as error:
        print(f"{loader}, {mode}: not run: {error}")
        return _CANNOT
    said = mistakes(mode, found)
    counts = Counter(case.outcome for case in found.cases.values())
    print(f"{loader}, {mode}: {counts['PASS']} cases met, {counts['FAIL'] + counts['ERROR']} not met"
          + "".join(f"\n  {each}" for each in said))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
