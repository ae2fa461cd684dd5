"""Level Zero by raw calls through the real loader: a program without xsem, for tests of the simulated driver.

It uses the names of the specification and the layouts of ``tests/drivers/levelzero/layouts.def``, and nothing of the
backend.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

SUCCESS, NOT_READY = 0, 1
UNINITIALIZED, UNSUPPORTED_FEATURE, INVALID_ARGUMENT = 0x78000001, 0x78000003, 0x78000004
INVALID_NULL_HANDLE, INVALID_NULL_POINTER, INVALID_SIZE = 0x78000005, 0x78000007, 0x78000008
INVALID_ENUMERATION, UNSUPPORTED_ENUMERATION = 0x7800000C, 0x7800000D
OPAQUE_FD, TIMELINE_FD, OPAQUE_WIN32, D3D12_FENCE = 0x1, 0x80, 0x2, 0x8
MEMORY_OPAQUE_FD, MEMORY_DMA_BUF = 1, 2
IN_ORDER = 2
DRIVER, DEVICE, CONTEXT, LIST, EVENT = 0, 1, 2, 4, 7   # for zelLoaderTranslateHandle
FOR_EVER = 2**64 - 1
SOON_S = 0.2
EXTENSION = (
    "zeDeviceImportExternalSemaphoreExt", "zeDeviceReleaseExternalSemaphoreExt",
    "zeCommandListAppendSignalExternalSemaphoreExt", "zeCommandListAppendWaitExternalSemaphoreExt",
)


def structure(stype: int, *fields: tuple[Any, Any], chain: Any = None) -> Any:
    """Return a structure with its head: (type, value) for each field after ``pNext``."""
    names = [(f"field_{number}", kind) for number, (kind, _) in enumerate(fields)]
    made_type = type("Structure", (ctypes.Structure,), {"_fields_": [("stype", c_int32), ("pNext", c_void_p), *names]})
    made = made_type(stype, ctypes.addressof(chain) if chain is not None else None, *(value for _, value in fields))
    made.kept = chain
    return made


def handles(values: Sequence[int | None]) -> Any:
    """Return an array of handles; None for an empty one."""
    return (c_void_p * len(values))(*values) if values else None


class CodeError(Exception):
    """A call did not return success."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: {code:#x}")
        self.code = code


class Raw:
    """One driver, one device, one context, and the functions of the extension, from the first place that has them."""

    def __init__(self, driver: int = 0, device: int = 0) -> None:
        self.loader = ctypes.CDLL("libze_loader.so.1")
        self.call("zeInit", c_uint32(0))
        self.drivers = self.every("zeDriverGet")
        self.driver = self.drivers[driver]
        self.devices = self.every("zeDeviceGet", c_void_p(self.driver))
        self.device = self.devices[device]
        self.context = self.make("zeContextCreate", c_void_p(self.driver), byref(structure(0xD, (c_uint32, 0))))
        self.path = ""
        self.functions = {name: self._find(name) for name in EXTENSION}

    # ---- calls
    def code(self, name: str, *args: Any) -> int:
        function = getattr(self.loader, name)
        function.restype = c_uint32
        return int(function(*args))

    def call(self, name: str, *args: Any) -> None:
        code = self.code(name, *args)
        if code:
            raise CodeError(name, code)

    def make(self, name: str, *args: Any) -> int:
        out = c_void_p()
        self.call(name, *args, byref(out))
        assert out.value is not None
        return out.value

    def every(self, name: str, *args: Any) -> list[int]:
        count = c_uint32(0)
        self.call(name, *args, byref(count), None)
        found = (c_void_p * count.value)()
        self.call(name, *args, byref(count), found)
        return [int(each or 0) for each in found]

    # ---- the extension
    def _find(self, name: str) -> Any:
        address = c_void_p()
        if hasattr(self.loader, name):
            self.path = "loader"
            return getattr(self.loader, name)
        if self.code("zeDriverGetExtensionFunctionAddress", c_void_p(self.driver), name.encode(), byref(address)) == 0:
            self.path = "address"
        else:
            self.path = "table"
            table = (c_void_p * 256)()
            of_device = name.startswith("zeDevice")
            library = self.library()
            getattr(library, f"zeGet{'Device' if of_device else 'CommandList'}ProcAddrTable")(c_uint32(0x1000C), table)
            address.value = table[(19 if of_device else 34) + EXTENSION.index(name) % 2]
        assert address.value, name
        return ctypes.CFUNCTYPE(c_uint32)(address.value)

    def library(self) -> ctypes.CDLL:
        """Return the loaded driver, without loading another."""
        return ctypes.CDLL("libze_intel_gpu.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)

    def there(self, kind: int, handle: int | None) -> c_void_p:
        """Return a handle for the functions of the extension. Functions of the driver need the handle of the driver."""
        out = c_void_p(handle)
        if handle is not None and self.path != "loader":
            self.call("zelLoaderTranslateHandle", c_int(kind), c_void_p(handle), byref(out))
        return out

    def extension(self, name: str, *args: Any) -> int:
        function = self.functions[name]
        function.restype = c_uint32
        return int(function(*args))

    def import_code(self, fd: int, flags: int, *, stype: int = 0x20024) -> tuple[int, int]:
        """Return the code and the semaphore."""
        desc = structure(0x20022, (c_uint32, flags), chain=structure(stype, (c_int32, fd), (c_uint32, 0)))
        out = c_void_p()
        code = self.extension(EXTENSION[0], self.there(DEVICE, self.device), byref(desc), byref(out))
        return code, out.value or 0

    def import_fd(self, fd: int, flags: int) -> int:
        code, semaphore = self.import_code(fd, flags)
        if code:
            raise CodeError(EXTENSION[0], code)
        return semaphore

    def release(self, semaphore: int) -> int:
        return self.extension(EXTENSION[1], c_void_p(semaphore))

    def signal(self, commands: int, semaphores: Sequence[int], values: Sequence[int], *, event: int | None = None,
               after: Sequence[int] = ()) -> int:
        return self._append(EXTENSION[2], 0x20025, commands, semaphores, values, event, after)

    def wait(self, commands: int, semaphores: Sequence[int], values: Sequence[int], *, event: int | None = None,
             after: Sequence[int] = ()) -> int:
        return self._append(EXTENSION[3], 0x20026, commands, semaphores, values, event, after)

    def _append(self, name: str, stype: int, commands: int, semaphores: Sequence[int], values: Sequence[int],
                event: int | None, after: Sequence[int]) -> int:
        each = type(structure(stype, (c_uint64, 0)))
        params = (each * len(values))(*((stype, None, value) for value in values))
        return self.extension(
            name, self.there(LIST, commands), c_uint32(len(semaphores)), handles(semaphores), params,
            self.there(EVENT, event), c_uint32(len(after)), handles([self.there(EVENT, one).value for one in after]),
        )

    # ---- lists and events
    def immediate(self, flags: int = IN_ORDER, mode: int = 2) -> int:
        desc = structure(0xE, *((c_uint32, value) for value in (0, 0, flags, mode, 0)))
        return self.make("zeCommandListCreateImmediate", c_void_p(self.context), c_void_p(self.device), byref(desc))

    def pool(self, count: int) -> int:
        desc = structure(0x10, (c_uint32, 1), (c_uint32, count))
        return self.make("zeEventPoolCreate", c_void_p(self.context), byref(desc), c_uint32(0), None)

    def event(self, pool: int, index: int = 0) -> int:
        desc = structure(0x11, (c_uint32, index), (c_uint32, 4), (c_uint32, 4))
        return self.make("zeEventCreate", c_void_p(pool), byref(desc))

    def reached(self, event: int, timeout_s: float = 20.0) -> bool:
        code = self.code("zeEventHostSynchronize", c_void_p(event), c_uint64(int(timeout_s * 1e9)))
        assert code in (SUCCESS, NOT_READY), hex(code)
        return code == SUCCESS

    def pending(self, event: int) -> bool:
        return self.code("zeEventQueryStatus", c_void_p(event)) == NOT_READY

    def held(self, event: int) -> bool:
        """Return whether it is not reached soon. A passed wait is usually reached by then, a pending wait never is."""
        return not self.reached(event, timeout_s=SOON_S)

    def reset(self, event: int) -> None:
        self.call("zeEventHostReset", c_void_p(event))

    def barrier(self, commands: int, *, event: int | None = None, after: Sequence[int] = ()) -> None:
        self.call("zeCommandListAppendBarrier", c_void_p(commands), c_void_p(event), c_uint32(len(after)),
                  handles(after))

    def copy(self, commands: int, to: int, source: int, size: int, *, event: int | None = None,
             after: Sequence[int] = ()) -> None:
        self.call("zeCommandListAppendMemoryCopy", c_void_p(commands), c_void_p(to), c_void_p(source), c_size_t(size),
                  c_void_p(event), c_uint32(len(after)), handles(after))

    def fill_code(self, commands: int, to: int, pattern: bytes, size: int, *, event: int | None = None) -> int:
        return self.code("zeCommandListAppendMemoryFill", c_void_p(commands), c_void_p(to), pattern,
                         c_size_t(len(pattern)), c_size_t(size), c_void_p(event), c_uint32(0), None)

    def destroy(self, **named: int) -> None:
        """Destroy ``Event=…, EventPool=…`` in order, each by its function."""
        for kind, handle in named.items():
            self.call(f"ze{kind.rstrip('_0123456789')}Destroy", c_void_p(handle))

    # ---- memory
    def allocate_code(self, size: int, *, fd: int | None = None, flags: int = MEMORY_OPAQUE_FD,
                      stype: int = 0x19) -> tuple[int, int]:
        chain = None if fd is None else structure(stype, (c_uint32, flags), (c_int32, fd))
        desc = structure(0x15, (c_uint32, 0), (c_uint32, 0), chain=chain)
        out = c_void_p()
        code = self.code("zeMemAllocDevice", c_void_p(self.context), byref(desc), c_size_t(size), c_size_t(0),
                         c_void_p(self.device), byref(out))
        return code, out.value or 0

    def allocate(self, size: int, **more: Any) -> int:
        code, address = self.allocate_code(size, **more)
        if code:
            raise CodeError("zeMemAllocDevice", code)
        return address

    def free(self, address: int) -> None:
        self.call("zeMemFree", c_void_p(self.context), c_void_p(address))

    def range_of(self, address: int) -> tuple[int, int]:
        base, size = c_void_p(), c_size_t()
        self.call("zeMemGetAddressRange", c_void_p(self.context), c_void_p(address), byref(base), byref(size))
        return base.value or 0, size.value

    # ---- functions of the stand-in
    def counter(self, name: bytes) -> int:
        counted = self.library().simze_counter
        counted.restype = ctypes.c_int64
        return int(counted(name))

    def close(self) -> None:
        self.call("zeContextDestroy", c_void_p(self.context))
