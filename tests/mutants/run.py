"""``make mutants``: the suite must catch every mutant, and devices without a fault must conform.

    python tests/mutants/run.py [FAMILY/FAULT …] [--full] [--write-table]

Mutants are variants of `host` and of the CUDA backend with one fault each that no composed fault is (catalogue.py).
table.toml lists the requirements that fail under each mutant. The suite runs on each mutant with a few of these, chosen
so that every MUST with a check fails at least once, or finds a composed fault (composed.toml). A mutant that the table
lacks runs with all requirements, and with --full each mutant does. If a run and the table differ, the mutant runs once
more. A requirement that failed in only one of the two runs is reported: a race decides, and `sometimes` lacks it. A
difference in both runs is an error.
The command prints the table, then each difference, then each MUST that fails under neither, with the reason in
without.toml, and last "N of N caught". --write-table runs all requirements and writes the failures into the table. A
second run adds to the rows: requirements that failed in only one run move to `sometimes`.

Exit: 0 all caught, table and run agree and every MUST is accounted for; 1 not.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import table  # noqa: E402
from catalogue import STAND_IN, Mutant, all_mutants  # noqa: E402
from table import Row  # noqa: E402

PATIENCE_S = "0.25"   # each wait of a failing check takes this long
LONGEST_S = 300.0     # mutants that hang for longer belong in catalogue.HANGS
CAUGHT = 1


@dataclass(frozen=True)
class Ended:
    """Result of a run: status, failed requirements, the last line, seconds."""

    status: int
    failed: frozenset[str]
    last: str
    seconds: float
    lacking: bool = False
    """It said that the profile needs what is not declared."""


def plugin_folder(folder: Path, module: str, *, also: Iterable[str] = ()) -> None:
    """Make a plugin discoverable like an installed one. It is also imported before the backends `also`."""
    info = folder / "mutants-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mutants\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(
        ["[xsem]\n", *(f"{name} = {module}\n" for name in ("mutant", *also))]))


def run(mutant: Mutant, only: Iterable[str], folder: Path, library: str) -> Ended:
    """Run the suite on a mutant, with all requirements if `only` is empty."""
    report = folder / (mutant.name.replace("/", "-") + ".json")
    sound = mutant.fault == "none"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SIMCUDA_", "XSEM_MUTANT"))}
    environment["XSEM_PURE"] = "1"   # the faults replace functions, and C code would not call the replacements
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(folder), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    if mutant.on_stand_in:
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(
            filter(None, [library, os.environ.get("LD_LIBRARY_PATH")]))
    environment.update(mutant.environment)
    command = [sys.executable, "-m", "xsem", "conformance", "run", "--device", mutant.device, "--exporter", "host",
               "--profile", mutant.profile, "--patience", "10" if sound else PATIENCE_S, "--no-quirks",
               "--report", str(report), "--jobs", "1", "--max-hangs", "0"]   # the table lists each case that hangs
    for each in sorted(only):
        command += ["--only", each]
    began = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return Ended(-1, frozenset(), f"took more than {LONGEST_S} s", LONGEST_S)
    seconds = time.monotonic() - began
    lines = (done.stdout + done.stderr).splitlines()
    cases = json.loads(report.read_text())["cases"] if report.exists() else []
    # Only failures of MUSTs count: some SHOULDs fail without a fault.
    failed = frozenset(case["requirement"] for case in cases
                       if case["level"] == "MUST" and case["outcome"] in ("FAIL", "ERROR"))
    return Ended(done.returncode, failed, lines[-1] if lines else "no output", seconds,
                 any(line.startswith(f"profile {mutant.profile}: declares none of") for line in lines))


def library_folder() -> str:
    """Return the folder of the simulated driver. It is built first if its sources are newer."""
    return subprocess.run([str(STAND_IN / "run"), "cuda", "--where"], capture_output=True, text=True,
                          check=True).stdout.strip()


def main() -> int:
    """Run, print the table, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutants", nargs="*", help="patterns of names, as host/* or */wait_ignored; without: all")
    parser.add_argument("--full", action="store_true", help="run each mutant with all requirements")
    parser.add_argument("--write-table", action="store_true", help="as --full, and write table.toml")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time: most of a run is waiting")
    parser.add_argument("--table", type=Path, default=table.FILE, help="another table")
    asked = parser.parse_args()
    known = all_mutants()
    mutants = {name: each for name, each in known.items()
               if not asked.mutants or any(fnmatch.fnmatchcase(name, pattern) for pattern in asked.mutants)}
    if not mutants:
        parser.error("no mutant matches")
    rows, musts = table.read(asked.table), table.musts()
    needed = musts - set(without()) - table.composed()
    whole = asked.full or asked.write_table
    parts = {} if whole else {name: part for name, part in table.few(rows, needed).items()
                              if name in known and not known[name].undeclared}
    library = library_folder() if any(each.on_stand_in for each in mutants.values()) else ""
    ended: dict[str, Ended] = {}
    with tempfile.TemporaryDirectory() as made:
        plugin_folder(Path(made), "mutant_plugin", also=["cuda"])
        with ThreadPoolExecutor(max_workers=asked.jobs) as pool:
            started = {name: pool.submit(run, each, parts.get(name, each.all_of_it), Path(made), library)
                       for name, each in mutants.items()}
            for name, each in mutants.items():
                ended[name] = started[name].result()
                # A device without a fault conforms each time.
                if each.fault != "none" and not asked.write_table and (
                        judged(each, ended[name]) or disagreement(name, ended[name], rows, parts.get(name))):
                    once = ended[name]
                    other = run(each, parts.get(name, each.all_of_it), Path(made), library)
                    ended[name] = both(once, other, expected(rows.get(name), parts.get(name)))
                    print(f"{name}, once more: {differed(once, other)}")
                print(said(each, ended[name]), flush=True)
                if asked.write_table and each.fault != "none" and ended[name].status == CAUGHT:
                    rows[name] = rows[name].seen(ended[name].failed) if name in rows else Row(ended[name].failed)
                    table.write(rows, {name: each.text for name, each in known.items()}, asked.table)
    wrong = [each for name, mutant in mutants.items() for each in judged(mutant, ended[name])]
    if not asked.write_table:
        wrong += [each for name in mutants for each in disagreement(name, ended[name], rows, parts.get(name))]
    if not asked.mutants:
        seen = set().union(*(each.failed for name, each in ended.items() if mutants[name].fault != "none"))
        wrong += unaccounted(seen, musts)
    for each in wrong:
        print(each)
    faulty = [name for name, each in mutants.items() if each.fault != "none"]
    print(f"{sum(ended[name].status == CAUGHT for name in faulty)} of {len(faulty)} caught")
    return 1 if wrong else 0


def said(mutant: Mutant, ended: Ended) -> str:
    """Return the lines of a mutant in the printed table."""
    if mutant.fault == "none":
        return f"{mutant.name}: status {ended.status}; {ended.last} ({ended.seconds:.0f} s)"
    caught = "caught" if ended.status == CAUGHT else f"NOT CAUGHT, status {ended.status}"
    return (f"{mutant.name}: {caught}, {ended.seconds:.0f} s: {mutant.text}\n    "
            + (", ".join(sorted(ended.failed)) or ended.last))


def judged(mutant: Mutant, ended: Ended) -> list[str]:
    """Return the errors of a run, independent of the table."""
    if mutant.fault == "none":
        return [f"{mutant.name} is without a fault, and ended {ended.status}: {ended.last}"] if ended.status else []
    # A device that declares nothing fails no case: it lacks the capabilities of the profile.
    if ended.status != CAUGHT or not (ended.lacking if mutant.undeclared else ended.failed):
        return [f"{mutant.name} was not caught, status {ended.status}: {ended.last}"]
    return []


def both(once: Ended, other: Ended, to_fail: frozenset[str]) -> Ended:
    """Combine two runs. An expected failure counts if it occurred in one run, any other if it occurred in both.

    The mutant is caught if one run caught it.
    """
    failed = ((once.failed | other.failed) & to_fail) | (once.failed & other.failed)
    return Ended(CAUGHT if once.status == CAUGHT else other.status, failed, other.last, once.seconds + other.seconds,
                 once.lacking and other.lacking)


def differed(once: Ended, other: Ended) -> str:
    """Return the differences of two runs."""
    races = ", ".join(sorted(once.failed ^ other.failed))
    if once.status != other.status:
        return f"status {once.status}, then {other.status}" + (f"; {races} failed in one run of two" if races else "")
    return f"{races} failed in one run of two" if races else "the same again"


def expected(row: Row | None, part: set[str] | None) -> frozenset[str]:
    """Return the expected failures of a run with `part`, or with all requirements."""
    if row is None:
        return frozenset()
    return row.fails if part is None else frozenset(part)


def disagreement(name: str, ended: Ended, rows: Mapping[str, Row], part: set[str] | None) -> list[str]:
    """Return the differences between a run and the table. Requirements of `sometimes` may fail."""
    if name.endswith("/none"):
        return []
    row = rows.get(name)
    if row is None:
        return [f"{name} is not in the table: run.py --write-table {name}"]
    fewer = expected(row, part) - ended.failed
    more = ended.failed - row.fails - row.sometimes
    return [f"the table disagrees, {name}: {what}" for what in (
        f"{', '.join(sorted(fewer))} did not fail" if fewer else "",
        f"{', '.join(sorted(more))} failed" if more else "") if what]


def without() -> dict[str, str]:
    """Return the MUSTs that no mutant and no composed fault fails, with the reason."""
    return tomllib.loads((HERE / "without.toml").read_text(encoding="utf-8"))


def unaccounted(failed: set[str], musts: set[str]) -> list[str]:
    """Return MUSTs that failed under neither kind of fault without a reason, and reasons for MUSTs that failed."""
    reasons, failed = without(), failed | table.composed()
    for name in sorted(musts - failed):
        print(f"no fault fails {name}: {reasons.get(name, 'NO REASON')}")
    wrong = [f"{name} fails under no fault, and without.toml has no reason"
             for name in sorted(musts - failed - set(reasons))]
    return wrong + [f"without.toml has a reason for {name}, which fails under a fault"
                    for name in sorted(set(reasons) & failed)]


if __name__ == "__main__":
    sys.exit(main())
