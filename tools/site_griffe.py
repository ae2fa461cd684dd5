"""Extension of griffe for the documentation site: classes that only xsem constructs have no constructor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import api
import griffe

__all__ = ["MadeByXsem"]


class MadeByXsem(griffe.Extension):
    """Removes the constructors that users cannot call. The list of public names omits the same ones."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Remove the constructors of a loaded package."""
        classes = list(_classes(pkg))
        made = [each for each in classes if any(path in api.MADE_BY_XSEM for path in _paths(each))]
        for each in made:
            each.members.pop("__init__", None)


def _paths(cls: griffe.Class) -> list[str]:
    return [cls.path, *(base.path for base in cls.mro())]


def _classes(module: griffe.Object) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Class):
            yield member
        if isinstance(member, griffe.Module | griffe.Class):
            yield from _classes(member)
