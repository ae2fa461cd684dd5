"""Which devices there are, and what is missing where there are none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from xsem.errors import BackendUnavailableError, DeviceNotFoundError
from xsem.spi import Backend
from xsem.types import DeviceInfo, HealthCheck
from xsem_toy.device import ToyDevice

__all__ = ["ToyBackend"]


class ToyBackend(Backend):
    """One toy. A vendor's library would be loaded in `devices` and `open`, never when this module is imported."""

    name: ClassVar[str] = "toy"
    spi_version: ClassVar[int] = 1

    def devices(self) -> Sequence[DeviceInfo]:
        """``toy:0``, without a UUID: its objects belong to no device."""
        [check] = self.checks()
        if not check.ok:
            raise BackendUnavailableError(f"the toy cannot be used: {check.detail}: {check.remedy}", reason="platform",
                                          backend=self.name)
        return (DeviceInfo(id="toy:0", backend=self.name, index=0, name="a toy"),)

    def open(self, index: int) -> ToyDevice:
        """A driver of its own each time."""
        if index >= len(self.devices()):
            raise DeviceNotFoundError("there is one toy, toy:0", reason="no_such_device", backend=self.name)
        return ToyDevice()

    def checks(self) -> Sequence[HealthCheck]:
        """What ``xsem doctor`` prints. Never raises."""
        ok = hasattr(os, "eventfd") and hasattr(os, "preadv")
        return (HealthCheck(name="eventfd", ok=ok, detail="available" if ok else "this Python has no os.eventfd",
                            remedy="" if ok else "use Linux"),)
