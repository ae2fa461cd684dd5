"""Faults in the properties of a device, and in its close."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Sequence

from faults.base import FAULTS, Driver, Fault, a_driver
from xsem import spi
from xsem.types import Capabilities


class _Bare(spi.QueueDriver):
    def __init__(self, inner: spi.QueueDriver) -> None:
        self.inner = inner
        self.identity = inner.identity

    def append_barrier(self, wait_fences: Sequence[spi.Token], want_fence: bool) -> spi.Token | None:
        return self.inner.append_barrier(wait_fences, want_fence)

    def close(self) -> None:
        self.inner.close()


class NothingDeclared(spi.DeviceDriver):
    """A driver that declares nothing, and refuses everything optional."""

    capabilities = Capabilities()

    def __init__(self, inner: spi.DeviceDriver) -> None:
        self.inner = inner

    def create_queue(self) -> spi.QueueDriver:
        return _Bare(self.inner.create_queue())

    def query_fence(self, fence: spi.Token) -> bool:
        return self.inner.query_fence(fence)

    def release_fence(self, fence: spi.Token) -> None:
        self.inner.release_fence(fence)

    def close(self) -> None:
        self.inner.close()


FAULTS["nothing_declared"] = Fault(NothingDeclared, (NothingDeclared.__doc__ or "").strip())


@a_driver
class DlpackNonsense(Driver):
    """DLPack does not know the DLPack device."""

    def dlpack_device(self) -> tuple[int, int]:
        return (0, -1)


@a_driver
class CloseLeaks(Driver):
    """Closing the device leaves two file descriptors open."""

    def close(self) -> None:
        self.inner.close()
        os.pipe()


class CapabilitiesChange(Driver):
    """The capabilities differ from one driver of the device to the next."""

    _made = 0

    def __init__(self, inner: spi.DeviceDriver) -> None:
        super().__init__(inner)
        type(self)._made += 1
        self._lists = inner.capabilities.independent_lists + type(self)._made

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.inner.capabilities, independent_lists=self._lists)


FAULTS["capabilities_change"] = Fault(CapabilitiesChange, (CapabilitiesChange.__doc__ or "").strip())
FAULTS["zero_uuid"] = Fault(Driver, "The device's UUID is zero.",
                            lambda info: dataclasses.replace(info, uuid=uuid.UUID(int=0)))
FAULTS["wrong_uuid"] = Fault(Driver, "The device's UUID changes each time.",
                             lambda info: dataclasses.replace(info, uuid=uuid.uuid4()))
