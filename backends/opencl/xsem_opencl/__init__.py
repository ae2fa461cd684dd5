"""The OpenCL backend of xsem: cl_khr_external_semaphore and cl_khr_external_memory, on pyopencl.

What it takes as ``native=``, as lists and as events, and what it refuses, is said in ``docs/opencl.md``.
"""

from __future__ import annotations

from xsem.spi import Register, hookimpl

__all__ = ["xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend; pyopencl is loaded no earlier than its first use."""
    from xsem_opencl._backend import OpenCLBackend

    register(OpenCLBackend())
