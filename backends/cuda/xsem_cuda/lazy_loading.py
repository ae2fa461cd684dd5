"""CUDA's lazy loading: a kernel's first launch loads its module, and blocks its thread behind a pending wait."""

from __future__ import annotations

from typing import Any, Final

from xsem.errors import XsemError
from xsem_cuda.results import call

__all__ = ["ADVICE", "is_lazy", "timeout_causes"]

ADVICE: Final = "launch each kernel once before the first wait, or set CUDA_MODULE_LOADING=EAGER before CUDA starts"

_CAUSE: Final = (
    "the first launch of a kernel loads its module behind the pending wait, which blocks that thread, and calls of "
    "other threads, until the wait is met (CUDA_MODULE_LOADING=EAGER was not set before CUDA started)"
)


def is_lazy(driver: Any) -> bool:
    """Return whether kernels load lazily (cuModuleGetLoadingMode). A driver before CUDA 11.7 loads them eagerly."""
    try:
        mode = call(driver.cuModuleGetLoadingMode)
    except (AttributeError, XsemError):
        return False
    return bool(mode == driver.CUmoduleLoadingMode.CU_MODULE_LAZY_LOADING)


def timeout_causes(driver: Any) -> tuple[str, ...]:
    """Return the causes for `DeviceDriver.timeout_causes`: causes only, no instructions."""
    return (_CAUSE,) if is_lazy(driver) else ()
