"""``xsem conformance run``."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from xsem.cli.files import CannotWriteError, check_writable, write_file
from xsem.cli.status import tell
from xsem.cli.text import printable
from xsem_conformance import verdict, waivers
from xsem_conformance.outcomes import Outcome, Result
from xsem_conformance.profiles import profiles

__all__ = ["run"]


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
    patience: Annotated[float, typer.Option(min=0.05, help="Seconds until a result counts as missing.")] = 10.0,
    quirks: Annotated[bool, typer.Option(help="Measure also the behaviour that the rules leave open.")] = True,
) -> None:
    """Run the suite on a device. Exit: 0 conforms, 1 does not, 2 usage, 3 could not be tried."""
    known = profiles()
    if profile not in known:
        raise typer.BadParameter(f"{profile!r} is none of {', '.join(known)}", param_hint="--profile")
    try:
        waived = waivers.load(waiver_file) if waiver_file is not None else []
    except waivers.WaiverError as error:
        raise typer.BadParameter(printable(str(error)), param_hint="--waivers") from error
    places = {option: path for option, path in (("--report", report), ("--html", html), ("--markdown", markdown),
                                                ("--junit", junit)) if path is not None}
    _check_places(places)
    # Imported here, so that --help needs neither a device nor the suite.
    from xsem_conformance.requirements import load
    from xsem_conformance.run.runner import UnavailableError
    from xsem_conformance.run.session import run as run_suite

    for each in only or ():
        if not each or not any(name.startswith(each) for name in load().requirements):
            raise typer.BadParameter(f"no requirement's id begins with {each!r}", param_hint="--only")

    try:
        ended = run_suite(device, exporter, known[profile], waived, _progress, only=only or [], patience_s=patience,
                          quirks=quirks)
    except UnavailableError as error:   # unknown device or two different devices; any other failure is an outcome
        print(f"xsem: {printable(str(error))}", file=sys.stderr)
        raise typer.Exit(verdict.USAGE if error.usage else verdict.NOT_TRIED) from error
    written = _write(ended, places, commit)
    for problem in ended.problems:
        print(printable(problem))
    tally = verdict.Tally.of_results(ended.results, ended.refusals, ended.requirements)
    said = verdict.sentence(ended.status, profile, tally, problems=len(ended.problems), partial=bool(only))
    for line in verdict.lines(tally, said, f"{device} with {exporter}"):
        print(line)
    raise typer.Exit(ended.status or (verdict.GOOD if written else verdict.NOT_TRIED))


def _progress(result: Result, done: int, total: int) -> None:
    if result.outcome in (Outcome.PASS, Outcome.UNSUPPORTED):
        if done % 25 == 0 or done == total:
            print(f"  {done} of {total}", flush=True)
        return
    from xsem_conformance.requirements import load

    known = load().requirements.get(result.case.requirement)   # a refusal names a capability, not a requirement
    level = "" if known is None or known.level == "MUST" else f" ({known.level})"
    print(f"  {result.outcome.value}{level} {result.case.key}: {printable(result.detail)[:400]}", flush=True)


def _asked(arguments: list[str]) -> list[str]:
    """Return the arguments without the paths of the reports: these are paths of one machine."""
    kept: list[str] = []
    skip = False
    for each in arguments:
        if skip or each.partition("=")[0] in _PLACES:
            skip = not skip and each in _PLACES
            continue
        kept.append(each)
    return kept


_PLACES = frozenset({"--report", "--html", "--markdown", "--junit"})


def _check_places(places: dict[str, Path]) -> None:
    """Refuse paths that cannot be written, before a run of minutes."""
    named: dict[Path, str] = {}
    for option, path in places.items():
        try:
            check_writable(path)
        except CannotWriteError as error:
            raise typer.BadParameter(printable(error.message), param_hint=option) from error
        other = named.setdefault(path.parent.resolve() / path.name, option)
        if other != option:
            raise typer.BadParameter(f"{path} is also the file of {other}", param_hint=option)
    for package, needed in (("jsonschema", bool(places)), ("jinja2", "--html" in places)):
        if needed and importlib.util.find_spec(package) is None:
            print(f"xsem: a report needs {package}: pip install 'xsem[conformance]'", file=sys.stderr)
            raise typer.Exit(verdict.NOT_TRIED)


def _write(ended: Any, places: dict[str, Path], commit: str) -> bool:
    """Write the reports; return whether all were written. A failure of one report does not stop the others."""
    if not places:
        return True
    from xsem_conformance.report.build import build, check

    built = build(ended, command=" ".join(["xsem", *_asked(sys.argv[1:])]), commit=commit)
    check(built)
    good = True
    for option, path in places.items():
        try:
            write_file(path, _made(option, built).encode(errors="replace"))
        except CannotWriteError as error:
            tell(error)
            good = False
    return good


def _made(option: str, built: dict[str, Any]) -> str:
    if option == "--html":
        from xsem_conformance.report.html import html

        return html(built)
    if option == "--markdown":
        from xsem_conformance.report.markdown import markdown

        return markdown(built)
    if option == "--junit":
        from xsem_conformance.report.junit import junit

        return junit(built)
    return json.dumps(built, indent=1) + "\n"
