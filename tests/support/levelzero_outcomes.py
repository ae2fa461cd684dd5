"""Outcomes of the conformance suite in the modes of Intel's driver, compared with their table.

    PYTHONPATH=tests python -m support.levelzero_outcomes LOADER MODE

Exit 1: an outcome differs, a case passed while the driver let a wait through, or calls on one list overlapped. Exit 3:
the loader is unavailable.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from support.paths import DRIVERS

__all__ = ["LIMIT_S", "MODES", "Outcomes", "mistakes", "outcomes", "run", "table"]

LIMIT_S: Final = 140   # below the faulthandler_timeout of pyproject.toml
_SLOW_S: Final = 1200   # each refused signal leaves a wait behind, and the end of the case waits for it
_CANNOT: Final = 3
_MOST_AGAIN: Final = 10
# Cases that pass also while a wait is let through, because nothing resets a binary semaphore: the first counts
# descriptors, and the second appends each signal before its wait if the device has one queue.
_NO_ORDER: Final = ("XSEM-LIFE-012", "XSEM-DEV-005/semaphore.opaque_fd")
_DEFAULT: Final = "UNSUPPORTED"
_OVERLAPS: Final = 3   # index in the file of SIMZE_COUNTERS


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


class Outcomes(NamedTuple):
    """The result of a run.

    Attributes
    ----------
    cases : dict
        By key: the outcome, and the number of waits that the driver let through during the case.
    overlaps : int
        The number of calls on a list during another call on the same list.
    """

    cases: dict[str, tuple[str, int]]
    overlaps: int


def table(mode: str, loader: str = "bookworm") -> dict[str, str]:
    """Return the expected outcomes by key: levelzero_intel.txt, with the changes in levelzero_modes.txt.

    FAIL|PASS: a race decides. A case without an entry is not declared (UNSUPPORTED).
    """
    rows = [line.split() for line in (DRIVERS / "levelzero_intel.txt").read_text().splitlines()]
    changes = [line.split(maxsplit=3) for line in (DRIVERS / "levelzero_modes.txt").read_text().splitlines()
               if line and not line.startswith("#")]
    expected = {key: outcome for outcome, key in rows}
    expected |= {key: outcome for name, outcome, key, *_ in changes if name in (mode, loader)}
    return expected


def outcomes(mode: str, loader: str = "bookworm") -> Outcomes:
    """Run all cases. On a busy machine a late operation looks like a blocked one, so a few other outcomes run again.

    Raises
    ------
    FileNotFoundError
        The loader is unavailable.
    """
    found, wanted = run(mode, loader), table(mode, loader)
    other = [key for key, (outcome, _) in found.cases.items() if not _is_expected(outcome, key, wanted)]
    if not 0 < len(other) < _MOST_AGAIN:
        return found
    again = run(mode, loader, *other)
    return Outcomes({**found.cases, **again.cases}, found.overlaps + again.overlaps)


def mistakes(mode: str, found: Outcomes, loader: str = "bookworm") -> list[str]:
    """Return what differs from the table, and what no run may show."""
    wanted = table(mode, loader)
    said = [f"{key}: {outcome}, not {wanted.get(key, _DEFAULT)}"
            for key, (outcome, _) in sorted(found.cases.items()) if not _is_expected(outcome, key, wanted)]
    said += [f"{key}: not run" for key in sorted(wanted.keys() - found.cases.keys())]
    said += [f"{key} passed while the driver let a wait through"
             for key, (outcome, count) in found.cases.items()
             if count and outcome == "PASS" and not key.startswith(_NO_ORDER)]
    if found.overlaps:
        said.append(f"{found.overlaps} calls on a list overlapped")
    return said


def _is_expected(outcome: str, key: str, wanted: dict[str, str]) -> bool:
    return outcome in wanted.get(key, _DEFAULT).split("|")


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
    lines = [line.split(" ") for line in ran.stdout.splitlines()]
    return Outcomes({key: (outcome, sum(map(int, through))) for outcome, key, *through in lines}, overlaps)


def main(loader: str, mode: str) -> int:
    """Print the result of one mode behind one loader."""
    try:
        found = outcomes(mode, loader)
    except FileNotFoundError as error:
        print(f"{loader}, {mode}: not run: {error}")
        return _CANNOT
    said = mistakes(mode, found, loader)
    met = sum(outcome == "PASS" for outcome, _ in found.cases.values())
    failed = sum(outcome not in ("PASS", "UNSUPPORTED", "BLOCKED", "NOT_EXAMINED")
                 for outcome, _ in found.cases.values())
    print(f"{loader}, {mode}: {met} cases met, {failed} not met as in the table" if not said else
          f"{loader}, {mode}: other outcomes than in the table\n  " + "\n  ".join(said))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
