"""The standard streams of the process, and the exit status after a failure of one of them."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import IO, Final

from xsem.cli.status import DONE, NOT_TRIED

__all__ = ["OutputLostError", "finish", "prepare"]

# A shell reports this status for a process that SIGPIPE has ended.
_READER_GONE: Final = 141


class OutputLostError(Exception):
    """A write to standard output or standard error failed."""

    # Not an OSError, because a command reports an OSError as a failure of its own work.

    def __init__(self, number: int, error: OSError) -> None:
        super().__init__(f"the output cannot be written: {error.strerror or error}")
        self.number = number
        self.reader_gone = error.errno == errno.EPIPE


class _Output(io.FileIO):
    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            raise OutputLostError(self.fileno(), error) from error


def prepare() -> None:
    """Make the three standard streams usable, even if the process was started without them."""
    # A closed stream becomes the null device. Otherwise the next socket or pipe would get its number, and a child
    # process would print into it. A character that the encoding lacks is written as an escape.
    if sys.platform == "win32":
        sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
        return
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)   # open() returns the lowest free number: this one
    sys.stdout, sys.stderr = _stream(sys.stdout, 1), _stream(sys.stderr, 2)


def _nowhere() -> IO[str]:
    return open(os.devnull, "w", encoding="utf-8")


def _stream(stream: IO[str] | None, number: int) -> IO[str]:
    old = stream if isinstance(stream, io.TextIOWrapper) else None
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, "wb", closefd=False)), encoding=old.encoding if old else "utf-8",
        errors="backslashreplace",
        line_buffering=old is not None and (old.line_buffering or old.write_through),
    )


def finish(status: int, lost: OutputLostError | None = None) -> int:
    """Flush the streams and return the exit status, which a failure of the output changes."""
    every = [lost] if lost is not None else []
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OutputLostError as error:
            every.append(error)
    for number in {each.number for each in every}:
        _silence(number)
    if any(each.reader_gone for each in every):
        return _READER_GONE
    if not every:
        return status
    try:
        print(f"xsem: {every[0]}", file=sys.stderr, flush=True)
    except OutputLostError as error:
        _silence(error.number)
    return NOT_TRIED if status == DONE else status


def _silence(number: int) -> None:
    """Connect a stream to the null device: the flush at the interpreter's end succeeds there and prints no error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
