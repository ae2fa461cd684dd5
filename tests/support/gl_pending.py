"""A wait of OpenGL that stays pending, while the host waits for it again and again, as a program.

    python -m support.gl_pending SECONDS
"""

from __future__ import annotations

import sys
import time

import pytest

import xsem

BYTES = 4096


def main(seconds: str) -> None:
    """Check that the copy behind the wait is made after the signal, and the process ends behind another unmet wait."""
    device = xsem.open_device("opengl:0")
    exporter = xsem.open_device("vulkan", uuid=device.info.uuid)
    memory, drawn = exporter.create_memory("OPAQUE_FD", 1 << 16), exporter.create_timeline()
    with memory.export(for_device=device) as desc, drawn.export(for_device=device) as signal:
        here, seen = device.import_memory(desc), device.import_semaphore(signal)
    copied, commands, draws = device.host_buffer(BYTES), device.create_command_list(), exporter.create_command_list()
    draws.append_fill(memory.map_buffer(0, BYTES), b"\x01")
    draws.synchronize()
    commands.append_wait(seen, 1, acquire=[here])
    commands.append_copy(copied, here.map_buffer(0, BYTES))
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        with pytest.raises(xsem.WaitTimeoutError):
            commands.synchronize(timeout_s=1)
    draws.append_fill(memory.map_buffer(0, BYTES), b"\x02")
    draws.append_signal(drawn, 1, release=[memory])
    commands.synchronize(timeout_s=10)
    assert (copied.numpy() == 2).all()
    commands.append_wait(seen, 2)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
