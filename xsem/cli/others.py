"""Commands of other packages: typer apps of the entry-point group ``xsem.commands``, loaded when they are used."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from xsem.cli.options import COMMON
from xsem.cli.status import MissingPackageError
from xsem.cli.text import printable
from xsem.errors import XsemError

__all__ = ["CannotLoadError", "command", "load", "names", "run"]

_GROUP: Final = "xsem.commands"
_OWN: Final = {"conformance": "Check a device case by case."}


class CannotLoadError(XsemError):
    """The command of another package cannot be loaded."""


def names() -> dict[str, str]:
    """Return the names of the commands, each with a text for the help."""
    return {each.name: _OWN.get(each.name, f"Command of the package {_package(each)}.")
            for each in sorted(metadata.entry_points(group=_GROUP), key=lambda each: each.name)}


def load(name: str) -> Any:
    """Load the typer app of a command.

    Raises
    ------
    MissingPackageError
        A package is missing. The message says what to install.
    CannotLoadError
        ``plugin_failed``: the command raised an error.
    """
    [entry_point, *_] = metadata.entry_points(group=_GROUP, name=name)
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        package = _package(entry_point)
        extras = () if entry_point.dist is None else entry_point.dist.metadata.get_all("Provides-Extra") or ()
        wanted = f"{package}[{name}]" if name in extras else error.name
        raise MissingPackageError(f"`xsem {name}` needs {error.name}: pip install '{wanted}'",
                                  name=error.name) from error
    except (Exception, SystemExit) as error:
        raise CannotLoadError(f"the command {name!r} cannot be loaded: {printable(str(error))}",
                              reason="plugin_failed") from error


def run(name: str, arguments: list[str]) -> None:
    """Run a command. The end is a SystemExit."""
    command(name)(arguments, prog_name=f"xsem {name}", help_option_names=["-h", "--help"])


def command(name: str) -> Any:
    """Load the command of click behind the typer app of a command, with ``--no-color`` in the help of each level.

    Raises
    ------
    MissingPackageError, CannotLoadError
        As `load`.
    """
    app = load(name)
    import typer

    found = typer.main.get_command(app)
    _add(found, _no_color())
    return found


def _no_color() -> Any:
    """Return the option ``--no-color``, as Typer makes it. `xsem.cli.app` reads the flag and removes it before."""
    import typer

    app = typer.Typer(add_completion=False)

    @app.command()
    def flag(no_color: bool = typer.Option(False, "--no-color", help=COMMON["--no-color"])) -> None: ...

    [option] = (each for each in typer.main.get_command(app).params if each.name == "no_color")
    option.expose_value = False
    return option


def _add(command: Any, option: Any) -> None:
    command.params.append(option)
    for below in getattr(command, "commands", {}).values():
        _add(below, option)


def _package(entry_point: metadata.EntryPoint) -> str:
    return "unknown" if entry_point.dist is None else printable(entry_point.dist.name)
