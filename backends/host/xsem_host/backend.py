"""The backend ``host``: one device, and what it needs of the machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from typing import ClassVar

from xsem.errors import BackendUnavailableError, DeviceNotFoundError
from xsem.spi import Backend
from xsem.types import Check, DeviceInfo
from xsem_host.device import HostDevice
from xsem_host.linux import eventfd_take, missing, new_eventfd, new_sealed_memfd

__all__ = ["HostBackend"]


class HostBackend(Backend):
    """See `xsem_host`."""

    name: ClassVar[str] = "host"
    spi_version: ClassVar[int] = 1

    def devices(self) -> Sequence[DeviceInfo]:
        """The one device. It has no UUID: its objects belong to no device."""
        lacking = missing()
        if lacking is not None:
            raise BackendUnavailableError(f"the host device cannot be used: {lacking}", reason="platform",
                                          backend=self.name)
        return (
            DeviceInfo(
                id="host:0", backend=self.name, index=0, name=f"host ({platform.machine()}, {os.cpu_count()} CPUs)",
                driver_version=f"{sys.platform} {platform.release()}",
            ),
        )

    def open(self, index: int) -> HostDevice:
        """A device of its own each time."""
        if index != 0:
            raise DeviceNotFoundError("host has one device, host:0", reason="no_such_device", backend=self.name)
        self.devices()
        return HostDevice()

    def checks(self) -> Sequence[Check]:
        """What the objects need of the kernel."""
        lacking = missing()
        if lacking is not None:
            return (Check(name="platform", ok=False, detail=lacking, remedy="use another backend on this machine"),)
        return (
            Check(name="platform", ok=True, detail=f"{sys.platform} {platform.release()}"),
            _check_sealing(),
            _check_eventfd(),
            _check_proc(),
        )


def _check_sealing() -> Check:
    try:
        os.close(new_sealed_memfd("xsem-check", 4096))
    except OSError as error:
        return Check(name="sealed memfd", ok=False, detail=str(error),
                     remedy="use Linux 3.17 or newer, and allow memfd_create in the sandbox")
    return Check(name="sealed memfd", ok=True, detail="available")


def _check_eventfd() -> Check:
    try:
        fd = new_eventfd()
        try:
            eventfd_take(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return Check(name="eventfd, RWF_NOWAIT", ok=False, detail=str(error), remedy="use Linux 5.11 or newer")
    return Check(name="eventfd, RWF_NOWAIT", ok=True, detail="available")


def _check_proc() -> Check:
    ok = os.path.exists("/proc/self/fd")
    return Check(name="/proc", ok=ok, detail="mounted" if ok else "not mounted",
                 remedy="" if ok else "mount /proc: binary semaphores are recognised by it")
