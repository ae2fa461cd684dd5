"""A program that simulates Python on Windows, as far as the import of a package can detect it.

    python windows_sim.py     imports every module of xsem; prints the modules that fail

The program first loads the standard library and the dependencies of xsem as on Linux. Then it removes the modules and
names that Windows lacks, adds a kernel32 to ctypes, and imports xsem again.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import pkgutil
import select
import signal
import socket
import sys
import types
from typing import Any

ROOTS = ("xsem", "xsem_host", "xsem_cuda", "xsem_levelzero", "xsem_opencl", "xsem_vulkan", "xsem_conformance")
ABSENT_MODULES = ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "syslog", "readline", "_posixsubprocess")
ABSENT = {
    os: ("eventfd", "eventfd_read", "eventfd_write", "EFD_CLOEXEC", "EFD_NONBLOCK", "EFD_SEMAPHORE", "memfd_create",
         "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "MFD_HUGETLB", "preadv", "pwritev", "RWF_NOWAIT", "register_at_fork",
         "fork", "pidfd_open", "major", "minor", "sched_getaffinity", "O_CLOEXEC", "pread", "pwrite", "posix_fallocate",
         "killpg", "setsid", "waitid", "uname", "sysconf"),
    select: ("poll", "epoll", "POLLIN", "POLLOUT", "POLLERR", "POLLHUP"),
    socket: ("AF_UNIX", "SCM_RIGHTS", "SCM_CREDENTIALS", "SO_PEERCRED", "SO_PASSCRED", "SOCK_CLOEXEC", "socketpair",
             "send_fds", "recv_fds", "CMSG_SPACE", "CMSG_LEN", "MSG_CMSG_CLOEXEC"),
    signal: ("SIGKILL", "SIGALRM", "SIGUSR1", "SIGSTOP", "SIGCONT", "pthread_kill", "pthread_sigmask", "setitimer"),
    mmap: ("PROT_READ", "PROT_WRITE", "MAP_SHARED", "MAP_PRIVATE", "MAP_ANONYMOUS"),
}


def modules() -> list[str]:
    """Return the names of all modules of all packages, except ``__main__``."""
    found: list[str] = []
    for root in ROOTS:
        package = importlib.import_module(root)
        found.append(root)
        found += [each.name for each in pkgutil.walk_packages(package.__path__, f"{root}.")]
    return [each for each in found if not each.endswith("__main__")]


class Library:
    """Simulated library. Each of its functions can get a prototype, and none is called."""

    def __getattr__(self, name: str) -> Any:
        function = types.SimpleNamespace()
        setattr(self, name, function)
        return function


def become_windows() -> None:
    """Make this process look like a process on Windows."""
    for each in modules():
        with contextlib.suppress(Exception):   # its dependencies are loaded even if the module itself fails
            importlib.import_module(each)
    for name in [each for each in sys.modules if each.partition(".")[0] in ROOTS]:
        del sys.modules[name]
    real = ctypes.PyDLL.__init__

    def refuse_none(self: Any, name: Any, *arguments: Any, **named: Any) -> None:
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        real(self, name, *arguments, **named)

    ctypes.CDLL.__init__ = refuse_none  # type: ignore[method-assign]
    windows: Any = ctypes
    windows.WinDLL = lambda name, **_named: {"kernel32": Library()}[name]
    windows.get_last_error = lambda: 6
    windows.WINFUNCTYPE = ctypes.CFUNCTYPE
    sys.modules["msvcrt"] = types.ModuleType("msvcrt")   # of CPython for Windows
    sys.platform = "win32"
    os.name = "nt"
    for name in ABSENT_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ABSENT.items():
        for name in names:
            with contextlib.suppress(AttributeError):
                delattr(module, name)


def imports() -> dict[str, Any]:
    names = modules()
    become_windows()
    failed: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {error}"
    return {"count": len(names), "failed": failed}


if __name__ == "__main__":
    print(json.dumps(imports()))
