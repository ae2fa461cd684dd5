"""Helpers for tests of the host device: all kinds of files, the state of the process, and other processes."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.at_once import threads
from support.waiting import until
from xsem import spi
from xsem.errors import DriverError, XsemError
from xsem.portable.memory import SharedMemory
from xsem.portable.semaphore_base import SemaphoreBase
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)
from xsem_host.device import HostDevice
from xsem_host.fences import HostFence, Waitable
from xsem_host.queue import HostQueue

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
MEMORY = MemoryHandleType.OPAQUE_FD
SLICE_NS = 5_000_000
LONG_NS = 20_000_000_000
MAGIC = 0x314E4C544D455358
F_ADD_SEALS, SEALS, SEAL_WRITE = 1033, 7, 8


def desc(type: SemaphoreHandleType) -> SemaphoreDesc:
    """Return a descriptor. The driver ignores its handle and gets a separate one."""
    return SemaphoreDesc(type=type, handle=0)


def memory_desc(size: int) -> MemoryDesc:
    return MemoryDesc(type=MEMORY, allocation_size=size, handle=0)


def imported(device: HostDevice, wanted: SemaphoreDesc | MemoryDesc, handle: OwnedHandle) -> Any:
    """Import as the facade does, which closes the handle afterwards, and return the token."""
    with handle:
        made = (device.import_memory(wanted, handle) if isinstance(wanted, MemoryDesc)
                else device.import_semaphore(wanted, handle))
        assert made.handle == "left"
        assert not handle.closed
    return made.token


def import_again(device: HostDevice, type: SemaphoreHandleType, exporter: SemaphoreBase) -> SemaphoreBase:
    token: SemaphoreBase = imported(device, desc(type), device.export_semaphore(exporter))
    return token


def memfd(size: int, content: bytes = b"", *, seals: int = SEALS, name: str = "xsem-timeline", flags: int = 0) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    os.truncate(fd, size)
    if content:
        os.pwrite(fd, content, 0)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def page(*, magic: int = MAGIC, version: int = 2, kind: int = 2, value: int = 0) -> bytes:
    return struct.pack("=QIIQI", magic, version, kind, value, 0)


def refused_fd(fd: int, reason: str, device: HostDevice, wanted: SemaphoreDesc | MemoryDesc) -> XsemError:
    """Import `fd`, check that it is refused for that reason and stays unchanged, and close it."""
    with OwnedHandle(fd) as handle:
        with pytest.raises(spi.ImportFailure) as failure:
            if isinstance(wanted, MemoryDesc):
                device.import_memory(wanted, handle)
            else:
                device.import_semaphore(wanted, handle)
        assert failure.value.handle == "left"
        assert not handle.closed
        os.fstat(fd)
    error = failure.value.error
    assert isinstance(error, XsemError)
    assert error.reason == reason
    return error


def workers() -> list[str]:
    return threads("host-list")


def mapped(name: str = "/memfd:xsem-") -> list[str]:
    """Return the mappings of host objects in this process, as the kernel lists them."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if name in line]


def covered(address: int, size: int) -> bool:
    """Return whether a single mapping of this process covers all of these bytes."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, _, end = line.split(maxsplit=1)[0].partition("-")
        if int(first, 16) <= address and address + size <= int(end, 16):
            return True
    return False


# ---- lists
def wait_for(commands: HostQueue, semaphore: SemaphoreBase, value: int | None = None) -> HostFence:
    return there(commands.append_wait([semaphore], [WaitParams(value=value)], (), (), True))


def signal_of(commands: HostQueue, semaphore: SemaphoreBase, value: int | None = None) -> HostFence:
    return there(commands.append_signal([semaphore], [SignalParams(value=value)], (), (), True))


def barrier(commands: HostQueue, *fences: Waitable) -> HostFence:
    return there(commands.append_barrier(fences, True))


def there(fence: HostFence | None) -> HostFence:
    assert fence is not None
    return fence


def failed(device: HostDevice, fence: Waitable) -> DriverError:
    with pytest.raises(DriverError) as failure:
        device.wait_fence(fence, LONG_NS)
    assert failure.value.reason == "work_failed"
    assert failure.value.from_earlier_work
    return failure.value


def fail() -> None:
    raise ZeroDivisionError("theirs")


# ---- threads and processes
_CALLS = {"x86_64": {202: "futex", 7: "poll", 271: "poll"}, "aarch64": {98: "futex", 73: "poll"}}


def sleeps_in(call: str, thread: threading.Thread) -> bool:
    """Return whether a thread of this process sleeps in that system call."""
    first = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()[0]
    return first.isdigit() and _CALLS[os.uname().machine].get(int(first)) == call


@contextmanager
def three_asleep(wait: Callable[[], bool]) -> Iterator[list[bool]]:
    """Call `wait` on three threads, and let the block wake them. The list has their results after the block."""
    met: list[bool] = []
    threads = [threading.Thread(target=lambda: met.append(wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        until(functools.partial(sleeps_in, "futex", thread))
    yield met
    for thread in threads:
        thread.join()


def fill(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))


def content(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


@contextmanager
def peer(script: str, *objects: SemaphoreBase | SharedMemory, arguments: tuple[object, ...] = (), killed: bool = True,
         ) -> Iterator[subprocess.Popen[str]]:
    """Start a Python process that runs `script`. Its `fds` are the fds of the objects, its `arguments` are strings.

    At the end it is killed, or must have ended with status 0.
    """
    fds = [each.fd for each in objects]
    count = 1 + len(fds)
    head = f"import sys\nfds, arguments = [int(each) for each in sys.argv[1:{count}]], sys.argv[{count}:]\n"
    process = subprocess.Popen(
        [sys.executable, "-c", head + script, *map(str, fds), *map(str, arguments)], pass_fds=fds,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
            if not killed:
                assert process.wait(50) == 0
        finally:
            process.kill()
