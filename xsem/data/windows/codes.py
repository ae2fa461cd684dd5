"""The error codes of Windows: names of Win32 errors, NTSTATUS and HRESULTs of Win32 errors, and the errors of xsem."""

from __future__ import annotations

from typing import Any, Final

from xsem.errors import BadHandleError, BusyError, DriverError, OutOfMemoryError, XsemError

__all__ = ["windows_code_name", "windows_error"]

_INVALID_HANDLE: Final = 6
_NO_MEMORY: Final = frozenset({8, 14, 1450, 1455})   # also no system resources, and the commitment limit
_NO_HANDLES: Final = frozenset({4, 155, 164})

# winerror.h, for the calls of xsem about handles, events, sections, processes and pipes.
_WIN32: Final = {
    1: "ERROR_INVALID_FUNCTION",
    2: "ERROR_FILE_NOT_FOUND",
    3: "ERROR_PATH_NOT_FOUND",
    4: "ERROR_TOO_MANY_OPEN_FILES",
    5: "ERROR_ACCESS_DENIED",
    6: "ERROR_INVALID_HANDLE",
    8: "ERROR_NOT_ENOUGH_MEMORY",
    14: "ERROR_OUTOFMEMORY",
    24: "ERROR_BAD_LENGTH",
    50: "ERROR_NOT_SUPPORTED",
    53: "ERROR_BAD_NETPATH",
    87: "ERROR_INVALID_PARAMETER",
    109: "ERROR_BROKEN_PIPE",
    120: "ERROR_CALL_NOT_IMPLEMENTED",
    121: "ERROR_SEM_TIMEOUT",
    122: "ERROR_INSUFFICIENT_BUFFER",
    123: "ERROR_INVALID_NAME",
    126: "ERROR_MOD_NOT_FOUND",
    127: "ERROR_PROC_NOT_FOUND",
    155: "ERROR_TOO_MANY_TCBS",
    161: "ERROR_BAD_PATHNAME",
    164: "ERROR_MAX_THRDS_REACHED",
    170: "ERROR_BUSY",
    183: "ERROR_ALREADY_EXISTS",
    193: "ERROR_BAD_EXE_FORMAT",
    206: "ERROR_FILENAME_EXCED_RANGE",
    230: "ERROR_BAD_PIPE",
    231: "ERROR_PIPE_BUSY",
    232: "ERROR_NO_DATA",
    233: "ERROR_PIPE_NOT_CONNECTED",
    234: "ERROR_MORE_DATA",
    298: "ERROR_TOO_MANY_POSTS",
    299: "ERROR_PARTIAL_COPY",
    487: "ERROR_INVALID_ADDRESS",
    535: "ERROR_PIPE_CONNECTED",
    536: "ERROR_PIPE_LISTENING",
    995: "ERROR_OPERATION_ABORTED",
    996: "ERROR_IO_INCOMPLETE",
    997: "ERROR_IO_PENDING",
    998: "ERROR_NOACCESS",
    1006: "ERROR_FILE_INVALID",
    1114: "ERROR_DLL_INIT_FAILED",
    1305: "ERROR_UNKNOWN_REVISION",
    1314: "ERROR_PRIVILEGE_NOT_HELD",
    1332: "ERROR_NONE_MAPPED",
    1336: "ERROR_INVALID_ACL",
    1337: "ERROR_INVALID_SID",
    1338: "ERROR_INVALID_SECURITY_DESCR",
    1359: "ERROR_INTERNAL_ERROR",
    1450: "ERROR_NO_SYSTEM_RESOURCES",
    1453: "ERROR_WORKING_SET_QUOTA",
    1455: "ERROR_COMMITMENT_LIMIT",
    1816: "ERROR_NOT_ENOUGH_QUOTA",
}
# ntstatus.h, for NtQueryEvent, NtQuerySection and NtQueryObject.
_NTSTATUS: Final = {
    0xC0000001: "STATUS_UNSUCCESSFUL",
    0xC0000002: "STATUS_NOT_IMPLEMENTED",
    0xC0000003: "STATUS_INVALID_INFO_CLASS",
    0xC0000004: "STATUS_INFO_LENGTH_MISMATCH",
    0xC0000005: "STATUS_ACCESS_VIOLATION",
    0xC0000008: "STATUS_INVALID_HANDLE",
    0xC000000D: "STATUS_INVALID_PARAMETER",
    0xC0000017: "STATUS_NO_MEMORY",
    0xC0000022: "STATUS_ACCESS_DENIED",
    0xC0000023: "STATUS_BUFFER_TOO_SMALL",
    0xC0000024: "STATUS_OBJECT_TYPE_MISMATCH",
    0xC0000034: "STATUS_OBJECT_NAME_NOT_FOUND",
    0xC0000061: "STATUS_PRIVILEGE_NOT_HELD",
    0xC000009A: "STATUS_INSUFFICIENT_RESOURCES",
    0xC00000BB: "STATUS_NOT_SUPPORTED",
    0xC0000120: "STATUS_CANCELLED",
}


def windows_code_name(code: int) -> str | None:
    """Return the name of an error code of Windows, for `XsemError.code_name`.

    Parameters
    ----------
    code : int
        A Win32 error (GetLastError), an NTSTATUS or an HRESULT, as an unsigned or a signed 32-bit number.

    Returns
    -------
    str or None
        For example ``"ERROR_ACCESS_DENIED"``, ``"STATUS_ACCESS_DENIED"`` or
        ``"HRESULT_FROM_WIN32(ERROR_ACCESS_DENIED)"``. None for a code without a name here.

    Examples
    --------
    >>> windows_code_name(5)
    'ERROR_ACCESS_DENIED'
    """
    code &= 0xFFFFFFFF
    if code >> 16 == 0x8007:   # FACILITY_WIN32
        name = _WIN32.get(code & 0xFFFF)
        return name and f"HRESULT_FROM_WIN32({name})"
    return _WIN32.get(code) or _NTSTATUS.get(code)


def windows_error(call: str, code: int, *, closed: str = "the NT handle is not open") -> XsemError:
    """Return the error for a call of Windows that failed, for a code without a meaning of its own in that call.

    Parameters
    ----------
    call : str
        The function, for `XsemError.call`.
    code : int
        The Win32 error (GetLastError).
    closed : str
        The message for ERROR_INVALID_HANDLE, which says what is not open.

    Returns
    -------
    XsemError
        `OutOfMemoryError` (``out_of_memory``), `BusyError` (``fd_limit``), `BadHandleError` (``closed_fd``), or, for
        every other code, `DriverError` (``system_call_failed``).

    Examples
    --------
    >>> windows_error("CreateEventW", 8).reason
    'out_of_memory'
    """
    fields: dict[str, Any] = {"call": call, "code": code, "code_name": windows_code_name(code)}
    if code in _NO_MEMORY:
        return OutOfMemoryError("the host is out of memory", reason="out_of_memory", **fields)
    if code in _NO_HANDLES:
        return BusyError("no more handles can be opened: release objects", reason="fd_limit", **fields)
    if code == _INVALID_HANDLE:
        return BadHandleError(closed, reason="closed_fd", **fields)
    return DriverError("Windows refused the call", reason="system_call_failed", **fields)
