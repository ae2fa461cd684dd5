"""The Level Zero backend of xsem: ZE_extension_external_semaphores on Intel GPUs, through the Level Zero loader.

``docs/levelzero.md`` lists the objects that the backend takes as ``native=``, as command lists and as events, and the
objects that it refuses.
"""

from __future__ import annotations

from xsem.spi import Register, hookimpl
from xsem_levelzero.native import Native

__all__ = ["Native", "xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend. The first use of the backend loads the Level Zero loader."""
    from xsem_levelzero.backend import LevelZeroBackend

    register(LevelZeroBackend())
