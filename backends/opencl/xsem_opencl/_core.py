"""One device in one context: what all parts of the backend call through."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_size_t, c_uint64, c_void_p, sizeof
from typing import Any

from xsem_opencl import _cl as cl
from xsem_opencl._api import Api

__all__ = ["Core", "array", "create_context", "properties"]


class Core:
    """Handles, and the functions to use them with.

    Attributes
    ----------
    api : Api
    device, context : int
        cl_device_id, cl_context.
    alone : bool
        The context has this device alone: then objects need not say for which device they are.
    """

    def __init__(self, api: Api, device: int, context: int) -> None:
        self.api = api
        self.device = device
        self.context = context
        self.alone = len(context_devices(api, context)) == 1

    def create_queue(self) -> int:
        """An in-order queue."""
        return self.api.make("clCreateCommandQueue", self.context, self.device, 0)

    def flush(self, queue: int) -> None:
        """Have what was enqueued reach the device: OpenCL may keep it back until somebody waits for it."""
        self.api.do("clFlush", queue)


def context_devices(api: Api, context: int) -> list[int]:
    """The devices of a context."""
    return api.numbers("clGetContextInfo", context, cl.CONTEXT_DEVICES, sizeof(c_void_p))


def create_context(api: Api, device: int) -> int:
    """Call clCreateContext for one device."""
    wanted = (c_size_t * 3)(cl.CONTEXT_PLATFORM, api.platform, 0)
    return api.make("clCreateContext", wanted, 1, (c_void_p * 1)(device), None, None)


def array(handles: Sequence[int]) -> Any:
    """An array of handles; None for none, which is what the functions want then."""
    return (c_void_p * len(handles))(*handles) if handles else None


def properties(*values: int) -> Any:
    """cl_properties[], ended by a 0. A negative fd is the 64-bit number that C makes of it."""
    return (c_uint64 * (len(values) + 1))(*(value & 0xFFFF_FFFF_FFFF_FFFF for value in values), 0)
