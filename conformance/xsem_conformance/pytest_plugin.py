"""Run the suite among the tests of an author: ``pytest -p xsem_conformance.pytest_plugin --xsem-device toy:0``.

Every case is a test in the order of the requirements. The name of the test is the key of the case. The test runs in
the same processes as under ``xsem conformance run``. The last test checks the needs of the profile.

A FAIL or an ERROR fails. An unmet SHOULD, a waived failure and one with an entry in the baseline are expected failures.
UNSUPPORTED and NOT_EXAMINED are skipped with their reason. If all cases of a session are skipped and it has no other
test, its exit status is 5. BLOCKED, UNAVAILABLE and a case that was not run are errors. Each case has the marker
``xsem``: ``-m xsem`` selects the cases, and ``-m "not xsem"`` the other tests. The node id of a
case is also an argument::

    pytest -p xsem_conformance.pytest_plugin --xsem-device toy:0 toy:0::XSEM-BIN-003/opaque_fd/host/in

Without ``--xsem-device`` the plugin does nothing. It has no entry point: pytest loads it only with ``-p``.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from xsem_conformance.baseline import Expected
    from xsem_conformance.outcomes import Result
    from xsem_conformance.profiles import Profile
    from xsem_conformance.requirements import Requirement
    from xsem_conformance.run.planning import Planned
    from xsem_conformance.run.runner import Workers
    from xsem_conformance.run.session import Run, Survey
    from xsem_conformance.waivers import Waiver

__all__ = [
    "pytest_addoption", "pytest_collection_modifyitems", "pytest_configure", "pytest_report_collectionfinish",
    "pytest_sessionfinish",
]

_CALLS: Final = 20
_STACK: Final = 40
_CASES: Final = pytest.StashKey[int]()
_CHOSEN: Final = pytest.StashKey[list[str]]()
_SUITE: Final = pytest.StashKey["_Suite"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of ``xsem conformance run`` that concern a run in pytest."""
    group = parser.getgroup("xsem", "xsem: the conformance suite")
    group.addoption("--xsem-device", metavar="D", help="run the suite on this device: host, cuda:0, …")
    group.addoption("--xsem-exporter", metavar="E", default="host", help="exporter of objects (default: host)")
    group.addoption("--xsem-profile", metavar="P", default="core",
                    help="core (default), timeline, memory, full or portable")
    group.addoption("--xsem-waivers", metavar="FILE", type=Path, help="TOML file of known failures")
    group.addoption("--xsem-baseline", metavar="FILE", type=Path, help="TOML file of expected failures")
    group.addoption("--xsem-report", metavar="FILE", type=Path, help="write the report as JSON")
    group.addoption("--xsem-patience", metavar="S", type=float,
                    help="seconds until a result counts as missing, and for the opening of a device")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker. Remove the node ids of cases from the arguments, because pytest would look for files."""
    config.addinivalue_line("markers", "xsem: a case of the conformance suite of xsem")
    device = config.getoption("xsem_device")
    if device is None:
        return
    chosen = [each.partition("::")[2] for each in config.args if each.startswith(f"{device}::")]
    if chosen:
        config.stash[_CHOSEN] = chosen
        config.args = [each for each in config.args if not each.startswith(f"{device}::")]


# First, so that -k and other plugins select among the cases as among all tests.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the cases after the collected tests."""
    device = config.getoption("xsem_device")
    if device is None:
        return
    # Imported here: a pytest session without --xsem-device does not load the suite.
    from xsem.cli.files import CannotWriteError, check_writable
    from xsem_conformance import baseline, waivers
    from xsem_conformance.profiles import profiles
    from xsem_conformance.report.packages import lacking
    from xsem_conformance.requirements import load
    from xsem_conformance.run.process import UnavailableError
    from xsem_conformance.run.session import survey

    known, name = profiles(), config.getoption("xsem_profile")
    if name not in known:
        raise pytest.UsageError(f"--xsem-profile: {name!r} is not one of {', '.join(known)}")
    requirements = list(load().requirements.values())
    file, report = config.getoption("xsem_waivers"), config.getoption("xsem_report")
    entries = config.getoption("xsem_baseline")
    try:
        waived = [] if file is None else waivers.load(file)
        expected = None if entries is None else baseline.load(entries)
        if report is not None:
            check_writable(report)
            lacks = lacking(["jsonschema"])
            if lacks:
                raise pytest.UsageError(f"--xsem-report: {lacks}")
        surveyed = survey(device, config.getoption("xsem_exporter"), requirements, _patience_s(config),
                          portable=known[name].portable)
    except waivers.WaiverError as error:
        raise pytest.UsageError(f"--xsem-waivers: {error}") from error
    except baseline.BaselineError as error:
        raise pytest.UsageError(f"--xsem-baseline: {error}") from error
    except CannotWriteError as error:
        raise pytest.UsageError(f"--xsem-report: {error}") from error
    except UnavailableError as error:   # unknown device, or an exporter that cannot be used
        raise pytest.UsageError(str(error)) from error
    suite = _Suite.from_parent(session, name=device, nodeid=device, profile=known[name], requirements=requirements,
                               surveyed=surveyed, waived=waived, expected=expected)
    config.stash[_SUITE] = suite
    cases = _selected(list(suite.collect()), config)
    items += cases
    # The terminal counts the collected tests by the reports of their collectors.
    config.hook.pytest_collectreport(report=pytest.CollectReport(
        nodeid=suite.nodeid, outcome="passed", longrepr=None, result=list(cases)))


def _selected(cases: list[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    chosen = config.stash.get(_CHOSEN, None)
    if chosen is not None:
        names = {each.name for each in cases}
        for each in chosen:
            if each not in names:
                raise pytest.UsageError(f"the case {each!r} does not exist for {config.getoption('xsem_device')}")
        cases = [each for each in cases if each.name in chosen]
    config.stash[_CASES] = len(cases)
    return cases


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report of the cases that ran. A session that tried no case and has no other test is not a success."""
    suite, path = session.config.stash.get(_SUITE, None), session.config.getoption("xsem_report")
    if suite is not None and suite.tried_nothing and session.exitstatus == pytest.ExitCode.OK and all(
            isinstance(each, _Case) for each in session.items):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
    # A process of xdist has only a part of the results.
    if suite is not None and path is not None and not hasattr(session.config, "workerinput"):
        suite.write(path)


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    """Report the number of cases among the collected tests, before a selection by ``-k`` or ``-m``."""
    count = config.stash.get(_CASES, 0)
    return f"xsem: {count} cases of {config.getoption('xsem_device')}" if count else None


def _patience_s(config: pytest.Config) -> float:
    from xsem_conformance.case.polling import PATIENCE_S

    given = config.getoption("xsem_patience")
    return PATIENCE_S if given is None else float(given)


class _Suite(pytest.Collector):
    """The cases of one device. The processes of the device live from the first case to the last case."""

    workers: Workers

    def __init__(
        self, *, profile: Profile, requirements: list[Requirement], surveyed: Survey, waived: list[Waiver],
        expected: list[Expected] | None, **node: Any,
    ) -> None:
        super().__init__(**node)
        self.profile = profile
        self.requirements = requirements
        self.surveyed = surveyed
        self.waived = waived
        self.expected = expected
        self.began = dt.datetime.now(dt.UTC)
        self.clock = time.monotonic()
        self.results: dict[str, Result] = {}
        self.refused: dict[str, Result] = {}

    def collect(self) -> Iterable[pytest.Item]:
        for planned in self.surveyed.cases:
            yield _Case.from_parent(self, name=planned.case.key, planned=planned)
        yield _Profile.from_parent(self, name=f"profile/{self.profile.name}")

    def setup(self) -> None:
        from xsem_conformance.run.hangs import Hangs
        from xsem_conformance.run.runner import Workers

        # A process starts at the first case.
        self.workers = Workers(self.name, self.surveyed.exporting, self.patience_s, hangs=Hangs(self.patience_s),
                               portable=self.profile.portable)

    @property
    def patience_s(self) -> float:
        """Seconds until an expected result counts as missing."""
        return _patience_s(self.config)

    def teardown(self) -> None:
        self.workers.__exit__(None, None, None)

    def result(self, planned: Planned) -> Result:
        """Run one case."""
        from xsem_conformance import waivers
        from xsem_conformance.run.session import refusal, result, unavailable

        if self.surveyed.missing is not None:
            return unavailable(planned.case, self.surveyed.missing)
        missing = planned.undeclared
        # The suite can call only the capabilities of `surveyed.undeclared`. Other entries are texts.
        if missing in self.surveyed.undeclared and missing not in self.refused:
            self.refused[missing] = refusal(self.workers, missing)
        found = self.results[planned.case.key] = result(self.workers, planned, self.refused, self.patience_s)
        waivers.apply(self.waived, [found], self.began.date())
        return found

    @property
    def tried_nothing(self) -> bool:
        """Whether this process ran cases, and tried none of them: the device does not declare what they need."""
        from xsem_conformance.outcomes import UNOBSERVED

        return bool(self.results) and all(each.outcome in UNOBSERVED for each in self.results.values())

    def as_run(self) -> Run:
        """Return the results so far as a run."""
        from xsem_conformance import verdict, waivers
        from xsem_conformance.run.session import Run

        surveyed, results = self.surveyed, list(self.results.values())
        chosen = [f"{name} {value}" for name, value in (("-k", self.config.getoption("keyword")),
                                                        ("-m", self.config.getoption("markexpr"))) if value]
        why = f"pytest was limited to {' '.join(chosen)}" if chosen else "pytest did not run it"
        not_run = {each.case: why for each in surveyed.cases if each.case.key not in self.results}
        problems = waivers.apply(self.waived, results, self.began.date(), [each.key for each in not_run])
        problems += [] if surveyed.capabilities is None else self.profile.lacking(surveyed.capabilities)
        if not not_run:
            problems += verdict.unmet(self.profile, self.requirements, results)
        return Run(surveyed.device, surveyed.exporter, surveyed.capabilities, self.profile, self.requirements,
                   self.began, results, list(self.refused.values()), {}, problems, surveyed.code, not_run,
                   round(time.monotonic() - self.clock, 3), expected=self.expected)

    def reason(self, key: str) -> str:
        """Return the reason why a case is expected to fail; empty if the baseline has no entry."""
        return next((each.reason for each in self.expected or () if each.matches(key)), "")

    def write(self, path: Path) -> None:
        """Write the report."""
        from xsem.cli.files import write_file
        from xsem_conformance.report.build import build, check

        built = build(self.as_run(), command=f"pytest -p xsem_conformance.pytest_plugin --xsem-device {self.name}",
                      commit="")
        check(built)
        write_file(path, (json.dumps(built, indent=1) + "\n").encode(errors="replace"))


class _Item(pytest.Item):
    parent: _Suite

    def __init__(self, **node: Any) -> None:
        super().__init__(**node)
        self.add_marker("xsem")

    def reportinfo(self) -> tuple[Path, int | None, str]:
        # Not the key by itself: pytest would treat it as a Python name, and replace its dots by `::`.
        return self.path, None, f"{self.name} on {self.parent.name}"


class _Case(_Item):
    """One case."""

    def __init__(self, *, planned: Planned, **node: Any) -> None:
        super().__init__(**node)
        self.planned = planned
        self.found: Result | None = None

    def setup(self) -> None:
        from xsem_conformance.outcomes import NotRunError, Outcome

        # `runtest` decides the outcome: for pytest, an exception in `setup` is an error and not a failure.
        try:
            self.found = self.parent.result(self.planned)
        except NotRunError as error:
            pytest.fail(f"not run: {error}", pytrace=False)
        if self.found.outcome is Outcome.BLOCKED and (why := self.parent.reason(self.name)):
            pytest.xfail(f"expected: {why}: BLOCKED: {self.found.detail}")
        if self.found.outcome in (Outcome.BLOCKED, Outcome.UNAVAILABLE):
            pytest.fail(f"{self.found.outcome.value}: {self.found.detail}", pytrace=False)

    def runtest(self) -> None:
        from xsem_conformance.outcomes import UNOBSERVED, Outcome

        found, requirement = self.found, self.planned.requirement
        if found is None or found.outcome is Outcome.PASS:
            return
        if found.outcome in UNOBSERVED:
            pytest.skip(found.detail)
        said = f"{found.outcome.value}: {found.detail}\n{requirement.id}, {requirement.level}: {requirement.text}"
        if requirement.level != "MUST" or found.outcome is Outcome.WAIVED:
            pytest.xfail(said)
        if why := self.parent.reason(self.name):
            pytest.xfail(f"expected: {why}: {said}")
        pytest.fail("\n".join([said, *self._evidence(found)]), pytrace=False)

    def _evidence(self, found: Result) -> list[str]:
        from xsem.cli.text import printable_lines
        from xsem_conformance.report.build import case_of
        from xsem_conformance.report.failure_text import failure_lines

        shown = failure_lines(case_of(self.parent.as_run(), found, 1), calls=_CALLS, stack=_STACK)
        return [printable_lines(each) for each in shown[1:]]   # `said` contains the requirement's sentence


class _Profile(_Item):
    """The needs of the profile: capabilities, and a passed case in each area if all cases were run."""

    def setup(self) -> None:
        if self.parent.surveyed.capabilities is None:
            pytest.fail(f"UNAVAILABLE: {self.parent.surveyed.unavailable}", pytrace=False)

    def runtest(self) -> None:
        # With -k or xdist, this process does not have all results.
        problems = self.parent.as_run().unexplained
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)
