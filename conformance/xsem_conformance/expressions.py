"""Expressions over `Capabilities`: the conditions under which a requirement applies.

::

    expression  term { "or" term }
    term        factor { "and" factor }
    factor      [ "not" ] atom
    atom        field ":" member      a member of a set: semaphore_import:opaque_fd, feature:recording
                field ":*"            any member
                field ":$type"        the handle type of the case
                "import:$type"        the same in semaphore_import or memory_import, by the kind of the type
                "export:$type"        the same in semaphore_export or memory_export, by the kind of the type
                "portable:$type"      the handle type of the case is one of objects of the host
                field ">=" number     a known number of at least this value: independent_lists>=2
                field                 a promise, made or not made: resets_on_wait; or a set, empty or not: drm_modifiers

An empty expression is always true.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType

__all__ = ["Expression", "HandleType", "parse"]

HandleType: TypeAlias = SemaphoreHandleType | MemoryHandleType
Expression: TypeAlias = Callable[[Capabilities, HandleType | None], bool]

_SETS: Final[Mapping[str, tuple[str, type[enum.Enum]]]] = {
    "semaphore_import": ("semaphore_import", SemaphoreHandleType),
    "semaphore_export": ("semaphore_export", SemaphoreHandleType),
    "wait_before_signal": ("wait_before_signal", SemaphoreHandleType),
    "memory_import": ("memory_import", MemoryHandleType),
    "memory_export": ("memory_export", MemoryHandleType),
    "bridged": ("bridged", SemaphoreHandleType),
    "feature": ("features", Feature),
}
_NUMBERS: Final = ("independent_lists", "max_pending", "max_value_difference")
_PROMISES: Final = ("resets_on_wait", "append_never_blocks", "release_never_blocks", "needs_handover",
                    "drm_modifiers")
_ATOM: Final = re.compile(r"(?P<field>\w+)(?::(?P<member>\*|\$type|\w+)|>=(?P<number>\d+))?")


def parse(text: str) -> Expression:
    """Turn an expression into a function of capabilities and handle type."""
    # The function raises ValueError if the expression contains ``$type`` and the given handle type is None or of the
    # wrong kind for the field.
    if not text.strip():
        return lambda _capabilities, _type: True
    terms = [[_factor(factor, text) for factor in re.split(r"\band\b", term)] for term in re.split(r"\bor\b", text)]
    return lambda capabilities, type: any(all(factor(capabilities, type) for factor in term) for term in terms)


def _factor(text: str, whole: str) -> Expression:
    negated, _, rest = text.strip().rpartition("not ")
    found = _ATOM.fullmatch(rest.strip())
    if negated.strip() or found is None:
        raise ValueError(f"{whole!r}: {text.strip()!r} is not a factor")
    atom = _atom(found["field"], found["member"], found["number"], whole)
    return (lambda capabilities, type: not atom(capabilities, type)) if "not " in text else atom


def _atom(field: str, member: str | None, number: str | None, whole: str) -> Expression:
    if number is not None and field in _NUMBERS:
        # None means "not known" and counts as less than any number.
        return lambda capabilities, _type: (getattr(capabilities, field) or 0) >= int(number)
    if member is None and number is None and field in _PROMISES:
        return lambda capabilities, _type: bool(getattr(capabilities, field))
    if (field, member) == ("portable", "$type"):
        return lambda _capabilities, type: _given(type, whole).portable
    if member == "$type" and field in ("import", "export", *_SETS) and field != "feature":
        return lambda capabilities, type: type in getattr(capabilities, _field_of(field, type, whole))
    if member is not None and field in _SETS:
        name, members = _SETS[field]
        if member == "*":
            return lambda capabilities, _type: bool(getattr(capabilities, name))
        if member in {each.value for each in members}:
            return lambda capabilities, _type: members(member) in getattr(capabilities, name)
    raise ValueError(f"{whole!r}: no field or member of Capabilities is called so")


def _given(type: HandleType | None, whole: str) -> HandleType:
    if type is None:
        raise ValueError(f"{whole!r} is about a handle type, and None is given")
    return type


def _field_of(field: str, type: HandleType | None, whole: str) -> str:
    if field in ("import", "export"):
        field = f"{'semaphore' if isinstance(type, SemaphoreHandleType) else 'memory'}_{field}"
    # Compare by class: opaque_fd of semaphores and opaque_fd of memory are equal as texts.
    if not isinstance(type, _SETS[field][1]):
        raise ValueError(f"{whole!r} is about a handle type, and {type!r} is given")
    return _SETS[field][0]
