"""Load cuda-python, start the driver, and report missing parts."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from xsem.errors import BackendUnavailableError, UnsupportedError
from xsem_cuda.connections import setting
from xsem_cuda.starting import begin

__all__ = ["bindings", "bindings_version", "kernel_driver", "old_driver_remedy", "started"]

_MODULE_VERSION = "/sys/module/nvidia/version"
_SERVES_OLD = "13.3.1"
"""The newest cuda-bindings that start with drivers before CUDA 12.0 (tried on a stand-in): from 10.1 on."""
_INSTALL = "pip install 'xsem[cuda13]' (drivers 580 and newer) or 'xsem[cuda12]' (older ones)"


def bindings() -> Any:
    """Return the module ``cuda.bindings.driver``."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ModuleNotFoundError as error:
        raise BackendUnavailableError(f"cuda-python is not installed ({error}): {_INSTALL}",
                                      reason="cuda_python_missing") from error
    except ImportError as error:
        raise BackendUnavailableError(f"cuda-python cannot be imported ({error}): reinstall it, {_INSTALL}",
                                      reason="cuda_python_broken") from error


def started() -> Any:
    """Return the module ``cuda.bindings.driver`` after a successful cuInit."""
    driver = bindings()
    setting()
    try:
        begin(driver.cuInit, 0)
    except UnsupportedError as error:
        # The bindings load the library at the first call, and look up each function in it.
        text = str(error.__cause__)
        if ("not found" in text and "unction" in text) or "GetProcAddress" in text:
            raise BackendUnavailableError(
                f"the CUDA driver is too old for cuda-python {bindings_version()} ({text}): {old_driver_remedy()}",
                reason="driver_too_old", call="cuInit",
            ) from error
        raise BackendUnavailableError(
            f"{library_name()} was not found: install the NVIDIA driver"
            f"{'' if sys.platform == 'win32' else ', or give the container the GPU'} ({text})",
            reason="libcuda_missing", call="cuInit",
        ) from error
    return driver


def old_driver_remedy() -> str:
    """Return the remedy for a driver that the bindings or this backend cannot use."""
    if bindings_version() == _SERVES_OLD:
        return "update the driver"
    return f"update the driver, or pip install cuda-bindings=={_SERVES_OLD} (drivers from CUDA 10.1 on)"


def library_name() -> str:
    """Return the file name of the driver library on this platform."""
    return "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def bindings_version() -> str:
    """Return the version of cuda-bindings; empty if it is not installed."""
    try:
        return str(importlib.import_module("cuda.bindings").__version__)
    except ImportError:
        return ""


def kernel_driver() -> str:
    """Return the release of the kernel module, for example ``580.159.04``; empty if it is unknown."""
    try:
        with open(_MODULE_VERSION, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
