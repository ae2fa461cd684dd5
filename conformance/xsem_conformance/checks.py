"""The checks by requirement: `check` registers one check, `registered` returns them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from xsem_conformance.case.context import CaseContext
    from xsem_conformance.outcomes import Case

__all__ = ["Check", "Function", "check", "registered"]

Function: TypeAlias = "Callable[[CaseContext, Case], str | None]"
DEADLINE_S: Final = 30.0


@dataclass(frozen=True)
class Check:
    """The check of one requirement."""

    requirement: str
    # It returns if the requirement is met, for a MAY with the observed behaviour, and raises `BrokenError` if not.
    run: Function
    deadline_s: float   # a check that takes longer counts as hanging
    # The check may leave the driver in a worse state, so the next check gets another process.
    spoils: bool = False


_checks: dict[str, Check] = {}


def check(
    requirement: str, *, deadline_s: float = DEADLINE_S, spoils: bool = False
) -> Callable[[Function], Function]:
    """Register a function as the check of a requirement."""

    def register(function: Function) -> Function:
        if requirement in _checks:
            raise ValueError(f"{requirement} has a check already: {_checks[requirement].run.__name__}")
        _checks[requirement] = Check(requirement, function, deadline_s, spoils)
        return function

    return register


def registered() -> Mapping[str, Check]:
    """Return the checks that are registered so far, by the id of their requirement."""
    return _checks
