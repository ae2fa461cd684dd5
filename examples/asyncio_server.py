"""An asyncio server filters the frames of several clients. Its event loop never blocks, and no frame has a thread.

Each client is a process. It sends a timeline and memory over a Unix socket, draws, signals 2n + 1, and checks the frame
at 2n + 2. The server orders its device's work by the timeline, and awaits the end of the work.

    python examples/asyncio_server.py --clients 3 --frames 50
    python examples/asyncio_server.py --device cuda:0 --exporter vulkan     # on a GPU
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import sys
import tempfile
import uuid
from pathlib import Path

import numpy as np

import xsem
from xsem import ipc

SIZE = 1 << 16
TIMEOUT_S = 30.0


# ---- the clients
def client(path: str, number: int, frames: int, exporter: str, importer: uuid.UUID | None) -> None:
    """Draw `frames` frames, and exit with status 1 after a wrong one."""
    sys.exit(asyncio.run(draw(path, number, frames, exporter, importer)))


async def draw(path: str, number: int, frames: int, exporter: str, importer: uuid.UUID | None) -> int:
    """Draw the frames. Return the number of wrong ones, at most 1."""
    with xsem.open_device(exporter) as device, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        timeline = device.create_timeline(label=f"client {number}")
        memory = device.create_memory("OPAQUE_FD", SIZE)
        connection.connect(path)
        # Objects of the CPU belong to no device, so the descriptors name the importer's.
        with timeline.export(for_device=importer) as semaphore_desc, memory.export(for_device=importer) as memory_desc:
            ipc.send(connection, semaphore_desc, memory_desc, payload=frames.to_bytes(4, "little"))
        shared = memory.map_buffer(0, SIZE)
        commands = device.create_command_list()
        picture = device.host_buffer(SIZE)
        for frame in range(frames):
            value = (7 * number + frame) % 251
            picture.numpy()[:] = value
            commands.append_copy(shared, picture)
            commands.append_signal(timeline, 2 * frame + 1, release=[memory])
            async with asyncio.timeout(TIMEOUT_S):
                await timeline.reached(2 * frame + 2)   # other tasks of the client run meanwhile
            commands.append_wait(timeline, 2 * frame + 2, acquire=[memory])
            commands.append_copy(picture, shared)
            commands.synchronize(timeout_s=TIMEOUT_S)
            if (picture.numpy() != value ^ 0xFF).any():
                return 1
    return 0


# ---- the server
async def serve(device: xsem.Device, connection: socket.socket) -> int:
    """Filter the frames of one client. Return their number."""
    with connection:
        message = await asyncio.to_thread(ipc.receive, connection, timeout_s=TIMEOUT_S)
    with message:
        frames = int.from_bytes(message.payload, "little")
        timeline = device.import_semaphore(message.semaphores[0], label="frames")
        memory = device.import_memory(message.memories[0])
    commands, done = device.create_command_list(), device.create_event()
    shared, picture = memory.map_buffer(0, SIZE), device.host_buffer(SIZE)
    with timeline, memory, commands:
        for frame in range(frames):
            commands.append_wait(timeline, 2 * frame + 1, acquire=[memory])
            commands.append_copy(picture, shared, signal_event=done)
            async with asyncio.timeout(TIMEOUT_S):   # a dead client ends its task, and no other one
                await done
            done.reset()
            pixels = picture.numpy()
            np.bitwise_not(pixels, out=pixels)
            commands.append_copy(shared, picture)
            commands.append_signal(timeline, 2 * frame + 2, release=[memory], signal_event=done)
            await done
            done.reset()
    return frames


async def run(asked: argparse.Namespace, path: str) -> tuple[int, int]:
    """Serve all clients. Return the number of filtered frames, and of clients that failed."""
    loop, context = asyncio.get_running_loop(), multiprocessing.get_context("spawn")
    with xsem.open_device(asked.device) as device, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
        processes = [context.Process(target=client, args=(path, number, asked.frames, asked.exporter, device.info.uuid))
                     for number in range(asked.clients)]
        try:
            for process in processes:
                process.start()
            async with asyncio.TaskGroup() as group:
                tasks: list[asyncio.Task[int]] = []
                for _ in processes:
                    async with asyncio.timeout(TIMEOUT_S):
                        connection, _ = await loop.sock_accept(listener)
                    connection.setblocking(True)
                    tasks.append(group.create_task(serve(device, connection)))
            for process in processes:
                await asyncio.to_thread(process.join, TIMEOUT_S)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()   # no effect on a process that has ended
                    process.join()
    return sum(task.result() for task in tasks), sum(process.exitcode != 0 for process in processes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--frames", type=int, default=50, help="frames of each client")
    parser.add_argument("--device", default="host")
    parser.add_argument("--exporter", default="host")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        frames, failed = asyncio.run(run(asked, str(Path(folder) / "frames.sock")))
    print(f"asyncio_server: {frames} frames, {failed} failed clients")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, OSError) as error:
        sys.exit(f"asyncio_server: {error}")
    except BaseExceptionGroup as errors:
        sys.exit(f"asyncio_server: {errors.exceptions[0]}")
