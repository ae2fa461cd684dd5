"""A plugin with a device ``mutant:0``, another backend's with one fault: ``XSEM_MUTANT="wait_ignored of host"``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from faults import FAULTS

from xsem import spi
from xsem.plugins import registry
from xsem.types import DeviceInfo


class MutantBackend(spi.Backend):
    """The first device of the backend that XSEM_MUTANT names."""

    name = "mutant"
    spi_version = 1

    def __init__(self, fault: str, of: str) -> None:
        self._fault = FAULTS[fault]
        self._of = of

    @property
    def _inner(self) -> spi.Backend:
        return registry().get(self._of)

    def devices(self) -> Sequence[DeviceInfo]:
        """The one device, under this backend's name."""
        first = self._inner.devices()[0]
        return (self._fault.info(DeviceInfo(
            id="mutant:0", backend="mutant", index=0, name=f"{first.name}, mutated", uuid=first.uuid, luid=first.luid,
            driver_uuid=first.driver_uuid, driver_version=first.driver_version)),)

    def open(self, index: int) -> spi.DeviceDriver:
        """Open it, with the fault."""
        return self._fault.driver(self._inner.open(index))

    def details(self, index: int) -> Mapping[str, str]:
        """As the other backend has them."""
        return self._inner.details(index)


@spi.hookimpl
def xsem_register_backends(register: Any) -> None:
    """Register it where XSEM_MUTANT is set."""
    if "XSEM_MUTANT" in os.environ:
        fault, _, of = os.environ["XSEM_MUTANT"].partition(" of ")
        register(MutantBackend(fault, of))
