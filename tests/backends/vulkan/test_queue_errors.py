"""An error of Vulkan fails one append or the list, and leaves nothing behind. On SwiftShader."""

from __future__ import annotations

from typing import Any

import pytest
from support.vulkan_lists import SIZE, contents
from support.vulkan_sim import BINARY, MEMORY, Peer, driver_of, list_of

import xsem
from xsem.errors import DeviceLostError, DriverError, OutOfMemoryError
from xsem_vulkan import constants as vk


def failing(device: xsem.Device, monkeypatch: pytest.MonkeyPatch, function: str, code: int) -> list[int]:
    """Have a function fail as often as the returned list has elements."""
    functions = driver_of(device)._gpu.vk
    real = getattr(functions, function)
    left: list[int] = []

    def call(*arguments: Any) -> Any:
        if left:
            left.pop()
            return code
        return real(*arguments)

    monkeypatch.setattr(functions, function, call)
    return left


@pytest.mark.parametrize("function", [
    "vkQueueSubmit", "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkAllocateCommandBuffers", "vkAllocateMemory",
    "vkCreateBuffer", "vkBindBufferMemory", "vkMapMemory",
])
def test_append_that_fails_has_no_effect_and_the_next_works(
    device: xsem.Device, shared: xsem.Buffer, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    fail = failing(device, monkeypatch, function, vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    commands = device.create_command_list()
    commands.append_fill(shared, b"\1")
    commands.synchronize(timeout_s=20)
    mine = list_of(commands)
    mine._recycle()
    mine._commands._free.clear()   # so that the append allocates one
    appended = mine._timeline.appended
    alive = count(device, monkeypatch, ("vkCreateBuffer", "vkDestroyBuffer"), ("vkAllocateMemory", "vkFreeMemory"))
    fail.append(1)
    with pytest.raises(OutOfMemoryError) as raised:
        commands.append_fill(shared.view((9,), "uint8"), b"abc")   # uses scratch memory
    assert raised.value.call == function
    assert fail == []
    assert set(alive.values()) == {0}
    assert len(mine._commands._free) == (function in ("vkQueueSubmit", "vkBeginCommandBuffer", "vkEndCommandBuffer"))
    assert mine._timeline.appended == appended
    assert (contents(commands, shared) == 1).all()
    commands.append_fill(shared.view((9,), "uint8"), b"abc")
    assert contents(commands, shared)[:10].tobytes() == b"abcabcabc\1"


@pytest.mark.parametrize("submitted", [True, False])
def test_list_is_usable_after_ctrl_c_at_a_submission(
    commands: xsem.CommandList, shared: xsem.Buffer, monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    mine = list_of(commands)
    submission, values = mine._submission, []
    real = submission._submit

    def submit(*arguments: Any) -> Any:
        values.append(submission._values.pSignalSemaphoreValues[0])
        if len(values) > 1:
            return real(*arguments)
        if submitted:
            real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(submission, "_submit", submit)
    with pytest.raises(KeyboardInterrupt):
        commands.append_fill(shared, b"abcd")
    assert mine._commands._free == []   # the device may use the command buffer
    commands.append_fill(shared.view((4,), "uint8"), b"efgh")
    seen = contents(commands, shared)[:8].tobytes()
    assert seen[:4] == b"efgh"
    assert seen[4:] == b"abcd" or not submitted
    assert values == sorted(set(values))
    assert mine._idle()
    mine._recycle()
    assert mine._commands.oldest_busy is None


def count(device: xsem.Device, monkeypatch: pytest.MonkeyPatch, *pairs: tuple[str, str]) -> dict[str, int]:
    """Count the objects of each creating function that its destroying function has not destroyed."""
    functions = driver_of(device)._gpu.vk
    alive = dict.fromkeys((create for create, _ in pairs), 0)

    def watch(name: str, real: Any, step: int) -> Any:
        def call(*arguments: Any) -> Any:
            code = real(*arguments)
            alive[name] += step if not code else 0
            return code
        return call

    for create, destroy in pairs:
        monkeypatch.setattr(functions, create, watch(create, getattr(functions, create), 1))
        monkeypatch.setattr(functions, destroy, watch(create, getattr(functions, destroy), -1))
    return alive


@pytest.mark.parametrize("function", ["vkCreateSemaphore", "vkCreateCommandPool", "vkAllocateCommandBuffers"])
def test_list_that_cannot_be_made_leaves_nothing(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    fail = failing(device, monkeypatch, function, vk.VK_ERROR_OUT_OF_HOST_MEMORY)
    alive = count(device, monkeypatch, ("vkCreateSemaphore", "vkDestroySemaphore"),
                  ("vkCreateCommandPool", "vkDestroyCommandPool"))
    fail.append(1)
    with pytest.raises(OutOfMemoryError):
        device.create_command_list()
    assert set(alive.values()) == {0}
    kept = [device.create_command_list() for _ in range(2)]
    assert set(alive.values()) == {len(kept)}


@pytest.mark.parametrize("function", ["vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory"])
def test_memory_that_cannot_be_made_leaves_nothing(
    device: xsem.Device, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    fail = failing(device, monkeypatch, function, vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    alive = count(device, monkeypatch, ("vkCreateBuffer", "vkDestroyBuffer"), ("vkAllocateMemory", "vkFreeMemory"))
    for make in (lambda: device.create_memory(MEMORY, SIZE), lambda: device.host_buffer(SIZE)):
        fail.append(1)
        with pytest.raises(OutOfMemoryError) as raised:
            make()
        assert raised.value.call == function
    assert set(alive.values()) == {0}


def test_lost_device_fails_the_list_and_is_still_released(
    monkeypatch: pytest.MonkeyPatch, device: xsem.Device
) -> None:
    with xsem.open_device("vulkan:0") as lost:
        fail = failing(lost, monkeypatch, "vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)
        commands = lost.create_command_list()
        commands.append_barrier()
        commands.synchronize(timeout_s=20)
        fail.append(1)
        with pytest.raises(DeviceLostError) as raised:
            commands.append_barrier()
        assert raised.value.code_name == "VK_ERROR_DEVICE_LOST"
        monkeypatch.setattr(driver_of(lost)._gpu.vk, "vkGetSemaphoreCounterValue",
                            lambda *_: vk.VK_ERROR_DEVICE_LOST)
        gpu = driver_of(lost)._gpu
    assert not gpu.stuck


def test_counter_of_a_lost_device_is_not_taken_for_progress(
    device: xsem.Device, commands: xsem.CommandList, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_device: Any, _semaphore: Any, value: Any) -> int:
        value[0] = 2**64 - 1
        return 0

    driver = driver_of(device)
    fence = commands._queue.driver.append_barrier((), True)
    with monkeypatch.context() as patch:
        patch.setattr(driver._gpu.vk, "vkGetSemaphoreCounterValue", lost)
        with pytest.raises(DeviceLostError):
            driver.query_fence(fence)
    assert driver.wait_fence(fence, 10**10)
    driver.release_fence(fence)


def test_device_is_not_destroyed_when_its_work_cannot_be_queried(
    monkeypatch: pytest.MonkeyPatch, device: xsem.Device, other: Peer
) -> None:
    # The driver fails without a lost device: pending operations may still use all objects.
    driver = driver_of(device)
    token = driver.create_semaphore(BINARY, 0)
    handle = driver.export_semaphore(token)
    theirs = other.import_semaphore(handle.detach())
    made = driver.create_queue()
    made.append_wait([token], [xsem.WaitParams()], [], [], False)
    with monkeypatch.context() as patch:
        patch.setattr(driver._gpu.vk, "vkGetSemaphoreCounterValue", lambda *_: vk.VK_ERROR_UNKNOWN)
        with pytest.raises(DriverError):
            made._timeline.reached(1)
        made.close()
    assert driver._gpu.stuck
    driver.close()   # does nothing: the device ends with the process
    assert not made._timeline.reached(1)
    # The test frees the rest itself.
    other.submit(signal=theirs)
    assert made._timeline.wait(1, 10**10)
    driver._gpu.stuck = False
    made._commands.close()
    driver._gpu.vk.vkDestroySemaphore(driver._gpu.handle, made._timeline.handle, driver._gpu.library.null)
    driver.release_semaphore(token)
