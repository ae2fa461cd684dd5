"""The Level Zero backend of xsem: ZE_extension_external_semaphores on Intel GPUs, through the Level Zero loader.

What it takes as ``native=``, as lists and as events, and what it refuses, is said in ``docs/levelzero.md``.
"""

from __future__ import annotations

from xsem.spi import Register, hookimpl
from xsem_levelzero._native import Native

__all__ = ["Native", "xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend; the loader is loaded no earlier than its first use."""
    from xsem_levelzero._backend import LevelZeroBackend

    register(LevelZeroBackend())
