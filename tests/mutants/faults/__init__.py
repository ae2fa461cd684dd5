"""Drivers with one fault each, around a real driver. New modules of this folder are found automatically."""

from __future__ import annotations

import importlib
import pkgutil

from faults.base import FAULTS, Driver, Fault, List, a_driver, a_list

__all__ = ["FAULTS", "Driver", "Fault", "List", "a_driver", "a_list"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
