"""A renderer's pictures go through a filter of torch to a viewer: three processes, two rings.

The filter gets every picture of the renderer, because the first ring is "fifo". The viewer, with NumPy, gets the newest
one of the filter, because the second ring is "mailbox", in memory of the host: so a slow viewer delays no process.
Without a GPU, the host device renders, and NumPy takes the place of torch where it is missing.

    python examples/ring_viewer.py --frames 50
    python examples/ring_viewer.py --device cuda:0     # the renderer uses Vulkan

It replaces structures of ctypes, a socket protocol and semaphores by hand: about 1,050 lines of
ealicesora/vk_cull_export (`python/vk2torch_client.py`). This program has 125 lines.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import multiprocessing
import sys
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

import xsem
from renderer import HEIGHT, WIDTH, draw

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SHAPE = (HEIGHT, WIDTH, 4)
TIMEOUT_S = 30.0

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
library: Any = np if torch is None else torch
view: Any = np.asarray if torch is None else torch.from_dlpack   # a frame as an array, without a copy


def render(to_filter: Connection, exporter: str, gpu: uuid.UUID | None, frames: int) -> None:
    """Draw the pictures, in a child process."""
    with xsem.open_device(exporter, uuid=gpu) as device, xsem.FrameRing.create(
            device, shape=SHAPE, dtype="uint8", memory_type="HOST_MEMORY_FD" if exporter == "host" else None) as ring:
        xsem.ipc.send(to_filter, ring)
        to_filter.recv()   # the filter has joined, so it gets every picture
        commands, upload = device.create_command_list(), device.host_buffer(WIDTH * HEIGHT * 4)
        for number in range(frames):
            upload.numpy()[:] = draw(number).reshape(-1)
            with ring.write(commands) as picture:
                commands.append_copy(picture.buffer, upload)
            commands.synchronize(timeout_s=TIMEOUT_S)   # until `upload` can be written again


def invert(from_renderer: Connection, to_viewer: Connection, device_id: str) -> None:
    """Invert the pictures, in a child process."""
    stream = None if device_id == "host" else torch.cuda.current_stream()
    with xsem.open_device(device_id) as device:
        with xsem.ipc.receive(from_renderer, timeout_s=TIMEOUT_S) as message:
            reader = xsem.FrameRing.open(device, message)
        with reader, xsem.FrameRing.create(device, shape=SHAPE, dtype="uint8", policy="mailbox",
                                           memory_type="HOST_MEMORY_FD") as ring:
            xsem.ipc.send(to_viewer, ring)
            from_renderer.send(None)
            with contextlib.suppress(xsem.RingEndedError):
                while True:
                    with reader.read(stream) as drawn, ring.write(stream, payload=drawn.number.to_bytes(4)) as shown:
                        library.bitwise_not(view(drawn), out=view(shown))


def show(from_filter: Connection) -> tuple[int, int, int]:
    """Return how many pictures the viewer got, how many of them were wrong, and the number of the last one."""
    shown = wrong = last = 0
    with xsem.open_device("host") as device:
        with xsem.ipc.receive(from_filter, timeout_s=TIMEOUT_S) as message:
            reader = xsem.FrameRing.open(device, message)
        with reader, contextlib.suppress(xsem.RingEndedError):
            while True:
                with reader.read() as picture:
                    last = int.from_bytes(picture.payload)
                    wrong += not (np.asarray(picture) == 255 - draw(last - 1)).all()
                    shown += 1
    return shown, wrong, last


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--device", default="host", help="the filter's device")
    parser.add_argument("--exporter", help="the renderer's device (default: Vulkan on the same GPU, or host)")
    asked = parser.parse_args()
    if torch is None and asked.device != "host":
        print("ring_viewer: PyTorch is missing: pip install torch", file=sys.stderr)
        return 2
    exporter = asked.exporter or ("host" if asked.device == "host" else "vulkan")
    gpu = None if exporter == "host" else next(info.uuid for info in xsem.devices() if info.id == asked.device)

    context = multiprocessing.get_context("spawn")
    (renderer, drawn), (filtered, viewer) = context.Pipe(), context.Pipe()
    processes = [context.Process(target=render, args=(renderer, exporter, gpu, asked.frames)),
                 context.Process(target=invert, args=(drawn, filtered, asked.device))]
    try:
        for process in processes:
            process.start()
        for each in (renderer, drawn, filtered):
            each.close()   # the children have their own, so the end of one of them is seen
        shown, wrong, last = show(viewer)
        for process in processes:
            process.join(TIMEOUT_S)
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()   # no effect on a process that has ended
                process.join()
    wrong += last != asked.frames   # the viewer sees at least the last one
    print(f"the viewer saw {shown} of the pictures")
    print(f"ring_viewer: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong or any(process.exitcode for process in processes) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"ring_viewer: {error}")
