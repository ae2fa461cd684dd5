"""A plugin that makes the mutant that XSEM_MUTANT names.

``XSEM_MUTANT="wait_ignored of host"`` adds a device ``mutant:0``: the first device of that backend, with the fault
around it. ``XSEM_MUTANT="offset_dropped in cuda"`` plants the fault in the backend's own code.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from xsem import spi
from xsem.plugins import registry
from xsem.types import DeviceInfo


class MutantBackend(spi.Backend):
    """The first device of the backend that XSEM_MUTANT names."""

    name = "mutant"
    spi_version = 2

    def __init__(self, fault: str, of: str) -> None:
        from faults import FAULTS

        self._fault = FAULTS[fault]
        self._of = of

    @property
    def _inner(self) -> spi.Backend:
        return registry().get(self._of)

    def devices(self) -> Sequence[DeviceInfo]:
        """Return the device, under the name of this backend."""
        first = self._inner.devices()[0]
        return (self._fault.info(DeviceInfo(
            id="mutant:0", backend="mutant", index=0, name=f"{first.name}, mutated", uuid=first.uuid, luid=first.luid,
            driver_uuid=first.driver_uuid, driver_version=first.driver_version)),)

    def open(self, index: int) -> spi.DeviceDriver:
        """Open the device with the fault."""
        return self._fault.driver(self._inner.open(index))

    def suite_hooks(self, driver: spi.DeviceDriver) -> spi.SuiteHooks:
        """Return the hooks of the other backend."""
        return self._inner.suite_hooks(driver.inner)   # type: ignore[attr-defined]

    def details(self, index: int) -> Mapping[str, str]:
        """Return the checks of the other backend."""
        return self._inner.details(index)


@spi.hookimpl
def xsem_register_backends(register: Any) -> None:
    """Register the backend, if XSEM_MUTANT names one."""
    fault, _, of = os.environ.get("XSEM_MUTANT", "").partition(" of ")
    if of:
        register(MutantBackend(fault, of))


def _plant() -> None:
    """Plant the fault, if XSEM_MUTANT names one in a backend's own code."""
    fault, _, place = os.environ.get("XSEM_MUTANT", "").partition(" in ")
    if place:
        try:
            from patches import PATCHES

            PATCHES[fault]()
        except Exception:
            # xsem skips a plugin that raises. Without this exit, the suite would test the backend without the fault.
            traceback.print_exc()
            os._exit(70)


_plant()   # once for each process: the plugin has a second name, that of the backend of the patches
