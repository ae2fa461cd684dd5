"""Helpers for tests of release: objects to free, and the end of the releasing thread."""

from __future__ import annotations

import dataclasses

import xsem
from support.at_once import threads
from support.fake_backend import ALL
from support.waiting import until
from xsem.errors import DriverError
from xsem.types import MemoryHandleType

NEVER_BLOCKS = dataclasses.replace(ALL, release_never_blocks=True)


def memory(device: xsem.Device) -> xsem.Memory:
    return device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)


def rest(device: xsem.Device) -> None:
    """Wait until the releasing thread has no work left and has ended."""
    until(lambda: not device._device_state.releaser._thread.running)
    until(lambda: not threads())


def failing(_token: object) -> None:
    raise DriverError("no", reason="driver", call="cuDestroy", code=1)
