"""The hardware queues of a CUDA context.

Each waiting stream holds one hardware queue. With as many waiting streams as queues, no other stream of the context
runs, new ones included. The driver reads the number from CUDA_DEVICE_MAX_CONNECTIONS when it starts.
"""

from __future__ import annotations

import functools
import os
from typing import Final

from xsem.types import HealthCheck

__all__ = ["check", "connections", "setting", "timeout_causes"]

_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
# Measured on an H200: 1, 8 and 32 waiting streams stop all others with 1, 8 (and unset) and 32 connections. The
# documented range is 1 to 32. Other values were not measured: one list is the weakest promise.
_UNSET: Final = 8
_DOCUMENTED: Final = range(1, 33)
_UNKNOWN: Final = 1


@functools.cache
def setting() -> str | None:
    """Return the variable as it was at the first call. The first call comes before the start of the driver."""
    return os.environ.get(_VARIABLE)


def connections(text: str | None) -> int:
    """Return the number of hardware queues for a value of the variable."""
    if text is None:
        return _UNSET
    number = int(text) if text.isdecimal() else 0
    return number if number in _DOCUMENTED else _UNKNOWN


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
