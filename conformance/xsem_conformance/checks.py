"""The checks by requirement: `check` registers one, `all_checks` has them all."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import xsem_conformance.suite

if TYPE_CHECKING:
    from xsem_conformance.context import CaseContext
    from xsem_conformance.outcomes import Case

__all__ = ["Check", "Function", "all_checks", "check"]

Function: TypeAlias = "Callable[[CaseContext, Case], str | None]"
DEADLINE_S: Final = 30.0


@dataclass(frozen=True)
class Check:
    """How one requirement is observed.

    Attributes
    ----------
    run : callable
        Takes the context and the case; returns where the requirement is met, raises `BrokenError` where it is not. Of a
        MAY, which cannot be failed, it returns what was seen, in words.
    deadline_s : float
        What takes longer hangs.
    spoils : bool
        The driver's process must not be used for another check: what this one asks may leave it worse than before.
    """

    requirement: str
    run: Function
    deadline_s: float
    spoils: bool = False


_checks: dict[str, Check] = {}


def check(
    requirement: str, *, deadline_s: float = DEADLINE_S, spoils: bool = False
) -> Callable[[Function], Function]:
    """Register a function as the check of a requirement.

    Raises
    ------
    ValueError
        There is one already.
    """

    def register(function: Function) -> Function:
        if requirement in _checks:
            raise ValueError(f"{requirement} has a check already: {_checks[requirement].run.__name__}")
        _checks[requirement] = Check(requirement, function, deadline_s, spoils)
        return function

    return register


def all_checks() -> Mapping[str, Check]:
    """All checks, by requirement."""
    for module in pkgutil.iter_modules(xsem_conformance.suite.__path__):
        importlib.import_module(f"xsem_conformance.suite.{module.name}")
    return _checks
