"""Load cuda-python, start the driver, and report missing parts."""

from __future__ import annotations

import glob
import importlib
import os
import sys
from typing import Any

from xsem.errors import BackendUnavailableError, UnsupportedError, XsemError
from xsem_cuda.results import NO_DEVICE, call

__all__ = ["bindings", "bindings_version", "denied_nodes", "kernel_driver", "old_driver_remedy", "started"]

_MODULE_VERSION = "/sys/module/nvidia/version"
_SERVES_OLD = "13.3.1"
"""The newest cuda-bindings that start with drivers before CUDA 12.0 (tried on a stand-in): from 10.1 on."""
_INSTALL = "pip install 'xsem[cuda13]' (drivers 580 and newer) or 'xsem[cuda12]' (older ones)"


def bindings() -> Any:
    """Return the module ``cuda.bindings.driver``.

    Raises
    ------
    BackendUnavailableError
        ``cuda_python_missing``, ``cuda_python_broken``.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ModuleNotFoundError as error:
        raise BackendUnavailableError(f"cuda-python is not installed ({error}): {_INSTALL}",
                                      reason="cuda_python_missing") from error
    except ImportError as error:
        raise BackendUnavailableError(f"cuda-python cannot be imported ({error}): reinstall it, {_INSTALL}",
                                      reason="cuda_python_broken") from error


def started() -> Any:
    """Return the module ``cuda.bindings.driver`` after a successful cuInit.

    Raises
    ------
    BackendUnavailableError
        As `bindings`; also ``libcuda_missing``, ``driver_too_old``, ``no_permission``, ``no_device``,
        ``driver_failed``.
    """
    driver = bindings()
    try:
        call(driver.cuInit, 0)
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
    except XsemError as error:
        raise _unusable(error) from error
    return driver


def _unusable(error: XsemError) -> BackendUnavailableError:
    fields: dict[str, Any] = {"call": error.call, "code": error.code, "code_name": error.code_name}
    denied = denied_nodes()
    if denied:
        return BackendUnavailableError(
            f"no permission on {', '.join(denied)}: add the user to the group that owns these nodes",
            reason="no_permission", **fields,
        )
    if error.code == NO_DEVICE:
        return BackendUnavailableError(
            "the CUDA driver finds no device: check CUDA_VISIBLE_DEVICES"
            f"{'' if sys.platform == 'win32' else ', and whether the container has a GPU'}",
            reason="no_device", **fields,
        )
    remedy = ("reinstall the NVIDIA driver" if sys.platform == "win32"
              else "check that kernel module and library have the same release")
    return BackendUnavailableError(f"the CUDA driver does not start: run nvidia-smi, and {remedy}",
                                   reason="driver_failed", **fields)


def old_driver_remedy() -> str:
    """Return the remedy for a driver that the bindings or this backend cannot use."""
    if bindings_version() == _SERVES_OLD:
        return "update the driver"
    return f"update the driver, or pip install cuda-bindings=={_SERVES_OLD} (drivers from CUDA 10.1 on)"


def library_name() -> str:
    """Return the file name of the driver library on this platform."""
    return "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def denied_nodes() -> list[str]:
    """Return the device nodes of the driver that this user cannot open; always empty on Windows."""
    return [node for node in sorted(glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/nvidia-uvm")
                                    + glob.glob("/dev/nvidiactl"))
            if not os.access(node, os.R_OK | os.W_OK)]


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
