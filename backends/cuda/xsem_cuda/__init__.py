"""The backend ``cuda``, on cuda-python's driver bindings (``cuda.bindings`` 12.9 and later)."""

from __future__ import annotations

from xsem.spi import Register, hookimpl

__all__ = ["xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend. The vendor library loads at its first use."""
    from xsem_cuda.backend import CudaBackend

    register(CudaBackend())
