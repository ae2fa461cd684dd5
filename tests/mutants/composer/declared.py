"""Faults in what a driver declares: its attributes and each field of its capabilities."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

from composer.faults import Planned
from composer.interface import Attribute
from xsem import spi
from xsem.types import Capabilities

__all__ = ["attribute_faults"]

_numbers = itertools.count(1 << 20)
_NAMES: dict[str, tuple[str | int, ...]] = {
    "image_formats": ("nv12", "unorm8"), "image_flags": ("cubemap", "sparse"), "drm_modifiers": (0,),
}
"""Items to change in the sets that do not hold members of an enumeration. CUDA lacks nv12 and sparse."""


def attribute_faults(attribute: Attribute) -> Iterator[Planned]:
    """Return the faults of an attribute. Each function takes the composer, the driver and the value."""
    if attribute.annotation == "Capabilities":
        yield from _capability_faults()
    elif attribute.annotation == "Callers":
        for member in spi.Callers:
            yield member.value, f"It declares Callers.{member.name}", functools.partial(_fixed, member)
    elif attribute.annotation == "Sequence[str]":
        yield "empty", "It is empty", functools.partial(_fixed, ())
        yield "ints", "Its items are not strings", functools.partial(_fixed, (1, 2))
    elif attribute.annotation == "Mapping[str, Sequence[str]]":
        yield "empty", "It is empty", functools.partial(_fixed, {})
        yield "ints", "Its items are not strings", lambda composer, _driver, value: _fixed(
            dict.fromkeys(value, (1, 2)), composer, _driver, value)
    elif attribute.annotation == "bool":
        for value in (False, True):
            yield str(value).lower(), f"It is {value}", functools.partial(_fixed, value)
    elif attribute.annotation == "Hashable":
        yield "same", "All objects have one identity", functools.partial(_fixed, 0)
        yield "fresh", "Each read returns another identity", _fresh
    elif attribute.annotation == "int | None":
        yield "none", "It is None", functools.partial(_fixed, None)
        yield "plus-1", "It is one more", _one_more
    # The registration of the plugin checks class variables, and xsem itself sets functions.
    elif not attribute.annotation.startswith(("ClassVar[", "Callable[")):
        raise ValueError(f"{attribute.key}: declared.py needs changes of {attribute.annotation}")


def _fixed(new: Any, composer: Any, _driver: Any, value: Any) -> Any:
    if new != value:
        composer.note_fired()
    return new


def _fresh(composer: Any, _driver: Any, _value: Any) -> Any:
    composer.note_fired()
    return next(_numbers)


def _one_more(composer: Any, _driver: Any, value: Any) -> Any:
    if value is None:
        return None
    composer.note_fired()
    return value + 1


def _capability_faults() -> Iterator[Planned]:
    hints = get_type_hints(Capabilities)
    for field in dataclasses.fields(Capabilities):
        kind = hints[field.name]
        if field.name in _NAMES:
            for name in _NAMES[field.name]:
                yield f"{field.name}-{name}", f"`{field.name}` has {name} more, or less", _field(
                    field.name, functools.partial(_toggled, name))
        elif get_args(kind) and getattr(kind, "__origin__", None) is frozenset:
            for member in get_args(kind)[0]:
                yield f"{field.name}-{member.value}", f"`{field.name}` has {member.value} more, or less", _field(
                    field.name, functools.partial(_toggled, member))
        elif kind is bool:
            yield field.name, f"`{field.name}` is the opposite", _field(field.name, lambda value: not value)
        else:
            yield f"{field.name}=more", f"`{field.name}` is much greater", _field(
                field.name, lambda value: 2**64 - 1 if value == 2**31 - 1 else (value or 1) * 64)
            yield f"{field.name}=less", f"`{field.name}` is 1", _field(field.name, lambda _value: 1)
    yield "changes", "The number of independent lists differs from one driver to the next", _changing


def _toggled(member: Any, value: frozenset[Any]) -> frozenset[Any]:
    return value ^ {member}


def _field(name: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
    def act(composer: Any, _driver: Any, value: Capabilities) -> Capabilities:
        composer.note_fired()
        return dataclasses.replace(value, **{name: change(getattr(value, name))})

    return act


def _changing(composer: Any, driver: Any, value: Capabilities) -> Capabilities:
    composer.note_fired()
    turn, _ = composer.memory.setdefault(id(driver), (len(composer.memory), driver))   # a living driver has a unique id
    return dataclasses.replace(value, independent_lists=value.independent_lists + turn)
