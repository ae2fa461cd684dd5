"""A stand-in for slangpy, with as much of slangpy as examples/slangpy_torch.py uses.

As in slangpy, `shared_handle` is a file descriptor that the object keeps, and `native_handle` is the VkBuffer or the
VkImage. On a Vulkan device, xsem's Vulkan backend creates these objects. On the stand-in for libcuda, the host device
creates the memory and the fence, a CUDA device draws, and `ctypes.CDLL` returns a replacement for Vulkan's library. All
work is done at its submission.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import xsem


class BufferUsage(enum.IntFlag):
    unordered_access = 128
    copy_source = 512
    copy_destination = 1024
    shared = 8192


class TextureUsage(enum.IntFlag):
    shader_resource = 1
    copy_source = 32
    copy_destination = 64
    shared = 1024


DeviceType = SimpleNamespace(vulkan="vulkan")
Format = SimpleNamespace(rgba8_uint="rgba8_uint")
ResourceState = SimpleNamespace(general="general")
TextureType = SimpleNamespace(texture_2d="texture_2d")


class Shared:
    """An object with a file descriptor."""

    def __init__(self, desc: xsem.MemoryDesc | xsem.SemaphoreDesc) -> None:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        self._desc = desc
        self.shared_handle = SimpleNamespace(value=desc.handle.fileno())

    def close(self) -> None:
        self._desc.close()


class Resource(Shared):
    """A buffer or a texture."""

    def __init__(self, desc: xsem.MemoryDesc, content: xsem.Buffer | xsem.MipmapLevel, native: int) -> None:
        super().__init__(desc)
        self.content = content
        self.native_handle = SimpleNamespace(value=native)

    def write(self, data: Any) -> None:
        if isinstance(self.content, xsem.MipmapLevel):
            self.content.write(data)
        else:
            self.content.copy_from_host(data)

    def to_numpy(self) -> Any:
        return self.content.read() if isinstance(self.content, xsem.MipmapLevel) else self.content.copy_to_host()


class Fence(Shared):
    def __init__(self, timeline: xsem.Semaphore, importer: xsem.Device) -> None:
        super().__init__(timeline.export(for_device=importer))
        self.timeline = timeline

    def wait(self, value: int, timeout_ns: int) -> None:
        self.timeline.host_wait(value, timeout_s=timeout_ns / 1e9)


class CommandEncoder:
    def __init__(self) -> None:
        self._work: list[Callable[[], None]] = []

    def upload_buffer_data(self, buffer: Resource, offset: int, data: Any) -> None:
        assert isinstance(buffer.content, xsem.Buffer)
        assert (offset, data.nbytes) == (0, buffer.content.size)
        self._work.append(lambda: buffer.write(data))

    def upload_texture_data(self, texture: Resource, layer: int, mip: int, data: Any) -> None:
        assert isinstance(texture.content, xsem.MipmapLevel)
        assert (layer, mip) == (0, 0)
        self._work.append(lambda: texture.write(data))

    def set_texture_state(self, texture: Resource, state: str) -> None:
        assert state == ResourceState.general

    def finish(self) -> list[Callable[[], None]]:
        return self._work


class Device:
    def __init__(self, *, type: str, adapter_luid: list[int], enable_ray_tracing: bool) -> None:
        assert (type, enable_ray_tracing) == (DeviceType.vulkan, False)
        uuid = bytes(adapter_luid)
        try:
            self._drawer = self._creator = xsem.open_device("vulkan", uuid=uuid)
        except (xsem.BackendUnavailableError, xsem.DeviceNotFoundError):
            self._drawer, self._creator = xsem.open_device("cuda", uuid=uuid), xsem.open_device("host")
            _replace_vulkan()
        self._vulkan = self._creator is self._drawer
        self.native_handles = [SimpleNamespace(value=each) for each in (0, 0, self._drawer.native_handle)]
        self._made: list[Shared] = []

    def create_buffer(self, *, size: int, usage: BufferUsage) -> Resource:
        assert BufferUsage.shared in usage
        return self._resource(size, lambda memory: memory.map_buffer(0, size))

    def create_texture(self, *, width: int, height: int, usage: TextureUsage, **kind: str) -> Resource:
        assert kind == {"type": TextureType.texture_2d, "format": Format.rgba8_uint}
        assert TextureUsage.shared in usage
        desc = xsem.MipmapDesc(extent=(width, height, 0), format="uint8", channels=4)
        return self._resource(4 << 20, lambda memory: memory.map_mipmapped_array(desc).level(0))

    def _resource(self, size: int, content: Callable[[xsem.Memory], xsem.Buffer | xsem.MipmapLevel]) -> Resource:
        memory = self._creator.create_memory("OPAQUE_FD", size)
        desc = memory.export(for_device=self._drawer)
        found = content(memory if self._vulkan else self._drawer.import_memory(desc))
        made = Resource(desc, found, found.native_handle if self._vulkan else memory.allocation_size)
        self._made.append(made)
        return made

    def create_fence(self, *, shared: bool) -> Fence:
        assert shared
        made = Fence(self._creator.create_timeline(), self._drawer)
        self._made.append(made)
        return made

    def create_command_encoder(self) -> CommandEncoder:
        return CommandEncoder()

    def submit_command_buffers(
        self, buffers: list[list[Callable[[], None]]], *, signal_fences: Sequence[Fence],
        signal_fence_values: Sequence[int],
    ) -> None:
        for buffer in buffers:
            for work in buffer:
                work()
        for fence, value in zip(signal_fences, signal_fence_values, strict=True):
            fence.timeline.host_signal(value)

    def wait_for_idle(self) -> None:
        """Return: the work of `submit_command_buffers` is done."""

    def close(self) -> None:
        for made in self._made:
            made.close()
        self._drawer.release()
        self._creator.release()


def _replace_vulkan() -> None:
    """Give the program a Vulkan library whose handles of buffers and images are their sizes."""
    load = ctypes.CDLL

    def require(_: object, handle: Any, required: Any) -> None:
        required._obj.size = handle.value

    library = SimpleNamespace(vkGetBufferMemoryRequirements=require, vkGetImageMemoryRequirements=require)
    ctypes.CDLL = lambda name, *args, **options: (   # type: ignore[assignment,misc]
        library if name == "libvulkan.so.1" else load(name, *args, **options))
