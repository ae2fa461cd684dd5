"""The commands and their options. The modules beside this one implement them."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from xsem import __version__
from xsem.cli.questions import PATIENCE_S
from xsem.cli.status import status_of, tell
from xsem.cli.text import printable
from xsem.errors import XsemError

__all__ = ["run"]

app = typer.Typer(
    name="xsem", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="External semaphores and memory for GPU compute.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Patience = Annotated[float, typer.Option(min=0.1, help="Seconds until a backend without an answer counts as hung.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"xsem {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """External semaphores and memory for GPU compute."""


@app.command()
def devices(as_json: Json = False, patience: Patience = PATIENCE_S) -> None:
    """List backends and devices with their capabilities."""
    from xsem.cli.devices import run as list_devices

    raise typer.Exit(list_devices(as_json=as_json, patience_s=patience))


@app.command()
def doctor(as_json: Json = False, patience: Patience = PATIENCE_S) -> None:
    """Find missing backends, loaders and permissions, and say what to do."""
    from xsem.cli.doctor import run as examine

    raise typer.Exit(examine(as_json=as_json, patience_s=patience))


@app.command()
def demo(
    device: Annotated[str, typer.Option(help="Device of the compute process: host, cuda:0, …")] = "host",
    exporter: Annotated[
        str, typer.Option(help="Exporter of semaphores and memory: host, vulkan (its device with the same UUID), …")
    ] = "host",
    binary: Annotated[bool, typer.Option("--binary", help="Binary semaphores in place of a timeline.")] = False,
    without_wait: Annotated[
        bool, typer.Option("--without-wait", help="Leave out the compute process's wait: every frame must be stale.")
    ] = False,
    frames: Annotated[int, typer.Option(min=1, max=100_000)] = 120,
    width: Annotated[int, typer.Option(min=8, max=16384)] = 640,
    height: Annotated[int, typer.Option(min=8, max=16384)] = 360,
    output: Annotated[
        Path | None,
        typer.Option(help="Path of the contact sheet; default: demo-DEVICE.png or demo-DEVICE-without-wait.png."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Longest time for one frame, in seconds.")] = 30.0,
) -> None:
    """Render in one process, filter in another, synchronise with imported semaphores, check every pixel."""
    from xsem.cli.demo.plan import Plan
    from xsem.cli.demo.show import run as show

    plan = Plan(device=device, exporter=exporter, binary=binary, without_wait=without_wait, frames=frames, width=width,
                height=height, timeout_s=timeout)
    raise typer.Exit(show(plan, output))


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    _add_commands_of_others()
    try:
        app(arguments, prog_name="xsem")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return 130
    except (XsemError, ImportError, OSError, MemoryError) as error:
        tell(error)
        return status_of(error)
    return 0


def _add_commands_of_others() -> None:
    """Add the commands of other packages. The entry point's name is the command, and its value is a typer app."""
    for entry_point in metadata.entry_points(group="xsem.commands"):
        try:
            app.add_typer(entry_point.load(), name=entry_point.name)
        except (Exception, SystemExit) as error:  # a broken command must not disable the others
            print(f"xsem: the command {entry_point.name!r} cannot be loaded: {printable(str(error))}",
                  file=sys.stderr)
