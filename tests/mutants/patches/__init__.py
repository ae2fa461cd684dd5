"""Faults inside the CUDA backend, beyond the reach of wrappers. New modules of this folder are found automatically."""

from __future__ import annotations

import importlib
import pkgutil

from patches.base import PATCHES, instead, patch

__all__ = ["PATCHES", "instead", "patch"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
