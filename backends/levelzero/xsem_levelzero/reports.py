"""The texts of reports: why types are not declared, and the remedies of ``xsem doctor``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from xsem.types import SemaphoreHandleType
from xsem_levelzero.exports import Exports
from xsem_levelzero.extension import LOADER_ROUTE, is_loaded
from xsem_levelzero.gpus import Gpu
from xsem_levelzero.intel.releases import flaw_of
from xsem_levelzero.known import Known
from xsem_levelzero.loader import Loader
from xsem_levelzero.results import INVALID, UNINITIALIZED, UNSUPPORTED_VERSION

__all__ = [
    "REINSTALL",
    "closer_of",
    "refused_exports",
    "refused_types",
    "remedy_of",
    "undeclared_causes",
    "validation_layer",
]

_LAYER: Final = "libze_validation_layer.so.1"
_LAYERS: Final = {"win32": "ze_validation_layer.dll"}
REINSTALL: Final = "install Intel's GPU driver, the loader and its layers from one release" + (
    "" if sys.platform == "win32" else ", and allow this user to open /dev/dri/renderD*")


def undeclared_causes(known: Known) -> Mapping[str, Sequence[str]]:
    """Return `DeviceDriver.undeclared_causes` for the types of semaphores."""
    return {f"semaphore.import.{type.value}": [why for each, why in known.reasons.items() if each in (type, None)]
            for type in SemaphoreHandleType}


def refused_types(known: Known) -> str:
    """Return the undeclared handle types, each with its reason. "all" stands for all types."""
    return "; ".join(f"{each.value if each else 'all'}: {why}" for each, why in known.reasons.items())


def refused_exports(exports: Exports) -> str:
    """Return the types whose export was refused, each with its reason."""
    return "; ".join(f"{type.value}: {why}" for type, why in exports.refusals.items())


def closer_of(exports: Exports) -> str:
    """Return who closes the fd of an export: the driver, or the caller."""
    return "" if not exports.types else "driver" if exports.driver_closes else "caller"


def remedy_of(loader: Loader, gpu: Gpu, known: Known) -> str:
    """Return the remedy for a device that imports no semaphore, from the cause as far as it is known."""
    layer = bool(validation_layer(known.extension.route)) and is_loaded(_LAYERS.get(sys.platform, _LAYER))
    if layer and os.environ.get("ZE_ENABLE_HANDLE_LIFETIME") == "1":
        return ("unset ZE_ENABLE_HANDLE_LIFETIME: the layer's checker of handle lifetimes refuses correct programs up "
                "to loader 1.32")
    if layer and known.behaviour.codes & INVALID and os.environ.get("ZE_ENABLE_PARAMETER_VALIDATION") == "1":
        return ("update the loader to 1.21.2, or unset ZE_ENABLE_PARAMETER_VALIDATION: the layer of 1.20.2 to 1.21.1 "
                f"refuses every import (this loader is {loader.version() or 'of unknown version'})")
    if layer and UNSUPPORTED_VERSION in known.behaviour.codes:
        return "unset ZEL_ENABLE_CERTIFICATION_CHECKER, or declare version 1.12 for it"
    if not known.extension.found:
        return "update Intel's GPU driver to 25.27 or newer: neither the loader nor the driver has the functions"
    if flaw_of(gpu.build) is not None:
        return "update Intel's GPU driver to 25.27 or newer, for frame loops to 26.22 or newer"
    if known.extension.route == LOADER_ROUTE and UNINITIALIZED in known.behaviour.codes:
        return "update the loader and Intel's GPU driver: the loader has no functions of this driver"
    if not known.behaviour.codes and sys.platform != "win32":
        return "allow this user to open /dev/dri/renderD*: without a DRM syncobj no import can be tried"
    return "update Intel's GPU driver to 25.27 or newer"


def validation_layer(route: str) -> str:
    """Tell whether the loader's validation layer, if enabled, sees the extension's four functions."""
    if os.environ.get("ZE_ENABLE_VALIDATION_LAYER") != "1":   # the loader ignores every other value
        return ""
    if not is_loaded(_LAYERS.get(sys.platform, _LAYER)):
        return "requested but not loaded: the loader finds no validation layer of its release"
    if route == LOADER_ROUTE:
        return "in the path of the semaphore functions"
    return "not in the path of the semaphore functions, which come from the driver past the loader's layers"
