"""Faults in the pending waits of a process that ends."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys

from faults.base import Driver, List, a_driver, a_list
from xsem import spi


@a_list
class KilledWaiterSignals(List):
    """When a process is killed, the semaphores that it waits for are signalled."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        # Only in the second process of the device, because it takes a while. The worker leads the session of both.
        if os.getpid() != os.getsid(0):
            for semaphore, param in zip(semaphores, params, strict=True):
                _signal_when_killed(self.driver.inner.native_handle(semaphore), param.value)
        return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


_SIGNALS = """
import os, sys
from xsem_host.device import HostDevice
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType as T
life, ready, fd, value = map(int, sys.argv[1:])
handle, type = OwnedHandle(fd), T.TIMELINE_SEMAPHORE_FD if value else T.OPAQUE_FD
driver = HostDevice()
semaphore = driver.import_semaphore(SemaphoreDesc(type=type, handle=handle), handle).token
os.write(ready, b".")
if not os.read(life, 1):   # a byte where the other process ends in order
    driver.host_signal(semaphore, value or None)
"""


def _signal_when_killed(fd: int, value: int | None) -> None:
    # A separate process outlives this one, sees its end, and acts like a driver that cleans up wrongly.
    life, ending = os.pipe()
    waits, ready = os.pipe()
    subprocess.Popen([sys.executable, "-c", _SIGNALS, str(life), str(ready), str(fd), str(value or 0)],
                     pass_fds=[life, ready, fd], start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for each in (life, ready):
        os.close(each)
    os.read(waits, 1)
    os.close(waits)
    atexit.register(os.write, ending, b".")


_children: list[subprocess.Popen[bytes]] = []   # kept, because the end of a Popen object complains about a live child


@a_driver
class OpeningLeavesAChild(Driver):
    """The first opening of a device in a process starts a child, which outlives the process."""

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        if not _children:
            # It ends by itself, long after the patience of the suite.
            _children.append(subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                              stderr=subprocess.DEVNULL))
