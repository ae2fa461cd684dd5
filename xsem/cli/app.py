"""The commands and their options; what they do is in the modules beside this one."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer

from xsem import __version__
from xsem.cli.status import INTERRUPTED, NOT_TRIED, status_of, tell
from xsem.errors import XsemError

__all__ = ["COMMANDS", "run"]

COMMANDS: Final = "xsem.commands"
"""Entry points of this group are commands: the name is the command's, the value a typer app."""

# Plain usage errors and help: the boxes that typer draws otherwise are noise in a log.
app = typer.Typer(
    name="xsem", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="External semaphores and memory for GPU compute.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"xsem {__version__}")
        raise typer.Exit


@app.callback(epilog="Exit status: 0 done, 1 the answer is bad, 2 usage, 3 could not be tried. XSEM_BACKENDS=host,… in the "
                     "environment has only those backends loaded.")
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """External semaphores and memory for GPU compute."""


@app.command()
def devices(as_json: Json = False) -> None:
    """List backends and devices, with what each declares."""
    with _ctrl_c():
        from xsem.cli.devices import run as list_devices

        raise typer.Exit(list_devices(as_json=as_json))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say why each backend, loader or permission is missing here, and what to do."""
    with _ctrl_c():
        from xsem.cli.doctor import run as examine

        raise typer.Exit(examine(as_json=as_json))


@app.command()
def demo(
    device: Annotated[str, typer.Option(help="Where the compute process filters: host, cuda:0, …")] = "host",
    exporter: Annotated[str, typer.Option(help="What makes semaphores and memory: host, vulkan, …")] = "host",
    binary: Annotated[bool, typer.Option("--binary", help="Two binary semaphores in place of a timeline.")] = False,
    without_wait: Annotated[
        bool, typer.Option("--without-wait", help="Leave out the compute side's wait: every frame must be stale.")
    ] = False,
    frames: Annotated[int, typer.Option(min=1, max=100_000)] = 120,
    width: Annotated[int, typer.Option(min=8, max=16384)] = 640,
    height: Annotated[int, typer.Option(min=8, max=16384)] = 360,
    output: Annotated[Path | None, typer.Option(help="The contact sheet; default: demo-DEVICE.png here.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a frame may take.")] = 30.0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write a record of the run here, as JSON.")] = None,
) -> None:
    """Render in one process, filter in another, synchronise with imported semaphores, check every pixel."""
    with _ctrl_c():
        from xsem.cli.demo.plan import Plan
        from xsem.cli.demo.show import run as show

        plan = Plan(device=device, exporter=exporter, binary=binary, without_wait=without_wait, frames=frames,
                    width=width, height=height, timeout_s=timeout)
        default = Path(f"demo-{re.sub(r'[^A-Za-z0-9]+', '-', device)}.png")
        raise typer.Exit(show(plan, _writable("--output", output or default), _writable("--json", json_path)))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A device's name or a path may have letters that a terminal's encoding lacks.
            stream.reconfigure(errors="replace")
    if not _add_commands_of_others(given):
        return NOT_TRIED
    try:
        app(given, prog_name="xsem")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except XsemError as error:
        tell(error)
        return status_of(error)
    return 0


@contextlib.contextmanager
def _ctrl_c() -> Iterator[None]:
    """Releases of typer differ in what they make of Ctrl-C: some exit with 1."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _writable(option: str, path: Path | None) -> Path | None:
    """Refuse beforehand what would fail when all is done."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        why = "it is a folder" if path.is_dir() else f"there is no folder {path.absolute().parent}"
        raise typer.BadParameter(f"{path} cannot be written: {why}", param_hint=option)
    return path


def _add_commands_of_others(arguments: Sequence[str]) -> bool:
    """Add what other packages offer; False if the one that is asked for cannot be loaded.

    Only that one is loaded; all of them where none is named, for the help: ``xsem devices`` loads nobody's test suite.
    """
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    taken = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    taken |= {group.name for group in app.registered_groups if isinstance(group.name, str)}
    for entry_point in metadata.entry_points(group=COMMANDS):
        name = entry_point.name
        if name in taken or asked not in (None, name):
            continue
        try:
            loaded = entry_point.load()
            if not isinstance(loaded, typer.Typer):
                raise TypeError(f"{entry_point.value} is no typer app")
            app.add_typer(loaded, name=name)
            taken.add(name)
        except (Exception, SystemExit) as error:  # one that is broken must not take the rest along
            print(f"xsem: the command {name!r} cannot be loaded: {type(error).__name__}: {error}", file=sys.stderr)
            if asked == name:
                return False
    return True
