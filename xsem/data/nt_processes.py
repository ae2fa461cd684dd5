"""Processes of Windows: their start, their end, their user, and duplicates of their handles. Elsewhere it is empty."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Final

from xsem.data.handles import OwnedHandle, own

__all__: list[str] = []

if sys.platform == "win32":
    from xsem.data.nt_handles import CURRENT_PROCESS, duplicate_nt, nt_failure

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

    def open_process(pid: int) -> OwnedHandle | None:
        """Return a handle of the process for `take_handle`, `give_handle`, `has_ended` and `user_of`.

        None if the process does not exist, or belongs to another user.
        """
        return _process(pid, _DUPLICATE | _QUERY | _SYNCHRONIZE)

    def _process(pid: int, access: int) -> OwnedHandle | None:
        handle = own(_kernel32.OpenProcess, access, 0, pid)
        if handle._slot == [None]:
            handle._slot.clear()
            return None
        return handle

    def has_ended(process: int) -> bool:
        """Return whether the process of this handle has ended."""
        return int(_kernel32.WaitForSingleObject(process, 0)) == 0

    def start_of_process(pid: int) -> int | None:
        """Return the start time of a process in 100 ns. None without such a process, or if it has ended."""
        handle = _process(pid, _QUERY | _SYNCHRONIZE)
        if handle is None:
            return None
        with handle:
            if has_ended(handle.fileno()):
                return None
            times = (ctypes.c_uint64 * 4)()
            places = [ctypes.byref(times, 8 * each) for each in range(4)]
            if not _kernel32.GetProcessTimes(ctypes.c_void_p(handle.fileno()), *places):
                return None
            return int(times[0])

    @functools.cache
    def _open_token() -> Any:
        # The parameter of direction 2 is the result: the token, or None after a failure.
        prototype = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p),
                                       use_last_error=True)
        return prototype(("OpenProcessToken", ctypes.WinDLL("advapi32")), ((1,), (1,), (2,)))

    def user_of(process: int = CURRENT_PROCESS) -> str:
        """Return the user of a process as text: its security identifier (SID).

        Raises
        ------
        DriverError
            ``system_call_failed``.
        """
        advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
        token = own(_open_token(), process, _TOKEN_QUERY)
        if token._slot == [None]:
            token._slot.clear()
            raise nt_failure("OpenProcessToken")
        with token:
            buffer, size, text = ctypes.create_string_buffer(_SID_BYTES), ctypes.c_uint32(), ctypes.c_void_p()
            if not advapi32.GetTokenInformation(ctypes.c_void_p(token.fileno()), _TOKEN_USER, buffer, _SID_BYTES,
                                                ctypes.byref(size)):
                raise nt_failure("GetTokenInformation")
        if not advapi32.ConvertSidToStringSidW(ctypes.c_void_p.from_buffer(buffer), ctypes.byref(text)):
            raise nt_failure("ConvertSidToStringSidW")
        try:
            return ctypes.wstring_at(text.value or 0)
        finally:
            _kernel32.LocalFree(text)

    def take_handle(process: int, number: int) -> OwnedHandle:
        """Return a duplicate of a handle of another process, owned by the caller.

        Raises
        ------
        BadHandleError
            ``closed_fd``: the number is not open in the other process.
        BusyError
            ``fd_limit``.
        DriverError
            ``system_call_failed``: for example, because the other process has ended.
        """
        taken = OwnedHandle.__new__(OwnedHandle)
        results: list[Any] = []
        taken._slot = results
        try:
            duplicate_nt(number, results, source=process)
            if results == [None]:
                results.clear()
                raise nt_failure("DuplicateHandle")
        except BaseException:
            taken.close()   # the traceback keeps the object alive, so the finalizer would run late
            raise
        return taken

    def give_handle(process: int, number: int) -> int:
        """Duplicate a handle of this process into another process. Return its number there; that process owns it.

        Raises
        ------
        BadHandleError, BusyError, DriverError
            As `take_handle`.
        """
        results: list[int | None] = []
        duplicate_nt(number, results, target=process)
        if results[0] is None:
            raise nt_failure("DuplicateHandle")
        return results[0]
