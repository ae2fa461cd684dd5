"""Which calls of a method a fault changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from composer.interface import Method

__all__ = ["WHEN", "acts", "fits"]

WHEN = {
    "each": "", "first": " (first call on each object)", "later": " (from the second call on each object)",
    "seventh": " (each seventh call in a process)", "many": " (from the 65th call on each object)",
    "second-device": " (on all but the first device that a process opens)",
    "other-process": " (in processes that the first one starts)", "large": " (calls with a number of 2^24 or more)",
}
"""The end of the sentence of a fault."""
_MANY = 64
_LARGE = 1 << 24
_NUMBERS = ("int", "SemaphoreDesc", "MemoryDesc", "Sequence[WaitParams]", "Sequence[SignalParams]", "Any",
            "Sequence[tuple[Token, int, int]]")
"""Parameters with numbers that can be large: bytes and values."""


def fits(occurrence: str, method: Method) -> bool:
    """Return whether a fault of this method can have this occurrence."""
    if occurrence == "second-device":
        return method.owner != "Backend"
    if occurrence == "large":
        return method.owner != "Backend" and any(kind in _NUMBERS for _, kind in method.parameters)
    # A device is closed once, and a backend is a single object of which few calls are made.
    return occurrence != "many" or (method.owner != "Backend" and method.name != "close")


def acts(occurrence: str, owner: Any, number: int, in_process: int, args: Mapping[str, Any]) -> bool:
    """Return whether the fault changes a call.

    Parameters
    ----------
    owner : object
        The forwarding driver.
    number, in_process : int
        How many calls of the method `owner` and the process have had, with this one.
    args : mapping
        The arguments of the call.
    """
    rules: dict[str, Callable[[], bool]] = {
        "each": lambda: True, "first": lambda: number == 1, "later": lambda: number > 1,
        "seventh": lambda: in_process % 7 == 0, "many": lambda: number > _MANY,
        "second-device": lambda: getattr(owner.device, "ordinal", 0) > 1,
        # The worker of the suite leads a group of processes.
        "other-process": lambda: os.getpid() != os.getpgrp(), "large": lambda: any(map(_is_large, args.values())),
    }
    return rules[occurrence]()


def _is_large(value: Any) -> bool:
    if isinstance(value, int):
        return value >= _LARGE
    if isinstance(value, (tuple, list)):
        return any(map(_is_large, value))
    return any(_is_large(getattr(value, name)) for name in getattr(value, "__dataclass_fields__", ())
               if not name.endswith(("handle", "uuid")))
