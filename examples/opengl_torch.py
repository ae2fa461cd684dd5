"""OpenGL draws, torch filters the pixels, and OpenGL shows them: on one GPU, without a copy through the host.

moderngl draws triangles, and reads their pixels into a buffer in shared memory, which is a tensor of torch, too. torch
inverts it in place, and moderngl makes a texture of it. Two binary semaphores let each side wait for the other on the
GPU. OpenGL only imports, so Vulkan creates the memory and the semaphores on the GPU of the context. Without CUDA, NumPy
inverts on the host, by copies of a second Vulkan device.

    python examples/opengl_torch.py --frames 50
    python examples/opengl_torch.py --device vulkan --array numpy     # without CUDA and torch

This program has 153 lines.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import xsem

WIDTH, HEIGHT = 320, 240
SIZE = 4 * WIDTH * HEIGHT
TRIANGLES = """
#version 330
uniform float turn;
out vec4 colour;
void main() {
    float angle = turn * (1 + gl_VertexID / 3) + 2.0944 * (gl_VertexID % 3), radius = 0.9 - 0.25 * (gl_VertexID / 3);
    gl_Position = vec4(radius * cos(angle), radius * sin(angle), 0, 1);
    colour = vec4(gl_VertexID % 3 == 0, gl_VertexID % 3 == 1, gl_VertexID / 9.0, 1);
}
"""
COLOURED = "#version 330\nin vec4 colour; out vec4 pixel; void main() { pixel = colour; }"
WHOLE = """
#version 330
void main() { gl_Position = vec4(4 * (gl_VertexID & 1) - 1, 4 * (gl_VertexID >> 1) - 1, 0, 1); }
"""
TEXTURED = """
#version 330
uniform sampler2D picture;
out vec4 pixel;
void main() { pixel = texelFetch(picture, ivec2(gl_FragCoord.xy), 0); }
"""


def needed(program: str, name: str) -> Any:
    """Import a library, or end the program with what is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{program}: {name} is missing: pip install {name}", file=sys.stderr)
        sys.exit(2)


def new_context(moderngl: Any) -> Any:
    """Make a context of EGL, without a display."""
    try:
        return moderngl.create_context(standalone=True, backend="egl", libgl="libGL.so.1", libegl="libEGL.so.1")
    except Exception as error:   # moderngl's errors have no class of their own
        raise RuntimeError(f"OpenGL has no EGL context: {error}") from error


def inverter(torch: Any, device: xsem.Device, buffer: xsem.Buffer) -> Callable[[xsem.CommandList], None]:
    """Return a function that appends the inversion of the buffer to a list."""
    if torch is not None:
        tensor = torch.from_dlpack(buffer)   # the shared bytes, without a copy
        # Use the kernel once before any wait is pending: its first use loads it, which waits for the whole GPU.
        tensor.bitwise_not_().cpu()

        def invert(commands: xsem.CommandList) -> None:
            with commands.as_current():   # torch works on the list's stream
                tensor.bitwise_not_()
    else:
        pixels = device.host_buffer(SIZE)

        def invert(commands: xsem.CommandList) -> None:
            commands.append_copy(pixels, buffer)
            commands.synchronize()
            np.bitwise_not(pixels.numpy(), out=pixels.numpy())
            commands.append_copy(buffer, pixels)

    return invert


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--device", default="cuda", help="the backend of the filter")
    parser.add_argument("--array", choices=("torch", "numpy"), default="torch")
    asked = parser.parse_args()
    moderngl = needed("opengl_torch", "moderngl")
    torch = needed("opengl_torch", "torch") if asked.array == "torch" else None

    context = new_context(moderngl)
    scene, screen = (context.framebuffer([context.texture((WIDTH, HEIGHT), 4)]) for _ in range(2))
    texture = context.texture((WIDTH, HEIGHT), 4)
    triangles = context.vertex_array(context.program(vertex_shader=TRIANGLES, fragment_shader=COLOURED), [])
    whole = context.vertex_array(context.program(vertex_shader=WHOLE, fragment_shader=TEXTURED), [])

    wrong = 0
    with (
        xsem.open_device("opengl", native=context) as gl,
        xsem.open_device("vulkan", uuid=gl.info.uuid) as vulkan,
        xsem.open_device(asked.device, uuid=gl.info.uuid) as device,
    ):
        shared, first, second = vulkan.create_memory("OPAQUE_FD", SIZE), vulkan.create_binary(), vulkan.create_binary()
        with shared.export() as memory_desc, first.export() as drawn_desc, second.export() as inverted_desc:
            memory, theirs = gl.import_memory(memory_desc), device.import_memory(memory_desc)
            drawn, seen = gl.import_semaphore(drawn_desc), device.import_semaphore(drawn_desc)
            inverted, done = gl.import_semaphore(inverted_desc), device.import_semaphore(inverted_desc)
        buffer = memory.map_buffer(0, SIZE)
        pixels = context.external_buffer(buffer.native_handle, SIZE)   # by its name in OpenGL
        invert = inverter(torch, device, theirs.map_buffer(0, SIZE, shape=(HEIGHT, WIDTH, 4)))
        before, after = gl.host_buffer(SIZE), gl.host_buffer(SIZE)   # for the check only
        draws, work = gl.create_command_list(), device.create_command_list()
        for frame in range(asked.frames):
            scene.use()
            context.clear(frame % 251 / 255, 0, 0.5, 1)
            triangles.program["turn"] = frame / 20
            triangles.render(vertices=9)
            scene.read_into(pixels, components=4)
            draws.append_signal(drawn, release=[memory])

            work.append_wait(seen, acquire=[theirs])
            invert(work)
            work.append_signal(done, release=[theirs])

            draws.append_wait(inverted, acquire=[memory])
            texture.write(pixels)
            screen.use()
            texture.use()
            whole.render(vertices=3)

            for picture, rows in ((scene, before), (screen, after)):
                picture.read_into(context.external_buffer(rows.native_handle, SIZE), components=4)
            draws.append_barrier()   # behind the work of moderngl, which `synchronize` then waits for, too
            draws.synchronize()
            wrong += not (after.numpy() == 255 - before.numpy()).all()
        work.synchronize()
    print(f"opengl_torch: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"opengl_torch: {error}")
