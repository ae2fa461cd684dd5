"""The values of several timelines in one append: the form in Python."""

# `timeline_values.pyx` is the same module in Cython. The loops of that form are faster in C, and slower in Python than
# the functions of this form.

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from xsem.data.params import UINT64_MAX
from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["all_above", "are_values", "last_values", "store_values"]


def are_values(given: tuple[Any, ...]) -> bool:
    """Return whether each element is an int from 0 to 2**64 - 1. Subclasses of int, such as bool, do not count."""
    return set(map(type, given)) == {int} and min(given) >= 0 and max(given) <= UINT64_MAX


def last_values(states: tuple[SemaphoreState, ...]) -> list[int | None]:
    """Return the last value of each timeline. None stands for an unknown value."""
    return [state.last for state in states]


def all_above(values: Sequence[int], lasts: list[Any]) -> bool:
    """Return whether each value is above the last value of its timeline. An unknown last value gives False."""
    return None not in lasts and all(map(operator.lt, lasts, values))


def store_values(states: tuple[SemaphoreState, ...], values: Sequence[int]) -> None:
    """Store the new last value of each timeline."""
    for state, value in zip(states, values, strict=True):
        state.last = value
