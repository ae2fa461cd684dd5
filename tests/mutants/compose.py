"""``make faults``: faults composed from the driver interface, and the survivors of the suite.

    python tests/mutants/compose.py [PATTERN …] [--list] [--write-survivors FILE] [--full] [--jobs N] [--results FILE]
    python tests/mutants/compose.py --missing --results FILE      # the faults that composed.toml lists as not run
    python tests/mutants/compose.py --results FILE --write-list   # put these results into composed.toml, and run none

A fault is an operator (skip, delay, reorder, …) on a method of the driver interface, an argument and an occurrence. The
list is read from the interface. Each fault is put around a sound driver: `host`, the capable variant of `host`, or the
CUDA backend on the stand-in. A first run without a fault notes which cases call which methods. A trial runs the cases
that call the faulty method, and stops at the first failure of a MUST that a second run confirms.

allowed.toml has the reason for each survivor. A caught fault with a reason is reported, unless its entry has
`sometimes = true`. composed.toml has the last known result of each fault. A run of all faults takes an hour on two
cores. --results keeps each result when it is known, and a later run with the same file continues.

Exit: 0 each survivor has a reason, and no caught fault is reported; 1 not.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from composer import allowed, listed  # noqa: E402
from composer.faults import Composed, all_faults  # noqa: E402
from composer.interface import methods  # noqa: E402
from composer.trial import Calibration, Ended, Place, calibrate, planned, trial  # noqa: E402

from run import library_folder, plugin_folder  # noqa: E402
from xsem_conformance.run.planning import Planned  # noqa: E402

REPLANNED = "DeviceDriver.capabilities"
LIKELY = {
    "leak": ("OWN", "LIFE"), "double_free": ("OWN", "LIFE"), "wrong_thread": ("THR",), "delay": ("THR", "ORD", "LIFE"),
    "late": ("STR", "LIFE", "ORD"), "reorder": ("STR", "ORD"), "batch": ("BATCH",), "rounded": ("BUF",),
    "rights": ("OWN",),
}
"""Areas whose cases run first for an operator."""
RELEASES = ("OWN", "LIFE")
"""The same for a method that releases something."""
SLOW = ("*/delay:20ms", "*/wrong_thread:joined", "*/duplicate*", "*@first", "*@second-device", "*@other-process",
        "*@many", "*/leak:thread",
        "DeviceDriver.capabilities/*")
"""Faults of which most survive, and therefore run every case. They run last."""


def _try(place: Place, fault: str, base: str, cases: list[Planned] | None) -> Ended:
    if cases == []:
        return Ended("", "no case calls the method", False, 0, 0.0)
    return trial(place, base, fault, cases)


def main() -> int:
    """Run the faults, print each, and compare with allowed.toml."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="patterns of names, as SemaphoreQueue.*/skip*; without: all")
    parser.add_argument("--list", action="store_true", help="print the faults, and run none")
    parser.add_argument("--only", action="append", metavar="PREFIX", help="only these requirements; repeatable")
    parser.add_argument("--full", action="store_true", help="run every case that calls the method; without: at most "
                                                            "two cases of one requirement")
    parser.add_argument("--cases", type=int, default=1000, metavar="N", help="run at most N cases on each fault")
    parser.add_argument("--jobs", type=int, default=3, help="how many at a time: most of a run is waiting")
    parser.add_argument("--write-survivors", type=Path, metavar="FILE", help="write the survivors, by area")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep results here, and skip what it has")
    parser.add_argument("--missing", action="store_true", help="only faults that composed.toml lists as not run")
    parser.add_argument("--write-list", action="store_true", help="put the results of --results into composed.toml, "
                                                                  "and run none")
    asked = parser.parse_args()
    known = all_faults()
    if asked.write_list:
        if asked.results is None or not asked.results.exists():
            parser.error("--write-list needs the file of --results")
        kept = {name: each.caught for name, each in _kept(asked.results).items()}
        listed.write(listed.merged(listed.read(), kept, known))
        return 0
    missing = set(listed.merged(listed.read(), {}, known).not_run) if asked.missing else set(known)
    faults = {name: each for name, each in known.items() if name in missing and (
              not asked.patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in asked.patterns))}
    if not faults:
        parser.error("no fault matches")
    if asked.list:
        for each in faults.values():
            print(f"{each.name} ({each.base}): {each.text}")
        print(f"{len(faults)} faults")
        return 0
    entries = allowed.read()
    ended = _run(faults, asked)
    judged = judge({name: ended[name] for name in faults}, entries)
    if asked.write_survivors:
        asked.write_survivors.write_text(_page(judged.survivors, faults, ended, entries), encoding="utf-8")
    for name in judged.stale:
        print(f"caught by {ended[name].caught}, and allowed.toml has a reason: {name}")
    for name in judged.unexplained:
        print(f"survives without a reason: {name}: {faults[name].text}")
    count, open_ = len(judged.survivors), len(judged.unexplained)
    print(f"{len(faults)} faults: {len(faults) - count} caught, {count - open_} allowed, {open_} unexplained, "
          f"{len(judged.stale)} allowed and caught")
    return 1 if judged.unexplained or judged.stale else 0


@dataclass(frozen=True)
class Judged:
    """The names of the survivors, of those without a reason, and of caught faults with a reason."""

    survivors: list[str]
    unexplained: list[str]
    stale: list[str]


def judge(ended: Mapping[str, Ended], entries: list[allowed.Allowed]) -> Judged:
    """Compare the results with the reasons."""
    survivors = [name for name, each in ended.items() if not each.caught]
    return Judged(survivors, [name for name in survivors if not allowed.reason(name, entries)],
                  [name for name, each in ended.items() if each.caught and allowed.stale(name, entries)])


def _kept(results: Path | None) -> dict[str, Ended]:
    """Return the results in a file. A line that a killed run has not finished does not count."""
    found: dict[str, Ended] = {}
    if results is not None and results.exists():
        for line in results.read_text(encoding="utf-8").splitlines():
            try:
                name, values = json.loads(line)
            except ValueError:
                continue
            found[name] = Ended(**values)
    return found


def _run(faults: Mapping[str, Composed], asked: argparse.Namespace) -> dict[str, Ended]:
    results: Path | None = asked.results
    ended = {name: each for name, each in _kept(results).items() if name in faults}
    todo = [each for name, each in faults.items() if name not in ended]
    todo.sort(key=lambda each: any(fnmatch.fnmatchcase(each.name, slow) for slow in SLOW))
    bases = sorted({each.base for each in todo})
    library = library_folder() if "cuda" in bases else ""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made, ProcessPoolExecutor(max_workers=asked.jobs) as pool:
        plugin_folder(Path(made), "composer.plugin")
        place = Place(Path(made), library)
        if asked.only:
            measured = {each: planned(place, each, asked.only) for each in bases}
        else:
            measured = dict(zip(bases, pool.map(calibrate, [place] * len(bases), bases), strict=True))
        for name, each in measured.items():
            print(f"{name}: {len(each.calls)} cases, {sum(each.seconds.values()):.0f} s", flush=True)
            if each.failed:
                raise SystemExit(f"{name} fails without a fault: " + "; ".join(each.failed))
        catches: dict[str, Counter[str]] = {}
        running: dict[Future[Ended], Composed] = {}
        for each in [*todo, None]:
            while running and (each is None or len(running) >= asked.jobs):
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    fault = running.pop(future)
                    ended[fault.name] = future.result()
                    _note(fault, ended[fault.name], results, f"{len(ended)} of {len(faults)}")
                    catches.setdefault(fault.key, Counter())[ended[fault.name].caught] += 1
            if each is not None:
                cases = None if each.key == REPLANNED else _order(
                    measured[each.base], each, catches, full=asked.full)[:asked.cases]
                running[pool.submit(_try, place, each.name, each.base, cases)] = each
    print(f"{len(todo)} faults in {time.monotonic() - began:.0f} s")
    return ended


def _order(measured: Calibration, fault: Composed, catches: Mapping[str, Counter[str]], *, full: bool) -> list[Planned]:
    """Return the cases for a fault: first those that found faults of the method, then likely ones, then fast ones."""
    seen = catches.get(fault.key, Counter())
    releases = any(each.key == fault.key and each.releases for each in methods())
    likely = RELEASES if releases else LIKELY.get(fault.operator, ())
    return [measured.planned[case] for case in sorted(measured.cases(fault.key, full=full), key=lambda case: (
        -seen[case], case.split("-")[1] not in likely, measured.seconds[case]))]


def _note(fault: Composed, ended: Ended, results: Path | None, place: str) -> None:
    said = f"caught by {ended.caught}" if ended.caught else "SURVIVES" + ("" if ended.fired else ", never acted")
    print(f"{place} {fault.name}: {said}, {ended.cases} cases, {ended.seconds:.0f} s", flush=True)
    if results is not None:
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps([fault.name, asdict(ended)]) + "\n")


def _page(survivors: list[str], faults: Mapping[str, Composed], ended: Mapping[str, Ended],
          entries: list[allowed.Allowed]) -> str:
    lines = [f"# Survivors: {len(survivors)} of {len(faults)} faults", ""]
    for key in dict.fromkeys(faults[name].key for name in survivors):
        lines += [f"## {key}", ""]
        for name in (each for each in survivors if faults[each].key == key):
            acted = "" if ended[name].fired else f" ({ended[name].detail or 'the fault never changes a call'})"
            why = allowed.reason(name, entries)
            lines.append(f"- `{name}` [{faults[name].base}]: {faults[name].text}{acted}"
                         + (f" ALLOWED: {why}" if why else ""))
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
