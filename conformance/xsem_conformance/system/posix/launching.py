"""A worker's process: its start, the files and pipes that it inherits, its group."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Final, Self

# For the type checker. Windows has another module in place of this one.
assert sys.platform != "win32" or not TYPE_CHECKING  # noqa: S101

if sys.platform != "win32":
    from xsem_conformance.system.posix.endings import ASK_FOR_STACKS

__all__ = ["MORE_S", "Answers", "Group", "Output", "inherited", "received", "start"]

MORE_S: Final = 0.0
"""Seconds that a case gets in addition for the start of processes."""


def inherited(descriptors: Iterable[int]) -> list[int]:
    """Return the numbers that a worker gets for descriptors of this process."""
    return list(descriptors)


def received(number: int, flags: int) -> int:
    """Return the descriptor in the worker for a number of `inherited`. `flags` are those of `os.open`."""
    return number


def start(command: Sequence[str], numbers: Sequence[int], output: Output) -> subprocess.Popen[bytes]:
    """Start a worker that inherits `numbers`. A separate session, so that the exporter's process ends with it."""
    return subprocess.Popen(command, pass_fds=numbers, stdin=subprocess.DEVNULL,  # noqa: S603 - the suite's own
                            stdout=output.file, stderr=output.file, start_new_session=True)


class Group:
    """A worker's process and the processes that it has started. The worker leads its group of processes."""

    def __init__(self, leader: subprocess.Popen[bytes]) -> None:
        self._leader = leader

    def ask_for_stacks(self, *, of_all: bool) -> None:
        """Ask the leader for its stacks, or all processes."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if of_all else os.kill)(self._leader.pid, ASK_FOR_STACKS)

    def kill(self) -> None:
        """Kill all processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._leader.pid, signal.SIGKILL)


class Answers:
    """The reading end of a pipe. This object owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next bytes: empty at the end of the pipe, None after the timeout."""
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return None
        return os.read(self._descriptor, 1 << 16)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)


class Output:
    """A file without a name that processes write to, and this process reads."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()   # noqa: SIM115

    def size(self) -> int:
        """Return the number of bytes."""
        return os.fstat(self.file.fileno()).st_size

    def read(self, begin: int, count: int) -> bytes:
        """Return bytes. The position of the writing processes does not move."""
        return os.pread(self.file.fileno(), count, begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
