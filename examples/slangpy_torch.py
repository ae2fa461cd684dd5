"""slangpy draws into a buffer and a texture, and torch inverts both. A fence of slangpy orders the two.

The buffer itself is a tensor of torch. Copies on the GPU bring the tiled texture into a second tensor and back. slangpy
hands out file descriptors, and no sizes of allocations. It allocates the size that Vulkan requires for a buffer or an
image, so this program asks Vulkan for this size.

    python examples/slangpy_torch.py --frames 50
    python examples/slangpy_torch.py --device vulkan:0 --array numpy --wait host    # a Vulkan device without timelines
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeAlias

import numpy as np

import xsem
from renderer import HEIGHT, WIDTH, draw

SIZE = 4 * WIDTH * HEIGHT
DESC = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="uint8", channels=4)
TIMEOUT_S = 30.0
Inverter: TypeAlias = Callable[[xsem.CommandList], None]


class MemoryRequirements(ctypes.Structure):
    """VkMemoryRequirements."""

    _fields_ = (("size", ctypes.c_uint64), ("alignment", ctypes.c_uint64), ("memory_types", ctypes.c_uint32))


class Drawer:
    """A slangpy device on the GPU of `device`, with a shared buffer, a shared texture and a shared fence."""

    def __init__(self, slangpy: Any, device: xsem.Device, *, with_fence: bool) -> None:
        if device.info.uuid is None:
            raise RuntimeError(f"{device.info.id} has no UUID, so slangpy cannot open the same GPU")
        buffers, textures = slangpy.BufferUsage, slangpy.TextureUsage
        self._general = slangpy.ResourceState.general
        # On Linux, slangpy names an adapter by the UUID of the GPU.
        self._device = slangpy.Device(type=slangpy.DeviceType.vulkan, adapter_luid=list(device.info.uuid.bytes),
                                      enable_ray_tracing=False)
        self.buffer = self._device.create_buffer(
            size=SIZE, usage=buffers.shared | buffers.unordered_access | buffers.copy_source | buffers.copy_destination)
        self.texture = self._device.create_texture(
            type=slangpy.TextureType.texture_2d, format=slangpy.Format.rgba8_uint, width=WIDTH, height=HEIGHT,
            usage=textures.shared | textures.shader_resource | textures.copy_source | textures.copy_destination)
        self.fence = self._device.create_fence(shared=True) if with_fence else None

    def memory(self, resource: Any, importer: xsem.Device) -> xsem.Memory:
        """Import the memory of the buffer or of the texture. slangpy keeps its file descriptor."""
        vulkan, required = ctypes.CDLL("libvulkan.so.1"), MemoryRequirements()
        ask = vulkan.vkGetBufferMemoryRequirements if resource is self.buffer else vulkan.vkGetImageMemoryRequirements
        vk_device = self._device.native_handles[2]   # after VkInstance and VkPhysicalDevice
        ask(ctypes.c_void_p(vk_device.value), ctypes.c_uint64(resource.native_handle.value), ctypes.byref(required))
        return importer.import_memory(xsem.MemoryDesc.opaque_fd(
            resource.shared_handle.value, allocation_size=required.size, device_uuid=importer.info.uuid))

    def timeline(self, importer: xsem.Device) -> xsem.Semaphore | None:
        """Import the fence: it is a timeline semaphore of Vulkan."""
        if self.fence is None:
            return None
        return importer.import_semaphore(xsem.SemaphoreDesc.timeline_fd(
            self.fence.shared_handle.value, device_uuid=importer.info.uuid), label="slangpy's fence")

    def draw(self, pixels: Any, value: int) -> None:
        """Draw into the buffer and the texture. Signal the value, or without a fence wait for the end of the work."""
        encoder = self._device.create_command_encoder()
        encoder.upload_buffer_data(self.buffer, 0, pixels.reshape(-1))
        encoder.upload_texture_data(self.texture, 0, 0, pixels)
        encoder.set_texture_state(self.texture, self._general)   # the layout of an image that an importer uses
        fences, values = ([], []) if self.fence is None else ([self.fence], [value])
        self._device.submit_command_buffers([encoder.finish()], signal_fences=fences, signal_fence_values=values)
        if self.fence is None:
            self._device.wait_for_idle()

    def read(self, value: int) -> tuple[Any, Any]:
        """Wait for the value. Return the pixels of the buffer and those of the texture."""
        if self.fence is not None:
            self.fence.wait(value, timeout_ns=int(TIMEOUT_S * 1e9))
        return self.buffer.to_numpy().view(np.uint8).reshape(HEIGHT, WIDTH, 4), self.texture.to_numpy()

    def close(self) -> None:
        self._device.close()


def invert_with_torch(torch: Any, device: xsem.Device, buffer: xsem.Buffer, level: xsem.MipmapLevel) -> Inverter:
    """Return a function that appends the inversion of the buffer and of the level to a list."""
    rows = device.create_memory("OPAQUE_FD", SIZE).map_buffer(0, SIZE, shape=(HEIGHT, WIDTH, 4))
    tensors = [torch.from_dlpack(pixels) for pixels in (buffer, rows)]   # without a copy
    # Use the kernel once before any wait is pending: its first use loads it, which waits for the whole GPU.
    torch.zeros_like(tensors[1]).bitwise_not_().cpu()

    def append(commands: xsem.CommandList) -> None:
        commands.append_copy(rows, level)
        with commands.as_current():   # torch works on the list's stream
            for tensor in tensors:
                tensor.bitwise_not_()
        commands.append_copy(level, rows)

    return append


def invert_with_numpy(device: xsem.Device, buffer: xsem.Buffer, level: xsem.MipmapLevel) -> Inverter:
    """Return a function that inverts the buffer and the level on the host."""
    pixels = device.host_buffer(SIZE)

    def append(commands: xsem.CommandList) -> None:
        for shared in (buffer, level):
            commands.append_copy(pixels, shared)
            commands.synchronize(timeout_s=TIMEOUT_S)
            np.bitwise_not(pixels.numpy(), out=pixels.numpy())
            commands.append_copy(shared, pixels)
            commands.synchronize(timeout_s=TIMEOUT_S)

    return append


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--array", choices=("torch", "numpy"), default="torch")
    parser.add_argument("--wait", choices=("device", "host"), default="device",
                        help="host: no fence is shared; each side waits for the end of its work")
    asked = parser.parse_args()
    libraries: dict[str, Any] = {}
    for name, needed in (("slangpy", True), ("torch", asked.array == "torch")):
        try:
            libraries[name] = importlib.import_module(name) if needed else None
        except ImportError:
            print(f"slangpy_torch: {name} is missing: pip install {name}", file=sys.stderr)
            return 2

    wrong = 0
    with (
        xsem.open_device(asked.device) as device,
        closing(Drawer(libraries["slangpy"], device, with_fence=asked.wait == "device")) as drawer,
    ):
        timeline = drawer.timeline(device)
        buffer_memory, texture_memory = drawer.memory(drawer.buffer, device), drawer.memory(drawer.texture, device)
        buffer = buffer_memory.map_buffer(0, SIZE, shape=(HEIGHT, WIDTH, 4))
        level = texture_memory.map_mipmapped_array(DESC).level(0)
        torch = libraries["torch"]
        invert = invert_with_numpy(device, buffer, level) if torch is None else invert_with_torch(
            torch, device, buffer, level)
        commands = device.create_command_list()
        for frame in range(asked.frames):
            pixels = draw(frame)
            drawer.draw(pixels, 2 * frame + 1)
            if timeline is not None:
                commands.append_wait(timeline, 2 * frame + 1, acquire=[buffer_memory, texture_memory])
            invert(commands)
            if timeline is not None:
                commands.append_signal(timeline, 2 * frame + 2, release=[buffer_memory, texture_memory])
            else:
                commands.synchronize(timeout_s=TIMEOUT_S)
            wrong += any((found != 255 - pixels).any() for found in drawer.read(2 * frame + 2))
        commands.synchronize(timeout_s=TIMEOUT_S)
    print(f"slangpy_torch: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"slangpy_torch: {error}")
