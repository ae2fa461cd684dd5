"""The packages that reports need."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

__all__ = ["lacking"]


def lacking(packages: Iterable[str]) -> str:
    """Return an error message about the first package that does not load. Return an empty string if all load."""
    for package in packages:
        try:
            # An import also finds a missing dependency of the package.
            importlib.import_module(package)
        except ImportError as error:
            return f"the output needs {package}: pip install 'xsem[conformance]' ({error})"
    return ""
