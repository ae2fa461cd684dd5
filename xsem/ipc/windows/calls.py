"""The calls of Windows for named pipes, as numbers of handles. Only `OverlappedCall.wait` waits for a peer."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any, Final, Self

from xsem.data.handles import OwnedHandle, adopt
from xsem.data.windows.codes import windows_code_name, windows_error
from xsem.errors import XsemError
from xsem.ipc.windows.deadlines import Deadline
from xsem.runtime.timeouts import wait_in_slices

__all__ = [
    "ACCESS_DENIED",
    "BUSY",
    "ENDED",
    "MORE_DATA",
    "NOT_FOUND",
    "OverlappedCall",
    "PipeError",
    "begin_wait",
    "connect_pipe",
    "count_receipts",
    "create_pipe",
    "create_receipts",
    "end_wait",
    "give_receipt",
    "peer_pid",
    "wait_for_any",
]

NOT_FOUND, ACCESS_DENIED, BUSY, MORE_DATA = 2, 5, 231, 234
ENDED: Final = frozenset({109, 232, 233})
"""Codes of a pipe whose other end is closed."""
_CONNECTED: Final = 535
_PENDING, _INCOMPLETE, _ABORTED = 997, 996, 995
_STATUS_CANCELLED: Final = 0xC0000120
_NO_HANDLE: Final = (None, 2**64 - 1)   # the result of a call that creates no handle

_DUPLEX_OVERLAPPED: Final = 0x3 | 0x40000000
_FIRST_INSTANCE: Final = 0x00080000
# PIPE_TYPE_MESSAGE, PIPE_READMODE_MESSAGE, PIPE_REJECT_REMOTE_CLIENTS
_MESSAGES_OF_THIS_MACHINE: Final = 0x4 | 0x2 | 0x8
_UNLIMITED: Final = 255
_BUFFER_BYTES: Final = 1 << 18
_READ_WRITE: Final = 0xC0000000
_OPEN_EXISTING: Final = 3
_OVERLAPPED_ANONYMOUS: Final = 0x40000000 | 0x00100000   # the server cannot act in the name of this process
_MOST_RECEIPTS: Final = 2**31 - 1
_INFINITE: Final = 0xFFFFFFFF
_ONCE: Final = 0x8   # WT_EXECUTEONLYONCE
_UNTIL_CALLBACKS_END: Final = 2**64 - 1   # INVALID_HANDLE_VALUE
_SLICE_MS: Final = 50

_POINTER, _NUMBER, _BOOL = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int
_SIGNATURES: Final = {
    "CreateNamedPipeW": (_POINTER, ctypes.c_wchar_p, *(_NUMBER,) * 6, _POINTER),
    "CreateFileW": (_POINTER, ctypes.c_wchar_p, _NUMBER, _NUMBER, _POINTER, _NUMBER, _NUMBER, _POINTER),
    "SetNamedPipeHandleState": (_BOOL, *(_POINTER,) * 4),
    "ConnectNamedPipe": (_BOOL, _POINTER, _POINTER),
    "GetNamedPipeClientProcessId": (_BOOL, _POINTER, _POINTER),
    "GetNamedPipeServerProcessId": (_BOOL, _POINTER, _POINTER),
    "ReadFile": (_BOOL, _POINTER, _POINTER, _NUMBER, _POINTER, _POINTER),
    "WriteFile": (_BOOL, _POINTER, _POINTER, _NUMBER, _POINTER, _POINTER),
    "GetOverlappedResult": (_BOOL, _POINTER, _POINTER, _POINTER, _BOOL),
    "CancelIoEx": (_BOOL, _POINTER, _POINTER),
    "CreateEventW": (_POINTER, _POINTER, _BOOL, _BOOL, _POINTER),
    "CreateSemaphoreW": (_POINTER, _POINTER, _NUMBER, _NUMBER, _POINTER),
    "ReleaseSemaphore": (_BOOL, _POINTER, _NUMBER, _POINTER),
    "WaitForSingleObject": (_NUMBER, _POINTER, _NUMBER),
    "WaitForMultipleObjects": (_NUMBER, _NUMBER, _POINTER, _BOOL, _NUMBER),
    "RegisterWaitForSingleObject": (_BOOL, *(_POINTER,) * 4, _NUMBER, _NUMBER),
    "UnregisterWaitEx": (_BOOL, _POINTER, _POINTER),
    "LocalFree": (_POINTER, _POINTER),
}


class PipeError(Exception):
    """A call about a pipe failed with a code of GetLastError. It never reaches the application."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.call = call
        self.code = code
        # For an `XsemError`.
        self.fields: dict[str, Any] = {"call": call, "code": code, "code_name": windows_code_name(code)}

    def error(self) -> XsemError:
        """Return the error for the application, for a code without a meaning of its own."""
        return windows_error(self.call, self.code, closed="the pipe was closed during the call")


@functools.cache
def _call(name: str) -> Any:
    if sys.platform != "win32":
        raise NotImplementedError("named pipes need Windows")
    function = ctypes.WinDLL("kernel32", use_last_error=True)[name]
    function.restype, *function.argtypes = _SIGNATURES[name]
    return function


def _last_error() -> int:
    if sys.platform != "win32":
        raise NotImplementedError("named pipes need Windows")
    return ctypes.get_last_error()


def _own(call: str, *arguments: Any) -> OwnedHandle:
    """Call a function that returns a new handle, and return its owner."""
    number = _call(call)(*arguments)
    if number in _NO_HANDLE:
        raise PipeError(call, _last_error())
    return adopt(number)


def _must(call: str, *arguments: Any) -> None:
    if not _call(call)(*arguments):
        raise PipeError(call, _last_error())


# ---- pipes
class _SecurityAttributes(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint32), ("descriptor", ctypes.c_void_p), ("inherit", ctypes.c_int))


def create_pipe(name: str, user: str, *, first: bool) -> OwnedHandle:
    """Create an instance of a pipe that only processes of one user on this machine can open."""
    # `user` is a security identifier as text. `first`: the name must not exist yet (`ACCESS_DENIED`).
    if sys.platform != "win32":
        raise NotImplementedError("named pipes need Windows")
    descriptor = ctypes.c_void_p()
    # The owner is the user. Only the user has access, and inherited rights do not apply (P).
    if not ctypes.WinDLL("advapi32", use_last_error=True).ConvertStringSecurityDescriptorToSecurityDescriptorW(
            f"O:{user}D:P(A;;GA;;;{user})", 1, ctypes.byref(descriptor), None):
        raise PipeError("ConvertStringSecurityDescriptorToSecurityDescriptorW", ctypes.get_last_error())
    try:
        attributes = _SecurityAttributes(ctypes.sizeof(_SecurityAttributes), descriptor.value, 0)
        return _own("CreateNamedPipeW", name, _DUPLEX_OVERLAPPED | (_FIRST_INSTANCE if first else 0),
                    _MESSAGES_OF_THIS_MACHINE, _UNLIMITED, _BUFFER_BYTES, _BUFFER_BYTES, 0,
                    ctypes.addressof(attributes))
    finally:
        _call("LocalFree")(descriptor)


def connect_pipe(name: str) -> OwnedHandle:
    """Open the other end of a pipe."""
    # `NOT_FOUND`; `BUSY`: every instance is connected; `ACCESS_DENIED`: the pipe belongs to another user.
    handle = _own("CreateFileW", name, _READ_WRITE, 0, None, _OPEN_EXISTING, _OVERLAPPED_ANONYMOUS, None)
    try:
        mode = ctypes.c_uint32(2)   # PIPE_READMODE_MESSAGE
        _must("SetNamedPipeHandleState", handle.fileno(), ctypes.addressof(mode), None, None)
    except BaseException:
        handle.close()
        raise
    return handle


def peer_pid(pipe: int, *, of_client: bool) -> int:
    """Return the process that opened the other end of the pipe: the client, or the server."""
    pid = ctypes.c_uint32()
    _must("GetNamedPipeClientProcessId" if of_client else "GetNamedPipeServerProcessId", pipe, ctypes.addressof(pid))
    return pid.value


# ---- receipts
def create_receipts() -> OwnedHandle:
    """Create a semaphore that counts received messages, at 0."""
    return _own("CreateSemaphoreW", None, 0, _MOST_RECEIPTS, None)


def give_receipt(number: int) -> None:
    """Count one message on the semaphore. A failure has no effect: the number can belong to another object."""
    _call("ReleaseSemaphore")(number, 1, None)


def count_receipts(number: int) -> int:
    """Return the number of messages counted since the last call, without waiting."""
    count = 0
    while _call("WaitForSingleObject")(number, 0) == 0:
        count += 1
    return count


# ---- waits for events
def wait_for_any(events: Sequence[int], timeout_s: float) -> None:
    """Return when one of at most 64 events is set, or after the time. Ctrl-C does not interrupt the wait."""
    numbers = (ctypes.c_void_p * len(events))(*events)
    _call("WaitForMultipleObjects")(len(events), ctypes.addressof(numbers), False, int(timeout_s * 1000))


def begin_wait(wait: ctypes.c_void_p, event: int, callback: Any, key: int) -> None:
    """Let a thread of Windows call ``callback(key, 0)`` once after the event is set. `wait` becomes the wait."""
    _must("RegisterWaitForSingleObject", ctypes.addressof(wait), event, ctypes.cast(callback, ctypes.c_void_p), key,
          _INFINITE, _ONCE)


def end_wait(wait: ctypes.c_void_p) -> None:
    """End a wait, and return when its callback does not run. No effect on a wait that has not begun."""
    if wait.value is not None:
        _call("UnregisterWaitEx")(wait, _UNTIL_CALLBACKS_END)


# ---- overlapped calls
class _Overlapped(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_void_p), ("high", ctypes.c_void_p), ("offset", ctypes.c_uint64),
                ("event", ctypes.c_void_p))


# Windows writes to a call's structures until its end, so they live here until then.
_in_progress: Final[set[OverlappedCall]] = set()


class OverlappedCall:
    """One read, write or connection of a pipe, which `close` and the end of ``with`` cancel if it has not ended."""

    # `call` is "ReadFile", "WriteFile" or "ConnectNamedPipe". The pipe must stay open until `close`.
    def __init__(self, pipe: OwnedHandle, call: str, buffer: ctypes.Array[ctypes.c_char] | None = None) -> None:
        self._pipe = pipe.fileno()
        self._call = call
        self._buffer = buffer
        self._event = _own("CreateEventW", None, 1, 0, None)
        # Windows replaces the status when it begins the call. Until then, the call counts as cancelled.
        self._state = _Overlapped(internal=_STATUS_CANCELLED, event=self._event.fileno())
        self._began = False
        self.count = 0   # bytes transferred
        self.code: int | None = None   # 0 after success, the code of an error, or None before the end

    @property
    def event(self) -> int:
        """Number of the event that Windows sets at the end of the call."""
        return self._event.fileno()

    @property
    def cancelled(self) -> bool:
        """Whether the call has had no effect: it was cancelled, or it has not begun."""
        return self.code in (None, _ABORTED)

    @property
    def data(self) -> bytes:
        """The bytes of a read that has ended."""
        return b"" if self._buffer is None else self._buffer.raw[:self.count]

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Begin the call."""
        place = ctypes.addressof(self._state)
        _in_progress.add(self)
        self._began = True
        if self._buffer is None:
            done = _call(self._call)(self._pipe, place)
        else:
            done = _call(self._call)(self._pipe, self._buffer, len(self._buffer), None, place)
        code = 0 if done else _last_error()
        if code in (0, MORE_DATA):
            self._finish(waits=True)
        elif code != _PENDING:
            self.code = 0 if code == _CONNECTED else code

    def wait(self, deadline: Deadline) -> bool:
        """Wait for the end of the call. Return False if the time is over before."""
        if self.code is not None:
            return True
        wait = _call("WaitForSingleObject")

        def ended(timeout_ns: int) -> bool:
            # Rounded up: 0 ms would spin.
            return bool(wait(self._event.fileno(), min(_SLICE_MS, -(-timeout_ns // 1_000_000))) == 0)

        if not wait_in_slices(ended, deadline.left_s):
            return False
        self._finish(waits=True)
        return True

    def _finish(self, *, waits: bool) -> None:
        count = ctypes.c_uint32()
        done = _call("GetOverlappedResult")(self._pipe, ctypes.addressof(self._state), ctypes.addressof(count), waits)
        code = 0 if done else _last_error()
        self.count = count.value
        if code != _INCOMPLETE:
            self.code = code

    def cancel(self) -> bool:
        """Cancel the call unless it has ended. Return whether it was cancelled before any effect."""
        if self.code is None and self._began:
            _call("CancelIoEx")(self._pipe, ctypes.addressof(self._state))
            self._finish(waits=True)
        return self.cancelled

    def close(self) -> None:
        """Cancel the call unless it has ended. A second call has no effect."""
        self.cancel()
        _in_progress.discard(self)
        self._event.close()

    def __exit__(self, *exc: object) -> None:
        self.close()
