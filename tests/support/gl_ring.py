"""A ring on OpenGL gives a frame back only behind the application's own commands, as a program.

    tests/drivers/zink -- python -m support.gl_ring
"""

from __future__ import annotations

import importlib
from typing import Any

import xsem

SIZE = 1 << 20
FRAMES = 5


def main() -> None:
    """Read frames by commands of moderngl, and look at the result right behind the block."""
    moderngl: Any = importlib.import_module("moderngl")
    context = moderngl.create_context(standalone=True, backend="egl", libgl="libGL.so.1", libegl="libEGL.so.1")
    context.clear_errors()
    with (xsem.open_device("opengl", native=context) as gl, xsem.open_device("vulkan", uuid=gl.info.uuid) as vulkan,
          xsem.FrameRing.create(vulkan, shape=(SIZE,), dtype="uint8", slots=2) as ring):
        with ring.export() as message:
            reader = xsem.FrameRing.open(gl, message)
        assert not reader.waits_on_device   # else the block's end does not wait
        writes, reads, seen = vulkan.create_command_list(), gl.create_command_list(), gl.host_buffer(SIZE)
        ours = context.external_buffer(seen.native_handle, SIZE)
        for number in range(1, FRAMES + 1):
            with ring.write(writes) as frame:
                writes.append_fill(frame.buffer, bytes([number]))
            with reader.read(reads) as frame:
                slots = context.external_buffer(frame.buffer.native_handle, 2 * SIZE)   # the name of both
                context.copy_buffer(ours, slots, size=SIZE, read_offset=SIZE * (number % 2))
            assert (seen.numpy() == number).all(), number
        reader.close()
    print("done")


if __name__ == "__main__":
    main()
