"""The environment variable XSEM_PURE: import the Python sources in place of the compiled modules beside them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

__all__ = ["wanted"]


class _Sources:
    """A finder of the sources of xsem and its backends. By default, Python prefers a compiled module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not name.startswith(("xsem.", "xsem_")):
            return None
        found = (_finder(folder).find_spec(name) for folder in path)
        return next((spec for spec in found if spec is not None), None)


@functools.cache
def _finder(folder: str) -> FileFinder:
    """Return the finder of a folder. A finder reads the folder once, and again after a change."""
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


def wanted() -> bool:
    """Return whether XSEM_PURE requests the sources."""
    return os.environ.get("XSEM_PURE", "0") not in {"", "0"}


if wanted():
    sys.meta_path.insert(0, _Sources)
