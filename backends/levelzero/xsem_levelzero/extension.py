"""The extension's four functions: their sources, and the form of the handles that they take.

Three sources are tried in this order. All four functions come from the same source, because a semaphore imported
through one source is unknown to the others:

1. the loader's own export (loader 1.20 and newer);
2. zeDriverGetExtensionFunctionAddress;
3. the driver's own tables, from which the loader fills its tables. An older loader omits these functions.

Functions of the driver take the driver's own handles. The loader wraps handles when several drivers are present or
with ZE_ENABLE_LOADER_INTERCEPT=1. Wrapped handles are translated exactly once: a second translation returns garbage or
ends the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_uint8, c_uint32, c_void_p
from typing import Any, Final

from xsem.errors import UnsupportedError, XsemError
from xsem_levelzero import ze
from xsem_levelzero.loader import Loader, handle_out
from xsem_levelzero.results import SUCCESS, error_of

__all__ = ["Extension", "driver_libraries", "find_extensions", "is_immediate_of", "is_loaded"]

_IMPORT: Final = "zeDeviceImportExternalSemaphoreExt"
_RELEASE: Final = "zeDeviceReleaseExternalSemaphoreExt"
SIGNAL: Final = "zeCommandListAppendSignalExternalSemaphoreExt"
WAIT: Final = "zeCommandListAppendWaitExternalSemaphoreExt"
_IS_IMMEDIATE: Final = "zeCommandListIsImmediate"

LOADER_ROUTE: Final = "loader export"
ADDRESS_ROUTE: Final = "zeDriverGetExtensionFunctionAddress"
TABLE_ROUTE: Final = "the driver's own table"
NO_ROUTE: Final = "not found"

# Larger than every table: a driver may write entries of later versions than the requested one.
_ROOM: Final = 256

_DRIVERS: Final = {
    "win32": ("ze_intel_gpu64.dll",),
    "linux": ("libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1"),
}
_Functions = Mapping[str, Callable[..., int]]


class Extension:
    """The four functions of one driver."""

    def __init__(self, loader: Loader, functions: _Functions, route: str, *, wrapped: bool) -> None:
        self._loader = loader
        self._functions = functions
        self.route = route       # the source of the functions
        self.wrapped = wrapped   # the loader wraps this driver's handles
        self._translate = wrapped and route != LOADER_ROUTE

    @property
    def found(self) -> bool:
        """Whether the functions were found."""
        return bool(self._functions)

    # ---- arguments in the form that these functions take; their results need no translation
    def device(self, handle: int) -> int:
        """Translate a device handle."""
        return self._native(ze.TRANSLATE_DEVICE, handle)

    def command_list(self, handle: int) -> int:
        """Translate the handle of a command list."""
        return self._native(ze.TRANSLATE_COMMAND_LIST, handle)

    def event(self, handle: int) -> int:
        """Translate an event handle."""
        return self._native(ze.TRANSLATE_EVENT, handle)

    def _native(self, kind: int, handle: int) -> int:
        return translated(self._loader, kind, handle) if self._translate else handle

    # ---- calls
    def import_semaphore(self, device: int, desc: ze.ExternalSemaphoreDesc) -> int:
        """Call zeDeviceImportExternalSemaphoreExt with a translated `device`."""
        made = c_void_p()
        self._do(_IMPORT, device, byref(desc), byref(made))
        return made.value or 0

    def release_semaphore(self, semaphore: int) -> None:
        """Call zeDeviceReleaseExternalSemaphoreExt. A failed call is repeated once, as by `Loader.end`."""
        try:
            self._do(_RELEASE, semaphore)
        except XsemError:
            self._do(_RELEASE, semaphore)

    def append(
        self, name: str, commands: int, semaphores: Sequence[int], params: Any, signal: int, waits: Sequence[int]
    ) -> None:
        """Append a signal or a wait. All handles are translated; `params` is an array of structs."""
        self._do(name, commands, len(semaphores), handle_out(semaphores), params, signal or None, len(waits),
                 handle_out(waits))

    def _do(self, name: str, *arguments: Any) -> None:
        function = self._functions.get(name)
        if function is None:
            raise UnsupportedError(
                f"{name} is neither in the Level Zero loader (1.20 and newer have it) nor in the driver: update them",
                capability=name, reason="driver_too_old", call=name,
            )
        code = function(*arguments)
        if code != SUCCESS:
            raise error_of(name, code)


def translated(loader: Loader, kind: int, handle: int) -> int:
    """Return the driver's own handle for a handle of the loader; the same handle if the loader does not wrap."""
    if loader.find("zelLoaderTranslateHandle") is None:
        return handle
    return loader.make("zelLoaderTranslateHandle", kind, handle)


def find_extensions(loader: Loader, driver: int) -> Iterator[Extension]:
    """Yield an `Extension` for each source with all functions, or one whose calls raise."""
    # The loader exports the functions also if the driver does not fill its table with them. The calls then return
    # ZE_RESULT_ERROR_UNSUPPORTED_FEATURE or ZE_RESULT_ERROR_UNINITIALIZED, and the next source may work.
    native = translated(loader, ze.TRANSLATE_DRIVER, driver)
    wrapped = native != driver
    found = False
    for functions, route in _sources(loader, driver, native):
        if functions is not None:
            found = True
            yield Extension(loader, functions, route, wrapped=wrapped)
    if not found:
        yield Extension(loader, {}, NO_ROUTE, wrapped=wrapped)


def _sources(loader: Loader, driver: int, native: int) -> Iterator[tuple[_Functions | None, str]]:
    yield _exported(loader), LOADER_ROUTE
    yield _by_address(loader, driver), ADDRESS_ROUTE
    yield _from_tables(native)


def _exported(loader: Loader) -> _Functions | None:
    found = {name: loader.find(name) for name in ze.EXTENSION_FUNCTIONS}
    functions = {name: function for name, function in found.items() if function is not None}
    return functions if len(functions) == len(found) else None


def _by_address(loader: Loader, driver: int) -> _Functions | None:
    functions = {}
    for name in ze.EXTENSION_FUNCTIONS:
        # Some drivers return SUCCESS without writing the pointer, which is null here.
        out = c_void_p()
        code = loader.raw("zeDriverGetExtensionFunctionAddress", driver, name.encode(), byref(out))
        if code != SUCCESS or not out.value:
            return None
        functions[name] = _prototype(name)(out.value)
    return functions


def _libraries_of(native: int) -> list[tuple[str, Any]]:
    """Return the loaded libraries that can belong to a driver, usually one, as (file name, library) pairs."""
    loaded = [(name, library) for name in driver_libraries() if (library := _loaded_library(name)) is not None]
    return [(name, library) for name, library in loaded if len(loaded) == 1 or native in _drivers_of(library)]


def is_immediate_of(loader: Loader, driver: int) -> Callable[[int], int | None] | None:
    """Return a function that tells whether a list of this driver is immediate; None if no such function is found."""
    # It is zeCommandListIsImmediate of the loader, or of the driver with the driver's own handles. Where the driver
    # does not support the call, it returns None.
    exported = loader.find(_IS_IMMEDIATE)
    if exported is not None:
        return lambda handle: _asked(exported, handle)
    native = translated(loader, ze.TRANSLATE_DRIVER, driver)
    getter, index = ze.IS_IMMEDIATE
    for _, library in _libraries_of(native):
        address = _table(library, getter)[index]
        if address:
            own = _prototype(_IS_IMMEDIATE)(address)
            if native == driver:
                return lambda handle: _asked(own, handle)
            return lambda handle: _asked(own, translated(loader, ze.TRANSLATE_COMMAND_LIST, handle))
    return None


def _asked(function: Callable[..., int], handle: int) -> int | None:
    immediate = c_uint8()
    code = function(handle, byref(immediate))
    if code == SUCCESS:
        return immediate.value
    error = error_of(_IS_IMMEDIATE, code)
    if isinstance(error, UnsupportedError):
        return None  # the driver is older than the loader
    raise error


def _from_tables(native: int) -> tuple[_Functions | None, str]:
    for name, library in _libraries_of(native):
        functions = {}
        for function, (getter, index) in ze.EXTENSION_FUNCTIONS.items():
            address = _table(library, getter)[index]
            if not address:
                break
            functions[function] = _prototype(function)(address)
        else:
            return functions, f"{TABLE_ROUTE} ({name})"
    return None, NO_ROUTE


def driver_libraries() -> tuple[str, ...]:
    """The files from which the loader loads drivers, as far as xsem knows."""
    chosen = os.environ.get("ZE_ENABLE_ALT_DRIVERS")
    if chosen:
        return tuple(name for name in chosen.split(",") if name)
    return _DRIVERS.get(sys.platform, ())


def is_loaded(name: str) -> bool:
    """Whether this process has loaded a library. This call never loads it."""
    return _loaded_library(name) is not None


def _loaded_library(name: str) -> Any | None:
    """Return the library if this process has loaded it. This call never loads it."""
    try:
        if sys.platform == "win32":
            find = ctypes.WinDLL("kernel32").GetModuleHandleW
            find.restype = c_void_p
            handle = find(name)
            return ctypes.CDLL(name, handle=handle) if handle else None
        return ctypes.CDLL(name, mode=os.RTLD_NOW | getattr(os, "RTLD_NOLOAD", 0))
    except OSError:
        return None


def _table(library: Any, getter: str) -> Any:
    table = (c_void_p * _ROOM)()
    function = getattr(library, getter, None)
    if function is None:
        return table
    function.argtypes = ze.PROTOTYPES[getter]
    function.restype = c_uint32
    # A refusal leaves the table empty: the driver is older than the extension.
    return table if function(ze.SPEC_WITH_EXTENSION, table) == SUCCESS else (c_void_p * _ROOM)()


def _drivers_of(library: Any) -> list[int]:
    """Return the driver handles of a driver library. They identify a driver's library among several."""
    address = _table(library, "zeGetDriverProcAddrTable")[0]
    if not address:
        return []
    get = _prototype("zeDriverGet")(address)
    count = c_uint32()
    if get(byref(count), None) != SUCCESS:
        return []
    found = (c_void_p * count.value)()
    if get(byref(count), found) != SUCCESS:
        return []
    return [each or 0 for each in found[:count.value]]


def _prototype(name: str) -> Any:
    return ctypes.CFUNCTYPE(c_uint32, *ze.PROTOTYPES[name])
