"""A torch process gives a tensor to a CuPy process. Both work on the same memory, in turns, without a copy.

torch draws a frame into its tensor. CuPy checks the frame and inverts it in place. torch checks the inverted frame. A
timeline orders the streams of the two processes. Vulkan creates the timeline, because the driver of CUDA exports none.

    python examples/torch_to_cupy.py --frames 50
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

import xsem
from renderer import draw

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TIMEOUT_S = 30.0


def invert(
    frames_desc: xsem.SemaphoreDesc, memory_desc: xsem.MemoryDesc, offset: int, size: int, frames: int, device_id: str,
    answer: Connection,
) -> None:
    """Check and invert the frames with CuPy, in the child process. Send 0, then the number of wrong frames."""
    import cupy

    wrong = 0
    with frames_desc, memory_desc, xsem.open_device(device_id) as device:
        timeline = device.import_semaphore(frames_desc, label="frames")
        memory = device.import_memory(memory_desc)
        # The array is the tensor of the other process.
        array = cupy.from_dlpack(memory.map_buffer(offset, size, shape=draw(0).shape))
        # Use the kernel once before any wait is pending: its first use compiles and loads it, which waits for the GPU.
        warm = array.copy()
        cupy.bitwise_not(warm, out=warm)
        answer.send(0)   # ready

        commands = device.command_list(cupy.cuda.get_current_stream())
        for frame in range(frames):
            commands.append_wait(timeline, 2 * frame + 1, acquire=[memory])
            commands.synchronize(timeout_s=TIMEOUT_S)   # with a time limit, unlike `get`
            wrong += not (array.get() == draw(frame)).all()
            cupy.bitwise_not(array, out=array)
            commands.append_signal(timeline, 2 * frame + 2, release=[memory])
        commands.synchronize(timeout_s=TIMEOUT_S)
        del array
    answer.send(wrong)


def answer_of(answers: Connection) -> int:
    """Return the next answer of the child process."""
    if not answers.poll(TIMEOUT_S):
        raise RuntimeError("the CuPy process does not answer")
    try:
        return int(answers.recv())
    except EOFError:
        raise RuntimeError("the CuPy process has ended without an answer") from None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--exporter", help="device that creates the timeline (default: the GPU's Vulkan device)")
    asked = parser.parse_args()
    for package, name in (("torch", "PyTorch"), ("cupy", "CuPy")):
        if importlib.util.find_spec(package) is None:
            print(f"torch_to_cupy: {name} is missing: pip install {'torch' if package == 'torch' else 'cupy-cuda13x'}",
                  file=sys.stderr)
            return 2
    # `Device.share` needs memory in expandable segments. torch reads the setting at its first allocation.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    import torch

    wrong = 0
    with (
        xsem.open_device(asked.device) as device,
        xsem.open_device(asked.exporter) if asked.exporter else device.companion_exporter() as exporter,
    ):
        tensor = torch.zeros(draw(0).shape, dtype=torch.uint8, device=asked.device)
        shared = device.share(tensor)
        frames = exporter.create_timeline(label="frames")
        # A child that is spawned gets the file descriptors. A forked child cannot use the parent's objects.
        context = multiprocessing.get_context("spawn")
        answers, answer = context.Pipe(duplex=False)
        with frames.export(for_device=device) as frames_desc, shared.export() as memory_desc:
            timeline = device.import_semaphore(frames_desc, label="frames")
            process = context.Process(target=invert, args=(
                frames_desc, memory_desc, shared.offset, shared.size, asked.frames, asked.device, answer))
            process.start()
        answer.close()   # the child has its own end, so `recv` reports the end of the child
        try:
            answer_of(answers)
            commands = device.command_list(torch.cuda.current_stream())
            for frame in range(asked.frames):
                tensor.copy_(torch.from_numpy(draw(frame)))
                commands.append_signal(timeline, 2 * frame + 1, release=[shared])
                commands.append_wait(timeline, 2 * frame + 2, acquire=[shared])
                commands.synchronize(timeout_s=TIMEOUT_S)
                wrong += not (tensor.cpu().numpy() == 255 - draw(frame)).all()
            theirs = answer_of(answers)
            process.join(TIMEOUT_S)
        finally:
            process.kill()   # no effect on a process that has ended
            process.join()
    print(f"torch_to_cupy: {asked.frames} frames, {theirs} wrong in CuPy, {wrong} wrong in torch")
    return 1 if wrong or theirs else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"torch_to_cupy: {error}")
