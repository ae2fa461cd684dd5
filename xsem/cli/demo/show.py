"""Runs renderer and compute process, shows progress, and says how it went."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from xsem.cli.demo.picture import contact_sheet
from xsem.cli.demo.plan import PeerError, Plan
from xsem.cli.demo.renderer import Tally, render
from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED, USAGE, tell
from xsem.errors import BackendUnavailableError, DeviceNotFoundError, UnsupportedError, XsemError

__all__ = ["run"]

_NOT_TRIED = frozenset({"unknown_backend", "plugin_failed", "backend_excluded", "no_device", "no_such_device",
                        "unsupported", "platform"})
_USAGE = frozenset({"bad_device_id", "bad_backends"})


def run(plan: Plan, output: Path) -> int:
    """Run the demo; its exit status."""
    console = Console(highlight=False, markup=False)
    console.print(f"renderer on {plan.exporter}, compute on {plan.device}, "
                  f"{'two binary semaphores' if plan.binary else 'one timeline'}, {plan.width} x {plan.height}"
                  + (", without the compute side's wait" if plan.without_wait else ""))
    try:
        with _compute_process(plan) as sock, _progress(console, plan) as show:
            tally = render(sock, plan, show)
    except (BackendUnavailableError, DeviceNotFoundError, UnsupportedError) as error:
        tell(error)
        return NOT_TRIED
    except XsemError as error:
        tell(error)
        if error.reason in _USAGE:
            return USAGE
        return NOT_TRIED if isinstance(error, PeerError) and error.reason in _NOT_TRIED else BAD_ANSWER
    output.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet(tally.samples, output)
    console.print(f"filtered by {tally.library}")
    console.print(f"contact sheet: {output.resolve()}", soft_wrap=True)
    print(f"demo: {tally.frames} frames, {tally.stale} stale, {tally.errors} errors")
    return DONE if tally.stale == tally.errors == 0 else BAD_ANSWER


@contextlib.contextmanager
def _compute_process(plan: Plan) -> Iterator[socket.socket]:
    """The other process, and the socket to it; however this ends, the process has ended after it."""
    if sys.platform == "win32":
        raise UnsupportedError("the demo passes file descriptors between processes, which Windows has not",
                               capability="demo")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - this interpreter and this package
                [sys.executable, "-m", "xsem.cli.demo.compute", str(theirs.fileno()), plan.to_json()],
                pass_fds=[theirs.fileno()],
            )
        try:
            yield ours
            process.wait(timeout=plan.timeout_s)
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
