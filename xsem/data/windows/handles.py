"""Calls of Windows about NT handles, as plain numbers. On other systems, the module is empty."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Final

from xsem.data.windows.codes import windows_error
from xsem.errors import XsemError

__all__: list[str] = []

if sys.platform == "win32":
    from ctypes import wintypes

    __all__ = ["CURRENT_PROCESS", "close_nt", "duplicate_nt", "is_open_nt", "nt_failure", "object_type", "same_object"]

    _SAME_ACCESS: Final = 2
    CURRENT_PROCESS: Final = 2**64 - 1
    _TYPE: Final = 2   # ObjectTypeInformation
    _TYPE_BYTES: Final = 4096

    _kernel32: Final = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CloseHandle.argtypes = [ctypes.c_void_p]

    close_nt: Final = _kernel32.CloseHandle
    """Close the handle. The result is 0 if the number is not an open handle."""

    class _Text(ctypes.Structure):
        _fields_ = (("bytes", wintypes.USHORT), ("most", wintypes.USHORT), ("characters", ctypes.c_void_p))

    @functools.cache
    def _duplicate() -> Any:
        # The parameter of direction 2 is the result: the new number, or None after a failure.
        prototype = ctypes.WINFUNCTYPE(
            wintypes.BOOL, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
            wintypes.DWORD, wintypes.BOOL, wintypes.DWORD, use_last_error=True)
        return prototype(("DuplicateHandle", _kernel32), ((1,), (1,), (1,), (2,), (1,), (1,), (1,)))

    def duplicate_nt(number: int, source: int = CURRENT_PROCESS, target: int = CURRENT_PROCESS) -> int:
        """Duplicate a handle of the process `source` into the process `target`: same access, not inheritable."""
        made: int | None = _duplicate()(source, number, target, 0, 0, _SAME_ACCESS)
        if made is None:
            raise nt_failure("DuplicateHandle")
        return made

    def nt_failure(call: str) -> XsemError:
        """Return the error for this thread's last failed call."""
        return windows_error(call, ctypes.get_last_error())

    def is_open_nt(number: int) -> bool:
        """Return whether the number is an open handle."""
        flags = wintypes.DWORD()
        return bool(_kernel32.GetHandleInformation(ctypes.c_void_p(number), ctypes.byref(flags)))

    @functools.cache
    def _compare() -> Any:
        try:
            function = ctypes.WinDLL("kernelbase").CompareObjectHandles
        except (OSError, AttributeError):   # Windows 8 and earlier
            return None
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        return function

    def same_object(a: int, b: int) -> bool | None:
        """Return whether both are handles of one object; None if this Windows cannot compare."""
        compare = _compare()
        return None if compare is None else bool(compare(a, b))

    def object_type(number: int) -> str | None:
        """Return the name of the object's type, for example ``"Event"``; None if Windows does not tell."""
        buffer = ctypes.create_string_buffer(_TYPE_BYTES)
        if ctypes.WinDLL("ntdll").NtQueryObject(ctypes.c_void_p(number), _TYPE, buffer, _TYPE_BYTES, None) != 0:
            return None
        text = _Text.from_buffer(buffer)
        return ctypes.wstring_at(text.characters, text.bytes // 2)
