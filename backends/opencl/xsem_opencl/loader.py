"""pyopencl's own ICD loader, found at first use. One class calls its functions and checks their codes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import byref, c_int32, c_size_t, c_void_p, create_string_buffer
from typing import Any, Final

from xsem.errors import BackendUnavailableError, UnsupportedError
from xsem.spi import Lock
from xsem_opencl import cl
from xsem_opencl.results import PLATFORM_NOT_FOUND, SUCCESS, error_of

__all__ = ["Api", "Library", "find_library", "load"]

_Function = Callable[..., Any]


class Library:
    """The loader."""

    def __init__(self, pyopencl: Any, library: Any, file: str) -> None:
        self.pyopencl = pyopencl   # the module
        self.file = file   # file of the functions, for reports
        self._library = library

    def function(self, name: str) -> _Function | None:
        """A function that the loader exports, or None."""
        function: Any = getattr(self._library, name, None)
        if function is None:
            return None
        function.restype, function.argtypes = cl.PROTOTYPES[name]
        found: _Function = function
        return found


class Api:
    """The functions of one platform, including those of its extensions."""

    def __init__(self, library: Library, platform: int = 0) -> None:
        self.library = library
        self.platform = platform   # cl_platform_id; 0 if no extension is needed
        self._known: dict[str, _Function | None] = {}

    def find(self, name: str) -> _Function | None:
        """A function, or None."""
        try:
            return self._known[name]
        except KeyError:
            found = self._extension(name) if name in cl.EXTENSION_FUNCTIONS else self.library.function(name)
            self._known[name] = found
            return found

    def has(self, *names: str) -> bool:
        """Whether all of these functions are found."""
        return all(self.find(name) is not None for name in names)

    def _extension(self, name: str) -> _Function | None:
        # An address does not prove support: a loader may return one for a function that the device lacks. The backend
        # calls the function only if the device declares the feature.
        ask = self.find("clGetExtensionFunctionAddressForPlatform")
        address = ask(self.platform, name.encode()) if ask is not None and self.platform else None
        if not address:
            return None
        result, arguments = cl.PROTOTYPES[name]
        function: _Function = ctypes.CFUNCTYPE(result, *arguments)(address)
        return function

    def _must(self, name: str) -> _Function:
        function = self.find(name)
        if function is None:
            raise UnsupportedError(f"neither the OpenCL loader nor the driver has {name}: install newer ones",
                                   capability=name, reason="driver_too_old", call=name)
        return function

    def do(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a code, and raise unless the code is CL_SUCCESS."""
        code = self._must(name)(*arguments)
        if code != SUCCESS:
            raise error_of(name, code)

    def make(self, name: str, *arguments: Any) -> int:
        """Call a function that returns a handle and writes a code to its last argument."""
        code = c_int32(SUCCESS)
        made = self._must(name)(*arguments, byref(code))
        # Only the code decides: NVIDIA's driver returns a pointer together with an error (measured).
        if code.value != SUCCESS:
            raise error_of(name, code.value)
        return made or 0

    # ---- queries
    def info(self, name: str, handle: int, key: int) -> bytes:
        """Return the bytes of a clGet…Info query."""
        size = c_size_t()
        self.do(name, handle, key, 0, None, byref(size))
        data = create_string_buffer(size.value or 1)
        if size.value:
            self.do(name, handle, key, size.value, data, None)
        return data.raw[:size.value]

    def text(self, name: str, handle: int, key: int) -> str:
        """Return the text of a char[] query."""
        return self.info(name, handle, key).split(b"\0", 1)[0].decode("utf-8", "replace").strip()

    def number(self, name: str, handle: int, key: int) -> int:
        """Return one unsigned number or one handle of any size."""
        return int.from_bytes(self.info(name, handle, key), sys.byteorder)

    def numbers(self, name: str, handle: int, key: int, size: int) -> list[int]:
        """Return an array of numbers of `size` bytes."""
        data = self.info(name, handle, key)
        return [int.from_bytes(data[at:at + size], sys.byteorder) for at in range(0, len(data), size)]

    def platforms(self) -> list[int]:
        """All platforms; empty if no driver is installed."""
        count = ctypes.c_uint32()
        code = self._must("clGetPlatformIDs")(0, None, byref(count))
        failure = None if code == SUCCESS else error_of("clGetPlatformIDs", code)
        if failure is not None:
            if code == PLATFORM_NOT_FOUND and failure.reason != "fd_limit":
                return []
            raise failure
        found = (c_void_p * count.value)()
        if count.value:
            self.do("clGetPlatformIDs", count.value, found, None)
        return [each or 0 for each in found]

    def devices(self) -> list[int]:
        """All devices of the platform."""
        count = ctypes.c_uint32()
        code = self._must("clGetDeviceIDs")(self.platform, cl.DEVICE_TYPE_ALL, 0, None, byref(count))
        if code == _DEVICE_NOT_FOUND:
            return []
        if code != SUCCESS:
            raise error_of("clGetDeviceIDs", code)
        found = (c_void_p * count.value)()
        if count.value:
            self.do("clGetDeviceIDs", self.platform, cl.DEVICE_TYPE_ALL, count.value, found, None)
        return [each or 0 for each in found]


_DEVICE_NOT_FOUND: Final = -1


def find_library(pyopencl: Any) -> Library:
    """Return the loader that pyopencl itself uses."""
    # Its wheels contain a loader under a different file name. Handles would work with another loader, but that loader
    # has its own list of drivers and layers, and the functions of a layer apply only to calls through it.
    module = pyopencl._cl.__file__
    # On Linux and macOS, a symbol look-up in an extension module continues in its linked libraries. On Windows it does
    # not.
    files = (module, "OpenCL.dll") if sys.platform == "win32" else (module,)
    for file in files:
        try:
            library = ctypes.CDLL(file)
        except OSError:
            continue
        if hasattr(library, "clGetPlatformIDs"):
            return Library(pyopencl, library, file)
    raise BackendUnavailableError(
        "the OpenCL loader that pyopencl was built with is not found: reinstall pyopencl from its wheel (pip install "
        "--force-reinstall pyopencl)", reason="opencl_loader_missing",
    )


_loaded: Library | None = None
_lock = Lock()


def load() -> Library:
    """Import pyopencl and find its loader. The first successful call does the work."""
    global _loaded
    with _lock:
        if _loaded is None:
            try:
                import pyopencl
            except ImportError as error:
                raise BackendUnavailableError(
                    "pyopencl is not installed or does not load: pip install 'xsem[opencl]'",
                    reason="pyopencl_missing", likely_causes=(str(error),),
                ) from error
            _loaded = find_library(pyopencl)
        return _loaded
