"""The requirements of the suite and the clauses that they come from: `requirements.toml` and `clauses.toml`, read."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, get_args

from xsem.types import Capabilities, MemoryHandleType, OsHandleKind, SemaphoreHandleType, SemaphoreKind
from xsem_conformance.expressions import Expression, HandleType, parse

__all__ = ["AREAS", "Catalogue", "Clause", "Requirement", "applies", "handle_types", "load"]

Level = Literal["MUST", "SHOULD", "MAY"]
Subject = Literal["facade", "backend", "device"]
Per = Literal["semaphore", "memory"]
Direction = Literal["in", "out"]
Need = Literal["exporter_uuid", "second_device"]

AREAS: Final[Mapping[str, str]] = MappingProxyType({
    "DISC": "discovery", "CAP": "capabilities", "IMP": "import", "DESC": "descriptors and parameters",
    "OWN": "ownership", "BIN": "binary semaphores", "TL": "timelines", "BATCH": "batches", "EVT": "events",
    "ORD": "ordering", "WBS": "wait before signal", "LIST": "several lists", "DEV": "several devices",
    "PROC": "several processes", "BUF": "buffers", "MIP": "images", "LIFE": "lifetime", "ERR": "errors",
    "THR": "threads", "FORK": "fork", "INT": "Ctrl-C", "STR": "stress", "KILL": "killed peer",
})
"""What the middle part of an id stands for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One thing that is asked.

    Attributes
    ----------
    id : str
        ``XSEM-<AREA>-<NNN>``; never used again for anything else.
    level : "MUST", "SHOULD" or "MAY"
        A MAY tells what was seen; it cannot be failed, but by what nobody may do. A SHOULD that fails costs nothing.
    subject : "facade", "backend" or "device"
        facade: xsem promises it of every backend and its own tests check it. backend: the plugin and its driver
        objects. device: what the device does. A facade requirement is no part of a device's verdict.
    text : str
        What is observed.
    per : tuple of "semaphore" or "memory"
        The case is asked for each handle type of these; empty: once.
    kinds, os_handle_kinds : tuple of SemaphoreKind, tuple of OsHandleKind
        Only for handle types of these; empty: for all. `kinds` is about semaphores alone.
    directions : tuple of "in" or "out"
        The case is asked both ways: "in", the exporter produces and the device consumes; "out", the reverse.
    needs : tuple of str
        What must be there besides: ``exporter_uuid``, an exporter whose device has a UUID; ``second_device``, another
        device of the backend.
    capability, exporter : str
        What the device must declare for the requirement to apply, and the exporter for it to be asked; see
        `xsem_conformance.expressions`.
    quirk : str
        Name under which the report tells what was seen, whatever the verdict; empty: none.
    origin : str
        ``"xsem"`` where the rule is xsem's own (docs/design.md); empty where it has clauses.
    clauses : tuple of str
        Ids of the clauses that it comes from.
    """

    id: str
    level: Level
    subject: Subject
    text: str
    per: tuple[Per, ...] = ()
    kinds: tuple[SemaphoreKind, ...] = ()
    os_handle_kinds: tuple[OsHandleKind, ...] = ()
    directions: tuple[Direction, ...] = ()
    needs: tuple[Need, ...] = ()
    capability: str = ""
    exporter: str = ""
    quirk: str = ""
    origin: str = ""
    clauses: tuple[str, ...] = ()

    @property
    def area(self) -> str:
        """A key of `AREAS`."""
        return self.id.split("-")[1]

    @property
    def candidates(self) -> tuple[HandleType, ...]:
        """The handle types that it is about, whatever a device declares; empty where it is about none."""
        found: list[HandleType] = []
        if "semaphore" in self.per:
            found += [type for type in SemaphoreHandleType if not self.kinds or type.kind in self.kinds]
        if "memory" in self.per:
            found += MemoryHandleType
        return tuple(type for type in found if not self.os_handle_kinds or type.os_handle_kind in self.os_handle_kinds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Clause:
    """One normative sentence of a document that defines the functionality; the sentence itself is not kept.

    Attributes
    ----------
    id : str
        Beginning as its document's, counted from 001 in the order of the text.
    source : str
        File name of the document.
    sha256 : str
        First 16 hexadecimal digits of the sentence's hash, each run of white space made one blank.
    gist : str
        What it is about.
    requirements : tuple of str
        Ids of what asks for it; empty where `not_testable` says why there is none.
    not_testable : str
        Why nothing asks for it.
    """

    id: str
    source: str
    sha256: str
    gist: str
    requirements: tuple[str, ...] = ()
    not_testable: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All requirements and all clauses by id, in the order of their files."""

    requirements: Mapping[str, Requirement]
    clauses: Mapping[str, Clause]


@functools.cache
def load() -> Catalogue:
    """Read both files.

    Raises
    ------
    ValueError
        A file has a field, a value or an expression that there is not; the message names the entry.
    """
    requirements = {name: _requirement(name, fields) for name, fields in _read("requirements.toml").items()}
    clauses = {
        name: _made(name, Clause, {"source": source, **fields})
        for source, listed in _read("clauses.toml").items() for name, fields in listed.items()
    }
    return Catalogue(MappingProxyType(requirements), MappingProxyType(clauses))


def applies(requirement: Requirement, capabilities: Capabilities, handle_type: HandleType | None = None) -> bool:
    """Whether a device with these capabilities is asked.

    Parameters
    ----------
    requirement : Requirement
    capabilities : Capabilities
        What the device declares.
    handle_type : SemaphoreHandleType or MemoryHandleType, optional
        For this type alone; without one, whether it is asked for any.
    """
    asked = _expression(requirement.capability)
    if handle_type is None and not requirement.per:
        return asked(capabilities, None)
    # By identity: a semaphore's and memory's opaque_fd are equal as texts.
    return any(asked(capabilities, type) for type in requirement.candidates
               if handle_type is None or type is handle_type)


def handle_types(requirement: Requirement, capabilities: Capabilities) -> tuple[HandleType, ...]:
    """The handle types for which a device with these capabilities is asked; empty where the case is about none."""
    return tuple(type for type in requirement.candidates if applies(requirement, capabilities, type))


_expression: Final[Callable[[str], Expression]] = functools.cache(parse)


def _read(name: str) -> Mapping[str, Any]:
    return tomllib.loads((resources.files("xsem_conformance") / name).read_text(encoding="utf-8"))


_Made = TypeVar("_Made")


def _made(name: str, cls: Callable[..., _Made], fields: Mapping[str, Any]) -> _Made:
    # Lists are TOML's; what has been read stays as it is.
    frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    try:
        return cls(id=name, **frozen)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error


def _requirement(name: str, fields: Mapping[str, Any]) -> Requirement:
    try:
        kinds = [SemaphoreKind(each) for each in fields.get("kinds", ())]
        os_handle_kinds = [OsHandleKind(each) for each in fields.get("os_handle_kinds", ())]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    made = _made(name, Requirement, {**fields, "kinds": kinds, "os_handle_kinds": os_handle_kinds})
    allowed = {"level": get_args(Level), "subject": get_args(Subject), "per": get_args(Per),
               "directions": get_args(Direction), "needs": get_args(Need)}
    for field, values in allowed.items():
        found = getattr(made, field)
        for each in (found,) if isinstance(found, str) else found:
            if each not in values:
                raise ValueError(f"{name}: {field} is one of {', '.join(values)}, not {each!r}")
    try:
        for expression in (made.capability, made.exporter):
            for type in made.candidates or (None,):
                _expression(expression)(Capabilities(), type)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return made
