"""CUDA's lazy loading of kernels.

With lazy loading, the first launch of a kernel behind a pending wait blocks its thread until the wait is met.
"""

from __future__ import annotations

from typing import Any, Final

from xsem.errors import XsemError
from xsem_cuda._call import call

__all__ = ["ADVICE", "is_lazy", "timeout_causes"]

ADVICE: Final = "launch each kernel once before the first wait, or set CUDA_MODULE_LOADING=EAGER before CUDA starts"

_CAUSE: Final = (
    "a kernel was launched for the first time behind a pending wait: with CUDA's lazy loading the launch blocks its "
    f"thread, and calls of other threads, until the wait is met; {ADVICE}"
)


def is_lazy(driver: Any) -> bool:
    """Call cuModuleGetLoadingMode; a driver before CUDA 11.7 lacks it and loads eagerly."""
    try:
        mode = call(driver.cuModuleGetLoadingMode)
    except (AttributeError, XsemError):
        return False
    return bool(mode == driver.CUmoduleLoadingMode.CU_MODULE_LAZY_LOADING)


def timeout_causes(driver: Any) -> tuple[str, ...]:
    """Return the causes for `DeviceDriver.timeout_causes`."""
    return (_CAUSE,) if is_lazy(driver) else ()
