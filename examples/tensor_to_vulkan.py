"""Vulkan reads a tensor that torch has allocated: in the tensor's own memory, without a copy.

`Device.share` makes the memory of the tensor exportable. torch must allocate in expandable segments: this program sets
PYTORCH_CUDA_ALLOC_CONF before torch allocates for the first time. The semaphore comes from Vulkan, because CUDA exports
no semaphores.

    python examples/tensor_to_vulkan.py --frames 50
"""

from __future__ import annotations

import argparse
import os
import sys

import xsem
from renderer import draw

TIMEOUT_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--reader", default="vulkan", help="backend that reads the tensor, on the same GPU")
    parser.add_argument("--exporter", help="device that creates the timeline (default: the GPU's Vulkan device)")
    asked = parser.parse_args()
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    try:
        import torch
    except ImportError:
        print("tensor_to_vulkan: PyTorch is missing: pip install torch", file=sys.stderr)
        return 2

    wrong = 0
    with (
        xsem.open_device(asked.device) as device,
        xsem.open_device(asked.reader, uuid=device.info.uuid) as reader,
        xsem.open_device(asked.exporter) if asked.exporter else device.companion_exporter() as exporter,
    ):
        tensor = torch.zeros(draw(0).shape, dtype=torch.uint8, device=asked.device)
        shared = device.share(tensor)
        with shared.export(for_device=reader) as memory_desc:
            memory = reader.import_memory(memory_desc)
        # The memory is the whole allocation of torch. The tensor is a part of it.
        pixels = memory.map_buffer(shared.offset, shared.size)
        created = exporter.create_timeline(label="frames")
        with created.export(for_device=device) as here, created.export(for_device=reader) as there:
            drawn = device.import_semaphore(here, label="frames")
            frames = reader.import_semaphore(there, label="frames")

        commands = device.command_list(torch.cuda.current_stream())
        reads, found = reader.create_command_list(), reader.host_buffer(shared.size)
        for frame in range(asked.frames):
            tensor.copy_(torch.from_numpy(draw(frame)))
            commands.append_signal(drawn, 2 * frame + 1, release=[shared])
            reads.append_wait(frames, 2 * frame + 1, acquire=[memory])
            reads.append_copy(found, pixels)
            reads.append_signal(frames, 2 * frame + 2, release=[memory])
            commands.append_wait(drawn, 2 * frame + 2, acquire=[shared])   # torch draws the next frame after the copy
            reads.synchronize(timeout_s=TIMEOUT_S)
            wrong += not (found.numpy().reshape(shared.shape) == draw(frame)).all()
        commands.synchronize(timeout_s=TIMEOUT_S)
    print(f"tensor_to_vulkan: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"tensor_to_vulkan: {error}")
