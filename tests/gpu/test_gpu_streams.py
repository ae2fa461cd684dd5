"""Test lists as streams of torch and CuPy on a real GPU: order, restored streams, allocations in the block.

Skipped, with the reason, without a GPU or a framework.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import xsem

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

SIZE = 1 << 20


class Rig(NamedTuple):
    cuda: xsem.Device
    there: xsem.Semaphore
    here: xsem.Semaphore
    buffer: xsem.Buffer


@pytest.fixture
def rig() -> Iterator[Rig]:
    try:
        cuda = xsem.open_device("cuda:0")
        vulkan = xsem.open_device("vulkan", uuid=cuda.info.uuid)
    except xsem.XsemError as error:
        pytest.skip(f"needs a GPU with CUDA and Vulkan: {error}")
    with cuda, vulkan:
        there, memory = vulkan.create_timeline(), vulkan.create_memory("OPAQUE_FD", SIZE)
        with there.export(for_device=cuda) as desc, memory.export(for_device=cuda) as memory_desc:
            here, mine = cuda.import_semaphore(desc), cuda.import_memory(memory_desc)
        yield Rig(cuda, there, here, mine.map_buffer(0, SIZE))


def library(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(name)


def handle(name: str, module: Any) -> int:
    """Return the handle of the library's current stream."""
    stream = module.cuda.current_stream() if name == "torch" else module.cuda.get_current_stream()
    return int(stream.cuda_stream if name == "torch" else stream.ptr)


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_work_in_the_block_is_behind_the_wait(rig: Rig, name: str) -> None:
    module = library(name)
    array = module.from_dlpack(rig.buffer)
    array[:] = 1
    array += 1   # loads the kernels before a wait is pending
    commands = rig.cuda.create_command_list()
    with commands.as_current():
        array += 0
    commands.synchronize(timeout_s=20)
    before = handle(name, module)
    for frame in range(50):
        commands.append_wait(rig.here, 2 * frame + 1)
        with commands.as_current():
            assert handle(name, module) == commands.native_handle
            array += 1
        commands.append_signal(rig.here, 2 * frame + 2)
        assert handle(name, module) == before
        assert not commands.query()
        rig.there.host_signal(2 * frame + 1)
        rig.there.host_wait(2 * frame + 2, timeout_s=20)
    commands.synchronize(timeout_s=20)
    assert int(array.min()) == int(array.max()) == 52


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_synchronize_includes_the_block(rig: Rig, name: str) -> None:
    module = library(name)
    array = module.from_dlpack(rig.buffer)
    array[:] = 3
    module.cuda.synchronize() if name == "torch" else module.cuda.Device().synchronize()
    commands = rig.cuda.create_command_list()
    commands.append_wait(rig.here, 1)
    with commands.as_current():
        array[:] = 4
    with pytest.raises(xsem.WaitTimeoutError):
        commands.synchronize(timeout_s=0.05)
    rig.there.host_signal(1)
    commands.synchronize(timeout_s=20)
    assert int(array.min()) == 4


def test_both_frameworks_have_the_stream(rig: Rig) -> None:
    torch, cupy = library("torch"), library("cupy")
    commands = rig.cuda.create_command_list()
    with pytest.raises(ZeroDivisionError), commands.as_current():
        assert handle("torch", torch) == handle("cupy", cupy) == commands.native_handle
        raise ZeroDivisionError
    assert handle("torch", torch) == 0
    assert handle("cupy", cupy) == 0
    legacy = rig.cuda.command_list(torch.cuda.default_stream())
    assert legacy.__cuda_stream__() == (0, 1)
    with legacy.as_current():
        assert handle("torch", torch) == 0
        assert handle("cupy", cupy) == 1
        assert int(torch.ones(8, device="cuda").sum()) == 8
        assert int(cupy.ones(8).sum()) == 8
    with rig.cuda.command_list(torch.cuda.ExternalStream(commands.native_handle)).as_current():
        assert int(torch.ones(8, device="cuda").sum()) == 8


def test_cuda_core_takes_a_list(rig: Rig) -> None:
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    commands = rig.cuda.create_command_list()
    core.Device(0).set_current()
    stream = core.Device(0).create_stream(commands)
    assert int(stream.handle) == commands.native_handle
