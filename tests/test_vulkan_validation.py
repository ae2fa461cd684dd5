"""The Khronos validation layer watches everything that the backend does, and finds nothing to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from vulkan_sim import environment

# All that the driver interface has: copies and fills of each sort, handover, events between lists, batches, release of
# objects and lists with work pending, exports; and, if asked for, one deliberate misuse at the end.
PROGRAM = """
import os, sys
import xsem
from vulkan_sim import BINARY, MEMORY, driver_of, peer

with xsem.open_device("vulkan:0") as device, peer() as other:
    memory, dedicated = device.create_memory(MEMORY, 5001), device.create_memory(MEMORY, 4096, dedicated=True)
    buffer, host = memory.map_buffer(), device.host_buffer(memory.allocation_size)
    semaphores = [device.create_semaphore(BINARY) for _ in range(6)]
    theirs = other.import_semaphore(semaphores[0].export().handle.detach())
    back = other.import_semaphore(semaphores[1].export().handle.detach())
    desc = memory.export()
    shared = other.import_memory(desc.handle.detach(), desc.allocation_size)
    first, second = device.create_command_list(), device.create_command_list()
    for number in range(20):
        done = device.create_event()
        first.append_fill(buffer, bytes([number]))
        first.append_fill(buffer.view((9,), "uint8", offset=1), b"abc")
        first.append_fill(buffer.view((8,), "uint8", offset=3), b"\\1")
        first.append_copy(host, buffer, signal_event=done)
        second.append_copy(buffer.view((7,), "uint8", offset=3), host.view((7,), "uint8", offset=9), wait_events=[done])
        second.append_signal(semaphores[0], release=[memory, dedicated])
        other.read(shared, 100, wait=theirs)
        other.submit(signal=back)
        assert other.reached(20)
        second.append_wait(semaphores[1], acquire=[memory, dedicated])
        second.append_signal(semaphores[2:], [None] * 4)
        second.append_wait(semaphores[2:], [None] * 4)
    second.append_copy(host, buffer)
    for each in (buffer, memory, dedicated, *semaphores):
        each.release()
    first.synchronize(timeout_s=20)
    second.synchronize(timeout_s=20)
    if "misuse" in sys.argv:
        gpu = driver_of(device)._gpu
        wanted = gpu.library.new("VkBufferCreateInfo", size=0, usage=1)
        gpu.vk.vkCreateBuffer(gpu.handle, wanted, gpu.library.null, gpu.library.ffi.new("VkBuffer *"))
print("ended")
"""


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, *arguments], check=False, timeout=50,
                          capture_output=True, text=True, env=environment(
                              VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation", PYTHONPATH=str(Path(__file__).parent)))
    assert done.returncode == 0, done.stderr
    assert "ended" in done.stdout
    return done.stdout + done.stderr


@pytest.mark.timeout(60)
def test_validation_layer_finds_nothing() -> None:
    said = run()
    assert said.strip() == "ended"


@pytest.mark.timeout(60)
def test_validation_layer_is_there_and_would_say_so() -> None:
    assert "VUID-VkBufferCreateInfo-size-00912" in run("misuse")
