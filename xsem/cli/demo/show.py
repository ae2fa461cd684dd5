"""Runs the renderer and the compute process, shows progress, and prints the result."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from xsem.cli.console import console as new_console
from xsem.cli.demo.picture import contact_sheet, format_of
from xsem.cli.demo.plan import PeerError, Plan
from xsem.cli.demo.renderer import Tally, render
from xsem.cli.files import check_writable, write_file
from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED, status_of, tell
from xsem.cli.text import printable
from xsem.errors import UnsupportedError, XsemError

__all__ = ["run"]


def run(plan: Plan, output: Path | None) -> int:
    """Run the demo and return the exit status.

    Parameters
    ----------
    plan : Plan
        Options of the run.
    output : Path or None
        Path of the contact sheet; None: `default_output`.

    Returns
    -------
    int
        BAD_ANSWER if a frame is stale or wrong; NOT_TRIED if only the contact sheet cannot be written; DONE otherwise.
        After an error of the run: the exit status of the error.
    """
    console = new_console()
    path = output if output is not None else default_output(plan)
    check_writable(path, make_folders=True)
    file_format = format_of(path)
    console.print(f"renderer on {printable(plan.exporter)}, compute on {printable(plan.device)}, "
                  f"{'two binary semaphores' if plan.binary else 'one timeline'}, {plan.width} x {plan.height}"
                  + (", without the compute side's wait" if plan.without_wait else ""))
    try:
        with _compute_process(plan) as sock, _progress(console, plan) as show:
            tally = render(sock, plan, show)
    except XsemError as error:
        tell(error)
        return error.status if isinstance(error, PeerError) else status_of(error)
    console.print(f"filtered by {tally.library}")
    status = DONE if tally.stale == tally.errors == 0 else BAD_ANSWER
    try:
        write_file(path, contact_sheet(tally.samples, file_format), make_folders=True)
        console.print(f"contact sheet: {printable(str(path.absolute()))}", soft_wrap=True)
    except (XsemError, OSError, ValueError) as error:
        tell(error)
        status = status or NOT_TRIED
    print(f"demo: {tally.frames} frames, {tally.stale} stale, {tally.errors} errors")
    return status


def default_output(plan: Plan) -> Path:
    """Return the default path of the contact sheet, in the current folder.

    A run without the wait produces wrong frames on purpose, so it has a file of its own.
    """
    return Path(f"demo-{plan.device.replace(':', '-')}{'-without-wait' if plan.without_wait else ''}.png")


@contextlib.contextmanager
def _compute_process(plan: Plan) -> Iterator[socket.socket]:
    """Start the compute process and yield the socket to it. At the end of the block the process has ended."""
    if sys.platform == "win32":
        raise UnsupportedError("the demo passes file descriptors between processes, which Windows does not support",
                               capability="demo")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - this interpreter and this package
                [sys.executable, "-m", "xsem.cli.demo.compute", str(theirs.fileno()), plan.to_json()],
                # In a new session Ctrl-C reaches the renderer only; the renderer then ends this process.
                pass_fds=[theirs.fileno()], start_new_session=True,
            )
        try:
            yield ours
            try:
                process.wait(timeout=plan.timeout_s)
            except subprocess.TimeoutExpired as error:
                raise PeerError("the compute process does not end", reason="timeout") from error
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def _progress(console: Console, plan: Plan) -> Iterator[Callable[[Tally], object]]:
    if not console.is_terminal:
        def lines(tally: Tally) -> None:
            if tally.frames % 30 == 0:
                console.print(f"  {tally.frames} of {plan.frames} frames")

        yield lines
        return
    columns = (TextColumn("{task.completed} of {task.total} frames"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("frames", total=plan.frames)
        yield lambda tally: bar.update(task, completed=tally.frames)
