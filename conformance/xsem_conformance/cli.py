"""``xsem conformance``: run, list, show, compare."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from xsem_conformance import verdict, waivers
from xsem_conformance.compare import NotComparableError
from xsem_conformance.compare import compare as compare_reports
from xsem_conformance.outcomes import Outcome, Result
from xsem_conformance.profiles import profiles

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="What a device really does, case by case.")


@app.callback()
def _group() -> None:
    """What a device really does, case by case."""


@app.command()
def run(
    device: Annotated[str, typer.Option(help="The device under test: host, cuda:0, …")] = "host",
    exporter: Annotated[str, typer.Option(help="What makes semaphores and memory, in a process of its own.")] = "host",
    profile: Annotated[str, typer.Option(help="core, timeline, memory or full.")] = "core",
    waiver_file: Annotated[Path | None, typer.Option("--waivers", help="TOML file of known failures.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write it as Markdown.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write it as JUnit XML.")] = None,
    commit: Annotated[str, typer.Option(help="What is under test, for the report.")] = "",
    only: Annotated[list[str] | None, typer.Option(help="Only requirements whose id begins so; repeatable.")] = None,
    patience: Annotated[float, typer.Option(min=0.05, help="Seconds that what must happen may take.")] = 10.0,
    quirks: Annotated[bool, typer.Option(help="Measure what the rules leave open, too.")] = True,
) -> None:
    """Run the suite on a device. Exit: 0 conforms, 1 does not, 2 usage, 3 could not be tried."""
    known = profiles()
    if profile not in known:
        raise typer.BadParameter(f"{profile!r} is none of {', '.join(known)}", param_hint="--profile")
    try:
        waived = waivers.load(waiver_file) if waiver_file is not None else []
    except waivers.WaiverError as error:
        raise typer.BadParameter(str(error), param_hint="--waivers") from error
    for option, path in (("--report", report), ("--html", html), ("--markdown", markdown), ("--junit", junit)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise typer.BadParameter(f"{path} cannot be written", param_hint=option)   # said now, not after minutes
    for package, options in (("jsonschema", (report, html, markdown, junit)), ("jinja2", (html,))):
        if any(options) and importlib.util.find_spec(package) is None:
            raise typer.BadParameter(f"a report needs {package}: pip install 'xsem[conformance]'")
    # Only now, so that --help needs neither a device nor the suite.
    from xsem_conformance.requirements import load
    from xsem_conformance.runner import UnavailableError
    from xsem_conformance.session import run as run_suite

    for each in only or ():
        if not any(name.startswith(each) for name in load().requirements):
            raise typer.BadParameter(f"no requirement's id begins with {each!r}", param_hint="--only")

    try:
        ended = run_suite(device, exporter, known[profile], waived, _progress, only=only or [], patience_s=patience,
                          quirks=quirks)
    except UnavailableError as error:   # a name that is none; all else is an outcome
        print(f"xsem: {error}", file=sys.stderr)
        raise typer.Exit(verdict.USAGE) from error
    _write(ended, report, html, markdown, junit, commit)
    for problem in ended.problems:
        print(_shown(problem))
    counts = verdict.counts(ended.results)
    lesser = verdict.lesser_failures(ended.results, ended.requirements)
    words = {Outcome(name): f"{count} {_WORDS[Outcome(name)]}" for name, count in counts.items()}
    if lesser:   # they cost nothing: who reads "0 failed" may trust it
        words[Outcome.FAIL] = f"{counts[Outcome.FAIL.value] - lesser} failed (and {lesser} SHOULD or MAY)"
    print(f"conformance of {device} with {exporter}, profile {profile}: {', '.join(words.values())}")
    raise typer.Exit(ended.status)


_WORDS = {
    Outcome.PASS: "passed", Outcome.FAIL: "failed", Outcome.ERROR: "errors", Outcome.UNSUPPORTED: "unsupported",
    Outcome.WAIVED: "waived", Outcome.BLOCKED: "blocked", Outcome.UNAVAILABLE: "unavailable",
}


def _progress(result: Result, done: int, total: int) -> None:
    if result.outcome in (Outcome.PASS, Outcome.UNSUPPORTED):
        if done % 25 == 0 or done == total:
            print(f"  {done} of {total}", flush=True)
        return
    from xsem_conformance.requirements import load

    known = load().requirements.get(result.case.requirement)   # a capability that is asked for is none
    level = "" if known is None or known.level == "MUST" else f" ({known.level})"
    print(f"  {result.outcome.value}{level} {result.case.key}: {_shown(result.detail)[:400]}", flush=True)


def _shown(text: str) -> str:
    # What a driver says neither steers the terminal nor ends the run where its encoding has no such character.
    line = "".join(each if each.isprintable() else "\ufffd" for each in " ".join(text.split()))
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return line.encode(encoding, "backslashreplace").decode(encoding)


def _asked(arguments: list[str]) -> list[str]:
    """The arguments without where the reports go: that is the writer's affair, and a path of their machine."""
    kept: list[str] = []
    skip = False
    for each in arguments:
        if skip or each.partition("=")[0] in _PLACES:
            skip = not skip and each in _PLACES
            continue
        kept.append(each)
    return kept


_PLACES = frozenset({"--report", "--html", "--markdown", "--junit"})


def _write(
    ended: Any, report: Path | None, html: Path | None, markdown: Path | None, junit: Path | None, commit: str
) -> None:
    if not any((report, html, markdown, junit)):
        return
    from xsem_conformance.report.build import build, check

    built = build(ended, command=" ".join(["xsem", *_asked(sys.argv[1:])]), commit=commit)
    check(built)
    if report is not None:
        report.write_text(json.dumps(built, indent=1) + "\n", encoding="utf-8")
    if html is not None:
        from xsem_conformance.report.html import html as page

        html.write_text(page(built), encoding="utf-8", errors="replace")
    if markdown is not None:
        from xsem_conformance.report.markdown import markdown as text

        markdown.write_text(text(built), encoding="utf-8", errors="replace")
    if junit is not None:
        from xsem_conformance.report.junit import junit as xml

        junit.write_text(xml(built), encoding="utf-8")


@app.command("list")
def list_requirements(
    area: Annotated[str, typer.Option(help="Only this area.")] = "",
) -> None:
    """List all requirements."""
    from xsem_conformance.checks import all_checks
    from xsem_conformance.requirements import AREAS, load

    if area and area not in AREAS:
        raise typer.BadParameter(f"{area!r} is none of {', '.join(AREAS)}", param_hint="--area")
    checks = all_checks()
    for each in load().requirements.values():
        if area and each.area != area:
            continue
        how = "facade" if each.subject == "facade" else "run" if each.id in checks else "-"
        print(f"{each.id:16} {each.level:6} {how:6} {each.text}")


@app.command()
def show(requirement: str) -> None:
    """Show one requirement: what it says, what it rests on, and how it is checked."""
    from xsem_conformance.checks import all_checks
    from xsem_conformance.requirements import load

    loaded = load()
    found = loaded.requirements.get(requirement)
    if found is None:
        raise typer.BadParameter(f"there is no requirement {requirement!r}", param_hint="ID")
    print(f"{found.id} ({found.level}, {found.subject}): {found.text}")
    if found.capability:
        print(f"  needs: {found.capability}")
    for name in found.clauses:
        clause = loaded.clauses[name]
        print(f"  {clause.id}: {clause.gist} ({clause.source})")
    check = all_checks().get(found.id)
    if check is not None:
        print(f"  check: {check.run.__module__}.{check.run.__name__}, at most {check.deadline_s:g} s")
        print(f"    {(check.run.__doc__ or '').strip()}")


@app.command()
def compare(before: Path, after: Path) -> None:
    """Compare two reports. Exit: 0 nothing is worse, 1 something is, 2 they cannot be compared."""
    try:
        found = compare_reports(json.loads(before.read_text(encoding="utf-8")),
                                json.loads(after.read_text(encoding="utf-8")))
    except (OSError, KeyError, TypeError, ValueError, NotComparableError) as error:
        print(f"xsem: cannot compare: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    for title, lines in (("worse", found.worse), ("better", found.better), ("new", found.new), ("gone", found.gone)):
        for line in lines:
            print(f"{title}: {line}")
    print(f"{len(found.worse)} worse, {len(found.better)} better, {len(found.new)} new, {len(found.gone)} gone")
    raise typer.Exit(1 if found.worse else 0)
