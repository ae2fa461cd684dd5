"""The hardware queues of a CUDA context."""

# Each stream that waits for a semaphore holds one hardware queue. With as many waiting streams as queues, no other
# stream of the context runs, new ones included. A stream that waits for an event holds none. The driver reads the
# number from CUDA_DEVICE_MAX_CONNECTIONS in cuInit (all measured on an H200).

from __future__ import annotations

import functools
import os
import re
from typing import Final

from xsem.types import HealthCheck

__all__ = ["check", "connections", "setting", "timeout_causes"]

_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
_UNSET: Final = 8
_DOCUMENTED: Final = range(1, 33)
# With 33 and 1000, all others ran beside 30 waiting streams, and not all of them beside 31. With -1, beside 31.
_BEYOND: Final = 31


@functools.cache
def setting() -> str | None:
    """Return the variable as it was at the first call. The first call comes before the start of the driver."""
    return os.environ.get(_VARIABLE)


def connections(text: str | None) -> int:
    """Return the number of hardware queues for a value of the variable."""
    # Measured on an H200 (580.159.04): the driver reads the number at the beginning, so "4x" and " 4" are 4. Without
    # one ("abc"), and for 0 ("0x10"), it takes its default. With n of 1, 2, 3, 8, 16 and 32, all others ran beside
    # n - 1 waiting streams, and none beside n.
    found = re.match(r"\s*[+-]?[0-9]+", text or "")
    number = int(found[0]) if found else 0
    if number == 0:
        return _UNSET
    return number if number in _DOCUMENTED else _BEYOND


def timeout_causes() -> tuple[str, ...]:
    """Return the causes for `DeviceDriver.timeout_causes`. Eight queues are CUDA's default and no likely cause."""
    return () if connections(setting()) >= _UNSET else (f"CUDA's number of hardware queues is {_sentence()}",)


def check() -> HealthCheck:
    """Return the line of ``xsem doctor``."""
    return HealthCheck(name="hardware queues", ok=True, detail=_sentence())


def _sentence() -> str:
    text = setting()
    number = connections(text)
    told = "is not set" if text is None else f"was {text!r} when CUDA started"
    waiting = "one waiting list or stream stops" if number == 1 else f"{number} waiting lists or streams stop"
    return f"{number} ({_VARIABLE} {told}): {waiting} all other work of this process on the device"
