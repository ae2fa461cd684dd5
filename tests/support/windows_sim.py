"""A program that simulates Python on Windows, as far as the import of a package can detect it.

    python windows_sim.py imports     imports every module of xsem; prints the modules that fail
    python windows_sim.py handles     imports NT handles through the facade's duplicates; prints their states

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


class Kernel32:
    """Simulated kernel32. Its handles are multiples of four, as on Windows."""

    def __init__(self) -> None:
        self.open: dict[int, str] = {0x100: "semaphore"}
        self.closed: list[int] = []
        self.calls: list[str] = []
        self.GetCurrentProcess = _Function(lambda: 2**64 - 1)
        self.DuplicateHandle = _Function(self._duplicate)
        self.CloseHandle = _Function(self._close)

    def _duplicate(self, source: Any, handle: Any, target: Any, out: Any, access: int, inherit: Any, flags: int) -> int:
        assert source.value == target.value == 2**64 - 1
        assert not inherit
        assert flags == 2   # DUPLICATE_SAME_ACCESS
        number = handle.value
        self.calls.append(f"duplicate {number:#x}")
        if number not in self.open:
            return 0
        new = max(self.open) + 4
        self.open[new] = self.open[number]
        out._obj.value = new
        return 1

    def _close(self, handle: Any) -> int:
        number = int(handle)
        self.closed.append(number)
        return int(self.open.pop(number, None) is not None)


class _Function:
    """A function of a library, with the attributes of a ctypes prototype."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.restype: Any = None
        self.argtypes: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


def become_windows() -> Kernel32:
    """Make this process look like a process on Windows."""
    for each in modules():
        with contextlib.suppress(Exception):   # its dependencies are loaded even if the module itself fails
            importlib.import_module(each)
    for name in [each for each in sys.modules if each.partition(".")[0] in ROOTS]:
        del sys.modules[name]
    kernel32 = Kernel32()
    real = ctypes.PyDLL.__init__

    def refuse_none(self: Any, name: Any, *arguments: Any, **named: Any) -> None:
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        real(self, name, *arguments, **named)

    ctypes.CDLL.__init__ = refuse_none  # type: ignore[method-assign]
    windows: Any = ctypes
    windows.WinDLL = lambda name, **_named: {"kernel32": kernel32}[name]
    windows.get_last_error = lambda: 6
    windows.WINFUNCTYPE = ctypes.CFUNCTYPE
    sys.platform = "win32"
    os.name = "nt"
    for name in ABSENT_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ABSENT.items():
        for name in names:
            with contextlib.suppress(AttributeError):
                delattr(module, name)
    return kernel32


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


def handles() -> dict[str, Any]:
    kernel32 = become_windows()
    from xsem.data.handles import OwnedHandle
    from xsem.errors import BadHandleError
    from xsem.runtime.handle_import import import_with_duplicate
    from xsem.spi import Imported, ImportFailure
    from xsem.types import MemoryDesc, SemaphoreDesc

    def no_dup(*_arguments: Any) -> int:
        raise AssertionError("an NT handle is not a file descriptor")

    os.dup = no_dup
    desc = SemaphoreDesc.d3d12_fence(0x100)
    given: list[int] = []
    left: dict[str, Any] = {}

    def fails(state: Any) -> Any:
        def importer(_desc: Any, handle: Any) -> Imported:
            given.append(handle.fileno())
            raise ImportFailure(ValueError("no"), handle=state)
        return importer

    def imports_as(state: Any) -> Any:
        def importer(_desc: Any, handle: Any) -> Imported:
            given.append(-1 if handle is None else handle.fileno())
            return Imported("token", handle=state)
        return importer

    def after(what: str) -> None:
        left[what] = sorted(kernel32.open)
        for each in [each for each in kernel32.open if each != 0x100]:
            del kernel32.open[each]

    import_with_duplicate(desc, imports_as("left"), [])
    after("left by the driver")
    import_with_duplicate(desc, imports_as("taken"), [])
    after("taken by the driver")
    with OwnedHandle(0x100) as owned:
        import_with_duplicate(MemoryDesc.d3d12_heap(owned, allocation_size=1), imports_as("left"), [])
        owned.detach()
    after("of an OwnedHandle")
    for state in ("left", "taken", "unknown"):
        with contextlib.suppress(ValueError):
            import_with_duplicate(desc, fails(state), [])
        after(f"refused, {state}")
    reasons: dict[str, str] = {}
    for number in (0x7777, -1, 2**64 - 1, -2, 0):
        try:
            import_with_duplicate(SemaphoreDesc.d3d12_fence(number), imports_as("left"), [])
        except BadHandleError as error:
            reasons[str(number)] = error.reason
        try:
            OwnedHandle(number).detach()
        except BadHandleError as error:
            reasons[f"owned {number}"] = error.reason
    import_with_duplicate(SemaphoreDesc.opaque_win32_kmt(0x40000040, device_uuid=None), imports_as("left"), [])
    return {"given": given, "left": left, "reasons": reasons, "open": sorted(kernel32.open)}


if __name__ == "__main__":
    _found = {"imports": imports, "handles": handles}[sys.argv[1]]()
    print(json.dumps(_found))
