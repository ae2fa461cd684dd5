"""The Level Zero loader: loaded at first use. One class calls its functions and checks their result codes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import byref, c_size_t, c_uint32, c_void_p
from typing import Any, Final, TypeVar

from xsem.errors import BackendUnavailableError, UnsupportedError, XsemError
from xsem.spi import Lock
from xsem_levelzero import ze
from xsem_levelzero.results import SUCCESS, UNINITIALIZED, error_of

__all__ = ["FILES", "INSTALL", "Loader", "filled", "handle_out", "load"]

FILES: Final = {"win32": "ze_loader.dll"}
INSTALL: Final = (   # what to do if the loader is missing
    "install Intel's GPU driver, which has the loader" if sys.platform == "win32" else
    "install the Level Zero loader (Debian, Ubuntu: apt-get install libze1) and Intel's GPU driver")
_DRIVER: Final = (
    "install Intel's GPU driver" if sys.platform == "win32" else
    "install Intel's (Debian, Ubuntu: libze-intel-gpu1 or intel-level-zero-gpu), and allow this user to open "
    "/dev/dri/renderD*")
_Struct = TypeVar("_Struct", bound=ctypes.Structure)
_Function = Callable[..., int]


class Loader:
    """The loader's functions by name. `xsem_levelzero.extension` finds the functions of the extension."""

    def __init__(self, library: Any, file: str) -> None:
        self.file = file   # for reports
        self._library = library   # any object with the functions as attributes
        self._known: dict[str, _Function | None] = {}

    def find(self, name: str) -> _Function | None:
        """A function that the loader exports, or None."""
        try:
            return self._known[name]
        except KeyError:
            pass
        function: Any = getattr(self._library, name, None)
        if function is not None:
            function.argtypes = ze.PROTOTYPES[name]
            function.restype = c_uint32
        known: _Function | None = function
        self._known[name] = known
        return known

    def raw(self, name: str, *arguments: Any) -> int:
        """Call a function and return its result code."""
        function = self.find(name)
        if function is None:
            raise UnsupportedError(f"the Level Zero loader has no {name}: install a newer one", capability=name,
                                   reason="driver_too_old", call=name)
        return function(*arguments)

    def do(self, name: str, *arguments: Any) -> None:
        """Call a function and raise unless the result is ZE_RESULT_SUCCESS."""
        code = self.raw(name, *arguments)
        if code != SUCCESS:
            raise error_of(name, code)

    def end(self, name: str, *arguments: Any) -> None:
        """Call a function that destroys an object. A failed call is repeated once: the object is still there."""
        if self.raw(name, *arguments) != SUCCESS:
            self.do(name, *arguments)

    def make(self, name: str, *arguments: Any) -> int:
        """Call a function whose last argument receives a handle or a pointer, and return that value."""
        made = c_void_p()
        self.do(name, *arguments, byref(made))
        return made.value or 0

    def handles(self, name: str, *arguments: Any) -> list[int]:
        """Query a function for its count, then for its handles."""
        count = c_uint32()
        self.do(name, *arguments, byref(count), None)
        found = (c_void_p * count.value)()
        if count.value:
            self.do(name, *arguments, byref(count), found)
        return [each or 0 for each in found[:count.value]]

    def structs(self, kind: type[_Struct], name: str, *arguments: Any) -> list[_Struct]:
        """Query a function for its count, then for an array of structs."""
        count = c_uint32()
        self.do(name, *arguments, byref(count), None)
        found = (kind * count.value)()
        if issubclass(kind, ze.Base):
            for each in found:
                each.stype = kind.STYPE
        if count.value:
            self.do(name, *arguments, byref(count), found)
        return list(found[:count.value])

    # ---- starting
    def drivers(self) -> tuple[list[int], str]:
        """Initialise Level Zero. Return its drivers, and the name of the function that initialised them."""
        # Each call initialises again, because a forked child must do so. In an initialised process the call costs
        # nothing.
        if self.find("zeInitDrivers") is not None:
            try:
                # Loader 1.18 and newer. The flag excludes NPUs, which do not support these semaphores.
                desc = ze.InitDriverTypeDesc.made(flags=ze.INIT_DRIVER_GPU)
                count = c_uint32()
                self.do("zeInitDrivers", byref(count), None, byref(desc))
                found = (c_void_p * count.value)()
                self.do("zeInitDrivers", byref(count), found, byref(desc))
                if count.value:
                    drivers = [each or 0 for each in found[:count.value]]
                    return self._with_older_drivers(drivers), "zeInitDrivers"
            except XsemError:
                pass  # a driver older than the function: zeInit starts it
        try:
            self.do("zeInit", 0)
            drivers = self.handles("zeDriverGet")
        except XsemError as error:
            if error.code == UNINITIALIZED:
                raise _no_driver(error) from error
            raise BackendUnavailableError(
                f"the Level Zero loader does not start: {error}", reason="driver_failed", call=error.call,
                code=error.code, code_name=error.code_name,
                likely_causes=("the loader finds another release of its own layers (libze_tracing_layer.so.1)",),
            ) from error
        if not drivers:
            raise _no_driver(None)
        return drivers, "zeInit"

    def _with_older_drivers(self, drivers: list[int]) -> list[int]:
        """Add the drivers that lack zeInitDrivers: the loader lists them only after zeInit."""
        try:
            self.do("zeInit", 0)
            every = self.handles("zeDriverGet")
        except XsemError:
            return drivers
        # Other handles for the same drivers would list each device twice.
        return every if set(drivers) <= set(every) else drivers

    def version(self) -> str:
        """The loader's release, for example ``1.20.6``; empty if the loader does not report it, as before `drivers`."""
        found = ze.ComponentVersion()
        if self.find("zelGetLoaderVersion") is not None and self.raw("zelGetLoaderVersion", byref(found)) == SUCCESS:
            return _text(found)
        count = c_size_t()
        if self.find("zelLoaderGetVersions") is None or self.raw("zelLoaderGetVersions", byref(count), None) != SUCCESS:
            return ""
        components = (ze.ComponentVersion * count.value)()
        if self.raw("zelLoaderGetVersions", byref(count), components) != SUCCESS:
            return ""
        return next((_text(each) for each in components if each.component_name == b"loader"), "")


def _text(component: ze.ComponentVersion) -> str:
    version = component.component_lib_version
    return f"{version.major}.{version.minor}.{version.patch}"


def _no_driver(error: XsemError | None) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"the Level Zero loader finds no driver: {_DRIVER}", reason="no_driver",
        call=None if error is None else error.call, code=None if error is None else error.code,
        code_name=None if error is None else error.code_name,
    )


def filled(kind: type[ze.Base], loader: Loader, name: str, *arguments: Any) -> Any:
    """Return a struct that a function fills."""
    struct = kind.made()
    loader.do(name, *arguments, byref(struct))
    return struct


def handle_out(values: Sequence[int]) -> Any:
    """Return an array of handles; None for an empty sequence, as the functions require."""
    return (c_void_p * len(values))(*values) if values else None


_loaded: Loader | None = None
_lock = Lock()


def load() -> Loader:
    """Return the loader. The first successful call loads it."""
    global _loaded
    with _lock:
        if _loaded is None:
            file = FILES.get(sys.platform, "libze_loader.so.1")
            try:
                _loaded = Loader(ctypes.CDLL(file), file)
            except OSError as error:
                raise BackendUnavailableError(
                    f"the Level Zero loader, {file}, was not found: {INSTALL}", reason="levelzero_loader_missing",
                    likely_causes=(str(error),),
                ) from error
        return _loaded
