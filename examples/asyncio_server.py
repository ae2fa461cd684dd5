"""An asyncio server shows its frames to consumers that come and go. Its event loop never blocks.

Each consumer is a process: it connects, gets the ring, reads some frames and leaves. Every second one leaves as if it
was killed, without a word, and the server goes on: the kernel tells it that the consumer has ended.

    python examples/asyncio_server.py --clients 4 --frames 50
    python examples/asyncio_server.py --exporter vulkan --device cuda:0     # on a GPU

It replaces a server of file descriptors with a thread for each connection: about 730 lines of
pasteurlabs/tesseract-core (`tesseract_core/runtime/cuda/vmm.py`). This program has 117 lines.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from pathlib import Path

import xsem
from xsem import ipc

SIZE = 1 << 16
FRAME_S = 0.002
AT_A_TIME = 2
TIMEOUT_S = 30.0


# ---- the server
async def draw(ring: xsem.FrameRing, commands: xsem.CommandList) -> None:
    """Write frames for ever."""
    while True:
        async with ring.write(commands) as frame:   # waits for the slowest consumer, and other tasks run
            commands.append_fill(frame.buffer, bytes([frame.number % 251]))
        await asyncio.sleep(FRAME_S)


async def serve(asked: argparse.Namespace, path: str) -> int:
    """Draw until all consumers have left. Return how many of them failed."""
    # "vulkan" is the consumers' GPU, if there are several.
    gpu = next(each.uuid for each in xsem.devices() if each.id == asked.device) if asked.exporter == "vulkan" else None
    with xsem.open_device(asked.exporter, uuid=gpu) as device, xsem.FrameRing.create(
            device, shape=(SIZE,), dtype="uint8", memory_type="HOST_MEMORY_FD" if asked.exporter == "host" else None,
            consumers=2 * AT_A_TIME) as ring:

        async def admit(_: asyncio.StreamReader, connection: asyncio.StreamWriter) -> None:
            await ipc.asend(connection, ring, timeout_s=TIMEOUT_S)
            connection.close()

        async def visit(number: int) -> bool:
            async with at_a_time:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, __file__, "--join", path, "--device", asked.device, "--frames", str(asked.frames),
                    *["--vanish"] * (number % 2))
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        return await process.wait() != 0
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()

        at_a_time = asyncio.Semaphore(AT_A_TIME)
        async with await asyncio.start_unix_server(admit, path), asyncio.TaskGroup() as group:
            drawing = group.create_task(draw(ring, device.create_command_list()))
            visits = [group.create_task(visit(number)) for number in range(asked.clients)]
            await asyncio.wait(visits)
            drawing.cancel()
    return sum(task.result() for task in visits)


# ---- a consumer
def consume(asked: argparse.Namespace) -> int:
    """Read some frames. Return how many were wrong."""
    with socket.socket(socket.AF_UNIX) as connection, xsem.open_device(asked.device) as device:
        connection.connect(asked.join)
        with ipc.receive(connection, timeout_s=TIMEOUT_S) as message:
            reader = xsem.FrameRing.open(device, message)
        wrong, numbers = 0, list[int]()
        for _ in range(asked.frames):
            with reader.read() as frame:
                wrong += bool((frame.buffer.copy_to_host() != frame.number % 251).any())
                numbers.append(frame.number)
        wrong += numbers != list(range(numbers[0], numbers[0] + asked.frames))   # every frame, in order
        if asked.vanish:
            os._exit(wrong > 0)
        reader.close()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--frames", type=int, default=50, help="frames of each consumer")
    parser.add_argument("--exporter", default="host", help="the server's device")
    parser.add_argument("--device", default="host", help="the consumers' device")
    parser.add_argument("--join", metavar="SOCKET", help="be a consumer of the server with this socket")
    parser.add_argument("--vanish", action="store_true", help="leave as if killed")
    asked = parser.parse_args()
    if asked.join:
        return int(consume(asked) > 0)
    with tempfile.TemporaryDirectory() as folder:
        failed = asyncio.run(serve(asked, str(Path(folder) / "frames.sock")))
    print(f"asyncio_server: {asked.clients} clients of {asked.frames} frames, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, OSError) as error:
        sys.exit(f"asyncio_server: {error}")
    except BaseExceptionGroup as errors:
        sys.exit(f"asyncio_server: {errors.exceptions[0]}")
