"""Helpers for tests of Vulkan's command lists: a buffer's bytes, and another device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import xsem
from support.vulkan_sim import MEMORY, Peer, peer

SIZE = 4096


@pytest.fixture
def commands(device: xsem.Device) -> xsem.CommandList:
    return device.create_command_list()


@pytest.fixture
def shared(device: xsem.Device) -> xsem.Buffer:
    return device.create_memory(MEMORY, SIZE).map_buffer()


@pytest.fixture
def other(device: xsem.Device) -> Iterator[Peer]:
    with peer() as opened:
        yield opened


def give(semaphore: xsem.Semaphore, to: Peer) -> int:
    with semaphore.export() as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        return to.import_semaphore(desc.handle.detach())


def contents(commands: xsem.CommandList, buffer: xsem.Buffer) -> Any:
    """Return the bytes of the buffer, by a copy in the given list."""
    host = commands.device.host_buffer(buffer.size)
    commands.append_copy(host, buffer)
    commands.synchronize(timeout_s=20)
    return host.numpy().copy()
