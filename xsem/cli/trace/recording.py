"""``xsem trace -- COMMAND``: a traced run, and then its summary."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from xsem.cli.status import UsageError
from xsem.cli.text import printable
from xsem.cli.trace.command import run as show

__all__ = ["run"]


def record(command: Sequence[str], folder: Path, *, device_times: bool = False) -> tuple[int, list[Path]]:
    """Run the command with XSEM_TRACE, and return its status and the files of its processes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = set(folder.glob("*.json"))
        # The command has the terminal: Ctrl-C ends it, and the summary follows.
        environment = {**os.environ, "XSEM_TRACE": str(folder.absolute())}   # a process may change its folder
        if device_times:
            environment["XSEM_TRACE_DEVICE_TIMES"] = "1"
        with subprocess.Popen(command, env=environment) as running:  # noqa: S603 - the user's own
            while True:
                try:
                    status = running.wait()
                    break
                except KeyboardInterrupt:
                    continue
    except OSError as error:
        raise UsageError("COMMAND" if error.filename == command[0] else "--folder",
                         f"{printable(str(error.filename))}: {error.strerror}") from error
    return status if status >= 0 else 128 - status, sorted(set(folder.glob("*.json")) - before)


def run(asked: Namespace) -> int:
    """Run the command, print the summary, and return the command's status."""
    folder = Path(tempfile.mkdtemp(prefix="xsem-trace-")) if asked.folder is None else asked.folder
    try:
        status, files = record(asked.traced, folder, device_times=asked.device_times)
    finally:
        if asked.folder is None:
            with contextlib.suppress(OSError):   # it has files
                folder.rmdir()
    if not files:
        print("xsem trace: no process of the command has opened a device", file=sys.stderr)
        return status
    show(Namespace(**{**vars(asked), "files": files, "merged": None}))
    print(f"the traces are in {printable(str(folder))}", file=sys.stderr)
    return status
