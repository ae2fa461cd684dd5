"""Copies between two places in memory of the host: appended, although the driver would hold the caller."""

from __future__ import annotations

import numpy as np
import pytest
from support.cuda_sim import on_stand_in

import xsem
from xsem.types import MemoryHandleType

pytestmark = pytest.mark.timeout(60)


@on_stand_in
def test_copy_within_the_host_returns_behind_an_unmet_wait() -> None:
    with xsem.open_device("cuda:0") as device:
        gate, commands = device.create_timeline(), device.create_command_list()
        shared = device.create_memory(MemoryHandleType.HOST_MEMORY_FD, 8192).map_buffer()
        before, after = device.host_buffer(8192), device.host_buffer(8192)
        before.numpy()[:] = np.arange(8192, dtype="uint32").astype("uint8")
        commands.append_wait(gate, 1)
        commands.append_copy(shared, before)
        commands.append_copy(after, shared)
        assert not commands.query()   # both calls returned
        gate.host_signal(1)
        commands.synchronize()
        assert (after.numpy() == before.numpy()).all()


@on_stand_in(SIMCUDA_MISSING="cuMemAllocAsync")   # of a driver before 11.2
def test_copy_within_the_host_needs_no_memory_pool() -> None:
    with xsem.open_device("cuda:0") as device:
        before, after, commands = device.host_buffer(64), device.host_buffer(64), device.create_command_list()
        before.numpy()[:] = 7
        commands.append_copy(after, before)
        commands.synchronize()
        assert (after.numpy() == 7).all()
