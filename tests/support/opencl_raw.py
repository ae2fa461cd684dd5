"""OpenCL by raw calls through the loader of pyopencl: a program without xsem, for tests of the layer.

It uses nothing of the backend, and of pyopencl only the loader with PoCL.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

SUCCESS, COMPLETE = 0, 0
DEVICE_NOT_FOUND, INVALID_VALUE, INVALID_DEVICE, INVALID_CONTEXT, INVALID_QUEUE = -1, -30, -33, -34, -36
INVALID_MEM_OBJECT, INVALID_WAIT_LIST, INVALID_BUFFER_SIZE = -38, -57, -61
INVALID_PROPERTY, INVALID_SEMAPHORE = -64, -1142
UNKNOWN_FD, TOO_BIG = 999, 1
TYPE, BINARY, EXPORT_TYPES, DEVICE_LIST, MEMORY_DEVICE_LIST = 0x203D, 1, 0x203F, 0x2053, 0x2051
OPAQUE_FD, SYNC_FD, MEMORY_OPAQUE_FD, MEMORY_DMA_BUF = 0x2055, 0x2058, 0x2060, 0x2067
ALL, CPU, GPU = 0xFFFFFFFF, 2, 4
SOON_S = 0.2
EXTENSIONS = (
    "cl_khr_semaphore", "cl_khr_external_semaphore", "cl_khr_external_semaphore_opaque_fd", "cl_khr_external_memory",
    "cl_khr_external_memory_opaque_fd", "cl_khr_device_uuid",
)
FUNCTIONS = (
    "clCreateSemaphoreWithPropertiesKHR", "clRetainSemaphoreKHR", "clReleaseSemaphoreKHR", "clGetSemaphoreInfoKHR",
    "clGetSemaphoreHandleForTypeKHR", "clEnqueueWaitSemaphoresKHR", "clEnqueueSignalSemaphoresKHR",
    "clEnqueueAcquireExternalMemObjectsKHR", "clEnqueueReleaseExternalMemObjectsKHR",
)
_POINTERS = {"clCreateContext", "clCreateCommandQueueWithProperties", "clCreateUserEvent", "clCreateBuffer",
             "clCreateBufferWithProperties", "clGetExtensionFunctionAddressForPlatform", "clEnqueueMapBuffer",
             "clCreateProgramWithSource", "clCreateKernel", "clCreateContextFromType"}


class CodeError(Exception):
    """A call did not return success."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: {code}")
        self.code = code


def bundled_loader() -> ctypes.CDLL:
    """Return the loader of pyopencl."""
    import pyopencl

    (path,) = (Path(pyopencl.__file__).parent / ".libs").glob("libOpenCL*.so*")
    return ctypes.CDLL(str(path))


def handles(values: Sequence[int]) -> Any:
    """Return an array of handles; None for an empty one."""
    return (c_void_p * len(values))(*values) if values else None


def words(*values: int) -> Any:
    return (c_uint64 * len(values))(*values)


class Raw:
    """One platform, its devices, a context with one or all of them, and the functions of the extensions."""

    def __init__(self, *devices: int) -> None:
        self.loader = bundled_loader()
        (self.platform,) = self.platforms()
        self.devices = self.devices_of(ALL)
        self.chosen = [self.devices[each] for each in devices or (0,)]
        self.device = self.chosen[0]
        self.context = self.make("clCreateContext", None, c_uint32(len(self.chosen)), handles(self.chosen), None, None)
        self.functions = {name: self.address(name) for name in FUNCTIONS}

    # ---- calls
    def function(self, name: str) -> Any:
        found = getattr(self.loader, name)
        found.restype = c_void_p if name in _POINTERS else c_int32
        return found

    def code(self, name: str, *args: Any) -> int:
        return int(self.function(name)(*args))

    def call(self, name: str, *args: Any) -> None:
        code = self.code(name, *args)
        if code:
            raise CodeError(name, code)

    def make(self, name: str, *args: Any) -> int:
        """Return the result of a call whose last parameter is the code."""
        code = c_int32(12345)
        made = self.function(name)(*args, byref(code))
        if code.value:
            raise CodeError(name, code.value)
        return int(made or 0)

    def extension(self, name: str, *args: Any) -> int:
        function = self.functions[name]
        assert function is not None, name
        return int(function(*args))

    def address(self, name: str) -> Any:
        """Return the function of the platform, or None."""
        found = self.function("clGetExtensionFunctionAddressForPlatform")(c_void_p(self.platform), name.encode())
        kind = c_void_p if name.startswith("clCreate") else c_int32
        return ctypes.CFUNCTYPE(kind)(found) if found else None

    # ---- platform and devices
    def platforms(self) -> list[int]:
        count = c_uint32()
        self.call("clGetPlatformIDs", c_uint32(0), None, byref(count))
        found = (c_void_p * count.value)()
        self.call("clGetPlatformIDs", count, found, None)
        return [int(each or 0) for each in found]

    def devices_of(self, kind: int) -> list[int]:
        """Return the devices of this type; an empty list if the platform has none."""
        count = c_uint32()
        code = self.code("clGetDeviceIDs", c_void_p(self.platform), c_uint64(kind), c_uint32(0), None, byref(count))
        if code == DEVICE_NOT_FOUND:
            return []
        found = (c_void_p * count.value)()
        self.call("clGetDeviceIDs", c_void_p(self.platform), c_uint64(kind), count, found, None)
        return [int(each or 0) for each in found]

    def info(self, function: str, handle: int, name: int) -> bytes:
        size = c_size_t()
        call = self.functions.get(function) or self.function(function)
        code = call(c_void_p(handle), c_uint32(name), c_size_t(0), None, byref(size))
        if code:
            raise CodeError(function, code)
        value = ctypes.create_string_buffer(size.value)
        code = call(c_void_p(handle), c_uint32(name), size, value, None)
        if code:
            raise CodeError(function, code)
        return value.raw

    def of_device(self, name: int, device: int | None = None) -> bytes:
        return self.info("clGetDeviceInfo", device or self.device, name)

    # ---- queues and events
    def queue(self, device: int | None = None, *, in_order: bool = True) -> int:
        properties = None if in_order else words(0x1093, 1, 0)
        return self.make("clCreateCommandQueueWithProperties", c_void_p(self.context),
                         c_void_p(device or self.device), properties)

    def flush(self, queue: int) -> None:
        self.call("clFlush", c_void_p(queue))

    def finish(self, queue: int) -> None:
        self.call("clFinish", c_void_p(queue))

    def user_event(self) -> int:
        return self.make("clCreateUserEvent", c_void_p(self.context))

    def set_event(self, event: int, status: int = COMPLETE) -> None:
        self.call("clSetUserEventStatus", c_void_p(event), c_int32(status))

    def status(self, event: int) -> int:
        return int.from_bytes(self.info("clGetEventInfo", event, 0x11D3), "little", signed=True)

    def reached(self, event: int, timeout_s: float = 20.0) -> bool:
        """Return whether it has completed or failed, without a flush."""
        end = time.monotonic() + timeout_s
        while self.status(event) > COMPLETE:
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        return True

    def held(self, event: int) -> bool:
        """Return whether it is not reached soon. A passed wait is usually reached by then, a pending wait never is."""
        return not self.reached(event, SOON_S)

    def marker(self, queue: int, after: Sequence[int] = ()) -> int:
        event = c_void_p()
        self.call("clEnqueueMarkerWithWaitList", c_void_p(queue), c_uint32(len(after)), handles(after), byref(event))
        return int(event.value or 0)

    def release_event(self, event: int) -> None:
        self.call("clReleaseEvent", c_void_p(event))

    # ---- semaphores
    def create(self, *properties: int, context: int | None = None) -> tuple[int, int]:
        """Return the code and the pointer."""
        code = c_int32(12345)
        made = self.functions["clCreateSemaphoreWithPropertiesKHR"](
            c_void_p(self.context if context is None else context), words(*properties, 0), byref(code))
        return code.value, int(made or 0)

    def import_code(self, fd: int, *more: int) -> tuple[int, int]:
        return self.create(TYPE, BINARY, OPAQUE_FD, fd & (2**64 - 1), *more)

    def import_fd(self, fd: int, *more: int) -> int:
        code, semaphore = self.import_code(fd, *more)
        if code:
            raise CodeError("clCreateSemaphoreWithPropertiesKHR", code)
        return semaphore

    def release(self, semaphore: int) -> int:
        return self.extension("clReleaseSemaphoreKHR", c_void_p(semaphore))

    def wait(self, queue: int, semaphores: Sequence[int], *, after: Sequence[int] = (), event: bool = True,
             values: Sequence[int] | None = None) -> tuple[int, int]:
        return self._enqueue("clEnqueueWaitSemaphoresKHR", queue, semaphores, values, after, event)

    def signal(self, queue: int, semaphores: Sequence[int], *, after: Sequence[int] = (), event: bool = True,
               values: Sequence[int] | None = None) -> tuple[int, int]:
        return self._enqueue("clEnqueueSignalSemaphoresKHR", queue, semaphores, values, after, event)

    def _enqueue(self, name: str, queue: int, semaphores: Sequence[int], values: Sequence[int] | None,
                 after: Sequence[int], wanted: bool) -> tuple[int, int]:
        """Return the code and the event."""
        event = c_void_p()
        code = self.extension(
            name, c_void_p(queue), c_uint32(len(semaphores)), handles(semaphores), words(*values) if values else None,
            c_uint32(len(after)), handles(after), byref(event) if wanted else None,
        )
        return code, int(event.value or 0)

    def of_semaphore(self, semaphore: int, name: int) -> bytes:
        return self.info("clGetSemaphoreInfoKHR", semaphore, name)

    def signalled(self, semaphore: int) -> bool:
        return self.of_semaphore(semaphore, 0x203C) != bytes(8)

    # ---- memory
    def buffer_code(self, size: int, *properties: int) -> tuple[int, int]:
        code = c_int32(12345)
        made = self.function("clCreateBufferWithProperties")(
            c_void_p(self.context), words(*properties, 0) if properties else None, c_uint64(1), c_size_t(size), None,
            byref(code))
        return code.value, int(made or 0)

    def buffer(self, size: int, fd: int) -> int:
        code, made = self.buffer_code(size, MEMORY_OPAQUE_FD, fd)
        if code:
            raise CodeError("clCreateBufferWithProperties", code)
        return made

    def release_buffer(self, buffer: int) -> None:
        self.call("clReleaseMemObject", c_void_p(buffer))

    def acquire(self, queue: int, buffers: Sequence[int], after: Sequence[int] = ()) -> int:
        return self.extension("clEnqueueAcquireExternalMemObjectsKHR", c_void_p(queue), c_uint32(len(buffers)),
                              handles(buffers), c_uint32(len(after)), handles(after), None)

    def give_back(self, queue: int, buffers: Sequence[int], after: Sequence[int] = ()) -> int:
        return self.extension("clEnqueueReleaseExternalMemObjectsKHR", c_void_p(queue), c_uint32(len(buffers)),
                              handles(buffers), c_uint32(len(after)), handles(after), None)

    def fill(self, queue: int, buffer: int, byte: int, size: int, *, offset: int = 0, after: Sequence[int] = ()) -> int:
        event = c_void_p()
        self.call("clEnqueueFillBuffer", c_void_p(queue), c_void_p(buffer), bytes([byte]), c_size_t(1),
                  c_size_t(offset), c_size_t(size), c_uint32(len(after)), handles(after), byref(event))
        return int(event.value or 0)

    def read(self, queue: int, buffer: int, size: int, *, offset: int = 0) -> bytes:
        """Read with a blocking call, which flushes."""
        into = ctypes.create_string_buffer(size)
        self.call("clEnqueueReadBuffer", c_void_p(queue), c_void_p(buffer), c_uint32(1), c_size_t(offset),
                  c_size_t(size), into, c_uint32(0), None, None)
        return into.raw

    # ---- functions of the stand-in
    def library(self) -> ctypes.CDLL:
        """Return the loaded layer, without loading another."""
        return ctypes.CDLL(os.environ["OPENCL_LAYERS"].split(":")[0], mode=os.RTLD_NOW | os.RTLD_NOLOAD)

    def counter(self, name: bytes) -> int:
        counted = self.library().simcl_counter
        counted.restype = ctypes.c_int64
        return int(counted(name))

    def fail(self, before: bytes | None = None, after: bytes | None = None) -> None:
        self.library().simcl_fail(c_char_p(before), c_char_p(after))

    def close(self) -> None:
        self.call("clReleaseContext", c_void_p(self.context))
