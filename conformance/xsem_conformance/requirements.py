"""Read the requirements of the suite, and the clauses behind them: `requirements.toml` and `clauses.toml`."""

from __future__ import annotations

import functools
import os
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
System = Literal["posix", "nt"]

AREAS: Final[Mapping[str, str]] = MappingProxyType({
    "DISC": "discovery", "CAP": "capabilities", "IMP": "import", "DESC": "descriptors and parameters",
    "OWN": "ownership", "BIN": "binary semaphores", "TL": "timelines", "BATCH": "batches", "EVT": "events",
    "ORD": "ordering", "WBS": "wait before signal", "LIST": "several lists", "DEV": "several devices",
    "PROC": "several processes", "BUF": "buffers", "MIP": "images", "LIFE": "lifetime", "ERR": "errors",
    "THR": "threads", "FORK": "fork", "INT": "Ctrl-C", "STR": "stress", "KILL": "killed peer",
})
"""The meaning of the middle part of an id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One requirement.

    Attributes
    ----------
    id : str
        ``XSEM-<AREA>-<NNN>``; never reused for another requirement.
    level : "MUST", "SHOULD" or "MAY"
        A MAY reports the observed behaviour; it fails only on behaviour that every device must avoid. A failed SHOULD
        does not change the exit status.
    subject : "facade", "backend" or "device"
        facade: xsem promises it for every backend, and the tests of xsem check it. backend: the plugin and its driver
        objects. device: the behaviour of the device. A facade requirement does not enter the verdict of a device.
    text : str
        The requirement as one sentence.
    per : tuple of "semaphore" or "memory"
        One case for each handle type of these; empty: one case.
    kinds, os_handle_kinds : tuple of SemaphoreKind, tuple of OsHandleKind
        Limits the handle types to these; empty: no limit. `kinds` applies only to semaphores.
    portable : bool
        Limits the handle types to those of objects of the host.
    directions : tuple of "in" or "out"
        One case for each direction. "in": the exporter produces and the device consumes; "out": the reverse.
    needs : tuple of str
        Further conditions. ``exporter_uuid``: the exporter's device has a UUID. ``second_device``: the backend has
        another device.
    systems : tuple of str
        The requirement applies on these systems, with the names of `os.name`; empty: on all.
    capability, exporter : str
        The requirement applies if the device declares `capability`. It can be checked if the exporter declares
        `exporter`. See `xsem_conformance.expressions`.
    quirk : str
        Name of the quirk in the report with the observed behaviour, independent of the verdict; empty: none.
    origin : str
        ``"xsem"`` for a rule of xsem itself (docs/design.md); empty for a requirement with clauses.
    clauses : tuple of str
        Ids of the clauses behind the requirement.
    """

    id: str
    level: Level
    subject: Subject
    text: str
    per: tuple[Per, ...] = ()
    kinds: tuple[SemaphoreKind, ...] = ()
    os_handle_kinds: tuple[OsHandleKind, ...] = ()
    portable: bool = False
    directions: tuple[Direction, ...] = ()
    needs: tuple[Need, ...] = ()
    systems: tuple[System, ...] = ()
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
    def on_this_system(self) -> bool:
        """Whether the requirement applies on the system of this process."""
        return not self.systems or os.name in self.systems

    @property
    def candidates(self) -> tuple[HandleType, ...]:
        """The handle types of the requirement, independent of a device; empty if it concerns no handle type."""
        found: list[HandleType] = []
        if "semaphore" in self.per:
            found += [type for type in SemaphoreHandleType if not self.kinds or type.kind in self.kinds]
        if "memory" in self.per:
            found += MemoryHandleType
        return tuple(type for type in found if (not self.os_handle_kinds or type.os_handle_kind in self.os_handle_kinds)
                     and (type.portable or not self.portable))


@dataclass(frozen=True, kw_only=True, slots=True)
class Clause:
    """One normative sentence of a document that defines the functionality, without the sentence itself.

    Attributes
    ----------
    id : str
        The prefix of the document and a number, counted from 001 in the order of the text.
    source : str
        File name of the document.
    sha256 : str
        First 16 hexadecimal digits of the hash of the sentence, with each run of white space replaced by one blank.
    gist : str
        The subject of the sentence, in a few words.
    requirements : tuple of str
        Ids of the requirements that cover the clause; empty if `not_testable` gives a reason.
    not_testable : str
        The reason why no requirement covers the clause.
    """

    id: str
    source: str
    sha256: str
    gist: str
    requirements: tuple[str, ...] = ()
    not_testable: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All requirements and all clauses by id, in the order of their files.

    Examples
    --------
    >>> load().requirements["XSEM-BIN-003"].level
    'MUST'
    """

    requirements: Mapping[str, Requirement]
    clauses: Mapping[str, Clause]


@functools.cache
def load() -> Catalogue:
    """Read both files; return the catalogue.

    Raises
    ------
    ValueError
        A file has an unknown field, an invalid value or an invalid expression; the message names the entry.
    """
    requirements = {name: _requirement(name, fields) for name, fields in _read("requirements.toml").items()}
    clauses = {
        name: _made(name, Clause, {"source": source, **fields})
        for source, listed in _read("clauses.toml").items() for name, fields in listed.items()
    }
    return Catalogue(MappingProxyType(requirements), MappingProxyType(clauses))


def applies(requirement: Requirement, capabilities: Capabilities, handle_type: HandleType | None = None) -> bool:
    """Return whether a requirement applies to a device with these capabilities.

    Parameters
    ----------
    requirement : Requirement
        The requirement.
    capabilities : Capabilities
        The declared capabilities of the device.
    handle_type : SemaphoreHandleType or MemoryHandleType, optional
        Limits the question to this type; without it, one type that applies is enough.
    """
    asked = _expression(requirement.capability)
    if handle_type is None and not requirement.per:
        return asked(capabilities, None)
    # Compare by identity: opaque_fd of semaphores and opaque_fd of memory are equal as texts.
    return any(asked(capabilities, type) for type in requirement.candidates
               if handle_type is None or type is handle_type)


def handle_types(requirement: Requirement, capabilities: Capabilities) -> tuple[HandleType, ...]:
    """Return the handle types that apply to a device with these capabilities; empty if it concerns no handle type."""
    return tuple(type for type in requirement.candidates if applies(requirement, capabilities, type))


_expression: Final[Callable[[str], Expression]] = functools.cache(parse)


def _read(name: str) -> Mapping[str, Any]:
    return tomllib.loads((resources.files("xsem_conformance") / name).read_text(encoding="utf-8"))


_Made = TypeVar("_Made")


def _made(name: str, cls: Callable[..., _Made], fields: Mapping[str, Any]) -> _Made:
    # Replace the lists of TOML by tuples: the entries are immutable.
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
               "directions": get_args(Direction), "needs": get_args(Need), "systems": get_args(System)}
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
