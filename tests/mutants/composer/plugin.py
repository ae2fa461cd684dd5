"""A plugin with the backend ``mutant``: a sound driver behind the composed fault that XSEM_FAULT names.

XSEM_FAULT_BASE names the sound driver: "host", "capable", "bridged" or "cuda". XSEM_FAULT is empty for no fault.
XSEM_FAULT_FIRED and XSEM_FAULT_TRACE name files for notes: the fault changed a call; each called method.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from composer.forwarding import Composer, wrapped
from xsem import spi
from xsem.plugins import registry
from xsem.types import DeviceInfo

__all__ = ["SoundBackend", "xsem_register_backends"]


class SoundBackend(spi.Backend):
    """The sound driver, under the name of the backend of the faults. `host` has a second device."""

    name = "mutant"
    spi_version = 2

    def __init__(self, base: str) -> None:
        self._base = base

    @property
    def _inner(self) -> spi.Backend:
        return registry().get("cuda" if self._base == "cuda" else "host")

    def devices(self) -> Sequence[DeviceInfo]:
        """Return the devices of the sound driver."""
        found = list(self._inner.devices())
        if self._base != "cuda":
            found.append(found[0])
        return [self._named(index, each) for index, each in enumerate(found)]

    @staticmethod
    def _named(index: int, info: DeviceInfo) -> DeviceInfo:
        return dataclasses.replace(info, id=f"mutant:{index}", backend="mutant", index=index)

    def open(self, index: int) -> spi.DeviceDriver:
        """Open a device of the sound driver."""
        opened = self._inner.open(index if self._base == "cuda" else 0)
        if self._base in ("capable", "bridged"):
            import capable

            return (capable.Bridged if self._base == "bridged" else capable.Capable)(opened)
        return opened

    def borrow(self, native: object) -> tuple[DeviceInfo, spi.DeviceDriver]:
        """Borrow a native context of the sound driver."""
        info, opened = self._inner.borrow(native)
        return self._named(info.index, info), opened

    def details(self, index: int) -> Any:
        """Return the facts of the sound driver."""
        return self._inner.details(index if self._base == "cuda" else 0)

    def suite_hooks(self, driver: Any) -> spi.SuiteHooks:
        """Return the hooks of the sound driver."""
        return self._inner.suite_hooks(driver.inner if self._base in ("capable", "bridged") else driver)

    def checks(self) -> Any:
        """Return the checks of the sound driver."""
        return self._inner.checks()


def _composer(name: str) -> Composer:
    if not name:
        return Composer()
    from composer.faults import all_faults

    fault = all_faults()[name]
    made = Composer(fault.key, fault.act, fault.occurrence)
    made.tracks_waits = getattr(fault.act, "tracks_waits", False)
    return made


@spi.hookimpl
def xsem_register_backends(register: Any) -> None:
    """Register the backend, if XSEM_FAULT_BASE names the sound driver."""
    base = os.environ.get("XSEM_FAULT_BASE", "")
    if base:
        register(wrapped(_composer(os.environ.get("XSEM_FAULT", "")), SoundBackend(base)))
