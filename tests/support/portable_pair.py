"""One side of an exchange of frames through memory and timelines of the host, as a program of its own.

    python -m support.portable_pair exporter vulkan:0 3        # the third argument is the number of a Unix socket

Both sides append all frames ahead, so that only the devices, and the bridges of xsem, order them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

FRAMES = 50
HALF = 4096
DEADLINE_S = 90

Place = Callable[[str], tuple[list[str], Mapping[str, str]]]
"""Returns the prefix of a command on a device, and its environment."""


def frames_go_both_ways(exporter: str, importer: str, place: Place) -> None:
    """Run both sides, and expect both to succeed."""
    ends = socket.socketpair()
    sides = [_start("exporter", exporter, ends[0], place), _start("importer", importer, ends[1], place)]
    for end in ends:
        end.close()
    try:
        said = [side.communicate(timeout=DEADLINE_S)[0] for side in sides]
    finally:
        for side in sides:
            side.kill()
            side.wait()
    assert [side.returncode for side in sides] == [0, 0], "\n".join(said)


def _start(role: str, device: str, sock: socket.socket, place: Place) -> subprocess.Popen[str]:
    prefix, environment = place(device)
    path = os.pathsep.join([os.path.dirname(os.path.dirname(__file__)),
                            *filter(None, [environment.get("PYTHONPATH")])])
    return subprocess.Popen([*prefix, sys.executable, "-m", "support.portable_pair", role, device, str(sock.fileno())],
                            env={**environment, "PYTHONPATH": path}, pass_fds=[sock.fileno()], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main(role: str, name: str, number: int) -> None:
    with socket.socket(fileno=number) as sock, xsem.open_device(name) as device:
        sock.settimeout(60)
        if role == "exporter":
            shared = device.create_memory(MemoryHandleType.HOST_MEMORY_FD, 2 * HALF)
            ready, free = [device.create_semaphore(SemaphoreHandleType.HOST_TIMELINE_FD) for _ in range(2)]
            handles: list[Any] = [shared.export().handle, ready.export().handle, free.export().handle]
            socket.send_fds(sock, [b"3"], [each.fileno() for each in handles])
        else:
            memory, first, second = socket.recv_fds(sock, 1, 3)[1]
            shared = device.import_memory(xsem.MemoryDesc.host_memory_fd(memory, allocation_size=2 * HALF))
            ready, free = [device.import_semaphore(xsem.SemaphoreDesc.host_timeline_fd(each))
                           for each in (first, second)]
        exchange(device, role, shared, ready, free)
        assert sock.send(b"+") == 1
        assert sock.recv(1) == b"+"   # the other side is done, too


def exchange(
    device: xsem.Device, role: str, shared: xsem.Memory, ready: xsem.Semaphore, free: xsem.Semaphore
) -> None:
    commands = device.create_command_list()
    halves = shared.map_buffer(offset=0, size=HALF), shared.map_buffer(offset=HALF, size=HALF)
    mine, theirs = halves if role == "exporter" else halves[::-1]
    seen = [device.host_buffer(HALF) for _ in range(FRAMES)]
    with device.create_event() as end:
        for frame in range(1, FRAMES + 1):
            if role == "exporter":
                commands.append_fill(mine, bytes([frame]))
                commands.append_signal(ready, frame, release=[shared])
                commands.append_wait(free, frame, acquire=[shared])
                commands.append_copy(seen[frame - 1], theirs)
            else:
                commands.append_wait(ready, frame, acquire=[shared])
                commands.append_copy(seen[frame - 1], theirs)
                commands.append_fill(mine, bytes([255 - frame]))
                commands.append_signal(free, frame, release=[shared])
        commands.append_barrier(signal_event=end)
        end.wait(timeout_s=60)
    assert (ready.value(), free.value()) == (FRAMES, FRAMES)
    for frame, buffer in enumerate(seen, 1):
        wanted = 255 - frame if role == "exporter" else frame
        found = np.unique(buffer.numpy())
        assert found.tolist() == [wanted], f"{role}, frame {frame}: {found}, not {wanted}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
