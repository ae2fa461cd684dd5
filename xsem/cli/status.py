"""Exit statuses, and the printed form of errors."""

from __future__ import annotations

import sys
from typing import Final

from xsem.cli.text import printable
from xsem.errors import (
    BackendUnavailableError,
    DeviceNotFoundError,
    OutOfMemoryError,
    UnsupportedError,
    WrongDeviceError,
    XsemError,
    returned,
)

__all__ = [
    "BAD_ANSWER", "DONE", "NOT_TRIED", "USAGE", "MissingPackageError", "UsageError", "explain", "status_of", "tell",
]

# The exit statuses of every command. Two more: 130 after Ctrl-C, and 141 if the reader of the output closed its end.
DONE: Final = 0
BAD_ANSWER: Final = 1   # a bad result, or an error without another status
USAGE: Final = 2        # a usage error, or an output path that is refused before the work begins
NOT_TRIED: Final = 3    # the environment prevents a result, for example a missing device, or an output that is lost

_USAGE: Final = frozenset({"bad_device_id", "bad_backends", "cannot_write"})


class MissingPackageError(ImportError):
    """A command needs a package that is not installed; the message says how to install it."""


class UsageError(Exception):
    """The value of an argument is refused after the parsing. The message names the argument."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"argument {argument}: {message}")


def status_of(error: Exception) -> int:
    """Return the exit status of an error, the same for every command."""
    if isinstance(error, XsemError):
        if error.reason in _USAGE:
            return USAGE
        lacking = (BackendUnavailableError | DeviceNotFoundError | UnsupportedError | OutOfMemoryError
                   | WrongDeviceError)   # WrongDeviceError: the named exporter is another device
        return NOT_TRIED if isinstance(error, lacking) else BAD_ANSWER
    # A problem of the environment: a missing package, a limit on files or processes, or memory.
    return NOT_TRIED if isinstance(error, ImportError | OSError | MemoryError) else BAD_ANSWER


def explain(error: Exception) -> str:
    """Return the message for an error that is not an `XsemError`."""
    if isinstance(error, ImportError) and not isinstance(error, MissingPackageError):
        return f"a package is missing or does not load: {error}"
    if isinstance(error, MemoryError):
        return "the host is out of memory"
    return str(error) or type(error).__name__


def tell(error: Exception) -> None:
    """Print an error to stderr: its message, the failed call, and likely causes."""
    if not isinstance(error, XsemError):
        print(f"xsem: {printable(explain(error))}", file=sys.stderr)
        return
    print(f"xsem: {printable(error.message)} [{error.reason}]", file=sys.stderr)
    if error.call is not None and error.code is not None:
        print(f"  {printable(returned(error))}", file=sys.stderr)
    for cause in error.likely_causes:
        print(f"  likely: {printable(cause)}", file=sys.stderr)
