"""The backend's own lines in a traceback or in a dump of stacks."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Final

from xsem_conformance.outcomes import Frame, chain

__all__ = ["frames_in", "frames_of", "shortened", "where"]

_DUMPED: Final = re.compile(r'^ +File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_OURS: Final = re.compile(r'File "(?:xsem_conformance/run/\w+\.py|<frozen runpy>)"')
_CODE: Final = 120


def frames_of(error: BaseException, package: str) -> tuple[Frame, ...]:
    """Return the frames of an exception in the files of a package, outermost first."""
    # The cause of an exception comes before the exception, because the facade raises its own error from a driver's
    # error.
    for each in reversed(list(chain(error))):
        found = tuple(
            Frame(short, frame.lineno or 0, frame.name, (frame.line or "")[:_CODE])
            for frame in traceback.extract_tb(each.__traceback__) if _of(short := _relative(frame.filename), package))
        if found:
            return found
    return ()


def frames_in(dump: str, package: str) -> tuple[Frame, ...]:
    """Return the frames of a `shortened` dump of faulthandler in the files of a package, outermost first."""
    found = (Frame(each["file"], int(each["line"]), each["function"]) for each in _DUMPED.finditer(dump)
             if _of(each["file"], package))
    return tuple(reversed(list(found)))   # a dump begins with the most recent call


def shortened(dump: str) -> str:
    """Return a dump of faulthandler without the frames of the runner, and with paths relative to the import folders."""
    short = re.sub(r'File "([^"]*)"', lambda found: f'File "{_relative(found[1])}"', dump)
    return "\n".join(line for line in short.splitlines() if not _OURS.search(line)).strip()


def where(error: BaseException) -> str:
    """Return the line of the check that raised an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((each for each in reversed(frames) if "suite" in each.filename), frames[-1] if frames else None)
    return "" if last is None else f"{os.path.basename(last.filename)}:{last.lineno}"


def _relative(file: str) -> str:
    folders = [folder for each in sys.path if file.startswith(folder := os.path.join(os.path.abspath(each), ""))]
    return file[len(max(folders, key=len)):].replace(os.sep, "/") if folders else file


def _of(file: str, package: str) -> bool:
    path = f"/{package.replace('.', '/')}"
    return bool(package) and (f"/{file}".endswith(f"{path}.py") or f"{path}/" in f"/{file}")
