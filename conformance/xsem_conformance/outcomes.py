"""A case, its outcome and its result, and what a failed check saw."""

from __future__ import annotations

import datetime as dt
import enum
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from xsem.errors import WaitTimeoutError

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
    "Symptom",
    "Waived",
    "chain",
    "expect",
    "symptom_of",
    "with_output",
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


class Symptom(str, enum.Enum):
    """What a failed case saw, where several requirements can see the same fault: see `xsem_conformance.run.roots`."""

    NOT_DONE = "not_done"
    """An operation, or a fence or an event of it, is not done in time."""
    BARRIER_NOT_DONE = "barrier_not_done"
    """A barrier with nothing before it that waits is not done in time."""
    NOT_MET = "not_met"
    """A wait is not met by the signal of the other side."""
    OTHER_VALUE = "other_value"
    """A timeline does not have the signalled value."""
    OTHER_BYTES = "other_bytes"
    """Memory has other bytes than the written ones."""
    CLOSED_TWICE = "closed_twice"
    """The driver closed a handle that it no longer owned."""
    HANDLE_LOST = "handle_lost"
    """A system call found a descriptor closed, or found another file: probably another owner closed it."""


@dataclass(frozen=True, order=True)
class Case:
    """One requirement on one handle type in one direction, with one exporter."""

    requirement: str
    # The handle type, the backend of the exporter, and "in" or "out"; `NONE` for a field that does not apply.
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
        """Return the case of a key."""
        parts = key.split("/")
        if len(parts) != 4 or not all(parts):
            raise ValueError(f"{key!r} is not ID/handle_type/exporter/direction")
        return cls(*parts)


@dataclass(frozen=True)
class Call:
    """A call of a case."""

    by: str   # the side that called its driver: "device", "exporter" or "second process"
    text: str   # the method, its arguments in short, and its result: ``append_wait([7], [value=1]) -> 9``
    seconds: float | None   # None if the call has not returned
    times: int = 1   # equal calls in a row; text and duration are those of the last one

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.text.partition("(")[0]

    @property
    def name(self) -> str:
        """The side and the method: ``device: append_wait``."""
        return f"{self.by}: {self.method}"


@dataclass(frozen=True)
class Frame:
    """A line of the backend's code that led to a failure; `file` is relative to the folder of the package."""

    file: str
    line: int
    function: str
    code: str = ""


@dataclass(frozen=True)
class Failure:
    """The evidence of a failed case."""

    calls: tuple[Call, ...] = ()   # the first calls and the last calls, in the order of their begin
    first_calls: int = 0   # the number of entries of `calls` before the calls that are left out
    left_out: int = 0
    # The lines of the backend's own files, outermost first; empty if the failure is not an exception of the backend.
    frames: tuple[Frame, ...] = ()
    stack: str = ""   # the stacks of a process that hung or died; otherwise empty
    hung_in: str = ""   # the call that did not return, as `Call.name`; empty if the case did not hang in a call
    died: bool = False
    symptom: Symptom | None = None   # what the check saw; None if nothing further follows from it
    side: str = ""   # the side of the case that saw the symptom, for example "device"; empty if the check names none
    handle_types: tuple[str, ...] = ()   # of the semaphores that the case used


@dataclass(frozen=True)
class Waived:
    """The reason and the last day of the waiver that covers a case."""

    reason: str
    until: dt.date


@dataclass
class Result:
    """The result of a case."""

    case: Case
    outcome: Outcome
    seen: str = ""                      # the observed behaviour, or the reason of the outcome
    seconds: float = 0.0
    failure: Failure | None = None      # None for a case that passed or did not run
    waiver: Waived | None = None
    printed: str = ""                   # the output of a process that hung or died

    @property
    def summary(self) -> str:
        """The waiver and the observed behaviour, for the reader."""
        return self.seen if self.waiver is None else f"{self.waiver.reason} (until {self.waiver.until}): {self.seen}"

    @property
    def detail(self) -> str:
        """The summary and the output of the process, for the reader."""
        return with_output(self.summary, self.printed)


def with_output(text: str, printed: str) -> str:
    """Return a text with the output of a process, if there is any."""
    return f"{text}; it printed:\n{printed}" if printed else text


class BrokenError(AssertionError):
    """A requirement is not met; the message states the observed behaviour for the reader."""

    def __init__(self, message: str, *, symptom: Symptom | None = None, side: str = "") -> None:
        super().__init__(message)
        self.symptom = symptom
        self.side = side


class BlockedError(Exception):
    """The environment of the device cannot provide an object or an ability that the case needs."""


class NotDeclaredError(Exception):
    """The driver, or this system, does not have the ability that the case needs."""


class NotExaminedError(Exception):
    """The backend lacks the hook of the case (`SuiteHooks`), or the exporter does not create the object of the case."""


class NotRunError(Exception):
    """A case did not start or did not end; the message is the reason."""


def expect(met: object, otherwise: str, symptom: Symptom | None = None) -> None:
    """Return if `met` is true; otherwise raise `BrokenError` with the message `otherwise`."""
    if not met:
        raise BrokenError(otherwise, symptom=symptom)


def symptom_of(error: BaseException) -> tuple[Symptom | None, str]:
    """Return the symptom of an exception or of its first cause that has one, and the side that saw it."""
    for each in chain(error):
        # An error of another process has the symptom that this function found there.
        symptom: Symptom | None = getattr(each, "symptom", None)
        if symptom is not None:
            return symptom, getattr(each, "side", "")
        if isinstance(each, WaitTimeoutError):
            return Symptom.NOT_DONE, ""
        if isinstance(each, OSError) and each.errno in (errno.EBADF, errno.ENOTSOCK):
            return Symptom.HANDLE_LOST, ""
    return None, ""


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, as a traceback shows them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
