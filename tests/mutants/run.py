"""``make mutants``: every faulty driver must be caught by the suite, and the one without a fault must conform.

    python tests/mutants/run.py [FAULT …] [--of host] [--table]

Runs the suite once for each fault on the device that ``mutant_plugin`` makes of the backend's first one. Prints which
requirements failed under it, then each MUST that failed under none, with the reason that is written down here, and last
"N of N caught". Exit: 0 all caught and every MUST accounted for, 1 not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

from faults import FAULTS  # noqa: E402

PATIENCE_S = "0.25"   # of a check that fails, each wait takes that long


def plugin_folder(folder: Path) -> None:
    """Have the plugin found as an installed one is."""
    info = folder / "mutants-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mutants\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xsem]\nmutant = mutant_plugin\n")


def run(fault: str, of: str, folder: Path) -> tuple[int, set[str], str]:
    """Status, requirements that failed, and the last line."""
    report = folder / f"{fault}.json"
    path = os.pathsep.join([str(folder), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", "mutant:0", "--exporter", "host", "--profile",
         "memory", "--patience", PATIENCE_S if fault != "none" else "10", "--no-quirks", "--report", str(report)],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, "XSEM_MUTANT": f"{fault} of {of}"}, capture_output=True,
        text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    lines = (done.stdout + done.stderr).splitlines()
    if not report.exists():
        return done.returncode, set(), lines[-1] if lines else "no output"
    cases = json.loads(report.read_text())["cases"]
    bad = {case["requirement"] for case in cases if case["outcome"] in ("FAIL", "ERROR")}
    return done.returncode, bad, lines[-1] if lines else ""


def main() -> int:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*")
    parser.add_argument("--of", default="host")
    asked = parser.parse_args()
    names = asked.faults or list(FAULTS)
    caught: dict[str, set[str]] = {}
    wrong = []
    with tempfile.TemporaryDirectory() as made:
        plugin_folder(Path(made))
        # Two at a time: most of a run is waiting.
        with ThreadPoolExecutor(max_workers=2) as pool:
            ended = list(pool.map(lambda name: run(name, asked.of, Path(made)), names))
        for name, (status, bad, last) in zip(names, ended, strict=True):
            if name == "none":
                print(f"{name}: status {status}; {last}", flush=True)
                if status != 0:
                    wrong.append(f"without a fault: status {status}")
                continue
            caught[name] = bad
            # A driver that declares nothing fails no case: it lacks what the profile needs.
            is_caught = status == 1
            print(f"{name}: {'caught' if is_caught else 'NOT CAUGHT'} ({len(bad)}): {FAULTS[name].text}\n    "
                  + (", ".join(sorted(bad)) or last), flush=True)
            if not is_caught:
                wrong.append(f"{name} was not caught: {last}")
    if not asked.faults:
        wrong += unaccounted(set().union(*caught.values()))
    for each in wrong:
        print(each)
    print(f"{sum(1 for name in caught if not any(each.startswith(name) for each in wrong))} of {len(caught)} caught")
    return 1 if wrong else 0


def unaccounted(failed: set[str]) -> list[str]:
    """MUSTs with a check that failed under no fault, and for which no reason is written down; and the reverse."""
    from xsem_conformance.checks import all_checks
    from xsem_conformance.requirements import load

    reasons = tomllib.loads((HERE / "without.toml").read_text())
    checks = all_checks()
    musts = {name for name, each in load().requirements.items() if each.level == "MUST" and name in checks}
    for name in sorted(musts - failed):
        print(f"no fault fails {name}: {reasons.get(name, 'NO REASON')}")
    wrong = [f"{name} fails under no fault, and without.toml has no reason"
             for name in sorted(musts - failed - set(reasons))]
    return wrong + [f"without.toml has a reason for {name}, which fails under a fault"
                    for name in sorted(set(reasons) & failed)]


if __name__ == "__main__":
    sys.exit(main())
