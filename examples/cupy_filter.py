"""CuPy inverts a renderer's frames in place: in memory that Vulkan allocated, on CuPy's own stream.

    python examples/cupy_filter.py --frames 120
"""

from __future__ import annotations

import argparse
import struct
import sys

import xsem
from renderer import Renderer
from xsem import ipc

AHEAD = 64   # frames that the host may run ahead of the GPU


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--exporter", default="vulkan")
    asked = parser.parse_args()
    try:
        import cupy
    except ImportError:
        print("cupy_filter: CuPy is missing: pip install cupy-cuda13x", file=sys.stderr)
        return 2

    device = xsem.open_device(asked.device)
    with Renderer(asked.exporter, device, asked.frames) as renderer:
        with ipc.receive(renderer.connection) as message:
            width, height = struct.unpack("<II", message.payload)
            timeline = device.import_semaphore(message.semaphores[0], label="frames")
            memory = device.import_memory(message.memories[0])
        # The array is the shared memory, without a copy.
        frame = cupy.from_dlpack(memory.map_buffer(shape=(height, width, 4)))
        colours = frame[..., :3]
        # Use the kernel once before any wait is pending: its first use compiles and loads it, which waits for the GPU.
        warm = frame.copy()[..., :3]   # same layout as `colours`
        cupy.bitwise_not(warm, out=warm)

        # The current stream. Here it is CuPy's default stream.
        commands = device.command_list(cupy.cuda.get_current_stream())
        for number in range(asked.frames):
            commands.append_wait(timeline, 2 * number + 1, acquire=[memory])     # the frame is drawn
            cupy.bitwise_not(colours, out=colours)
            commands.append_signal(timeline, 2 * number + 2, release=[memory])   # the renderer may use the memory
            if number % AHEAD == AHEAD - 1:
                commands.synchronize()
        commands.synchronize()
        stale, errors = renderer.tally()
    # No release is needed: the array keeps the mapping, the memory and the device alive until it is freed.
    print(f"cupy_filter: {asked.frames} frames, {stale} stale, {errors} errors")
    return 1 if stale or errors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"cupy_filter: {error}")
