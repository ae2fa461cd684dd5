"""Commands of other packages: the entry-point group ``xsem.commands``."""

# An entry point is a function that adds the arguments of the command to an `argparse.ArgumentParser`. The parser's
# default `run` is the function of the command: it takes the parsed arguments and returns the exit status.

from __future__ import annotations

import argparse
from importlib import metadata
from typing import Final

from xsem.cli.status import MissingPackageError
from xsem.cli.text import printable
from xsem.errors import XsemError

__all__ = ["CannotLoadError", "load", "names"]

_GROUP: Final = "xsem.commands"
_OWN: Final = {"conformance": "Check a device with the conformance suite, case by case."}


class CannotLoadError(XsemError):
    """The command of another package cannot be loaded."""


def names() -> dict[str, str]:
    """Return the names of the commands, each with a text for the help."""
    return {each.name: _OWN.get(each.name, f"Command of the package {_package(each)}.")
            for each in sorted(metadata.entry_points(group=_GROUP), key=lambda each: each.name)}


def load(name: str, parser: argparse.ArgumentParser) -> None:
    """Load a command, and add its arguments to its parser."""
    [entry_point, *_] = metadata.entry_points(group=_GROUP, name=name)
    try:
        entry_point.load()(parser)
    except ModuleNotFoundError as error:
        package = _package(entry_point)
        extras = () if entry_point.dist is None else entry_point.dist.metadata.get_all("Provides-Extra") or ()
        wanted = f"{package}[{name}]" if name in extras else error.name
        raise MissingPackageError(f"`xsem {name}` needs {error.name}: pip install '{wanted}'",
                                  name=error.name) from error
    except (Exception, SystemExit) as error:
        raise CannotLoadError(f"the command {name!r} cannot be loaded: {printable(str(error))}",
                              reason="plugin_failed") from error


def _package(entry_point: metadata.EntryPoint) -> str:
    return "unknown" if entry_point.dist is None else printable(entry_point.dist.name)
