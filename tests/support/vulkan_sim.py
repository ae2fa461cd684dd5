"""SwiftShader for tests, and an importer of objects that the Vulkan backend exports.

The importer uses raw Vulkan through the binding of the backend, like another program, and not xsem's own import.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import xsem
from support.paths import DRIVERS
from xsem.types import MemoryHandleType, SemaphoreHandleType

BINARY = SemaphoreHandleType.OPAQUE_FD
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
MEMORY = MemoryHandleType.OPAQUE_FD

_SCRIPT = DRIVERS / "swiftshader"
_CANNOT = 3


@functools.cache
def _folder() -> Path | str:
    """Return the folder of SwiftShader, or the reason why it is unavailable."""
    if sys.platform != "linux":
        return "SwiftShader is taken from Debian's packages, so this needs Linux"
    if importlib.util.find_spec("cffi") is None:
        return "cffi is not installed"
    return told_by(_SCRIPT, 120)


def told_by(script: Path, timeout_s: float) -> Path | str:
    """Return the folder of a driver that a script prints, or the reason why it is unavailable."""
    ran = subprocess.run([str(script)], check=False, capture_output=True, text=True, timeout=timeout_s)
    if ran.returncode == _CANNOT:
        return ran.stderr.strip()
    assert ran.returncode == 0, ran.stderr
    return Path(ran.stdout.strip())


def folder() -> Path:
    """Return the folder of SwiftShader. Skip the test if it is unavailable; in CI this is a failure."""
    found = _folder()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process on SwiftShader."""
    path = folder()
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        **os.environ, "LD_LIBRARY_PATH": f"{path}:{before}" if before else str(path), "VK_LAYER_PATH": str(path),
        **dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), f"{path}/vk_swiftshader_icd.json"), **more,
    }


@functools.cache
def _loader(path: Path) -> ctypes.CDLL:
    # LD_LIBRARY_PATH is read only at start. After this load its soname matches the backend's libvulkan.so.1.
    return ctypes.CDLL(str(path / "libvulkan.so.1"))


def use_swiftshader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the driver in this process until the end of the test."""
    path = folder()
    _loader(path)
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(name, str(path / "vk_swiftshader_icd.json"))


def driver_of(device: xsem.Device) -> Any:
    """Return the driver object of a device."""
    return device._device_state.driver


def list_of(commands: xsem.CommandList) -> Any:
    """Return the driver object of a command list."""
    return commands._queue.driver


class Peer:
    """A separate VkDevice with one queue that imports by raw calls, like another program."""

    def __init__(self) -> None:
        from xsem_vulkan.answers import ask
        from xsem_vulkan.commands import Commands
        from xsem_vulkan.gpu import _OF_DEVICE, open_gpu
        from xsem_vulkan.instance import Instance
        from xsem_vulkan.loader import Functions
        from xsem_vulkan.semaphores import Timeline
        from xsem_vulkan.submission import Submission

        instance = Instance()
        physical = instance.physical_devices()[0]
        self.gpu = open_gpu(physical, ask(physical))
        find = physical.functions.vkGetDeviceProcAddr
        self.gpu.vk = Functions(self.gpu.library, lambda name: find(self.gpu.handle, name.encode()),
                                _OF_DEVICE)
        self.timeline = Timeline(self.gpu)
        self.commands = Commands(self.gpu)
        self.submission = Submission(self.gpu)
        self._semaphores: list[int] = []
        self._memories: list[Any] = []

    def import_semaphore(self, fd: int) -> int:
        """Import the fd as a binary semaphore. The driver owns the fd."""
        from xsem_vulkan.semaphores import create_semaphore

        handle = create_semaphore(self.gpu, timeline=False).handle
        self.gpu.vk.do("vkImportSemaphoreFdKHR", self.gpu.handle, self.gpu.library.new(
            "VkImportSemaphoreFdInfoKHR", semaphore=handle, handleType=1, fd=fd))
        self._semaphores.append(handle)
        return handle

    def import_memory(self, fd: int, size: int) -> int:
        """Import the fd as memory and return a VkBuffer over it. The driver owns the fd."""
        from xsem_vulkan.memory import HostMemory, create_buffer

        library, vk = self.gpu.library, self.gpu.vk
        buffer = create_buffer(self.gpu, size, 1)
        wanted = library.new("VkMemoryAllocateInfo", allocationSize=size)
        given = library.linked("VkImportMemoryFdInfoKHR", wanted, handleType=1, fd=fd)
        made = library.ffi.new("VkDeviceMemory *")
        vk.do("vkAllocateMemory", self.gpu.handle, wanted, library.null, made)
        assert given.fd == fd
        vk.do("vkBindBufferMemory", self.gpu.handle, buffer, made[0], 0)
        self._memories.append(HostMemory(self.gpu, made[0], buffer, 0))
        return buffer

    def host(self, size: int) -> Any:
        """Return mapped memory as the destination of copies."""
        from xsem_vulkan.memory import host_memory

        memory = host_memory(self.gpu, size)
        self._memories.append(memory)
        return memory

    def submit(self, commands: Any = None, *, wait: int | None = None, signal: int | None = None) -> None:
        """Submit once. `reached` returns whether the submission is done."""
        signals = [(signal, 0)] if signal is not None else []
        self.timeline.appended += 1
        self.submission.submit(self.gpu.queues[0], [(wait, 0)] if wait is not None else [],
                               commands or self.commands.barrier,
                               [*signals, (self.timeline.handle, self.timeline.appended)])

    def reached(self, timeout_s: float = 0) -> bool:
        """Return whether all submissions are done."""
        return self.timeline.wait(self.timeline.appended, int(timeout_s * 1e9))

    def read(self, buffer: int, size: int, *, wait: int | None = None) -> Any:
        """Submit a copy of the start of the buffer. Return the destination memory with its address."""
        from xsem_vulkan.memory import Place

        memory = self.host(size)
        self.submit(self.commands.copy(Place(memory.buffer, 0), Place(buffer, 0), size), wait=wait)
        return memory

    def close(self) -> None:
        assert self.reached(10)
        self.commands.close()
        self.timeline.drop()
        for memory in self._memories:
            memory.close()
        for handle in self._semaphores:
            self.gpu.vk.vkDestroySemaphore(self.gpu.handle, handle, self.gpu.library.null)
        self.gpu.close()


@contextmanager
def peer() -> Iterator[Peer]:
    """Open a peer and close it at the end. Its submissions must be done by then."""
    made = Peer()
    try:
        yield made
    finally:
        made.close()


def bytes_at(memory: Any, size: int) -> bytes:
    return ctypes.string_at(memory.address, size)
