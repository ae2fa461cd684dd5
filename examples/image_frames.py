"""Image frames of Vulkan become tensors of torch: tiled images, read on the GPU's order, one after the other.

Vulkan draws into an image in shared memory. With torch, the frame is read on a CUDA device and becomes a tensor there.
Without torch or a GPU, ``--device vulkan:0`` reads the frames with a second Vulkan device, for example SwiftShader.

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
        draws, reads = vulkan.create_command_list(), device.create_command_list()
        for frame in range(asked.frames):
            theirs.level(0).write(picture(frame))
            draws.append_signal(drawn, release=[shared])
            reads.append_wait(seen, acquire=[memory])
            reads.synchronize()   # `read` is a call of the host: it does not wait for the list
            pixels = mine.level(0).read()
            reads.append_signal(used, release=[memory])
            draws.append_wait(taken, acquire=[shared])
            if torch is not None:
                tensor = torch.from_numpy(pixels).to(asked.device)
                pixels = (255 - tensor).cpu().numpy()
                wrong += not (pixels == 255 - picture(frame)).all()
            else:
                wrong += not (pixels == picture(frame)).all()
        draws.synchronize()
    print(f"image_frames: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"image_frames: {error}")
