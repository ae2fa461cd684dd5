"""The methods and attributes of the driver interface, read from its classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from xsem import spi

__all__ = ["ABILITIES", "APPENDS", "PREPARED", "Attribute", "Method", "attributes", "interface_classes", "methods"]

PREPARED = {"prepare_wait": "PreparedWait", "prepare_signal": "PreparedSignal"}
"""Methods that return a `PreparedCall`, and the class name of its faults."""
HOOKS = ("suite_hooks",)
"""Methods for the suite itself. xsem calls none of them."""
COMPILED = ("native_calls",)
"""Attributes that only the compiled part reads. The faults run in pure Python."""
NOT_DRIVERS = ("NativeAppend", "DriverFd", "Register", "PreparedCall")
"""Classes of xsem.spi with methods that no driver implements, or that `PREPARED` covers."""


@dataclass(frozen=True)
class Method:
    """One method of the interface.

    Attributes
    ----------
    owner, name : str
        The class and the method.
    parameters : tuple of (str, str)
        Name and annotation of each parameter, in order.
    returns : str
        The annotation of the result.
    """

    owner: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    returns: str

    @property
    def key(self) -> str:
        """Return ``Class.method``."""
        return f"{self.owner}.{self.name}"

    @property
    def appends(self) -> bool:
        """Whether the method appends an operation and can return its fence."""
        return any(name == "want_fence" for name, _ in self.parameters)

    @property
    def makes(self) -> str:
        """Return the kind of object that the method makes and the facade releases; empty if it makes none."""
        if self.returns == "DeviceDriver" or "DeviceDriver" in self.returns:
            return "device"
        if self.returns == "QueueDriver":
            return "queue"
        if self.appends or not ("Token" in self.returns or self.returns == "Imported"):
            return ""
        last = self.name.rpartition("_")[2]
        return {"event": "fence", "level": "", "chunks": "memory", "timeline": "semaphore"}.get(last, last)

    @property
    def releases(self) -> str:
        """Return the name of the parameter that the method releases, "self" for `close`, or an empty string."""
        if self.name == "close":
            return "self"
        if self.name.startswith(("release_", "unmap_")) and len(self.parameters) == 1:
            return self.parameters[0][0]
        return ""


@dataclass(frozen=True)
class Attribute:
    """One attribute that a driver declares as data."""

    owner: str
    name: str
    annotation: str

    @property
    def key(self) -> str:
        """Return ``Class.attribute``."""
        return f"{self.owner}.{self.name}"


@cache
def interface_classes() -> dict[str, type]:
    """Return the classes that a backend implements, by name."""
    found = {}
    for name in spi.__all__:
        each = getattr(spi, name)
        if inspect.isclass(each) and name not in NOT_DRIVERS and inspect.isabstract(each):
            found[name] = each
    return found


def _own(cls: type) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in vars(cls).items() if not name.startswith("_"))


def _method(owner: str, name: str, function: object, *, first: int = 1) -> Method:
    signature = inspect.signature(function)   # type: ignore[arg-type]
    parameters = tuple((each.name, str(each.annotation)) for each in list(signature.parameters.values())[first:])
    return Method(owner, name, parameters, str(signature.return_annotation))


@cache
def methods() -> tuple[Method, ...]:
    """Return every method of every class, and the two kinds of prepared call."""
    found = [_method(owner, name, function) for owner, cls in interface_classes().items()
             for name, function in _own(cls) if inspect.isfunction(function) and name not in HOOKS]
    found += [_method(owner, "__call__", spi.PreparedCall.__call__) for owner in PREPARED.values()]
    return tuple(found)


@cache
def attributes() -> tuple[Attribute, ...]:
    """Return every attribute: annotated names and properties."""
    found = []
    for owner, cls in interface_classes().items():
        found += [Attribute(owner, name, str(annotation)) for name, annotation in inspect.get_annotations(cls).items()
                  if name not in COMPILED]
        for name, value in _own(cls):
            if isinstance(value, property):
                found.append(Attribute(owner, name, str(inspect.signature(value.fget).return_annotation)))  # type: ignore[arg-type]
    return tuple(found)


ABILITIES = tuple(interface_classes())
APPENDS = tuple(each.key for each in methods() if each.appends)
