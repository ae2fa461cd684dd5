"""The CUDA backend of xsem, on cuda-python's driver bindings (``cuda.bindings`` 12.9 and later).

What it takes as ``native=``, as streams and as events, and what it refuses, is said in ``docs/cuda.md``.
"""

from __future__ import annotations

from xsem.spi import Register, hookimpl

__all__ = ["xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend; the vendor library is loaded no earlier than its first use."""
    from xsem_cuda._backend import CudaBackend

    register(CudaBackend())
