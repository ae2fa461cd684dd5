"""Exit statuses, and errors in words."""

from __future__ import annotations

import sys
from typing import Final

from xsem.errors import BackendUnavailableError, DeviceNotFoundError, UnsupportedError, WrongDeviceError, XsemError

__all__ = ["BAD_ANSWER", "DONE", "INTERRUPTED", "NOT_TRIED", "USAGE", "status_of", "tell"]

DONE: Final = 0
BAD_ANSWER: Final = 1
USAGE: Final = 2
NOT_TRIED: Final = 3
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells have it."""

# What only the command line or the environment can have brought in. Any other argument that is refused is the command's.
_USAGE: Final = frozenset({"bad_device_id", "bad_backends", "bad_timeout"})
_NOT_TRIED: Final = (BackendUnavailableError, DeviceNotFoundError, UnsupportedError, WrongDeviceError)


def status_of(error: XsemError) -> int:
    """The exit status of a command that ended with this error."""
    if error.reason in _USAGE:
        return USAGE
    return NOT_TRIED if isinstance(error, _NOT_TRIED) else BAD_ANSWER


def tell(error: XsemError) -> None:
    """Print an error to stderr: what, its name and reason, the driver's words, what to look at."""
    print(f"xsem: {error.message} [{type(error).__name__}, {error.reason}]", file=sys.stderr)
    if error.call is not None:
        print(f"  {error.call} returned {error.code_name or 'an unknown code'} ({error.code})", file=sys.stderr)
    for cause in error.likely_causes:
        print(f"  likely: {cause}", file=sys.stderr)
