"""The output files of ``xsem conformance run``: the check before the run, and the writes during and after the run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from xsem.cli.files import CannotWriteError, check_writable, write_file
from xsem.cli.status import MissingPackageError, UsageError, tell
from xsem.cli.text import printable
from xsem_conformance.report.packages import lacking

__all__ = ["OutputFiles", "check_packages", "check_place", "command_line"]

_OPTIONS: Final = ("--report", "--html", "--markdown", "--junit", "--write-baseline")
_PAUSE_S: Final = 1.0
_SHARE: Final = 10   # the command uses at most a tenth of a run for its reports


class OutputFiles:
    """The output files of a run: option and path."""

    # A write replaces the whole file. The file of a killed run is therefore a readable report of its finished cases.

    def __init__(self, places: dict[str, Path]) -> None:
        self._places = places
        self._next = 0.0

    def check(self) -> None:
        """Refuse unwritable paths before a run of several minutes."""
        named: dict[Path, str] = {}
        for option, path in self._places.items():
            check_place(option, path)
            other = named.setdefault(path.parent.resolve() / path.name, option)
            if other != option:
                raise UsageError(option, f"{path} is also the file of {other}")
        check_packages(["jsonschema"] * bool(self._places) + ["jinja2"] * ("--html" in self._places))

    def update(self, run: Any, commit: str) -> None:
        """Write the reports of a running run, at most once a second. Ignore a failed write: `write` reports it."""
        began = time.monotonic()
        if not self._places or began < self._next:
            return
        from xsem_conformance.report.build import build

        self._write(build(run, command=command_line(), commit=commit))
        ended = time.monotonic()
        self._next = ended + max(_PAUSE_S, _SHARE * (ended - began))

    def write(self, built: dict[str, Any]) -> bool:
        """Write the reports, and return whether all writes succeeded. After a failed write, write the other reports."""
        if not self._places:
            return True
        from xsem_conformance.report.build import check

        check(built)
        failures = self._write(built)
        for error in failures:
            tell(error)
        return not failures

    def _write(self, built: dict[str, Any]) -> list[CannotWriteError]:
        """Write each report. Return the failures."""
        failures = []
        for option, path in self._places.items():
            try:
                write_file(path, _made(option, built).encode(errors="replace"))
            except CannotWriteError as error:
                failures.append(error)
        return failures


def check_place(option: str, path: Path) -> None:
    """Refuse an unwritable path of an option."""
    try:
        check_writable(path)
    except CannotWriteError as error:
        raise UsageError(option, printable(error.message)) from error


def check_packages(packages: Iterable[str]) -> None:
    """Refuse the output if a package does not load."""
    lacks = lacking(packages)
    if lacks:
        raise MissingPackageError(lacks)


def command_line() -> str:
    """Return the command of this process without the paths of the reports, which differ between machines."""
    return " ".join(["xsem", *_asked(sys.argv[1:])])


def _asked(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for each in arguments:
        if skip or each.partition("=")[0] in _OPTIONS:
            skip = not skip and each in _OPTIONS
            continue
        kept.append(each)
    return kept


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
