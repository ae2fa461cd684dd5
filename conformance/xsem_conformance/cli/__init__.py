"""``xsem conformance``: its commands, one module each."""

from __future__ import annotations

import typer

from xsem_conformance.cli.compare import compare
from xsem_conformance.cli.matrix import matrix
from xsem_conformance.cli.new_backend import new_backend
from xsem_conformance.cli.requirements import list_requirements, show
from xsem_conformance.cli.run import run

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Check a device case by case.")


@app.callback()
def _group() -> None:
    """Check a device case by case."""


app.command()(run)
app.command("list")(list_requirements)
app.command()(show)
app.command()(compare)
app.command()(new_backend)
app.command()(matrix)
