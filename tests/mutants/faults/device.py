"""Faults in the properties of a device."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence

from faults.base import FAULTS, Driver, Fault
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
FAULTS["zero_uuid"] = Fault(Driver, "The device's UUID is zero.",
                            lambda info: dataclasses.replace(info, uuid=uuid.UUID(int=0)))
FAULTS["wrong_uuid"] = Fault(Driver, "The device's UUID changes each time.",
                             lambda info: dataclasses.replace(info, uuid=uuid.uuid4()))
FAULTS["zero_luid"] = Fault(Driver, "The device's LUID is zero.", lambda info: dataclasses.replace(info, luid=bytes(8)))
FAULTS["short_luid"] = Fault(Driver, "The device's LUID has four bytes.",
                             lambda info: dataclasses.replace(info, luid=b"luid"))
FAULTS["zero_driver_uuid"] = Fault(Driver, "The device's driver UUID is zero.",
                                   lambda info: dataclasses.replace(info, driver_uuid=uuid.UUID(int=0)))
