"""The application's pyopencl context or queue, for ``native=``."""

from __future__ import annotations

from collections.abc import Sequence

from xsem.errors import BadArgumentError
from xsem_opencl import cl
from xsem_opencl.core import context_devices
from xsem_opencl.loader import Api, Library
from xsem_opencl.platforms import Found, all_devices

__all__ = ["adopted"]


def adopted(library: Library, native: object) -> tuple[int, Found, int]:
    """Return index, device and cl_context of `native`, which stays the application's."""
    pyopencl, api = library.pyopencl, Api(library)
    if isinstance(native, pyopencl.CommandQueue):
        queue = native.int_ptr
        context = api.number("clGetCommandQueueInfo", queue, cl.QUEUE_CONTEXT)
        devices: Sequence[int] = [api.number("clGetCommandQueueInfo", queue, cl.QUEUE_DEVICE)]
    elif isinstance(native, pyopencl.Context):
        context = native.int_ptr
        devices = context_devices(api, context)
    else:
        raise BadArgumentError("the opencl backend takes a pyopencl.Context or a pyopencl.CommandQueue as native=, not "
                               f"{native!r}", reason="bad_native")
    if len(devices) != 1:
        raise BadArgumentError(f"the context has {len(devices)} devices: pass a CommandQueue, which names one of them",
                               reason="bad_native")
    for index, found in enumerate(all_devices(library)):
        if found.device == devices[0]:
            return index, found, context
    raise BadArgumentError("native= belongs to a device that the OpenCL loader does not list: pass a context of a "
                           "whole device, not of a part of one", reason="bad_native")
