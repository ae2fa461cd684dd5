"""``xsem conformance run``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsem.cli.files import CannotWriteError, write_file
from xsem.cli.options import flag, number, seconds
from xsem.cli.status import UsageError, tell
from xsem.cli.text import printable, printable_lines
from xsem_conformance import baseline, verdict, waivers
from xsem_conformance.cli.output_files import OutputFiles, check_place, command_line
from xsem_conformance.cli.reading import add_command, print_json
from xsem_conformance.cli.run_text import Progress, baseline_lines, cause_lines, totals
from xsem_conformance.profiles import profiles

if TYPE_CHECKING:
    from xsem_conformance.outcomes import Result
    from xsem_conformance.run.session import Run

__all__ = ["add"]

_JOBS = min(4, 2 * (os.cpu_count() or 1))   # a case waits most of its time; on a GPU, more take longer


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(commands, "run", _run, "Run the suite on a device.",
                         "Exit: 0 conforms, 1 does not, 2 usage, 3 could not be tried.")
    parser.usage = "%(prog)s [options]"
    option = parser.add_argument
    option("--device", default="host", metavar="DEVICE",
           help="The device under test: host, cuda:0, … (default: %(default)s).")
    option("--exporter", default="host", metavar="DEVICE",
           help="Exporter of semaphores and memory, in a separate process: host, vulkan (the device with the same "
                "UUID), … (default: %(default)s).")
    option("--profile", default="core", metavar="PROFILE",
           help="core, timeline, memory, full or portable (default: %(default)s).")
    option("--waivers", type=Path, metavar="PATH", help="TOML file of known failures.")
    option("--baseline", type=Path, metavar="PATH",
           help="TOML file of expected failures: the exit status is then 0 unless another case fails. The verdict does "
                "not change.")
    option("--write-baseline", type=Path, metavar="PATH",
           help="Write the failures of this run as a baseline, with the entries of --baseline that remain.")
    for name, kind in (("report", "JSON"), ("html", "an HTML page"), ("markdown", "Markdown"), ("junit", "JUnit XML")):
        option(f"--{name}", type=Path, metavar="PATH", help=f"Write the report as {kind}.")
    option("--commit", default="", metavar="TEXT", help="The commit under test, for the report.")
    option("--only", action="append", default=[], metavar="PREFIX",
           help="Only requirements with this prefix; repeatable.")
    option("--case", action="append", default=[], metavar="KEY",
           help="Only the case with this key, ID/type/exporter/direction; repeatable.")
    option("--debug", action="store_true",
           help="Run one --case in this process, and print its calls and its traceback.")
    option("--patience", type=seconds(0.05), default=10.0, metavar="SECONDS",
           help="Seconds until a result counts as missing, and for the opening of a device, at least 5 (default: "
                "%(default)s).")
    option("--jobs", type=number(1, 1024), default=_JOBS, metavar="NUMBER",
           help="Number of cases at once (default: %(default)s).")
    option("--max-failures", type=number(0, 2**31), default=0, metavar="NUMBER",
           help="Number of failures of a MUST after which no further case begins; 0: no limit (default: %(default)s).")
    option("--time-limit", type=seconds(1), metavar="SECONDS",
           help="Seconds for all cases together. Later cases are not run.")
    option("--max-hangs", type=number(0, 2**31), default=3, metavar="NUMBER",
           help="Number of cases in a row that hang in one call, after which no case makes the call; 0: no limit "
                "(default: %(default)s).")
    option("--quirks", action=argparse.BooleanOptionalAction, default=True,
           help="Also measure the behaviour that the rules leave open.")


def _run(asked: argparse.Namespace) -> int:
    device, exporter, profile, commit = asked.device, asked.exporter, asked.profile, asked.commit
    as_json, quiet = flag(asked, "json"), flag(asked, "quiet")
    known = profiles()
    if profile not in known:
        raise UsageError("--profile", f"{profile!r} is not one of {', '.join(known)}")
    try:
        waived = waivers.load(asked.waivers) if asked.waivers is not None else []
    except waivers.WaiverError as error:
        raise UsageError("--waivers", printable(str(error))) from error
    try:
        expected = baseline.load(asked.baseline) if asked.baseline is not None else None
    except baseline.BaselineError as error:
        raise UsageError("--baseline", printable(str(error))) from error
    files = OutputFiles({option: path for option, path in (
        ("--report", asked.report), ("--html", asked.html), ("--markdown", asked.markdown), ("--junit", asked.junit))
        if path is not None})
    files.check()
    if asked.write_baseline is not None:
        check_place("--write-baseline", asked.write_baseline)
    if asked.debug and len(asked.case) != 1:
        raise UsageError("--debug", "exactly one --case is needed")
    # Imported here, so that --help needs neither a device nor the suite.
    from xsem_conformance.cli.debug import debug as run_here
    from xsem_conformance.report.build import build
    from xsem_conformance.requirements import load
    from xsem_conformance.run.process import UnavailableError
    from xsem_conformance.run.session import Limits, UnknownCaseError
    from xsem_conformance.run.session import run as run_suite

    for each in asked.only:
        if not each or not any(name.startswith(each) for name in load().requirements):
            raise UsageError("--only", f"no requirement's id begins with {each!r}")

    progress = Progress()
    latest: list[Run] = []

    def after(so_far: Run, result: Result) -> None:
        latest[:] = [so_far]
        if not (as_json or quiet):
            progress.show(so_far, result)
        files.update(so_far, commit)

    try:
        if asked.debug:
            return run_here(device, exporter, asked.case[0], asked.patience, portable=known[profile].portable)
        ended = run_suite(device, exporter, known[profile], waived, after, only=asked.only, cases=asked.case,
                          patience_s=asked.patience, quirks=asked.quirks,
                          limits=Limits(asked.jobs, asked.max_failures, asked.time_limit, asked.max_hangs),
                          expected=expected)
    except UnknownCaseError as error:
        raise UsageError("--case", printable(str(error))) from error
    except UnavailableError as error:   # the device does not exist, or the exporter cannot be used; no case has run
        print(f"xsem: {printable(str(error))}", file=sys.stderr)
        return verdict.USAGE if error.usage else verdict.NOT_TRIED
    except KeyboardInterrupt:
        for so_far in latest:
            files.write(build(so_far, command=command_line(), commit=commit))
        raise
    built = build(ended, command=command_line(), commit=commit)
    written = files.write(built)
    if asked.write_baseline is not None:
        written = _write_baseline(asked.write_baseline, ended, expected or []) and written
    if as_json:
        print_json(built)
    elif quiet:
        print(totals(ended, device, exporter)[0])
    else:
        for line in cause_lines(built):
            print(printable_lines(line))
        for problem in ended.problems:
            print(printable(problem))
        if ended.incomplete:
            print(f"incomplete: {printable(ended.incomplete)}")
        for line in baseline_lines(ended):
            print(printable(line))
        for line in totals(ended, device, exporter):
            print(line)
    return ended.exit_status or (verdict.GOOD if written else verdict.NOT_TRIED)


def _write_baseline(path: Path, ended: Run, entries: list[baseline.Expected]) -> bool:
    """Write the baseline of a run, and return whether that succeeded."""
    if ended.capabilities is None:
        print("xsem: no baseline is written: the device cannot be opened", file=sys.stderr)
        return False
    compared = baseline.compare(entries, ended.results, [each.key for each in ended.not_run])
    try:
        write_file(path, baseline.text_of(entries, compared, ended.began.date()).encode())
    except CannotWriteError as error:
        tell(error)
        return False
    return True
