"""The backend ``host``: one device, and what it needs of the machine."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

from xsem.errors import BackendUnavailableError, DeviceNotFoundError, XsemError
from xsem.spi import Backend
from xsem.types import DeviceInfo, HealthCheck
from xsem_host.device import HostDevice
from xsem_host.linux import (
    eventfd_take,
    futex_wait,
    futex_wake_all_and_add,
    missing,
    new_eventfd,
    new_sealed_memfd,
)

__all__ = ["HostBackend"]


class HostBackend(Backend):
    """See `xsem_host`."""

    name: ClassVar[str] = "host"
    spi_version: ClassVar[int] = 1

    def devices(self) -> Sequence[DeviceInfo]:
        """The one device. It has no UUID: its objects belong to no device.

        Raises
        ------
        BackendUnavailableError
            ``platform``: not Linux, or a kernel, Python or sandbox that lacks what the objects are made of.
        """
        lacking = next((check for check in self.checks() if not check.ok), None)
        if lacking is not None:
            raise BackendUnavailableError(
                f"the host device cannot be used: {lacking.name}: {lacking.detail}: {lacking.remedy}",
                reason="platform", backend=self.name,
            )
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

    def checks(self) -> Sequence[HealthCheck]:
        """What the objects need of the kernel, each tried: a sandbox refuses what the kernel has."""
        lacking = missing()
        if lacking is not None:
            return (HealthCheck(name="platform", ok=False, detail=lacking,
                                remedy="use another backend on this machine"),)
        return (
            HealthCheck(name="platform", ok=True, detail=f"{sys.platform} {platform.release()}"),
            _tried("sealed memfd", _memfd, "use Linux 3.17 or newer, and allow memfd_create in the sandbox"),
            _tried("eventfd, RWF_NOWAIT", _eventfd, "use Linux 5.8 or newer, and allow preadv2 in the sandbox"),
            _tried("futex", _futex, "allow the futex system call with FUTEX_WAKE_OP in the sandbox"),
            _tried("/proc", _proc, "mount /proc: file descriptors are recognised by it"),
        )


def _tried(name: str, attempt: Callable[[], None], remedy: str) -> HealthCheck:
    try:
        attempt()
    except (OSError, XsemError) as error:
        return HealthCheck(name=name, ok=False, detail=str(error), remedy=remedy)
    return HealthCheck(name=name, ok=True, detail="available")


def _memfd() -> None:
    new_sealed_memfd("xsem-check", 4096).close()


def _eventfd() -> None:
    with new_eventfd() as handle:
        eventfd_take(handle.fileno())


def _futex() -> None:
    word = ctypes.c_uint32(0)
    address = ctypes.addressof(word)
    futex_wake_all_and_add(address)
    if word.value != 1:
        raise OSError("FUTEX_WAKE_OP did not add")
    futex_wait(address, 0, 0)  # another value than expected: returns at once


def _proc() -> None:
    os.stat("/proc/self/fdinfo")
