"""The other process of the examples. It draws frames into its own memory, signals, and checks the filtered frames.

The application listens on a Unix socket. The renderer sends a timeline and the memory with the picture, itself or
through a program in C without Python (``c/send_frame.c``). Frame n is drawn when the timeline is at 2n + 1. The
application signals 2n + 2 when the renderer may use the memory again.

    with Renderer("vulkan", device, frames=120) as renderer:
        with ipc.receive(renderer.connection) as message: ...
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

import xsem
from xsem import ipc

WIDTH, HEIGHT = 320, 240
TIMEOUT_S = 30.0


class Renderer:
    """The application's connection: starts the renderer process, and ends it at the end of the `with` block."""

    def __init__(self, exporter: str, device: xsem.Device, frames: int, *, sender: Path | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = str(Path(self._folder.name) / "frames.sock")
        command = [sys.executable, __file__, path, "--exporter", exporter, "--frames", str(frames)]
        if device.info.uuid is not None:
            command += ["--importer", device.info.uuid.hex]
        if sender is not None:
            command += ["--sender", str(sender)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(1)
            listener.settimeout(0.1)
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                self.connection = self._accept(listener)
            except BaseException:
                self.close()
                raise

    def _accept(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
        raise RuntimeError("the renderer did not connect")

    def tally(self) -> tuple[int, int]:
        """Wait for the renderer's end. Return the number of stale frames and the number of wrong frames."""
        try:
            printed, _ = self._process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            raise RuntimeError("the renderer has not ended") from late
        if self._process.returncode != 0:
            raise RuntimeError(f"the renderer ended with status {self._process.returncode}")
        found = json.loads(printed)
        return found["stale"], found["errors"]

    def close(self) -> None:
        """End the process if it has not ended."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.connection.close()
        self.close()


def draw(frame: int) -> np.ndarray:
    """Return frame number `frame`. All frames differ, and so do their sums."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    picture = np.empty((HEIGHT, WIDTH, 4), np.uint8)
    picture[..., 0] = x + 3 * frame
    picture[..., 1] = y + 5 * frame
    picture[..., 2] = (x * y) >> 4
    picture[..., 3] = frame % 251
    return picture


def main() -> int:
    """Draw, signal, wait and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("socket", help="the application's Unix socket")
    parser.add_argument("--exporter", default="vulkan")
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--importer", type=uuid.UUID, help="UUID of the application's device")
    parser.add_argument("--sender", type=Path, help="a program in C that sends the handles")
    asked = parser.parse_args()
    # The application's GPU, if there are several.
    gpu = asked.importer if asked.exporter == "vulkan" else None
    with xsem.open_device(asked.exporter, uuid=gpu) as device:
        timeline = device.create_timeline()
        memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, WIDTH * HEIGHT * 4)
        # The handles stay open until the end, because the application may still be starting.
        with timeline.export() as semaphore_desc, memory.export() as memory_desc:
            connection = send(asked, device, semaphore_desc, memory_desc)
            stale, errors = render(device, timeline, memory, asked.frames)
        if connection is not None:
            connection.close()
    print(json.dumps({"stale": stale, "errors": errors}))
    return 0


def send(
    asked: argparse.Namespace, device: xsem.Device, semaphore_desc: xsem.SemaphoreDesc, memory_desc: xsem.MemoryDesc
) -> socket.socket | None:
    """Send the timeline, the memory and the picture's extent. Return the connection if this process made it."""
    if asked.sender is not None:
        handles = (semaphore_desc.handle, memory_desc.handle)
        fds = [handle.fileno() for handle in handles if isinstance(handle, xsem.OwnedHandle)]
        numbers = [*fds, memory_desc.allocation_size, WIDTH, HEIGHT]
        subprocess.run([asked.sender, asked.socket, *map(str, numbers)], pass_fds=fds, check=True, timeout=TIMEOUT_S)
        return None
    if device.info.uuid is None:   # objects of the CPU have no device: the importer's UUID goes into the descriptors
        semaphore_desc = replace(semaphore_desc, device_uuid=asked.importer)
        memory_desc = replace(memory_desc, device_uuid=asked.importer)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(asked.socket)
    ipc.send(connection, semaphore_desc, memory_desc, payload=struct.pack("<II", WIDTH, HEIGHT))
    return connection


def render(device: xsem.Device, timeline: xsem.Semaphore, memory: xsem.Memory, frames: int) -> tuple[int, int]:
    """Draw all frames. Return the number of unchanged frames, and of frames neither inverted nor unchanged."""
    commands = device.create_command_list()
    shared = memory.map_buffer(0, WIDTH * HEIGHT * 4)
    upload, download = device.host_buffer(shared.size), device.host_buffer(shared.size)
    stale = errors = 0
    for frame in range(frames):
        drawn = draw(frame)
        upload.numpy()[...] = drawn.reshape(-1)
        commands.append_copy(shared, upload)
        commands.append_signal(timeline, 2 * frame + 1, release=[memory])
        commands.append_wait(timeline, 2 * frame + 2, acquire=[memory])
        commands.append_copy(download, shared)
        commands.synchronize(timeout_s=TIMEOUT_S)
        found = download.numpy().reshape(drawn.shape)
        if (found == drawn).all():
            stale += 1
        elif (found[..., :3] != 255 - drawn[..., :3]).any() or (found[..., 3] != drawn[..., 3]).any():
            errors += 1
    return stale, errors


if __name__ == "__main__":
    sys.exit(main())
