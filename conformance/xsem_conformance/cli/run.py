"""``xsem conformance run``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsem.cli.text import printable, printable_lines
from xsem_conformance import verdict, waivers
from xsem_conformance.cli.output_files import OutputFiles, command_line
from xsem_conformance.cli.reading import Json, Quiet, print_json
from xsem_conformance.cli.run_text import Progress, cause_lines, totals
from xsem_conformance.profiles import profiles

if TYPE_CHECKING:
    from xsem_conformance.outcomes import Result
    from xsem_conformance.run.session import Run

__all__ = ["run"]

_JOBS = min(4, 2 * (os.cpu_count() or 1))   # a case waits most of its time


def run(
    device: Annotated[str, typer.Option(help="The device under test: host, cuda:0, …")] = "host",
    exporter: Annotated[
        str, typer.Option(help="Exporter of semaphores and memory, in a separate process: host, vulkan (the device "
                               "with the same UUID), …")
    ] = "host",
    profile: Annotated[str, typer.Option(help="core, timeline, memory or full.")] = "core",
    waiver_file: Annotated[Path | None, typer.Option("--waivers", help="TOML file of known failures.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as an HTML page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the report as Markdown.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit XML.")] = None,
    commit: Annotated[str, typer.Option(help="The commit under test, for the report.")] = "",
    only: Annotated[list[str] | None, typer.Option(help="Only requirements with this prefix; repeatable.")] = None,
    case: Annotated[
        list[str] | None, typer.Option(help="Only the case with this key, ID/type/exporter/direction; repeatable.")
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Run one --case in this process, and print its calls and its traceback.")
    ] = False,
    patience: Annotated[
        float, typer.Option(min=0.05, help="Seconds until a result counts as missing, and for the opening of a device "
                                           "(at least 5).")] = 10.0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of cases at once.")] = _JOBS,
    max_failures: Annotated[
        int, typer.Option(min=0, help="Number of failures of a MUST after which no further case begins; 0: no "
                                      "limit.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option(min=1, help="Seconds for all cases together. Later cases are not run.")] = None,
    max_hangs: Annotated[
        int, typer.Option(min=0, help="Number of cases in a row that hang in one call, after which no case makes the "
                                      "call; 0: no limit.")] = 3,
    quirks: Annotated[bool, typer.Option(help="Also measure the behaviour that the rules leave open.")] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the suite on a device. Exit: 0 conforms, 1 does not, 2 usage, 3 could not be tried."""
    known = profiles()
    if profile not in known:
        raise typer.BadParameter(f"{profile!r} is not one of {', '.join(known)}", param_hint="--profile")
    try:
        waived = waivers.load(waiver_file) if waiver_file is not None else []
    except waivers.WaiverError as error:
        raise typer.BadParameter(printable(str(error)), param_hint="--waivers") from error
    files = OutputFiles({option: path for option, path in (("--report", report), ("--html", html),
                                                           ("--markdown", markdown), ("--junit", junit))
                         if path is not None})
    files.check()
    if debug and len(case or ()) != 1:
        raise typer.BadParameter("exactly one --case is needed", param_hint="--debug")
    # Imported here, so that --help needs neither a device nor the suite.
    from xsem_conformance.cli.debug import debug as run_here
    from xsem_conformance.report.build import build
    from xsem_conformance.requirements import load
    from xsem_conformance.run.process import UnavailableError
    from xsem_conformance.run.session import Limits, UnknownCaseError
    from xsem_conformance.run.session import run as run_suite

    for each in only or ():
        if not each or not any(name.startswith(each) for name in load().requirements):
            raise typer.BadParameter(f"no requirement's id begins with {each!r}", param_hint="--only")

    progress = Progress()
    latest: list[Run] = []

    def after(so_far: Run, result: Result) -> None:
        latest[:] = [so_far]
        if not (as_json or quiet):
            progress.show(so_far, result)
        files.update(so_far, commit)

    try:
        if debug and case:
            raise typer.Exit(run_here(device, exporter, case[0], patience))
        ended = run_suite(device, exporter, known[profile], waived, after, only=only or [], cases=case or [],
                          patience_s=patience, quirks=quirks,
                          limits=Limits(jobs, max_failures, time_limit, max_hangs))
    except UnknownCaseError as error:
        raise typer.BadParameter(printable(str(error)), param_hint="--case") from error
    except UnavailableError as error:   # the device does not exist, or the exporter cannot be used; no case has run
        print(f"xsem: {printable(str(error))}", file=sys.stderr)
        raise typer.Exit(verdict.USAGE if error.usage else verdict.NOT_TRIED) from error
    except KeyboardInterrupt:
        for so_far in latest:
            files.write(build(so_far, command=command_line(), commit=commit))
        raise
    built = build(ended, command=command_line(), commit=commit)
    written = files.write(built)
    if as_json:
        print_json(built)
    elif quiet:
        print(totals(ended, device, exporter)[-1])
    else:
        for line in cause_lines(built):
            print(printable_lines(line))
        for problem in ended.problems:
            print(printable(problem))
        if ended.incomplete:
            print(f"incomplete: {printable(ended.incomplete)}")
        for line in totals(ended, device, exporter):
            print(line)
    raise typer.Exit(ended.status or (verdict.GOOD if written else verdict.NOT_TRIED))
