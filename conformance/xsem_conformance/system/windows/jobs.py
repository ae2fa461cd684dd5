"""A job object of Windows: processes, and all processes that they start."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

# For the type checker. Every system can import this module, and only Windows can call its functions.
assert sys.platform == "win32" or not TYPE_CHECKING  # noqa: S101

__all__ = ["Job"]

_BASIC_PIDS: Final = 3            # JobObjectBasicProcessIdList
_EXTENDED_LIMITS: Final = 9       # JobObjectExtendedLimitInformation
_KILL_ON_CLOSE: Final = 0x2000    # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
_MOST: Final = 256
_KILLED: Final = 9


class _Limits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION. Only `flags` is set."""

    _fields_ = (("times", ctypes.c_int64 * 2), ("flags", ctypes.c_uint32), ("sets", ctypes.c_size_t * 2),
                ("active", ctypes.c_uint32), ("affinity", ctypes.c_size_t), ("classes", ctypes.c_uint32 * 2),
                ("counters", ctypes.c_uint64 * 6), ("memory", ctypes.c_size_t * 4))


class _Pids(ctypes.Structure):
    _fields_ = (("assigned", ctypes.c_uint32), ("listed", ctypes.c_uint32), ("pids", ctypes.c_size_t * _MOST))


class Job:
    """A job object. Windows kills its processes when this process ends, however it ends."""

    def __init__(self) -> None:
        self._kernel32: Any = ctypes.WinDLL("kernel32", use_last_error=True)
        self._kernel32.CreateJobObjectW.restype = ctypes.c_void_p
        self._handle: int | None = self._kernel32.CreateJobObjectW(None, None)
        self._must(self._handle)
        limits = _Limits(flags=_KILL_ON_CLOSE)
        self._must(self._kernel32.SetInformationJobObject(
            ctypes.c_void_p(self._handle), _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)))

    def _must(self, done: object) -> None:
        if not done:
            raise ctypes.WinError(ctypes.get_last_error())

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Add a process. The processes that it starts from now on belong to the job, too."""
        number = ctypes.c_void_p(int(process._handle))  # type: ignore[attr-defined]
        self._must(self._kernel32.AssignProcessToJobObject(ctypes.c_void_p(self._handle), number))

    def pids(self) -> list[int]:
        """Return the ids of the running processes."""
        found = _Pids()
        self._must(self._kernel32.QueryInformationJobObject(
            ctypes.c_void_p(self._handle), _BASIC_PIDS, ctypes.byref(found), ctypes.sizeof(found), None))
        return list(found.pids[:found.listed])

    def end(self) -> None:
        """Kill the processes, and close the job object. A second call has no effect."""
        if self._handle is not None:
            self._kernel32.TerminateJobObject(ctypes.c_void_p(self._handle), _KILLED)
            self._kernel32.CloseHandle(ctypes.c_void_p(self._handle))
            self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.end()
