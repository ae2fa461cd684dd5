"""Fixtures of the tests of the Vulkan backend, on SwiftShader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.vulkan_lists import commands, other, shared
from support.vulkan_sim import driver_of, use_swiftshader

import xsem

__all__ = ["commands", "device", "exporter", "gpu", "other", "shared", "swiftshader"]


@pytest.fixture
def swiftshader(monkeypatch: pytest.MonkeyPatch) -> None:
    use_swiftshader(monkeypatch)


@pytest.fixture
def exporter(swiftshader: None) -> Iterator[xsem.Device]:
    """A VkDevice beside `device`, with its own instance and queue."""
    with xsem.open_device("vulkan:0") as opened:
        yield opened


@pytest.fixture
def device(swiftshader: None) -> Iterator[xsem.Device]:
    with xsem.open_device("vulkan:0") as opened:
        yield opened


@pytest.fixture
def gpu(device: xsem.Device) -> Any:
    return driver_of(device)._gpu
