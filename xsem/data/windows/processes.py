"""Processes of Windows: their start, their end, their user, and duplicates of their handles. Elsewhere it is empty.

Handles are plain numbers. The caller closes a returned number.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Final

__all__: list[str] = []

if sys.platform == "win32":
    from xsem.data.windows.handles import CURRENT_PROCESS, close_nt, duplicate_nt, nt_failure

    __all__ = ["give_handle", "has_ended", "open_process", "start_of_process", "take_handle", "user_of"]

    _DUPLICATE: Final = 0x0040   # PROCESS_DUP_HANDLE
    _QUERY: Final = 0x1000       # PROCESS_QUERY_LIMITED_INFORMATION
    _SYNCHRONIZE: Final = 0x00100000
    _TOKEN_QUERY: Final = 0x0008
    _TOKEN_USER: Final = 1
    _SID_BYTES: Final = 256

    _kernel32: Final = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.OpenProcess.restype = ctypes.c_void_p
    _kernel32.WaitForSingleObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]

    def open_process(pid: int) -> int | None:
        """Return a handle of the process; None if it does not exist, or belongs to another user."""
        return _process(pid, _DUPLICATE | _QUERY | _SYNCHRONIZE)

    def _process(pid: int, access: int) -> int | None:
        number: int | None = _kernel32.OpenProcess(access, 0, pid)
        return number

    def has_ended(process: int) -> bool:
        """Return whether the process of this handle has ended."""
        return int(_kernel32.WaitForSingleObject(process, 0)) == 0

    def start_of_process(pid: int) -> int | None:
        """Return the start time of a process in 100 ns. None without such a process, or if it has ended."""
        process = _process(pid, _QUERY | _SYNCHRONIZE)
        if process is None:
            return None
        try:
            times = (ctypes.c_uint64 * 4)()
            places = [ctypes.byref(times, 8 * each) for each in range(4)]
            if has_ended(process) or not _kernel32.GetProcessTimes(ctypes.c_void_p(process), *places):
                return None
            return int(times[0])
        finally:
            close_nt(process)

    @functools.cache
    def _open_token() -> Any:
        # The parameter of direction 2 is the result: the token, or None after a failure.
        prototype = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p),
                                       use_last_error=True)
        return prototype(("OpenProcessToken", ctypes.WinDLL("advapi32")), ((1,), (1,), (2,)))

    def user_of(process: int = CURRENT_PROCESS) -> str:
        """Return the user of a process as text: its security identifier (SID)."""
        advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
        token: int | None = _open_token()(process, _TOKEN_QUERY)
        if token is None:
            raise nt_failure("OpenProcessToken")
        buffer, size, text = ctypes.create_string_buffer(_SID_BYTES), ctypes.c_uint32(), ctypes.c_void_p()
        try:
            if not advapi32.GetTokenInformation(ctypes.c_void_p(token), _TOKEN_USER, buffer, _SID_BYTES,
                                                ctypes.byref(size)):
                raise nt_failure("GetTokenInformation")
        finally:
            close_nt(token)
        if not advapi32.ConvertSidToStringSidW(ctypes.c_void_p.from_buffer(buffer), ctypes.byref(text)):
            raise nt_failure("ConvertSidToStringSidW")
        try:
            return ctypes.wstring_at(text.value or 0)
        finally:
            _kernel32.LocalFree(text)

    def take_handle(process: int, number: int) -> int:
        """Return a duplicate of a handle of another process."""
        return duplicate_nt(number, source=process)

    def give_handle(process: int, number: int) -> int:
        """Duplicate a handle of this process into another process. Return its number there; that process owns it."""
        return duplicate_nt(number, target=process)
