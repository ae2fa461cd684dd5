"""A case, its outcome and its result."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Self

__all__ = [
    "NONE",
    "UNOBSERVED",
    "WRONG",
    "BlockedError",
    "BrokenError",
    "Call",
    "Case",
    "Failure",
    "Frame",
    "NotDeclaredError",
    "NotExaminedError",
    "NotRunError",
    "Outcome",
    "Result",
    "expect",
]

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
    """The device does not declare the capability. If the suite can call the capability, xsem refuses the call."""
    NOT_EXAMINED = "NOT_EXAMINED"
    """The case needs a hook of `SuiteHooks` that the backend lacks, or an object that the exporter does not create."""
    WAIVED = "WAIVED"
    """The case failed, and a waiver covers it."""
    BLOCKED = "BLOCKED"
    """The device declares the capability, but the environment, for example the exporter, cannot provide the rest."""
    UNAVAILABLE = "UNAVAILABLE"
    """The device or the exporter could not be opened."""


UNOBSERVED: Final = frozenset({Outcome.UNSUPPORTED, Outcome.NOT_EXAMINED})
"""Outcomes without an observation of the device. They do not change the verdict."""
WRONG: Final = frozenset({Outcome.FAIL, Outcome.ERROR})
"""Outcomes of a case that did not end as its requirement says, and is not waived."""


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
    """The kind of `handle_type` for a check of both kinds: semaphore or memory. The key does not contain the kind."""

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


@dataclass(frozen=True)
class Call:
    """A call of a case.

    Attributes
    ----------
    by : str
        The side that called its driver: "device", "exporter" or "second process".
    text : str
        The method, its arguments in short, and its result: ``append_wait([7], [value=1]) -> 9``.
    seconds : float or None
        The duration; None if the call has not returned.
    """

    by: str
    text: str
    seconds: float | None

    @property
    def name(self) -> str:
        """The side and the method: ``device: append_wait``."""
        return f"{self.by}: {self.text.partition('(')[0]}"


@dataclass(frozen=True)
class Frame:
    """A line of the backend's code that led to a failure; `file` is relative to the folder of the package."""

    file: str
    line: int
    function: str
    code: str = ""


@dataclass(frozen=True)
class Failure:
    """The evidence of a failed case.

    Attributes
    ----------
    calls : tuple of Call
        The first calls and the last calls, in the order of their begin.
    first_calls : int
        The number of entries of `calls` before the calls that are left out.
    left_out : int
        The number of calls that are left out.
    frames : tuple of Frame
        The lines of the backend's own files, outermost first; empty if the failure is not an exception of the backend.
    stack : str
        The stacks of a process that hung or died; otherwise empty.
    hung_in : str
        The call that did not return, as `Call.name`; empty if the case did not hang in a call.
    died : bool
        Whether the process of the case died.
    """

    calls: tuple[Call, ...] = ()
    first_calls: int = 0
    left_out: int = 0
    frames: tuple[Frame, ...] = ()
    stack: str = ""
    hung_in: str = ""
    died: bool = False


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
    failure : Failure or None
        The evidence; None for a case that passed or did not run.
    waiver : str
        The reason and the last day of the waiver that covers the case.
    """

    case: Case
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0
    failure: Failure | None = None
    waiver: str = ""

    @property
    def seen(self) -> str:
        """The observed behaviour: the detail without the reason of a waiver."""
        return self.detail.removeprefix(f"{self.waiver}: ") if self.waiver else self.detail


class BrokenError(AssertionError):
    """A requirement is not met; the message states the observed behaviour."""


class BlockedError(Exception):
    """The environment of the device cannot provide an object or an ability that the case needs."""


class NotDeclaredError(Exception):
    """The driver, or this system, does not have the ability that the case needs."""


class NotExaminedError(Exception):
    """The backend lacks the hook of the case (`SuiteHooks`), or the exporter does not create the object of the case."""


class NotRunError(Exception):
    """A case did not start or did not end; the message is the reason."""


def expect(met: object, otherwise: str) -> None:
    """Return if `met` is true; otherwise raise `BrokenError` with the message `otherwise`."""
    if not met:
        raise BrokenError(otherwise)
