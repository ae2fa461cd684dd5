"""Faults in the code of the CUDA backend: functions are replaced before their use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["PATCHES", "instead", "patch"]

PATCHES: dict[str, Callable[[], None]] = {}
"""By name, what plants the fault; the docstring says what is wrong then."""


def patch(plant: Callable[[], None]) -> Callable[[], None]:
    """Register the function as a fault, under its name."""
    PATCHES[plant.__name__] = plant
    return plant


def instead(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a function of a class or module. The new one gets the old one, then the arguments."""

    def replace(function: Callable[..., Any]) -> None:
        before = getattr(owner, name)

        @functools.wraps(before)
        def after(*args: Any, **named: Any) -> Any:
            return function(before, *args, **named)

        setattr(owner, name, after)

    return replace
