"""The backend toy of xsem."""

from __future__ import annotations

from xsem.spi import Register, hookimpl
from xsem_toy.backend import ToyBackend

__all__ = ["ToyBackend", "xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend ``toy``."""
    register(ToyBackend())
