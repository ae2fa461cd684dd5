"""A case, its outcome and its result."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["NONE", "BlockedError", "BrokenError", "Case", "NotExaminedError", "Outcome", "Result", "expect"]

NONE: Final = "-"
"""In the key of a case: the field does not apply."""


class Outcome(str, enum.Enum):
    """The outcome of a case."""

    PASS = "PASS"  # noqa: S105
    """The requirement is met."""
    FAIL = "FAIL"
    """The requirement is not met, or the driver crashed or hung."""
    ERROR = "ERROR"
    """The suite itself failed."""
    UNSUPPORTED = "UNSUPPORTED"
    """The device does not declare the capability. If the suite can call it, xsem refuses the call.

    A case that needs a missing hook of the backend (`SuiteHooks`) has this outcome, too. Its detail begins with
    "not examined"."""
    WAIVED = "WAIVED"
    """The case failed, and a waiver covers it."""
    BLOCKED = "BLOCKED"
    """The device declares the capability, but the environment, for example the exporter, cannot provide the rest."""
    UNAVAILABLE = "UNAVAILABLE"
    """The device or the exporter could not be opened."""


@dataclass(frozen=True, order=True)
class Case:
    """One requirement on one handle type in one direction, with one exporter.

    Attributes
    ----------
    requirement : str
        The id of the requirement.
    handle_type, exporter, direction : str
        The handle type, the backend of the exporter, and "in" or "out"; `NONE` for a field that does not apply.

    Examples
    --------
    >>> Case.from_key("XSEM-BIN-003/opaque_fd/host/in").direction
    'in'
    """

    requirement: str
    handle_type: str = NONE
    exporter: str = NONE
    direction: str = NONE
    kind: str = ""
    """The kind of `handle_type`, for a check of both: semaphore or memory. It is not part of the key."""

    @property
    def key(self) -> str:
        """``ID/handle_type/exporter/direction``: the same in every report."""
        return f"{self.requirement}/{self.handle_type}/{self.exporter}/{self.direction}"

    @classmethod
    def from_key(cls, key: str) -> Self:
        """Return the case of a key.

        Raises
        ------
        ValueError
            The text is not a key.
        """
        parts = key.split("/")
        if len(parts) != 4 or not all(parts):
            raise ValueError(f"{key!r} is not ID/handle_type/exporter/direction")
        return cls(*parts)


@dataclass
class Result:
    """The result of a case.

    Attributes
    ----------
    case : Case
        The case.
    outcome : Outcome
        Its outcome.
    detail : str
        The reason or the observed behaviour, as a text for the reader.
    seconds : float
        The duration.
    """

    case: Case
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0


class BrokenError(AssertionError):
    """A requirement is not met; the message states the observed behaviour."""


class BlockedError(Exception):
    """The environment of the device cannot provide an object or an ability that the case needs."""


class NotExaminedError(Exception):
    """The case does not apply to the driver, or the backend gives no hook for it (`SuiteHooks`)."""


def expect(met: object, otherwise: str) -> None:
    """Return if `met` is true; otherwise raise `BrokenError` with the message `otherwise`."""
    if not met:
        raise BrokenError(otherwise)
