"""The calls of Windows for the portable objects and for events."""

# The functions have the names and the meaning of their counterparts in `linux`, where such a counterpart exists.

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from typing import Any, Final

from xsem.data.file_descriptors import duplicate_fd
from xsem.data.handles import OwnedHandle, own
from xsem.data.windows.codes import windows_code_name, windows_error
from xsem.errors import BadHandleError, DriverError, OutOfMemoryError, XsemError

__all__ = [
    "Pages",
    "check_section",
    "check_synchronization_event",
    "duplicate",
    "event_set",
    "event_take",
    "map_private",
    "map_shared",
    "named_event",
    "new_event",
    "new_section",
    "open_event",
    "open_section",
    "read_at_start",
    "signal_named_event",
    "wait_event",
]

_ACCESS_DENIED: Final = 5
_FILE_NOT_FOUND: Final = 2
_INVALID_HANDLE: Final = 6
_FILE_INVALID: Final = 1006
_ALREADY_EXISTS: Final = 183
_STATUS_ACCESS_DENIED: Final = 0xC0000022
_STATUS_INVALID_HANDLE: Final = 0xC0000008

_EVENT_NEEDS: Final = 0x00100002      # SYNCHRONIZE, EVENT_MODIFY_STATE
_EVENT_QUERY_STATE: Final = 0x0001
_EVENT_MODIFY_STATE: Final = 0x0002
_SYNCHRONIZATION_EVENT: Final = 1
_MAP_WRITE: Final = 0x0002            # FILE_MAP_WRITE maps for reading and writing
_SECTION_NEEDS: Final = 0x0006        # SECTION_MAP_WRITE, SECTION_MAP_READ
_SECTION_QUERY: Final = 0x0001
_PAGE_READWRITE: Final = 0x04
_SEC_COMMIT: Final = 0x08000000
_SEC_LARGE_PAGES: Final = 0x80000000
_MEM_COMMIT: Final = 0x1000
_MEM_COMMIT_RESERVE: Final = 0x3000
_MEM_RELEASE: Final = 0x8000
_LONGEST_WAIT_MS: Final = 1_000_000
_NAME_CHARACTERS: Final = 512   # a longer name is cut


class _SectionInformation(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("attributes", ctypes.c_uint32), ("size", ctypes.c_int64))


class _RegionInformation(ctypes.Structure):   # MEMORY_BASIC_INFORMATION
    _fields_ = (("base", ctypes.c_void_p), ("allocation", ctypes.c_void_p), ("protection", ctypes.c_uint32),
                ("partition", ctypes.c_uint16), ("size", ctypes.c_size_t), ("state", ctypes.c_uint32),
                ("protected", ctypes.c_uint32), ("type", ctypes.c_uint32))


class _BasicInformation(ctypes.Structure):
    _fields_ = (("attributes", ctypes.c_uint32), ("access", ctypes.c_uint32), ("other", ctypes.c_uint32 * 12))


class _EventInformation(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("state", ctypes.c_int32))


_SIGNATURES: Final = {
    "CreateEventW": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_wchar_p),
    "OpenEventW": (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_wchar_p),
    "SetEvent": (ctypes.c_int, ctypes.c_void_p),
    "CloseHandle": (ctypes.c_int, ctypes.c_void_p),
    "WaitForSingleObject": (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32),
    "CreateFileMappingW": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32,
                           ctypes.c_uint32, ctypes.c_wchar_p),
    "OpenFileMappingW": (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_wchar_p),
    "MapViewOfFile": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32,
                      ctypes.c_size_t),
    "UnmapViewOfFile": (ctypes.c_int, ctypes.c_void_p),
    "VirtualQuery": (ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
    "K32GetMappedFileNameW": (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32),
    "VirtualAlloc": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32),
    "VirtualFree": (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32),
}


@functools.cache
def _call(name: str) -> Any:
    if sys.platform != "win32":
        raise NotImplementedError("these objects need Windows")
    function = ctypes.WinDLL("kernel32", use_last_error=True)[name]
    function.restype, *function.argtypes = _SIGNATURES[name]
    return function


def _failure(call: str, handle_name: str | None = None) -> XsemError:
    code = 0
    if sys.platform == "win32":
        code = ctypes.get_last_error()
    fields: dict[str, Any] = {"call": call, "code": code, "code_name": windows_code_name(code)}
    if handle_name is not None and code == _FILE_NOT_FOUND:
        return BadHandleError(f"no object has the name {handle_name!r}: its owner has closed it, or another session of "
                              "Windows has it", reason="name_not_found", **fields)
    if handle_name is not None and code == _INVALID_HANDLE:
        return BadHandleError(f"the name {handle_name!r} belongs to an object of another type", reason="wrong_object",
                              **fields)
    if code == _ACCESS_DENIED:
        what = "the handle" if handle_name is None else f"the object with the name {handle_name!r}"
        return _no_access(what, **fields)
    return windows_error(call, code)


def _no_access(what: str = "the handle", **fields: Any) -> BadHandleError:
    return BadHandleError(f"{what} lacks access: an event needs SYNCHRONIZE and EVENT_MODIFY_STATE, a section needs "
                          "SECTION_MAP_READ and SECTION_MAP_WRITE", reason="read_only", **fields)


def _own(call: str, *arguments: Any, name: str | None = None) -> OwnedHandle:
    """Call a function that returns a new handle, and return its owner."""
    def created() -> int:
        number: int | None = _call(call)(*arguments)
        if number is None:
            raise _failure(call, name)
        return number

    return own(created)


def duplicate(number: int) -> OwnedHandle:
    """Return a duplicate of the handle, owned by the caller. `number` stays open."""
    return duplicate_fd(number, for_driver=False)


def _query(function: str, number: int, into: ctypes.Structure, what: str) -> bool:
    """Ask ntdll about an object, and return whether the handle permits it. A handle of another type is refused."""
    if sys.platform != "win32":
        raise NotImplementedError("these objects need Windows")
    status = ctypes.WinDLL("ntdll")[function](ctypes.c_void_p(number), 0, ctypes.byref(into), ctypes.sizeof(into),
                                              None) & 0xFFFFFFFF
    if status in (0, _STATUS_ACCESS_DENIED):
        return bool(status == 0)
    if status == _STATUS_INVALID_HANDLE:
        raise BadHandleError(f"NT handle {number:#x} is not open", reason="closed_fd")
    raise BadHandleError(f"{what}; NT handle {number:#x} is a handle of another type", reason="wrong_object",
                         call=function, code=status, code_name=windows_code_name(status))


def _open(call: str, needs: int, query: int, name: str) -> OwnedHandle:
    """Open an object by its name with the needed access, and with the access to ask about it if that is permitted."""
    try:
        return _own(call, needs | query, 0, name, name=name)
    except BadHandleError as error:
        if error.code != _ACCESS_DENIED:
            raise
    return _own(call, needs, 0, name, name=name)


# ---- events
def new_event() -> OwnedHandle:
    """Create an unsignalled synchronization event (auto reset) without a name."""
    return _own("CreateEventW", None, 0, 0, None)


def open_event(name: str) -> OwnedHandle:
    """Open the event with this name."""
    return _open("OpenEventW", _EVENT_NEEDS, _EVENT_QUERY_STATE, name)


def named_event(name: str) -> OwnedHandle | None:
    """Create an unsignalled synchronization event with this name; None if the name is in use."""
    if sys.platform != "win32":
        raise NotImplementedError("these objects need Windows")
    ctypes.set_last_error(0)
    try:
        made = _own("CreateEventW", None, 0, 0, name)
    except (BadHandleError, DriverError):   # an object of another type or of another user has the name
        return None
    if ctypes.get_last_error() == _ALREADY_EXISTS:
        made.close()
        return None
    return made


def signal_named_event(name: str) -> None:
    """Signal the event with this name, if it exists."""
    try:
        with _own("OpenEventW", _EVENT_MODIFY_STATE, 0, name, name=name) as handle:
            _call("SetEvent")(handle.fileno())
    except (BadHandleError, DriverError):
        return   # the waiter has ended


def event_set(number: int) -> None:
    """Signal the event. A signalled event stays signalled."""
    if not _call("SetEvent")(number):
        raise _failure("SetEvent")


def wait_event(number: int, timeout_ns: int) -> bool:
    """Wait for a signal and take it; return False after the timeout, or earlier."""
    milliseconds = min(-(-max(0, timeout_ns) // 1_000_000), _LONGEST_WAIT_MS)   # rounded up: 0 ms would spin
    result = _call("WaitForSingleObject")(number, milliseconds)
    if result == 0xFFFFFFFF:
        raise _failure("WaitForSingleObject")
    return bool(result == 0)


def event_take(number: int) -> bool:
    """Take a signal without waiting; return whether the event was signalled."""
    return wait_event(number, 0)


def check_synchronization_event(number: int) -> None:
    """Check that the handle is one of a synchronization event and permits signals and waits."""
    # Windows tells the kind of an event only to a handle with EVENT_QUERY_STATE. Without it, the event is accepted.
    found = _EventInformation()
    asked = _query("NtQueryEvent", number, found, "a binary semaphore of host must be an event")
    if asked and found.type != _SYNCHRONIZATION_EVENT:
        raise BadHandleError("the event is a notification event (manual reset), so a wait would not reset it",
                             reason="event_stays_signalled")
    basic = _BasicInformation()
    _query("NtQueryObject", number, basic, "a binary semaphore of host must be an event")
    if basic.access & _EVENT_NEEDS != _EVENT_NEEDS:
        raise _no_access()


# ---- sections
def new_section(size: int) -> OwnedHandle:
    """Create a section of `size` zero bytes in the paging file, without a name."""
    if size >= 2**63:
        raise OutOfMemoryError("the host is out of memory", reason="out_of_memory", call="CreateFileMappingW")
    return _own("CreateFileMappingW", ctypes.c_void_p(-1), None, _PAGE_READWRITE | _SEC_COMMIT, size >> 32,
                size & 0xFFFFFFFF, None)


def open_section(name: str) -> OwnedHandle:
    """Open the section with this name."""
    return _open("OpenFileMappingW", _SECTION_NEEDS, _SECTION_QUERY, name)


def check_section(number: int, what: str, size: int) -> int:
    """Check for a committed section of the paging file with at least `size` bytes, and return its size."""
    found = _SectionInformation()
    if _query("NtQuerySection", number, found, f"the {what} must be a section"):
        whole, sound = int(found.size), found.attributes & ~_SEC_LARGE_PAGES == _SEC_COMMIT
    else:
        whole, sound = _look_at_view(number)
    if not sound:
        # A file can be truncated, and a reserved page can be missing: an access then ends the process.
        raise BadHandleError(f"the {what} must be a section of the paging file with committed pages (SEC_COMMIT); this "
                             "section is one of a file, or has reserved pages", reason="not_of_paging_file")
    if whole < size:
        raise BadHandleError(f"the {what}'s section has {whole} bytes; at least {size} are needed", reason="short_page")
    return whole


def _look_at_view(number: int) -> tuple[int, bool]:
    """Return the committed bytes at the start of a section, and whether they are the paging file's."""
    # For a handle without SECTION_QUERY: a view shows both.
    pages = map_shared(number, 0)   # the whole section
    try:
        region = _RegionInformation()
        if not _call("VirtualQuery")(pages.address, ctypes.addressof(region), ctypes.sizeof(region)):
            raise _failure("VirtualQuery")
        name = ctypes.create_unicode_buffer(_NAME_CHARACTERS)
        named = _call("K32GetMappedFileNameW")(-1, pages.address, ctypes.addressof(name), _NAME_CHARACTERS)
        without = sys.platform == "win32" and not named and ctypes.get_last_error() == _FILE_INVALID
        return int(region.size), without and region.state == _MEM_COMMIT
    finally:
        pages.close()


# ---- mappings
class Pages:
    """Mapped memory, readable and writable. `close`, or the end of the last reference, unmaps it."""

    __slots__ = ("__weakref__", "_mapped", "_unmap", "address", "size")

    def __init__(self, size: int, map_: str, arguments: tuple[Any, ...], unmap: str, more: tuple[Any, ...]) -> None:
        self.size = size
        self._unmap = (_call(unmap), more)
        address: int | None = _call(map_)(*arguments)
        if address is None:
            raise _failure(map_)
        self.address = address
        self._mapped = True

    def close(self) -> None:
        """Unmap the memory. No thread may access it afterwards. A second call has no effect."""
        if not self._mapped:
            return
        self._mapped = False   # before the call: another mapping can get the address afterwards
        unmap, more = self._unmap
        if not unmap(self.address, *more):
            raise _failure("unmap")

    def __del__(self) -> None:
        # At the interpreter's exit a worker may still copy here; the end of the process unmaps all.
        if getattr(self, "_mapped", False) and not sys.is_finalizing():
            self.close()


def map_shared(number: int, size: int) -> Pages:
    """Map the first `size` bytes of a section, shared with every process that maps it."""
    return Pages(size, "MapViewOfFile", (number, _MAP_WRITE, 0, 0, size), "UnmapViewOfFile", ())


def read_at_start(number: int, size: int) -> bytes:
    """Read the first bytes of a section."""
    pages = map_shared(number, size)
    try:
        return ctypes.string_at(pages.address, size)
    finally:
        pages.close()


def map_private(size: int) -> Pages:
    """Map `size` private bytes, all 0."""
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    return Pages(size, "VirtualAlloc", (None, whole, _MEM_COMMIT_RESERVE, _PAGE_READWRITE), "VirtualFree",
                 (0, _MEM_RELEASE))
