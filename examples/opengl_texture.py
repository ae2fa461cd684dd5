"""CUDA writes an image of optimal tiling, and OpenGL has the same image as a texture, without an upload.

Vulkan allocates the memory. CUDA copies a tensor of torch into the image, and a binary semaphore lets OpenGL wait for
the copy on the GPU. moderngl draws with the texture, and a second semaphore lets CUDA write the next frame. Without
CUDA, a second Vulkan device copies the pixels of NumPy.

    python examples/opengl_texture.py --frames 30
    python examples/opengl_texture.py --device vulkan --array numpy     # without CUDA and torch

This program has 89 lines.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import xsem
from opengl_torch import TEXTURED, WHOLE, needed, new_context
from renderer import HEIGHT, WIDTH, draw

SIZE = 4 * WIDTH * HEIGHT
DESC = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="unorm8", channels=4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--device", default="cuda", help="the backend that writes the image")
    parser.add_argument("--array", choices=("torch", "numpy"), default="torch")
    asked = parser.parse_args()
    moderngl = needed("opengl_texture", "moderngl")
    torch = needed("opengl_texture", "torch") if asked.array == "torch" else None

    context = new_context(moderngl)
    screen = context.framebuffer([context.texture((WIDTH, HEIGHT), 4)])
    whole = context.vertex_array(context.program(vertex_shader=WHOLE, fragment_shader=TEXTURED), [])

    wrong = 0
    with (
        xsem.open_device("opengl", native=context) as gl,
        xsem.open_device("vulkan", uuid=gl.info.uuid) as vulkan,
        xsem.open_device(asked.device, uuid=gl.info.uuid) as device,
    ):
        shared = vulkan.create_memory("OPAQUE_FD", 4 << 20)
        first, second = vulkan.create_binary(), vulkan.create_binary()
        with shared.export() as memory_desc, first.export() as written_desc, second.export() as shown_desc:
            memory, theirs = gl.import_memory(memory_desc), device.import_memory(memory_desc)
            written, done = gl.import_semaphore(written_desc), device.import_semaphore(written_desc)
            shown, free = gl.import_semaphore(shown_desc), device.import_semaphore(shown_desc)
        image, level = memory.map_mipmapped_array(DESC), theirs.map_mipmapped_array(DESC).level(0)
        texture = context.external_texture(image.native_handle, (WIDTH, HEIGHT), 4, 0, "f1")   # by its name in OpenGL
        rows = device.host_buffer(SIZE) if torch is None else device.create_memory(
            "OPAQUE_FD", SIZE).map_buffer(0, SIZE, shape=(HEIGHT, WIDTH, 4))
        pixels: Any = rows.numpy().reshape(HEIGHT, WIDTH, 4) if torch is None else torch.from_dlpack(rows)
        seen = gl.host_buffer(SIZE)   # for the check only
        draws, work = gl.create_command_list(), device.create_command_list()
        for frame in range(asked.frames):
            if torch is None:
                pixels[:] = draw(frame)
            else:
                with work.as_current():
                    pixels.copy_(torch.from_numpy(draw(frame)))
            if frame:
                work.append_wait(free, acquire=[theirs])
            work.append_copy(level, rows)   # from rows to the tiled layout
            work.append_signal(done, release=[theirs])

            draws.append_wait(written, acquire=[memory])
            screen.use()
            texture.use()
            whole.render(vertices=3)
            draws.append_signal(shown, release=[memory])

            screen.read_into(context.external_buffer(seen.native_handle, SIZE), components=4)
            draws.append_barrier()   # behind the work of moderngl, which `synchronize` then waits for, too
            draws.synchronize()
            wrong += not (seen.numpy().reshape(HEIGHT, WIDTH, 4) == draw(frame)).all()
        work.synchronize()
    print(f"opengl_texture: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"opengl_texture: {error}")
