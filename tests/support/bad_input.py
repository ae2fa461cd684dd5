"""Imports for tests of bad input, by a device that counts what its driver is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import xsem
from support.fake_backend import FakeDriver, open_fake
from xsem.facade.device import Device
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType


class Counted:
    """A device, with a count of the handles that its driver was given to import."""

    def __init__(self, device: Device, driver: FakeDriver | None) -> None:
        self.device = device
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    @property
    def asked(self) -> int:
        return 0 if self.driver is None else len(self.driver.seen_handles)


@contextmanager
def faked(**fields: Any) -> Iterator[tuple[Device, FakeDriver]]:
    """A fake device whose pending work completes at the end."""
    device, driver = open_fake(**fields)
    with device:
        yield device, driver
        driver.finish()
    assert not driver.misuse


@pytest.fixture(params=["fake", "host"])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    if request.param == "fake":
        with faked() as (device, driver):
            yield Counted(device, driver)
    else:
        with xsem.open_device("host") as device:
            yield Counted(device, None)


def importing(
    device: Any, member: SemaphoreHandleType | MemoryHandleType, handle: Any, size: int = 1
) -> Callable[[], Any]:
    if isinstance(member, SemaphoreHandleType):
        desc = SemaphoreDesc(type=member, handle=handle)
        return lambda: device.import_semaphore(desc)
    memory = MemoryDesc(type=member, handle=handle, allocation_size=size)
    return lambda: device.import_memory(memory)
