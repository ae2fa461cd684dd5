"""The checks, by area. `xsem_conformance.checks.check` registers each of them for one requirement."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from xsem_conformance.checks import Check, registered

__all__ = ["all_checks"]


def all_checks() -> Mapping[str, Check]:
    """Return all checks by the id of their requirement."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return registered()
