"""The tests of an application, without a GPU: the host device replaces CUDA, and the application code is the same.

    XSEM_BACKENDS=host APP_BACKEND=host python -m pytest examples/app_tests.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import xsem


# ---- the application
def brighten(device: xsem.Device, commands: xsem.CommandList, sem: xsem.Semaphore, image: Any, frame: int) -> None:
    commands.append_wait(sem, 2 * frame + 1)

    def kernel() -> None:                               # host: runs on the list's worker; CUDA: now, only enqueues
        image.__iadd__(1)

    commands.append_work(kernel)
    commands.append_signal(sem, 2 * frame + 2)


def open_compute(desc: xsem.SemaphoreDesc) -> xsem.Device:
    # without an argument, open_device() would silently open the CPU in production if the CUDA driver is broken
    return xsem.open_device(os.environ.get("APP_BACKEND", "cuda"), uuid=desc.device_uuid)


# ---- its tests
@pytest.fixture
def renderer() -> Iterator[xsem.Device]:
    with xsem.open_device("host") as device:
        yield device


def test_brighten_waits(renderer: xsem.Device) -> None:
    theirs = renderer.create_timeline()
    memory = renderer.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
    pixels = memory.map_buffer().numpy()
    with open_compute(theirs.export()) as device:
        sem = device.import_semaphore(theirs.export())
        image = device.import_memory(memory.export()).map_buffer().numpy()
        commands = device.create_command_list()
        brighten(device, commands, sem, image, 0)
        assert not commands.query()                     # still waiting: deterministic, no sleep
        pixels[:] = 41
        theirs.host_signal(1)
        theirs.host_wait(2, timeout_s=5)
        assert (pixels == 42).all()


def test_dead_renderer_is_an_error(renderer: xsem.Device) -> None:
    theirs = renderer.create_timeline()
    commands = renderer.create_command_list()
    commands.append_wait(theirs, 1)
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        commands.synchronize(timeout_s=0.05)
    assert failure.value.pending[0].value == 1
    theirs.host_signal(1)
