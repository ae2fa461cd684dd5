"""The loop in C: compiled on this machine, or compiled on another machine and loaded from a file."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["CLoop", "build"]

_SOURCE: Final = Path(__file__).with_name("c_loop.c")
_LIBCUDA: Final = "libcuda.so.1"
_COMPILERS: Final = ("cc", "gcc", "clang")


def build(target: Path) -> str | None:
    """Compile to `target`. Return None, or the reason of a failure."""
    named = os.environ.get("CC")
    compiler = next((found for each in ([named] if named else _COMPILERS) if (found := shutil.which(each))), None)
    if compiler is None:
        return "no C compiler"
    done = subprocess.run([compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(target),
                           str(_SOURCE), "-ldl"], check=False, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{compiler} failed: {done.stderr[-2000:]}"


class CLoop:
    """The library, connected to the driver's functions. A time is the seconds for all calls of one loop."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._semaphores = _function(library, "c_loop_semaphores", ctypes.c_int, ctypes.c_void_p, ctypes.c_uint,
                                     ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint)
        self._import = _function(library, "c_loop_import", ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)
        self._destroy = _function(library, "c_loop_destroy", ctypes.c_void_p, ctypes.c_uint)
        if library.c_loop_open(_LIBCUDA.encode()) != 0:
            raise OSError(f"{path}: {_LIBCUDA} or one of its functions was not found")

    def semaphores(self, *, wait: bool, handles: Sequence[int], stream: int, first: int, calls: int) -> float:
        """Signal or wait `calls` times, with the values `first`, `first` + 1, and so on. Return the time."""
        array = (ctypes.c_void_p * len(handles))(*handles)
        return _seconds(self._semaphores(int(wait), array, len(handles), stream, first, calls))

    def import_semaphores(self, type: int, fd: int, count: int) -> tuple[float, Any]:
        """Import `count` duplicates of the fd. Return the time, and the argument of `destroy`."""
        array = (ctypes.c_void_p * count)()
        return _seconds(self._import(type, fd, array, count)), array

    def destroy(self, semaphores: Any) -> float:
        """Destroy the imported semaphores, and return the time."""
        return _seconds(self._destroy(semaphores, len(semaphores)))


def _function(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
    function = library[name]
    function.restype, function.argtypes = ctypes.c_int64, arguments
    return function


def _seconds(answer: int) -> float:
    if answer < 0:
        raise RuntimeError(f"the driver returned {-answer} in the C loop")
    return answer / 1e9
