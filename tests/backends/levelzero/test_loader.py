"""Test the search for the loader and for the extension's functions, and the translation of handles.

The functions are made by these tests. `test_device.py` uses the real loader.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from ctypes import c_uint32, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from xsem.errors import BackendUnavailableError, DriverError, OutOfMemoryError, UnsupportedError, XsemError
from xsem_levelzero import extension as _extension
from xsem_levelzero import loader as _loader
from xsem_levelzero import ze as _ze
from xsem_levelzero.extension import WAIT, find_extensions
from xsem_levelzero.intel.releases import build_of, flaw_of, version_text
from xsem_levelzero.loader import Loader
from xsem_levelzero.results import RESULTS, error_of

UNINITIALIZED, UNSUPPORTED_FEATURE, INVALID_ARGUMENT = 0x78000001, 0x78000003, 0x78000004
WRAP = 0x1000   # this loader adds it to each handle that it wraps


class Function:
    """A C function for `Loader`, which gets the arguments of the ctypes call."""

    def __init__(self, act: Callable[..., int]) -> None:
        self._act = act
        self.argtypes: Any = None
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        return self._act(*arguments)


def unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, c_void_p) else value


def put(where: Any, value: int) -> None:
    where._obj.value = value


class Library:
    """A loader with one driver, whose extension functions note the handles that they get."""

    def __init__(self, *, exports: bool = False, addresses: bool = False, wraps: bool = False) -> None:
        self.seen: list[tuple[str, int]] = []
        self.translated: list[tuple[int, int]] = []
        self.kept: list[Any] = []
        functions: dict[str, Callable[..., int]] = {
            "zeDriverGetExtensionFunctionAddress": self._address if addresses else lambda *_: INVALID_ARGUMENT,
            "zelLoaderTranslateHandle": self._translate if wraps else self._same,
        }
        if exports:
            for name in _ze.EXTENSION_FUNCTIONS:
                functions[name] = self.function(name)
        for name, act in functions.items():
            setattr(self, name, Function(act))

    def function(self, name: str) -> Callable[..., int]:
        def act(*arguments: Any) -> int:
            self.seen.append((name, unwrapped(arguments[0])))
            return 0

        return act

    def pointer(self, name: str) -> int:
        made = ctypes.CFUNCTYPE(c_uint32, *_ze.PROTOTYPES[name])(self.function(name))
        self.kept.append(made)
        return ctypes.cast(made, c_void_p).value or 0

    def _address(self, driver: int, name: bytes, out: Any) -> int:
        put(out, self.pointer(name.decode()))
        return 0

    def _same(self, kind: int, handle: int, out: Any) -> int:
        put(out, handle)
        return 0

    def _translate(self, kind: int, handle: int, out: Any) -> int:
        self.translated.append((kind, handle))
        put(out, handle - WRAP)
        return 0


def driver_library(library: Library, driver: int, *, functions: bool = True) -> Any:
    """The library of a driver, with the driver's tables."""
    def drivers(count: Any, out: Any) -> int:
        count[0] = 1
        if out:
            out[0] = driver
        return 0

    get = ctypes.CFUNCTYPE(c_uint32, *_ze.PROTOTYPES["zeDriverGet"])(drivers)
    library.kept.append(get)

    def table(getter: str) -> Function:
        def fill(version: int, out: Any) -> int:
            assert version == 0x1000C
            if getter == "zeGetDriverProcAddrTable":
                out[0] = ctypes.cast(get, c_void_p).value
            for name, (where, index) in _ze.EXTENSION_FUNCTIONS.items():
                if where == getter and functions:
                    out[index] = library.pointer(name)
            return 0

        return Function(fill)

    return SimpleNamespace(**{getter: table(getter) for getter in (
        "zeGetDriverProcAddrTable", "zeGetDeviceProcAddrTable", "zeGetCommandListProcAddrTable")})


# ---- three places
def test_loader_export_comes_first_and_takes_handles_as_they_are() -> None:
    library = Library(exports=True, addresses=True, wraps=True)
    extension = next(find_extensions(Loader(library, "fake"), 7 + WRAP))
    assert (extension.route, extension.wrapped) == ("loader export", True)
    library.translated.clear()
    extension.append(WAIT, extension.command_list(0x55 + WRAP), [1], (_ze.WaitParams * 1)(), 0, ())
    assert library.seen == [(WAIT, 0x55 + WRAP)]
    assert library.translated == []


def test_function_address_comes_next_with_translated_handles() -> None:
    library = Library(addresses=True, wraps=True)
    extension = next(find_extensions(Loader(library, "fake"), 7 + WRAP))
    assert (extension.route, extension.wrapped) == ("zeDriverGetExtensionFunctionAddress", True)
    library.translated.clear()
    commands, event, device = (extension.command_list(0x550 + WRAP), extension.event(0x66 + WRAP),
                               extension.device(0x77 + WRAP))
    assert (commands, event, device) == (0x550, 0x66, 0x77)
    assert library.translated == [(4, 0x550 + WRAP), (7, 0x66 + WRAP), (1, 0x77 + WRAP)]
    extension.append(WAIT, commands, [1], (_ze.WaitParams * 1)(), event, [event])
    extension.release_semaphore(0x99)
    assert library.seen == [(WAIT, 0x550), ("zeDeviceReleaseExternalSemaphoreExt", 0x99)]
    assert len(library.translated) == 3   # no handle twice, and never a semaphore


def test_handles_that_are_not_wrapped_are_not_translated() -> None:
    library = Library(addresses=True)
    extension = next(find_extensions(Loader(library, "fake"), 7))
    assert not extension.wrapped
    assert extension.command_list(0x55) == 0x55


def test_unwritten_address_is_not_used_as_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    library.zeDriverGetExtensionFunctionAddress = Function(lambda *_: 0)   # type: ignore[attr-defined]
    monkeypatch.setattr(_extension, "driver_libraries", lambda: ())
    assert next(find_extensions(Loader(library, "fake"), 7)).route == "not found"


@pytest.mark.parametrize("mine", ["one.so", "two.so"])
def test_own_table_is_that_of_the_library_that_has_the_driver(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library, other = Library(wraps=True), Library()
    libraries = {each: driver_library(library, 7) if each == mine else driver_library(other, 8)
                 for each in ("one.so", "two.so")}
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", "one.so,two.so")
    monkeypatch.setattr(_extension, "_loaded_library", libraries.get)
    extension = next(find_extensions(Loader(library, "fake"), 7 + WRAP))
    assert extension.route == f"the driver's own table ({mine})"
    extension.release_semaphore(5)
    assert library.seen == [("zeDeviceReleaseExternalSemaphoreExt", 5)]
    assert other.seen == []


def test_driver_without_the_functions_names_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setenv("ZE_ENABLE_ALT_DRIVERS", "old.so")
    monkeypatch.setattr(_extension, "_loaded_library",
                        {"old.so": driver_library(library, 7, functions=False)}.get)
    extension = next(find_extensions(Loader(library, "fake"), 7))
    assert not extension.found
    with pytest.raises(UnsupportedError, match=r"1\.20 and newer") as caught:
        extension.release_semaphore(5)
    assert caught.value.reason == "driver_too_old"
    assert caught.value.call == "zeDeviceReleaseExternalSemaphoreExt"


def test_library_that_is_not_loaded_stays_unloaded() -> None:
    assert _extension._loaded_library("libxsem_no_such_driver.so.1") is None
    assert _extension._loaded_library("libc.so.6") is not None


# ---- starting
def started(**functions: Callable[..., int]) -> Loader:
    return Loader(SimpleNamespace(**{name: Function(act) for name, act in functions.items()}), "fake")


def listing(*handles: int) -> Callable[..., int]:
    def act(count: Any, out: Any, *_: Any) -> int:
        count._obj.value = len(handles)
        for index, handle in enumerate(handles if out is not None else ()):
            out[index] = handle
        return 0

    return act


def test_newer_loader_is_started_by_init_drivers() -> None:
    for get in ({}, {"zeInit": lambda _: 0, "zeDriverGet": listing(5, 6)}):   # none, or other handles for these drivers
        started_by: dict[str, Callable[..., int]] = {"zeInit": lambda _: UNINITIALIZED, **get}
        assert started(zeInitDrivers=listing(7, 8), **started_by).drivers() == ([7, 8], "zeInitDrivers")
    older = started(zeInitDrivers=listing(7), zeInit=lambda _: 0, zeDriverGet=listing(7, 8))
    assert older.drivers() == ([7, 8], "zeInitDrivers")


@pytest.mark.parametrize("code", [UNINITIALIZED, UNSUPPORTED_FEATURE])
def test_driver_without_init_drivers_is_started_by_init(code: int) -> None:
    loader = started(zeInitDrivers=lambda *_: code, zeInit=lambda _: 0, zeDriverGet=listing(7))
    assert loader.drivers() == ([7], "zeInit")


def test_loader_without_a_driver_says_what_to_install() -> None:
    for loader in (started(zeInit=lambda _: UNINITIALIZED), started(zeInit=lambda _: 0, zeDriverGet=listing())):
        with pytest.raises(BackendUnavailableError, match="finds no driver: install Intel's") as caught:
            loader.drivers()
        assert caught.value.reason == "no_driver"
    with pytest.raises(BackendUnavailableError, match="ZE_RESULT_ERROR_UNSUPPORTED_VERSION") as caught:
        started(zeInit=lambda _: 0x78000002).drivers()
    assert caught.value.reason == "driver_failed"


def test_missing_loader_is_one_clear_line_of_doctor() -> None:
    code = ("import ctypes, sys\n"
            "real = ctypes.CDLL\n"
            "class CDLL(real):\n"
            "    def __init__(self, name, *a, **k):\n"
            "        if name and 'ze_loader' in str(name): raise OSError(f'{name}: cannot open shared object file')\n"
            "        super().__init__(name, *a, **k)\n"
            "ctypes.CDLL = CDLL\n"
            "from xsem.cli import main\n"
            "sys.argv = ['xsem', 'doctor', '--json']\n"
            "main()\n")
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=50)
    [section] = [each for each in json.loads(ran.stdout)["backends"] if each["name"] == "levelzero"]
    assert not section["works"]
    [loader] = [each for each in section["checks"] if each["name"] == "loader"]
    assert loader["detail"].startswith("the Level Zero loader, libze_loader.so.1, was not found: install the Level "
                                       "Zero loader")
    assert "libze1" in loader["remedy"]
    assert "\n" not in loader["detail"]
    assert ran.returncode in (0, 3), ran.stderr   # a missing loader is not a broken one


def test_loader_that_is_missing_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_loader, "_loaded", None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(f"{name}: no")))
    with pytest.raises(BackendUnavailableError, match="libze1") as caught:
        _loader.load()
    assert caught.value.reason == "levelzero_loader_missing"
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert _loader.load().file == "libze_loader.so.1"


def test_function_that_the_loader_lacks_is_named() -> None:
    with pytest.raises(UnsupportedError, match="has no zeImageDestroy") as caught:
        started().do("zeImageDestroy", 1)
    assert caught.value.reason == "driver_too_old"


# ---- codes
@pytest.mark.parametrize("code", sorted(set(RESULTS) - {0, 1}))
def test_every_code_has_its_name_and_an_error(code: int) -> None:
    error = error_of("zeMemFree", code)
    assert isinstance(error, XsemError)
    assert (error.call, error.code, error.code_name) == ("zeMemFree", code, RESULTS[code])
    assert RESULTS[code] in str(error)


def test_codes_have_the_classes_that_stand_for_them() -> None:
    assert isinstance(error_of("f", 0x70000002), OutOfMemoryError)
    assert isinstance(error_of("f", 0x70000003), OutOfMemoryError)
    assert error_of("f", 0x70000001).reason == "device_lost"
    assert error_of("f", 0x78000003).reason == "not_supported"
    assert error_of("f", 0x78000006).reason == "in_use"
    assert error_of("f", 0x78000004).reason == "invalid_value"
    unknown = error_of("f", 0x71234567)
    assert isinstance(unknown, DriverError)
    assert (unknown.reason, unknown.code, unknown.code_name) == ("unknown_code", 0x71234567, None)


# ---- releases of Intel's driver
@pytest.mark.parametrize(("build", "flaw"), [
    (32567, "since 25.13"), (33275, "since 25.13"), (33276, "before 25.22"), (33578, "before 25.22"),
    (33944, "uninitialised flags"), (34302, "uninitialised flags"), (34303, None), (39395, None),
])
def test_release_tells_its_flaw(build: int, flaw: str | None) -> None:
    found = flaw_of(build_of(0x8086, 1 << 24 | 6 << 16 | build))
    assert found is None if flaw is None else found is not None and flaw in found and str(build) in found


def test_other_drivers_have_no_intel_release() -> None:
    assert build_of(0x10DE, 1 << 24 | 33000) is None
    assert build_of(0x8086, 0x10000) is None   # not a version number of Intel's driver
    assert flaw_of(None) is None
    assert version_text(1 << 24 | 6 << 16 | 33944) == "1.6.33944"
