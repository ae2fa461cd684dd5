"""JAX reads a renderer's frames, in memory that another process or Vulkan has allocated, without a copy.

JAX has no public function for its stream, so the host waits for each frame. JAX also assumes that an array never
changes, so each frame becomes a new array, which is gone before the renderer draws the next frame.

    python examples/jax_sums.py --frames 50                                           # with JAX for the CPU
    python examples/jax_sums.py --frames 50 --device cuda:0 --exporter vulkan         # with JAX for CUDA
"""

from __future__ import annotations

import argparse
import os
import struct
import sys

import xsem
from renderer import TIMEOUT_S, Renderer, draw
from xsem import ipc


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--device", default="host")
    parser.add_argument("--exporter", default="host")
    asked = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")   # leave memory of the GPU for the renderer
    try:
        import jax
        if asked.device.startswith("cuda"):
            jax.devices("cuda")   # raises RuntimeError with JAX for the CPU
    except (ImportError, RuntimeError):
        package = "jax[cuda13]" if asked.device.startswith("cuda") else "jax"
        print(f"jax_sums: JAX is missing: pip install {package}", file=sys.stderr)
        return 2

    wrong = 0
    with xsem.open_device(asked.device) as device, Renderer(asked.exporter, device, asked.frames) as renderer:
        with ipc.receive(renderer.connection) as message:
            width, height = struct.unpack("<II", message.payload)
            timeline = device.import_semaphore(message.semaphores[0], label="frames")
            memory = device.import_memory(message.memories[0])
        pixels = memory.map_buffer(0, 4 * width * height, shape=(height, width, 4))
        commands = device.create_command_list()
        for number in range(asked.frames):
            commands.append_wait(timeline, 2 * number + 1, acquire=[memory])
            commands.synchronize(timeout_s=TIMEOUT_S)
            frame = jax.dlpack.from_dlpack(pixels)
            wrong += int(frame.sum(dtype="uint32")) != int(draw(number).sum())   # waits for JAX
            del frame
            commands.append_signal(timeline, 2 * number + 2, release=[memory])
        commands.synchronize(timeout_s=TIMEOUT_S)
        renderer.tally()   # it counts every frame as stale, because JAX does not change them
    print(f"jax_sums: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"jax_sums: {error}")
