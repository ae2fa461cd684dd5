"""A case, what came of it, and how that is written down."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["NONE", "BlockedError", "BrokenError", "Case", "Outcome", "Result", "expect"]

NONE: Final = "-"
"""In a case's key: does not apply."""


class Outcome(str, enum.Enum):
    """What came of a case."""

    PASS = "PASS"  # noqa: S105
    FAIL = "FAIL"
    ERROR = "ERROR"
    """The suite itself failed."""
    UNSUPPORTED = "UNSUPPORTED"
    """Not declared, and refused by the driver object when asked all the same."""
    WAIVED = "WAIVED"
    """It failed, as a waiver says."""
    BLOCKED = "BLOCKED"
    """What it needs is declared, but the exporter cannot give it."""
    UNAVAILABLE = "UNAVAILABLE"
    """The device or the exporter could not be opened."""


@dataclass(frozen=True, order=True)
class Case:
    """One requirement on one handle type in one direction, with one exporter."""

    requirement: str
    handle_type: str = NONE
    exporter: str = NONE
    direction: str = NONE
    kind: str = ""
    """For a check of semaphores and memory: which of them `handle_type` is. Not in the key."""

    @property
    def key(self) -> str:
        """``ID/handle_type/exporter/direction``: the same in every report."""
        return f"{self.requirement}/{self.handle_type}/{self.exporter}/{self.direction}"

    @classmethod
    def from_key(cls, key: str) -> Self:
        """The case that a key stands for.

        Raises
        ------
        ValueError
            It is none.
        """
        parts = key.split("/")
        if len(parts) != 4 or not all(parts):
            raise ValueError(f"{key!r} is not ID/handle_type/exporter/direction")
        return cls(*parts)


@dataclass
class Result:
    """What came of a case: `detail` is for a person, `seconds` how long it took."""

    case: Case
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0


class BrokenError(AssertionError):
    """A requirement is not met; the message says what was seen."""


class BlockedError(Exception):
    """What the case needs beside the device cannot be had here."""


def expect(met: object, otherwise: str) -> None:
    """Go on if `met`; else raise `BrokenError` with what was seen."""
    if not met:
        raise BrokenError(otherwise)
