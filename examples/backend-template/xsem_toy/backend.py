"""The list of devices, and the error if the platform is unsuitable."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from xsem.errors import BackendUnavailableError, DeviceNotFoundError
from xsem.spi import Backend, DeviceDriver, QueueDriver, SuiteHooks
from xsem.types import DeviceInfo, HealthCheck
from xsem_toy.device import ToyDevice

__all__ = ["ToyBackend"]


# A backend loads its vendor library in `devices` and `open`, never when its module is imported.
class ToyBackend(Backend):
    """The backend ``toy`` with one device."""

    name: ClassVar[str] = "toy"
    spi_version: ClassVar[int] = 2

    def devices(self) -> Sequence[DeviceInfo]:
        """Return ``toy:0``, without a UUID, because its objects are not bound to a device."""
        [check] = self.checks()
        if not check.ok:
            raise BackendUnavailableError(f"toy cannot be used: {check.detail}: {check.remedy}", reason="platform",
                                          backend=self.name)
        return (DeviceInfo(id="toy:0", backend=self.name, index=0, name="toy on the CPU"),)

    def open(self, index: int) -> ToyDevice:
        """Return a new driver."""
        if index >= len(self.devices()):
            raise DeviceNotFoundError("the only device is toy:0", reason="no_such_device", backend=self.name)
        return ToyDevice()

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Return the name of the kernel for reports, because the kernel implements the semaphores."""
        # A backend of a vendor returns the file of the vendor's library: [xsem.spi.loaded_library("libacme.so.1")].
        return (f"{platform.system()} {platform.release()}",)

    def checks(self) -> Sequence[HealthCheck]:
        """Check the platform for ``xsem doctor``, and never raise."""
        ok = hasattr(os, "eventfd") and hasattr(os, "preadv")
        return (HealthCheck(name="eventfd", ok=ok, detail="available" if ok else "this Python has no os.eventfd",
                            remedy="" if ok else "use Linux"),)

    def suite_hooks(self, driver: DeviceDriver) -> ToyHooks:
        """Return failing work for the conformance suite."""
        return ToyHooks()


class ToyHooks(SuiteHooks):
    """Hooks without native queues and native events: the toy does not support these."""

    def failing_work(self) -> Callable[[QueueDriver], None]:
        """Return a function that appends a raising Python function as work."""
        return lambda queue: queue.append_work(_fail)


def _fail() -> None:
    raise RuntimeError("this work fails, as the conformance suite requires")
