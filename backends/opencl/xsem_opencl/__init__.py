"""The OpenCL backend of xsem: cl_khr_external_semaphore and cl_khr_external_memory, on pyopencl.

``docs/opencl.md`` lists the objects that the backend takes as ``native=``, as command lists and as events, and the
objects that it refuses.
"""

from __future__ import annotations

from xsem.spi import Register, hookimpl

__all__ = ["xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend. The first use of the backend loads pyopencl."""
    from xsem_opencl.backend import OpenCLBackend

    register(OpenCLBackend())
