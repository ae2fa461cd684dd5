"""The compute process: imports the renderer's objects and filters each frame after it is drawn."""

# `show` starts it as `python -m xsem.cli.demo.compute FD PLAN`; on Windows, FD is the name of a pipe. The code is the
# same for every device.

from __future__ import annotations

import contextlib
import socket
import sys

import xsem
from xsem import ipc
from xsem.cli.demo.arrays import Arrays, arrays_for
from xsem.cli.demo.picture import filter_in_place
from xsem.cli.demo.plan import Line, PeerError, Plan, described, hear, opened, say, say_failed
from xsem.errors import XsemError

__all__ = ["main"]

# Frames that the compute process may run ahead: fewer than any driver takes behind an unmet wait.
_AHEAD = 64


def main(sock: Line, plan: Plan) -> None:
    """Filter the renderer's frames until all are done."""
    try:
        _compute(sock, plan)
    except PeerError:
        return   # the renderer has ended, so a report has no reader
    except (XsemError, ImportError, OSError, MemoryError) as error:
        with contextlib.suppress(PeerError):
            say_failed(sock, error)


def _compute(sock: Line, plan: Plan) -> None:
    with opened(plan.device) as device:
        # Only this process knows the device, and the renderer chooses the handle types for it.
        say(sock, **described(device))
        with ipc.receive(sock, timeout_s=plan.timeout_s) as message:
            drawn = device.import_semaphore(message.semaphores[0], label="drawn")
            filtered = device.import_semaphore(message.semaphores[1], label="filtered") if plan.binary else drawn
            memory = device.import_memory(message.memories[0])
        buffer = memory.map_buffer(shape=plan.shape)
        arrays = arrays_for(device, buffer, plan.timeout_s)
        say(sock, ready=arrays.name, signal_first=drawn.type not in device.capabilities.wait_before_signal)
        _filter_frames(sock, plan, arrays, drawn, filtered, memory)


def _filter_frames(
    sock: Line, plan: Plan, arrays: Arrays, drawn: xsem.Semaphore, filtered: xsem.Semaphore,
    memory: xsem.Memory,
) -> None:
    commands = arrays.commands
    renderer = hear(sock, plan.timeout_s)
    arrays.warm_up(filter_in_place)
    for frame in range(plan.frames):
        if plan.without_wait:
            hear(sock, plan.timeout_s)  # the renderer has checked the last frame, so the next filter cannot change it
            arrays.append(filter_in_place)
            commands.synchronize(timeout_s=plan.timeout_s)
            say(sock, read=frame)
            if renderer["tell_drawn"]:
                hear(sock, plan.timeout_s)
            # This wait comes after the filter. It only continues the handshake and keeps a binary semaphore valid.
            commands.append_wait(drawn, plan.drawn(frame), acquire=[memory])
        else:
            if renderer["tell_drawn"]:
                hear(sock, plan.timeout_s)
            commands.append_wait(drawn, plan.drawn(frame), acquire=[memory])
            arrays.append(filter_in_place)
        commands.append_signal(filtered, plan.filtered(frame), release=[memory])
        if renderer["signal_first"]:
            say(sock, signalled=frame)
        if frame % _AHEAD == _AHEAD - 1:
            commands.synchronize(timeout_s=plan.timeout_s)
    commands.synchronize(timeout_s=plan.timeout_s)


def _connected(told: str) -> Line:
    return ipc.connect(told) if sys.platform == "win32" else socket.socket(fileno=int(told))


if __name__ == "__main__":
    with _connected(sys.argv[1]) as connection:
        main(connection, Plan.from_json(sys.argv[2]))
