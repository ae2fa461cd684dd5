"""The Vulkan loader through cffi: found at first use, its functions looked up one by one.

cffi in ABI mode needs no compiler. Nothing here is linked against the loader, and no function is taken from its symbol
table but vkGetInstanceProcAddr: a device's own functions are called without the loader's detour.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from xsem.errors import BackendUnavailableError, UnsupportedError
from xsem_vulkan import constants
from xsem_vulkan.declarations import FUNCTIONS, HANDLES, STRUCTS
from xsem_vulkan.results import check

if TYPE_CHECKING:
    from cffi import FFI

__all__ = ["CData", "Functions", "Library", "load"]

CData: TypeAlias = Any
"""A C value in Python's hands. One made by `Library.new` lives as long as the Python object; what it points to must be
kept alive apart."""

_FILES: Final = {
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib"),
}
_FUNCTION: Final = re.compile(r"\b(vk\w+)\(")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9])")


class Functions:
    """Functions of one instance or device, as attributes; calling one releases the GIL."""

    def __init__(self, library: Library, find: Callable[[str], CData], names: Sequence[str]) -> None:
        for name in names:
            address = find(name)
            if address != library.null:
                setattr(self, name, library.ffi.cast(library.types[name], address))

    def __getattr__(self, name: str) -> Any:
        # Only where no attribute was set: the driver has no such function.
        raise UnsupportedError(f"the Vulkan driver has no {name}", reason="driver_too_old", capability=name,
                               backend="vulkan")

    def has(self, name: str) -> bool:
        """Whether the driver has the function."""
        return name in self.__dict__

    def do(self, name: str, *arguments: Any) -> int:
        """Call a function that returns a VkResult, and check it."""
        return check(name, getattr(self, name)(*arguments))


class Library:
    """The loader, and the means to build what its functions take."""

    def __init__(self, ffi: FFI, handle: CData, file: str) -> None:
        self.ffi = ffi
        self.file = file
        self.null: CData = ffi.NULL
        self.types = _function_types(ffi)
        self._numbers: dict[str, int] = {}
        self._handle = handle   # while it lives the library stays loaded
        self._find: CData = handle.vkGetInstanceProcAddr

    def functions(self, instance: CData, names: Sequence[str]) -> Functions:
        """Functions of an instance, or with a null one those that make instances."""
        return Functions(self, lambda name: self._find(instance, name.encode()), names)

    def new(self, struct: str, **fields: Any) -> CData:
        """A struct that says what it is (sType), with these fields; the rest is zero.

        What a field points to is not kept alive by it: the caller keeps that until the struct has been used.
        """
        made: CData = self.ffi.new(f"{struct} *", fields)
        made.sType = self._number(struct)
        return made

    def linked(self, struct: str, after: CData, **fields: Any) -> CData:
        """Such a struct, put into the chain right behind `after`."""
        made = self.new(struct, **fields)
        made.pNext = after.pNext
        after.pNext = made
        return made

    def _number(self, struct: str) -> int:
        number = self._numbers.get(struct)
        if number is None:
            words = "_".join(_WORD.split(struct.removeprefix("Vk"))).upper()
            number = self._numbers[struct] = getattr(constants, f"VK_STRUCTURE_TYPE_{words}")
        return number

    def strings(self, names: Sequence[str]) -> tuple[CData, list[CData]]:
        """An array of C strings, and the strings, which must live as long."""
        kept = [self.ffi.new("char[]", name.encode()) for name in names]
        return self.ffi.new("char *[]", kept), kept

    def address(self, pointer: CData) -> int:
        """A pointer, or a handle that is one, as an int."""
        return int(self.ffi.cast("uintptr_t", pointer))

    def text(self, characters: CData) -> str:
        """A C string."""
        data = self.ffi.string(characters)
        return data.decode(errors="replace") if isinstance(data, bytes) else data


_loaded: Library | None = None
_lock = threading.Lock()


def load() -> Library:
    """The loader; loaded at the first call that finds it.

    Raises
    ------
    BackendUnavailableError
        ``cffi_missing``, ``vulkan_loader_missing``.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load()
        return _loaded


def _load() -> Library:
    try:
        from cffi import FFI

        ffi = FFI()
    except ImportError as error:
        raise BackendUnavailableError(
            "the Vulkan backend needs the package cffi: pip install 'xsem[vulkan]'", reason="cffi_missing",
            backend="vulkan", likely_causes=(f"{type(error).__name__}: {error}",)) from error
    ffi.cdef(HANDLES + STRUCTS + "void *vkGetInstanceProcAddr(VkInstance, const char *);")
    tried = []
    for file in _FILES.get(sys.platform, ("libvulkan.so.1",)):
        try:
            return Library(ffi, ffi.dlopen(file), file)
        except OSError as error:
            tried.append(str(error))
    raise BackendUnavailableError(
        "the Vulkan loader was not found; install it (Debian, Ubuntu: libvulkan1) and the GPU's Vulkan driver",
        reason="vulkan_loader_missing", backend="vulkan", likely_causes=tuple(tried))


def _function_types(ffi: FFI) -> dict[str, CData]:
    # As the fields of one struct: cffi would parse each type for itself otherwise, 80 ms for all, against 17.
    ffi.cdef("typedef struct {" + _FUNCTION.sub(r"(*\1)(", FUNCTIONS) + "} Functions;")
    return {name: field.type for name, field in ffi.typeof("Functions").fields or ()}
