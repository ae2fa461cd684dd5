"""A worker's process: its start, the handles that it inherits, its job object."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Final, Self

# For the type checker. Every system can import this module, and only Windows can call its functions.
assert sys.platform == "win32" or not TYPE_CHECKING  # noqa: S101

if sys.platform == "win32":
    import msvcrt

    from xsem_conformance.system.windows.endings import ask_for_stacks
    from xsem_conformance.system.windows.jobs import Job

__all__ = ["MORE_S", "Answers", "Group", "Output", "inherited", "received", "start"]

MORE_S: Final = 60.0
"""Seconds that a case gets in addition for the start of processes. Under Wine, on a busy machine, the start of a
participant can take half a minute. A call that hangs has its own limit."""


def inherited(descriptors: Iterable[int]) -> list[int]:
    """Return the numbers that a worker gets for descriptors of this process: inheritable NT handles."""
    numbers = [msvcrt.get_osfhandle(each) for each in descriptors]
    for each in numbers:
        os.set_handle_inheritable(each, True)
    return numbers


def received(number: int, flags: int) -> int:
    """Return a descriptor in the worker for a number of `inherited`. `flags` are those of `os.open`."""
    return msvcrt.open_osfhandle(number, flags)


def start(command: Sequence[str], numbers: Sequence[int], output: Output) -> subprocess.Popen[bytes]:
    """Start a worker that inherits `numbers`. In a separate group, so that Ctrl-C goes to this process alone."""
    return subprocess.Popen(  # noqa: S603 - the suite's own
        command, startupinfo=subprocess.STARTUPINFO(lpAttributeList={"handle_list": list(numbers)}),
        stdin=subprocess.DEVNULL, stdout=output.file, stderr=output.file,
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP)


class Group:
    """A worker's process and the processes that it starts. A job object kills them when this process ends."""

    def __init__(self, leader: subprocess.Popen[bytes]) -> None:
        self._leader = leader
        self._job = Job()
        self._job.add(leader)   # it starts no process before its first request

    def ask_for_stacks(self, *, of_all: bool) -> None:
        """Ask the leader for its stacks, or all processes."""
        for pid in self._job.pids() if of_all else [self._leader.pid]:
            ask_for_stacks(pid)

    def kill(self) -> None:
        """Kill all processes."""
        self._job.end()


class Answers:
    """The reading end of a pipe. This object owns the descriptor, which a thread reads: select is for sockets only."""

    def __init__(self, descriptor: int) -> None:
        self._parts: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, args=(descriptor,), daemon=True)
        self._thread.start()

    def _read(self, descriptor: int) -> None:
        try:
            while part := os.read(descriptor, 1 << 16):
                self._parts.put(part)
        except OSError:   # the writing end is closed
            pass
        finally:
            os.close(descriptor)
            self._parts.put(b"")

    def receive(self, timeout_s: float) -> bytes | None:
        """Return the next bytes: empty at the end of the pipe, None after the timeout."""
        try:
            return self._parts.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Wait for the end of the pipe: the processes that could write to it have ended."""
        self._thread.join()


class Output:
    """A file that processes write to, and this process reads. Windows deletes it after its last close."""

    def __init__(self) -> None:
        # Another process inherits the position of this file, so this process reads through a second one.
        self.file: IO[bytes] = tempfile.NamedTemporaryFile()   # noqa: SIM115
        self._reader = open(os.open(self.file.name, os.O_RDONLY | os.O_BINARY | os.O_TEMPORARY), "rb",  # noqa: SIM115
                            buffering=0)

    def size(self) -> int:
        """Return the number of bytes."""
        return os.fstat(self._reader.fileno()).st_size

    def read(self, begin: int, count: int) -> bytes:
        """Return bytes. The position of the writing processes does not move."""
        self._reader.seek(begin)
        return self._reader.read(count) or b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self.file.close()
