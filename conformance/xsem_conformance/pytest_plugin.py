"""Run the suite among the tests of an author: ``pytest -p xsem_conformance.pytest_plugin --xsem-device toy:0``.

Every case is a test with the key of the case as its name, in the order of the requirements. It runs in the runner's
processes as under ``xsem conformance run``. The last test checks the needs of the profile.

A FAIL or an ERROR fails. An unmet SHOULD is an expected failure. UNSUPPORTED is skipped with its reason. BLOCKED and
UNAVAILABLE are errors. The plugin supports no waivers.

Without ``--xsem-device`` the plugin does nothing. It has no entry point: pytest loads it only with ``-p``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from xsem_conformance.outcomes import Result
    from xsem_conformance.profiles import Profile
    from xsem_conformance.requirements import Requirement
    from xsem_conformance.run.planning import Planned
    from xsem_conformance.run.runner import Workers
    from xsem_conformance.run.session import Survey

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_report_collectionfinish"]

_CASES: Final = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of ``xsem conformance run`` for device, exporter and profile."""
    group = parser.getgroup("xsem", "xsem: the conformance suite")
    group.addoption("--xsem-device", metavar="D", help="run the suite on this device: host, cuda:0, …")
    group.addoption("--xsem-exporter", metavar="E", default="host", help="exporter of objects (default: host)")
    group.addoption("--xsem-profile", metavar="P", default="core", help="core (default), timeline, memory or full")


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
    from xsem_conformance.profiles import profiles
    from xsem_conformance.requirements import load
    from xsem_conformance.run.runner import UnavailableError
    from xsem_conformance.run.session import survey

    known, name = profiles(), config.getoption("xsem_profile")
    if name not in known:
        raise pytest.UsageError(f"--xsem-profile: {name!r} is none of {', '.join(known)}")
    requirements = load().requirements
    try:
        surveyed = survey(device, config.getoption("xsem_exporter"), list(requirements.values()))
    except UnavailableError as error:   # unknown device or two different devices; any other failure is an outcome
        raise pytest.UsageError(str(error)) from error
    suite = _Suite.from_parent(session, name=device, nodeid=device, profile=known[name],
                               requirements=list(requirements.values()), surveyed=surveyed)
    cases = list(suite.collect())
    config.stash[_CASES] = len(cases)
    items += cases


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    """Report the number of cases: the count of pytest covers only tests in files."""
    count = config.stash.get(_CASES, 0)
    return f"xsem: {count} cases of {config.getoption('xsem_device')}" if count else None


class _Suite(pytest.Collector):
    """One device; its processes live from its first case to its last case."""

    def __init__(
        self, *, profile: Profile, requirements: list[Requirement], surveyed: Survey, **node: Any
    ) -> None:
        super().__init__(**node)
        self.profile = profile
        self.requirements = requirements
        self.surveyed = surveyed
        self.results: dict[str, Result] = {}
        self.refused: dict[str, Result] = {}
        self.workers: Workers | None = None

    def collect(self) -> Iterable[pytest.Item]:
        for planned in self.surveyed.cases:
            yield _Case.from_parent(self, name=planned.case.key, planned=planned)
        yield _Profile.from_parent(self, name=f"profile/{self.profile.name}")

    def setup(self) -> None:
        from xsem_conformance.run.runner import Workers

        if self.surveyed.capabilities is not None:
            self.workers = Workers(self.name, self.surveyed.exporting)

    def teardown(self) -> None:
        if self.workers is not None:
            self.workers.__exit__(None, None, None)
            self.workers = None

    def result(self, planned: Planned) -> Result:
        """Run one case."""
        from xsem_conformance.outcomes import Outcome, Result
        from xsem_conformance.run.session import refusal, result

        if self.workers is None:
            return Result(planned.case, Outcome.UNAVAILABLE, self.surveyed.unavailable)
        missing = planned.undeclared
        # The suite can call only these capabilities. Other entries are texts.
        if missing in self.surveyed.undeclared and missing not in self.refused:
            self.refused[missing] = refusal(self.workers, missing)
        found = self.results[planned.case.key] = result(self.workers, planned, self.refused)
        return found


class _Item(pytest.Item):
    parent: _Suite

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
        from xsem_conformance.outcomes import Outcome

        # Run here, judge in runtest: for pytest an exception here is an error, not a failure.
        self.found = self.parent.result(self.planned)
        if self.found.outcome in (Outcome.BLOCKED, Outcome.UNAVAILABLE):
            pytest.fail(f"{self.found.outcome.value}: {self.found.detail}", pytrace=False)

    def runtest(self) -> None:
        from xsem_conformance.outcomes import Outcome

        found, requirement = self.found, self.planned.requirement
        if found is None or found.outcome is Outcome.PASS:
            return
        if found.outcome is Outcome.UNSUPPORTED:
            pytest.skip(found.detail)
        said = f"{found.outcome.value}: {found.detail}\n{requirement.id}, {requirement.level}: {requirement.text}"
        if requirement.level != "MUST":
            pytest.xfail(said)
        pytest.fail(said, pytrace=False)


class _Profile(_Item):
    """The needs of the profile: capabilities, and a passed case in each area if all cases were run."""

    def setup(self) -> None:
        if self.parent.surveyed.capabilities is None:
            pytest.fail(f"UNAVAILABLE: {self.parent.surveyed.unavailable}", pytrace=False)

    def runtest(self) -> None:
        from xsem_conformance.verdict import unmet

        suite = self.parent
        assert suite.surveyed.capabilities is not None  # noqa: S101 - otherwise setup has raised
        problems = suite.profile.lacking(suite.surveyed.capabilities)
        # With -k, or with xdist, this process does not know all results.
        if len(suite.results) == len(suite.surveyed.cases):
            problems += unmet(suite.profile, suite.requirements, list(suite.results.values()))
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)
