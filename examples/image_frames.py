"""Image frames of Vulkan become tensors of torch: a copy on the GPU brings tiled pixels into the rows of a tensor.

Vulkan draws into an image in shared memory. CUDA copies each frame into memory that torch uses as a tensor. The frame
does not pass through the host. Without torch or a GPU, ``--device vulkan:0 --array numpy`` copies the frames with a
second Vulkan device, for example SwiftShader, to page-locked host memory.

    python examples/image_frames.py --frames 30
    python examples/image_frames.py --device vulkan:0 --array numpy
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

import numpy as np

import xsem

WIDTH, HEIGHT = 320, 240
SIZE = 4 * WIDTH * HEIGHT
DESC = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="uint8", channels=4)


def picture(frame: int) -> Any:
    """Return frame number `frame`."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([x + frame, y, (x * y) >> 4, np.full_like(x, frame)], axis=-1).astype(np.uint8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--array", choices=("torch", "numpy"), default="torch")
    asked = parser.parse_args()
    torch: Any = None
    if asked.array == "torch":
        try:
            torch = importlib.import_module("torch")
        except ImportError:
            print("image_frames: PyTorch is missing: pip install torch, or pass --array numpy", file=sys.stderr)
            return 2

    wrong = 0
    with xsem.open_device(asked.device) as device, xsem.open_device("vulkan", uuid=device.info.uuid) as vulkan:
        # Binary semaphores: SwiftShader exports no timelines.
        drawn, taken = vulkan.create_binary(label="drawn"), vulkan.create_binary(label="taken")
        shared = vulkan.create_memory("OPAQUE_FD", 4 << 20)
        with drawn.export(for_device=device) as drawn_desc, taken.export(for_device=device) as taken_desc:
            seen, used = device.import_semaphore(drawn_desc), device.import_semaphore(taken_desc)
        with shared.export(for_device=device) as memory_desc:
            memory = device.import_memory(memory_desc)
        theirs, mine = shared.map_mipmapped_array(DESC), memory.map_mipmapped_array(DESC)
        drawing = vulkan.host_buffer(SIZE)
        tensor: Any = None
        if torch is None:
            pixels = device.host_buffer(SIZE)
        else:
            # The tensor is this memory of the device, without a copy.
            pixels = device.create_memory("OPAQUE_FD", SIZE).map_buffer(0, SIZE, shape=(HEIGHT, WIDTH, 4))
            tensor = torch.from_dlpack(pixels)
            # Use the kernel once before any wait is pending: its first use loads it, which waits for the whole GPU.
            (255 - tensor).cpu()
        draws, reads = vulkan.create_command_list(), device.create_command_list()
        for frame in range(asked.frames):
            drawing.numpy()[:] = picture(frame).reshape(-1)
            draws.append_copy(theirs.level(0), drawing)
            draws.append_signal(drawn, release=[shared])
            reads.append_wait(seen, acquire=[memory])
            reads.append_copy(pixels, mine.level(0))   # from the tiled layout to rows, on the order of the list
            reads.append_signal(used, release=[memory])
            draws.append_wait(taken, acquire=[shared])
            if tensor is None:
                reads.synchronize()
                found = 255 - pixels.numpy().reshape(HEIGHT, WIDTH, 4)
            else:
                with reads.as_current():   # torch works on the list's stream, behind the copy
                    found = (255 - tensor).cpu().numpy()
            wrong += not (found == 255 - picture(frame)).all()
            draws.synchronize()
    print(f"image_frames: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"image_frames: {error}")
