"""The backend ``host``: its one device and the checks of the machine."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from xsem.errors import BackendUnavailableError, DeviceNotFoundError, XsemError
from xsem.spi import Backend, DeviceDriver, SuiteHooks
from xsem.types import DeviceInfo, HealthCheck
from xsem_host.device import HostDevice

if sys.platform == "win32":
    from xsem.portable.windows import check_section, event_set, event_take, new_event, new_section
else:
    from xsem.portable.linux import futex_wait, futex_wake_all_and_add, missing, new_sealed_memfd
    from xsem_host.eventfds import eventfd_take, new_eventfd

__all__ = ["HostBackend"]


# On Windows, the functions of `platform` start a process (`cmd /c ver`).
def _machine() -> str:
    return os.environ.get("PROCESSOR_ARCHITECTURE", "") if sys.platform == "win32" else platform.machine()


def _release() -> str:
    if sys.platform == "win32":
        found = sys.getwindowsversion()
        return f"{found.major}.{found.minor}.{found.build}"
    return platform.release()


class HostBackend(Backend):
    """The backend ``host``: one device, the CPU. It needs Linux or Windows."""

    name: ClassVar[str] = "host"
    spi_version: ClassVar[int] = 2

    def devices(self) -> Sequence[DeviceInfo]:
        """Return the one device. It has no UUID, because its objects belong to no device."""
        lacking = next((check for check in self.checks() if not check.ok), None)
        if lacking is not None:
            raise BackendUnavailableError(
                f"the host device cannot be used: {lacking.name}: {lacking.detail}: {lacking.remedy}",
                reason="platform", backend=self.name,
            )
        return (
            DeviceInfo(
                id="host:0", backend=self.name, index=0, name=f"host ({_machine()}, {os.cpu_count()} CPUs)",
                driver_version=f"{sys.platform} {_release()}",
            ),
        )

    def open(self, index: int) -> HostDevice:
        """Open the device. Each call returns a new, independent one."""
        if index != 0:
            raise DeviceNotFoundError("host has one device: open host:0", reason="no_such_device", backend=self.name)
        self.devices()
        return HostDevice()

    def suite_hooks(self, driver: DeviceDriver) -> SuiteHooks:
        """Return native events and failing work for the conformance suite."""
        from xsem_host.suite_hooks import HostHooks

        return HostHooks()

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Return the name of the kernel, because the kernel implements the semaphores and the memory."""
        return (f"{'Windows' if sys.platform == 'win32' else platform.system()} {_release()}",)

    def checks(self) -> Sequence[HealthCheck]:
        """Try each system call that the objects need."""
        # A sandbox can refuse a call that the kernel has, so the kernel's version is not enough.
        return _checks()


def _tried(name: str, attempt: Callable[[], None], remedy: str) -> HealthCheck:
    try:
        attempt()
    except (OSError, XsemError) as error:
        return HealthCheck(name=name, ok=False, detail=str(error), remedy=remedy)
    return HealthCheck(name=name, ok=True, detail="available")


if sys.platform == "win32":

    def _checks() -> Sequence[HealthCheck]:
        return (
            HealthCheck(name="platform", ok=True, detail=f"{sys.platform} {_release()}"),
            _tried("events", _event, "allow events without a name in the sandbox"),
            _tried("sections", _section, "allow sections of the paging file in the sandbox"),
        )

    def _event() -> None:
        with new_event() as handle:
            event_set(handle.fileno())
            if not event_take(handle.fileno()):
                raise OSError("the event is not signalled after SetEvent")

    def _section() -> None:
        with new_section(4096) as handle:
            check_section(handle.fileno(), "memory", 4096)

else:

    def _checks() -> Sequence[HealthCheck]:
        lacking = missing()
        if lacking is not None:
            return (HealthCheck(name="platform", ok=False, detail=lacking,
                                remedy="use another backend on this machine"),)
        return (
            HealthCheck(name="platform", ok=True, detail=f"{sys.platform} {_release()}"),
            _tried("sealed memfd", _memfd, "use Linux 3.17 or newer, and allow memfd_create in the sandbox"),
            _tried("eventfd, RWF_NOWAIT", _eventfd, "use Linux 5.8 or newer, and allow preadv2 in the sandbox"),
            _tried("futex", _futex, "allow the futex system call with FUTEX_WAKE_OP in the sandbox"),
            _tried("/proc", _proc, "mount /proc: xsem recognises file descriptors by it"),
        )

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
        futex_wait(address, 0, 0)  # the word differs from the expected value: returns at once

    def _proc() -> None:
        os.stat("/proc/self/fdinfo")
