"""Two processes share an image and a timeline: one draws, the other one negates. On the CPU, with NumPy.

    python examples/numpy_two_processes.py --frames 100
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys

import numpy as np

import xsem

SHAPE = (480, 640)
TIMEOUT_S = 30.0


def negate(frames_desc: xsem.SemaphoreDesc, image_desc: xsem.MemoryDesc, count: int) -> None:
    """Negate `count` frames, in the child process."""
    with xsem.open_device("host") as device:
        frames = device.import_semaphore(frames_desc, label="frames")
        image = device.import_memory(image_desc).map_buffer(shape=SHAPE, dtype="float32").numpy()
        commands = device.create_command_list()
        for frame in range(count):
            commands.append_wait(frames, 2 * frame + 1)
            commands.append_work(lambda: np.negative(image, out=image))   # on a GPU: enqueue a kernel
            commands.append_signal(frames, 2 * frame + 2)
        commands.synchronize(timeout_s=TIMEOUT_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100)
    asked = parser.parse_args()

    wrong = 0
    with xsem.open_device("host") as device:
        frames = device.create_timeline(label="frames")
        memory = device.create_memory("OPAQUE_FD", 4 * SHAPE[0] * SHAPE[1])
        image = memory.map_buffer(shape=SHAPE, dtype="float32").numpy()
        # A child that is spawned gets the file descriptors. A forked child cannot use the parent's objects.
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=negate, args=(frames.export(), memory.export(), asked.frames))
        process.start()
        try:
            for frame in range(asked.frames):
                image[:] = frame + 1
                frames.host_signal(2 * frame + 1)
                frames.host_wait(2 * frame + 2, timeout_s=TIMEOUT_S)
                wrong += not (image == -(frame + 1)).all()
            process.join(TIMEOUT_S)
        finally:
            process.kill()   # no effect on a process that has ended
            process.join()
    print(f"numpy_two_processes: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong or process.exitcode else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, OSError) as error:
        sys.exit(f"numpy_two_processes: {error}")
