"""The hardware queues of NVIDIA's driver: with as many waiting command queues, no other command queue runs."""

from __future__ import annotations

import functools
import os
import re
from typing import Final

__all__ = ["FULL", "connections", "sentence", "setting"]

# It sets the number for CUDA, whose driver is also that of OpenCL.
_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
FULL: Final = 8   # without the variable
_MOST: Final = 31   # with 32, 30 queues may wait; with 33, 31 (H200, 580.159.04: 1, 2, 8, 32 and 33 were tried)


@functools.cache
def setting() -> str | None:
    """Return the variable as it was at the first call, which comes before the first call of a driver."""
    return os.environ.get(_VARIABLE)


def connections(text: str | None) -> int:
    """Return the number of queues for a value of the variable."""
    # The driver takes its default for 0 and for text that is not a number.
    found = re.match(r"\s*[+-]?[0-9]+", text or "")
    number = int(found[0]) if found else 0
    return FULL if number == 0 else number if 0 < number < _MOST else _MOST


def sentence() -> str:
    """Return the number and its effect, for ``xsem doctor`` and for the causes of a timeout."""
    text = setting()
    number = connections(text)
    told = "is not set" if text is None else f"was {text!r} when xsem loaded OpenCL"
    waiting = "one waiting queue stops" if number == 1 else f"{number} waiting queues stop"
    return f"{number} ({_VARIABLE} {told}): {waiting} all other work of this process on the device"
