"""Print the outcome of each conformance case on a device, and the waits that the simulated driver let through.

    SIMZE_MODE=intel SIMZE_COUNTERS=file tests/drivers/run levelzero -- \\
        python tests/drivers/conformance_outcomes.py levelzero:0 [KEY …]

One line of JSON per case: its key, its outcome, the number of waits that passed without a signal, and the detail.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

from xsem_conformance.outcomes import Result
from xsem_conformance.requirements import load
from xsem_conformance.run.runner import Workers
from xsem_conformance.run.session import refusal, result, survey


def let_through() -> int:
    """Return the counter over all processes; 0 before the first process."""
    path = Path(os.environ["SIMZE_COUNTERS"])
    return int(struct.unpack_from("Q", path.read_bytes())[0]) if path.exists() else 0


def main(device: str, *only: str) -> None:
    """Run all cases, or only these, one after the other. The exporter is ``host``."""
    exporter = "host"
    surveyed = survey(device, exporter, list(load().requirements.values()))
    if surveyed.capabilities is None:
        sys.exit(surveyed.unavailable)
    refused: dict[str, Result] = {}
    with Workers(device, exporter) as workers:
        for planned in surveyed.cases:
            if only and planned.case.key not in only:
                continue
            before = let_through()
            missing = planned.undeclared
            if missing in surveyed.undeclared and missing not in refused:
                refused[missing] = refusal(workers, missing)
            found = result(workers, planned, refused)
            print(json.dumps([planned.case.key, found.outcome.value, let_through() - before, found.detail]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
