"""The OpenCL backend of xsem: cl_khr_external_semaphore and …_memory, on pyopencl (docs/opencl.md)."""

from __future__ import annotations

from xsem.spi import Register, hookimpl

__all__ = ["xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend. The first use of the backend loads pyopencl."""
    from xsem_opencl.backend import OpenCLBackend

    register(OpenCLBackend())
