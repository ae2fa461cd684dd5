"""How a fault gets into the CUDA backend's own code: functions of it are replaced before it is used."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["PATCHES", "instead", "patch"]

PATCHES: dict[str, Callable[[], None]] = {}
"""By name, what plants the fault; the docstring says what is wrong then."""


def patch(plant: Callable[[], None]) -> Callable[[], None]:
    """Make the function a fault, under its own name."""
    PATCHES[plant.__name__] = plant
    return plant


def instead(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a function of a class or module; the new one is given the old one, then the arguments."""

    def replace(function: Callable[..., Any]) -> None:
        before = getattr(owner, name)

        @functools.wraps(before)
        def after(*args: Any, **named: Any) -> Any:
            return function(before, *args, **named)

        setattr(owner, name, after)

    return replace
