"""One device in one context: the object through which all parts of the backend call OpenCL."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_size_t, c_uint64, c_void_p, sizeof
from typing import Any

from xsem_opencl import cl
from xsem_opencl.loader import Api
from xsem_opencl.nvidia import PLATFORM

__all__ = ["Core", "array", "create_context", "properties"]


class Core:
    """The handles of one device, and the functions that use them."""

    def __init__(self, api: Api, device: int, context: int) -> None:
        self.api = api
        self.device = device   # cl_device_id
        self.context = context   # cl_context
        # Whether this device is the only one of the context. Objects need not name their device then.
        self.alone = len(context_devices(api, context)) == 1
        # Whether clEnqueueSignalSemaphoresKHR returns only when all user events before it are set, also with a barrier
        # between them (H200, 580.159.04: 1.5 s).
        self.signal_blocks = api.text("clGetPlatformInfo", api.platform, cl.PLATFORM_NAME) == PLATFORM

    def create_queue(self) -> int:
        """Create an in-order queue, owned by the caller."""
        return self.api.make("clCreateCommandQueue", self.context, self.device, 0)

    def flush(self, queue: int) -> None:
        """Submit enqueued commands to the device."""
        # OpenCL may keep them in the host until a flush or a wait.
        self.api.do("clFlush", queue)


def context_devices(api: Api, context: int) -> list[int]:
    """The devices of a context."""
    return api.numbers("clGetContextInfo", context, cl.CONTEXT_DEVICES, sizeof(c_void_p))


def create_context(api: Api, device: int) -> int:
    """Call clCreateContext for one device."""
    wanted = (c_size_t * 3)(cl.CONTEXT_PLATFORM, api.platform, 0)
    return api.make("clCreateContext", wanted, 1, (c_void_p * 1)(device), None, None)


def array(handles: Sequence[int]) -> Any:
    """Return an array of handles; None for an empty sequence, as the functions require."""
    return (c_void_p * len(handles))(*handles) if handles else None


def properties(*values: int) -> Any:
    """Return cl_properties[], terminated by 0."""
    # A negative fd becomes the 64-bit number of a C conversion.
    return (c_uint64 * (len(values) + 1))(*(value & 0xFFFF_FFFF_FFFF_FFFF for value in values), 0)
