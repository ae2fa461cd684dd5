"""A viewer in OpenGL shows the newest frame of another process, from a ring of images that are its textures.

The ring is "mailbox", so a slow viewer skips frames and delays no producer. The producer writes with CUDA or Vulkan,
and the viewer draws with moderngl from the frame's own image: nothing is copied. OpenGL creates no memory, so the
producer gives the ring images in Vulkan's memory. Here the picture is drawn without a window, and every pixel checked.

    python examples/opengl_viewer.py --frames 50                     # the producer uses CUDA
    python examples/opengl_viewer.py --frames 50 --device vulkan

The lines of a window program are the same, for example of `examples/video.py` of moderngl/moderngl-window, where
PyAV decodes to memory of the host, and `texture.write` uploads: docs/how-to/opengl-and-torch.md has them.

This program has 107 lines.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import uuid
from typing import TYPE_CHECKING, Any

import xsem
from opengl_torch import TEXTURED, WHOLE, needed, new_context
from renderer import HEIGHT, WIDTH, draw

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

IMAGE = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="unorm8", channels=4)
SIZE, SLOTS = 4 * WIDTH * HEIGHT, 3   # one for each consumer, and two
TIMEOUT_S = 30.0


def produce(to_viewer: Connection, backend: str, gpu: uuid.UUID, frames: int) -> None:
    """Write the frames, in a child process."""
    with xsem.open_device(backend, uuid=gpu) as device, contextlib.ExitStack() as given:
        vulkan = given.enter_context(xsem.open_device("vulkan", uuid=gpu))
        images = [given.enter_context(given.enter_context(vulkan.create_memory("OPAQUE_FD", 4 << 20)).export())
                  for _ in range(SLOTS)]
        commands, upload = device.create_command_list(), device.host_buffer(SIZE)
        with xsem.FrameRing.create(device, shape=IMAGE, memory=images, slots=SLOTS, policy="mailbox") as ring:
            xsem.ipc.send(to_viewer, ring)
            to_viewer.recv()   # the viewer has joined
            for number in range(1, frames + 1):
                upload.numpy()[:] = draw(number).reshape(-1)
                with ring.write(commands) as frame:
                    commands.append_copy(frame.image.level(0), upload)
                commands.synchronize(timeout_s=TIMEOUT_S)   # until `upload` can be written again


def view(context: Any, gl: xsem.Device, from_producer: Connection) -> tuple[int, int, int, int]:
    """Return how many frames were shown, how many were skipped and wrong, and the number of the last one."""
    screen = context.framebuffer([context.texture((WIDTH, HEIGHT), 4)])
    whole = context.vertex_array(context.program(vertex_shader=WHOLE, fragment_shader=TEXTURED), [])
    commands, seen = gl.create_command_list(), gl.host_buffer(SIZE)
    shown = skipped = wrong = last = 0
    with xsem.ipc.receive(from_producer, timeout_s=TIMEOUT_S) as message:
        reader = xsem.FrameRing.open(gl, message)
    from_producer.send(None)
    with reader, contextlib.suppress(xsem.RingEndedError):
        while True:
            with reader.read(commands, timeout_s=TIMEOUT_S) as frame:
                texture = context.external_texture(frame.image.native_handle, (WIDTH, HEIGHT), 4, 0, "f1")
                texture.use()
                screen.use()
                whole.render(vertices=3)
                shown, skipped, last = shown + 1, skipped + frame.skipped, frame.number
            screen.read_into(context.external_buffer(seen.native_handle, SIZE), components=4)   # for the check only
            commands.append_barrier()   # behind the work of moderngl
            commands.synchronize(timeout_s=TIMEOUT_S)
            wrong += not (seen.numpy().reshape(HEIGHT, WIDTH, 4) == draw(last)).all()
    return shown, skipped, wrong, last


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--device", default="cuda", help="the backend of the producer")
    asked = parser.parse_args()
    context = new_context(needed("opengl_viewer", "moderngl"))
    spawn = multiprocessing.get_context("spawn")
    near, far = spawn.Pipe()
    with xsem.open_device("opengl", native=context) as gl:
        producer = spawn.Process(target=produce, args=(far, asked.device, gl.info.uuid, asked.frames))
        try:
            producer.start()
            far.close()   # the child has its own, so its end is seen
            shown, skipped, wrong, last = view(context, gl, near)
            producer.join(TIMEOUT_S)
        finally:
            if producer.pid is not None:
                producer.kill()   # no effect on a process that has ended
                producer.join()
    wrong += last != asked.frames   # the viewer sees at least the last one
    print(f"the viewer showed {shown} frames and skipped {skipped}")
    print(f"opengl_viewer: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong or producer.exitcode else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"opengl_viewer: {error}")
