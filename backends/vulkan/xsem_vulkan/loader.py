"""The Vulkan loader through cffi: found at first use, with its functions looked up one by one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from xsem.errors import BackendUnavailableError, UnsupportedError
from xsem.spi import Lock
from xsem_vulkan import constants
from xsem_vulkan.declarations import FUNCTIONS, HANDLES, STRUCTS
from xsem_vulkan.results import check

if TYPE_CHECKING:
    from cffi import FFI

__all__ = ["CData", "Functions", "Library", "load"]

# cffi in ABI mode needs no compiler and no linking. vkGetInstanceProcAddr is the only function from the loader's symbol
# table. A device's functions are called directly, without the loader's dispatch.

# A C value as a Python object. A value from `Library.new` lives as long as the Python object. The caller must keep the
# objects alive that it points to.
CData: TypeAlias = Any

_FILES: Final = {
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib"),
}
_FUNCTION: Final = re.compile(r"\b(vk\w+)\(")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9])")


class Functions:
    """Functions of one instance or device, as attributes. A call releases the GIL."""

    def __init__(self, library: Library, find: Callable[[str], CData], names: Sequence[str]) -> None:
        for name in names:
            address = find(name)
            if address != library.null:
                setattr(self, name, library.ffi.cast(library.types[name], address))

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for a missing attribute: the driver lacks the function.
        raise UnsupportedError(f"the Vulkan driver lacks {name}; install a newer one", reason="driver_too_old",
                               capability=name, backend="vulkan")

    def has(self, name: str) -> bool:
        """Whether the driver has the function."""
        return name in self.__dict__

    def do(self, name: str, *arguments: Any) -> int:
        """Call a function that returns a VkResult, and check the result."""
        return check(name, getattr(self, name)(*arguments))


class Library:
    """The loader, and functions that build its arguments."""

    def __init__(self, ffi: FFI, handle: CData, file: str) -> None:
        self.ffi = ffi
        self.file = file
        self.null: CData = ffi.NULL
        self.types = _function_types(ffi)
        self._numbers: dict[str, int] = {}
        self._linked: WeakKeyDictionary[CData, list[CData]] = WeakKeyDictionary()
        self._handle = handle   # keeps the library loaded
        self._find: CData = handle.vkGetInstanceProcAddr

    def functions(self, instance: CData, names: Sequence[str]) -> Functions:
        """Return functions of an instance; with a null instance, the functions that create instances."""
        return Functions(self, lambda name: self._find(instance, name.encode()), names)

    def new(self, struct: str, **fields: Any) -> CData:
        """Return a struct with its sType and these fields; the other fields are zero."""
        made: CData = self.ffi.new(f"{struct} *", fields)
        made.sType = self._number(struct)
        return made

    def linked(self, struct: str, after: CData, **fields: Any) -> CData:
        """Return a struct as `new` does, and insert it directly behind `after`, which keeps it alive."""
        made = self.new(struct, **fields)
        made.pNext = after.pNext
        after.pNext = made
        self._linked.setdefault(after, []).append(made)
        return made

    def _number(self, struct: str) -> int:
        number = self._numbers.get(struct)
        if number is None:
            words = "_".join(_WORD.split(struct.removeprefix("Vk"))).upper()
            number = self._numbers[struct] = getattr(constants, f"VK_STRUCTURE_TYPE_{words}")
        return number

    def strings(self, names: Sequence[str]) -> tuple[CData, list[CData]]:
        """Return an array of C strings, and the strings, which the caller must keep alive as long as the array."""
        kept = [self.ffi.new("char[]", name.encode()) for name in names]
        return self.ffi.new("char *[]", kept), kept

    def address(self, pointer: CData) -> int:
        """Return a pointer, or a handle that is a pointer, as an int."""
        return int(self.ffi.cast("uintptr_t", pointer))

    def text(self, characters: CData) -> str:
        """Decode a C string."""
        data = self.ffi.string(characters)
        return data.decode(errors="replace") if isinstance(data, bytes) else data


_loaded: Library | None = None
_lock = Lock()


def load() -> Library:
    """Return the loader. The first successful call loads it."""
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
        "the Vulkan loader was not found; install "
        + ("the GPU vendor's driver, which has the loader" if sys.platform == "win32"
           else "it (Debian, Ubuntu: libvulkan1) and the GPU's Vulkan driver"),
        reason="vulkan_loader_missing", backend="vulkan", likely_causes=tuple(tried))


def _function_types(ffi: FFI) -> dict[str, CData]:
    # Declared as the fields of one struct. If cffi parsed each type separately, it would need 80 ms, against 17.
    ffi.cdef("typedef struct {" + _FUNCTION.sub(r"(*\1)(", FUNCTIONS) + "} Functions;")
    return {name: field.type for name, field in ffi.typeof("Functions").fields or ()}
