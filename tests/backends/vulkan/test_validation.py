"""Test that the Khronos validation layer reports nothing for the calls of the backend."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support.paths import TESTS
from support.vulkan_sim import environment

from xsem_vulkan.gpu import Gpu

# All functions of the driver interface: copies and fills of each kind, handover, events between lists, batches, release
# of objects and lists with pending work, exports. On request, one deliberate misuse at the end.
PROGRAM = """
import os, sys
import xsem
from backends.vulkan.test_validation import misuse
from support.vulkan_sim import BINARY, MEMORY, driver_of, peer

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
        misuse(driver_of(device)._gpu)
print("ended")
"""


# The importer, as in the suite, with its exporter in a second process. The layers of both write to the same place.
CONFORMANCE = """
import sys
from xsem_conformance.case.context import CaseContext
from xsem_conformance.requirements import load
from xsem_conformance.run.session import survey
from xsem_conformance.run.worker import run_case
from backends.vulkan.test_validation import misuse

wanted = [each for each in load().requirements.values() if each.id.startswith(tuple(sys.argv[1:]))]
cases = [each.case for each in survey("vulkan:0", "vulkan:0", wanted).cases if not each.undeclared]
bench = CaseContext("vulkan:0", "vulkan:0")
misuse(bench.device._device_state.driver._gpu)
print("misused", flush=True)
for case in cases:
    print(run_case(bench, case.key, "").outcome.value, case.key, flush=True)
bench.close()
"""
LAYER = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
PORTABLE = {"VK_LAYER_MESSAGE_ID_FILTER": "VUID-VkBufferCreateInfo-pNext-00920,"
                                          "VUID-VkImportMemoryWin32HandleInfoKHR-handleType-09861"}
"""The layer's objections to portable memory on SwiftShader (docs/vulkan.md), which the whole run leaves out, too."""
BREAKS = {"VK_LAYER_DEBUG_ACTION": "VK_DBG_LAYER_ACTION_LOG_MSG,VK_DBG_LAYER_ACTION_BREAK"}
"""As in .ci/nightly, for a whole run of the suite."""


def misuse(gpu: Gpu) -> None:
    """Make a buffer without bytes, and destroy it at once: a leak would be a second misuse at the end of the device."""
    wanted, made = gpu.library.new("VkBufferCreateInfo", size=0, usage=1), gpu.library.ffi.new("VkBuffer *")
    gpu.vk.vkCreateBuffer(gpu.handle, wanted, gpu.library.null, made)
    gpu.vk.vkDestroyBuffer(gpu.handle, made[0], gpu.library.null)


def started(program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", program, *arguments], check=False, timeout=100,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment(**LAYER, **more, PYTHONPATH=str(TESTS)))


def run(*arguments: str) -> str:
    done = started(PROGRAM, *arguments)
    assert done.returncode == 0, done.stdout
    assert "ended" in done.stdout
    return done.stdout


def test_validation_layer_finds_nothing() -> None:
    said = run()
    assert said.strip() == "ended"


def test_validation_layer_is_present_and_reports_a_misuse() -> None:
    assert "VUID-VkBufferCreateInfo-size-00912" in run("misuse")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_validation_layer_finds_a_misuse_but_none_in_the_suite() -> None:
    done = started(CONFORMANCE, "XSEM-IMP-001", "XSEM-IMP-002", "XSEM-OWN", "XSEM-BIN", "XSEM-ORD-001", "XSEM-MIP-003",
                   "XSEM-MIP-011", "XSEM-MIP-012", "XSEM-DEV-005", "XSEM-PROC", **PORTABLE)
    assert done.returncode == 0, done.stdout
    before, after = done.stdout.split("misused\n")
    assert "VUID-VkBufferCreateInfo-size-00912" in before
    cases = after.splitlines()
    assert sum(each.startswith("PASS XSEM-") for each in cases) >= 15
    assert all(each.startswith(("PASS XSEM-", "UNSUPPORTED XSEM-")) for each in cases), after


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGTRAP"), reason="needs SIGTRAP")
def test_breaking_layer_ends_the_process_on_a_misuse() -> None:
    assert started(PROGRAM, **BREAKS).returncode == 0
    done = started(PROGRAM, "misuse", **BREAKS)
    assert done.returncode == -signal.SIGTRAP
    assert "VUID-VkBufferCreateInfo-size-00912" in done.stdout
