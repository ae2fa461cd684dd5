"""The standard streams of the process, and what becomes of the exit status when one of them fails."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import IO, Final

from xsem.cli.status import DONE, NOT_TRIED

__all__ = ["OutputLostError", "finish", "prepare"]

# As a shell reports a process that SIGPIPE has ended.
_READER_GONE: Final = 141


class OutputLostError(Exception):
    """Standard output or error takes no more. No OSError: Rich and Typer end with status 1 where one says EPIPE."""

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
    """Make the three streams usable, however the process was started.

    A closed one becomes the null device: else the next socket or pipe gets its number, and a child process prints into
    it. A character that the encoding lacks is written as an escape.
    """
    if sys.platform == "win32":
        sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
        return
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)   # the lowest free number is this one
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
    """Flush what is left, and return the exit status.

    Parameters
    ----------
    status : int
        Of the command.
    lost : OutputLostError, optional
        What has ended the command.

    Returns
    -------
    int
        141 where the reader of the output is gone, 3 where the output is lost otherwise and the command was well.
    """
    every = [lost] if lost is not None else []
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OutputLostError as error:
            every.append(error)
    for number in {each.number for each in every}:
        # The interpreter flushes once more when it ends, and complains.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)
    if any(each.reader_gone for each in every):
        return _READER_GONE
    for each in every[:1]:
        print(f"xsem: {each}", file=sys.stderr, flush=True)
        return NOT_TRIED if status == DONE else status
    return status
