"""Helpers for tests of Vulkan imports: the handle for the driver, and declared capabilities."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

import xsem
from support.vulkan_sim import driver_of
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

SIZE = 8192


def given_back(desc: SemaphoreDesc | MemoryDesc) -> OwnedHandle:
    """Return a duplicate for the driver."""
    assert isinstance(desc.handle, OwnedHandle)
    return OwnedHandle(os.dup(desc.handle.fileno()))


def declares(monkeypatch: pytest.MonkeyPatch, device: xsem.Device, **more: Any) -> Any:
    driver = driver_of(device)
    for each in (driver, device, device._device_state):
        name = "_capabilities" if each is driver else "capabilities"
        monkeypatch.setattr(each, name, replace(device.capabilities, **more))
    return driver
