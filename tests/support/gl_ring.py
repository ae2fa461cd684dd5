"""A ring on OpenGL gives a frame back only behind the application's own commands, as a program.

    tests/drivers/zink -- python -m support.gl_ring
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import xsem

WIDTH, HEIGHT, SLOTS, FRAMES = 512, 512, 2, 5
SIZE = 4 * WIDTH * HEIGHT
IMAGE = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="unorm8", channels=4)


def main() -> None:
    """Read frames by commands of moderngl, and look at the result right behind the block."""
    moderngl: Any = importlib.import_module("moderngl")
    context = moderngl.create_context(standalone=True, backend="egl", libgl="libGL.so.1", libegl="libEGL.so.1")
    with (contextlib.ExitStack() as images, xsem.open_device("opengl", native=context) as gl,
          xsem.open_device("vulkan", uuid=gl.info.uuid) as vulkan):
        given = [images.enter_context(images.enter_context(vulkan.create_memory("OPAQUE_FD", 4 << 20)).export())
                 for _ in range(SLOTS)]
        ring = images.enter_context(xsem.FrameRing.create(vulkan, shape=IMAGE, memory=given, slots=SLOTS))
        with ring.export() as message:
            reader = xsem.FrameRing.open(gl, message)
        assert not reader.waits_on_device   # else the block's end does not wait
        writes, reads, seen = vulkan.create_command_list(), gl.create_command_list(), gl.host_buffer(SIZE)
        ours, drawing = context.external_buffer(seen.native_handle, SIZE), vulkan.host_buffer(SIZE)
        for number in range(1, FRAMES + 1):
            with ring.write(writes) as frame:
                drawing.numpy()[:] = number
                writes.append_copy(frame.image.level(0), drawing)
            with reader.read(reads) as frame:
                texture = context.external_texture(frame.image.native_handle, (WIDTH, HEIGHT), 4, 0, "f1")
                texture.read_into(ours)
            assert (seen.numpy() == number).all(), number
        reader.close()
    print("done")


if __name__ == "__main__":
    main()
