"""Runs the renderer and the compute process, shows progress, and prints the result."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import xsem
from xsem import ipc
from xsem.cli.demo.picture import contact_sheet, format_of
from xsem.cli.demo.plan import Line, PeerError, Plan
from xsem.cli.demo.renderer import Tally, render
from xsem.cli.files import check_writable, write_file
from xsem.cli.interpreter import python
from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED, status_of, tell
from xsem.cli.text import printable
from xsem.errors import WaitTimeoutError, XsemError

__all__ = ["run"]

_BAR: Final = 30   # columns
_PAUSE_S: Final = 0.05   # between two updates of the line
_START_S: Final = 60.0   # for the compute process, until it connects
_LOOK_S: Final = 0.25


def run(plan: Plan, output: Path | None, *, as_json: bool = False, quiet: bool = False) -> int:
    """Run the demo and return the exit status."""
    tell_steps = not (as_json or quiet)
    path = output if output is not None else default_output(plan)
    if os.path.isdir(path):   # Path.is_dir raises for a name that is too long
        path /= default_output(plan)
    check_writable(path, make_folders=True)
    file_format = format_of(path)
    if tell_steps:
        print(f"renderer on {printable(plan.exporter)}, compute on {printable(plan.device)}, {_options(plan)}")
    try:
        with _compute_process(plan) as sock, _progress(plan, shown=tell_steps) as show:
            tally = render(sock, plan, show)
    except XsemError as error:
        tell(error)
        return error.status if isinstance(error, PeerError) else status_of(error)
    verdict = f"demo: {tally.frames} frames, {tally.stale} stale, {tally.errors} errors"
    # Every frame of a run without the wait is expected to be stale, and every frame of another run to be filtered.
    expected = (tally.stale, tally.errors) == (tally.frames if plan.without_wait else 0, 0)
    if plan.without_wait:
        verdict += ", as expected" if expected else ", not as expected"
    if tell_steps:
        print(f"filtered by {tally.library}; shared by {' and '.join(tally.types)}")
    status, written = DONE if expected else BAD_ANSWER, True
    try:
        sheet = contact_sheet(tally.samples, file_format, title=f"xsem {verdict}", good=expected,
                              notes=_notes(plan, tally))
        write_file(path, sheet, make_folders=True)
        if tell_steps:
            print(f"contact sheet: {printable(str(path.absolute()))}")
    except (XsemError, OSError, ValueError) as error:   # a format may not support pictures of this size
        tell(error)
        status, written = status or NOT_TRIED, False
    if as_json:
        print(json.dumps({
            "schema": 1, "renderer": tally.renderer[0], "compute": tally.compute[0], "filtered_by": tally.library,
            "semaphore_type": tally.types[0], "memory_type": tally.types[1],
            "without_wait": plan.without_wait, "frames": tally.frames, "stale": tally.stale, "errors": tally.errors,
            "as_expected": expected, "contact_sheet": str(path.absolute()) if written else None}))
    else:
        print(verdict)
    return status


def _options(plan: Plan) -> str:
    return (f"{'two binary semaphores' if plan.binary else 'one timeline'}, {plan.width} x {plan.height}"
            + (", without the compute side's wait" if plan.without_wait else ""))


def _notes(plan: Plan, tally: Tally) -> list[str]:
    """Return the lines below the title of the contact sheet."""
    def named(device: tuple[str, str]) -> str:
        return printable(f"{device[0]}, {device[1]}")

    devices = f"renderer: {named(tally.renderer)}; compute: {named(tally.compute)}"
    return [f"{devices}; filter: {printable(tally.library)}; shared by {' and '.join(tally.types)}",
            f"{_options(plan)}; xsem {xsem.__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"]


def default_output(plan: Plan) -> Path:
    """Return the default path of the contact sheet, in the current folder."""
    # A run without the wait produces wrong frames on purpose, so it has a file of its own.
    return Path(f"demo-{plan.device.replace(':', '-')}{'-without-wait' if plan.without_wait else ''}.png")


@contextlib.contextmanager
def _compute_process(plan: Plan) -> Iterator[Line]:
    """Start the compute process and yield the connection to it. At the end of the block the process has ended."""
    with _started(plan) as (process, line):
        yield line
        try:
            process.wait(timeout=plan.timeout_s)
        except subprocess.TimeoutExpired as error:
            raise PeerError("the compute process does not end", reason="timeout") from error


@contextlib.contextmanager
def _started(plan: Plan) -> Iterator[tuple[subprocess.Popen[bytes], Line]]:
    """Start the compute process, yield it and the connection to it, and kill it if it runs at the end of the block."""
    command = [*python(), "-m", "xsem.cli.demo.compute"]
    if sys.platform == "win32":
        with ipc.listen() as listener, _ended(subprocess.Popen(  # noqa: S603 - this interpreter and this package
            [*command, listener.name, plan.to_json()],
            # In a new group Ctrl-C reaches the renderer only; the renderer then ends this process.
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )) as process, _accepted(listener, process) as line:
            yield process, line
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            started = subprocess.Popen(  # noqa: S603 - this interpreter and this package
                [*command, str(theirs.fileno()), plan.to_json()],
                # In a new session Ctrl-C reaches the renderer only; the renderer then ends this process.
                pass_fds=[theirs.fileno()], start_new_session=True,
            )
        with _ended(started) as process:
            yield process, ours


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _accepted(listener: ipc.PipeListener, process: subprocess.Popen[bytes]) -> ipc.Pipe:
    """Return the connection of the process. A process that has ended before is a `PeerError`."""
    end = time.monotonic() + _START_S
    while True:
        try:
            return listener.accept(timeout_s=_LOOK_S)
        except WaitTimeoutError as error:
            if process.poll() is not None:
                raise PeerError("the other process has ended", reason="peer_closed") from error
            if time.monotonic() > end:
                raise PeerError("the compute process does not start", reason="timeout") from error


@contextlib.contextmanager
def _progress(plan: Plan, *, shown: bool) -> Iterator[Callable[[Tally], object]]:
    """Yield the function that shows the number of frames: one line of a terminal, or a line for every 30 frames."""
    if not shown:
        yield lambda _: None
        return
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        def lines(tally: Tally) -> None:
            if tally.frames % 30 == 0:
                print(f"  {tally.frames} of {plan.frames} frames", flush=True)

        yield lines
        return
    drawn_at = -1.0

    def line(tally: Tally) -> None:
        nonlocal drawn_at
        if tally.frames < plan.frames and time.monotonic() < drawn_at + _PAUSE_S:
            return
        drawn_at = time.monotonic()
        done = _BAR * tally.frames // plan.frames
        print(f"\r  {tally.frames} of {plan.frames} frames [{'#' * done}{'.' * (_BAR - done)}]", end="", flush=True)

    try:
        yield line
    finally:
        print(flush=True)
