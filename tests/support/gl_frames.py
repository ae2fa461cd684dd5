"""Frames between an application's OpenGL context and another device of the GPU, both ways, as a program.

    tests/drivers/zink -- python -m support.gl_frames vulkan:0 binary 60 [without-checks] [pyopengl-for-glx]
    tests/drivers/xvfb python -m support.gl_frames vulkan:0 binary 60 glx [without-checks] [pyopengl-for-glx]
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_ubyte
from typing import Any, Final

import numpy as np
import pytest

import xsem
from support.glx_context import ROBUST, SILENT, GlxContext
from support.waiting import until

BYTES: Final = 4096
AHEAD: Final = 20   # frames that are appended before the host waits


def main(draws_on: str, kind: str, count: str, *options: str) -> None:
    """Check the frames, the refusals without a current context, and the errors of the application."""
    # PyOpenGL's choice for an application with a DISPLAY is GLX, also if its contexts are of EGL.
    os.environ["PYOPENGL_PLATFORM"] = "glx" if "pyopengl-for-glx" in options else "egl"
    if "without-checks" in options:   # as an application does that wants speed
        importlib.import_module("OpenGL").ERROR_CHECKING = False   # type: ignore[attr-defined]
    from xsem_opengl.contexts import Context, displays
    from xsem_opengl.loader import load

    gl = load()
    if "glx" in options:
        for attributes in (ROBUST, SILENT):
            cannot_share(gl, GlxContext(*attributes))
    context = GlxContext() if "glx" in options else Context.create(gl, displays(gl)[0])
    refused("bad_native", lambda: xsem.open_device("opengl", native=context.address))   # it is not current
    context.make_current()
    refused("bad_native", lambda: xsem.open_device("opengl", native=7))
    gl.eglBindAPI(gl.EGL_OPENGL_ES_API)   # the application's next contexts
    stale_error(gl)
    with (xsem.open_device("opengl", native=context.address) as device, xsem.open_device(draws_on) as drawing,
          xsem.open_device("vulkan", uuid=device.info.uuid) as exporter):
        assert device.native_handle == context.address
        frames(gl, device, drawing, exporter, kind, int(count))
        buffers_begin_at_their_offset(gl, device, exporter)
        files_are_refused(device)
        with xsem.open_device("opengl:0") as other:   # its appends leave the application's context current
            other.create_command_list().synchronize()
        assert context.is_current()
    until(lambda: not any(each.releasing() for each in (device, drawing, exporter, other)))
    assert gl.eglQueryAPI() == gl.EGL_OPENGL_ES_API
    context.make_none_current()
    context.destroy()
    print("done")


def frames(
    gl: Any, device: xsem.Device, drawing: xsem.Device, exporter: xsem.Device, kind: str, count: int
) -> None:
    """The other device writes, OpenGL copies and writes back, behind waits that are appended before the signals."""
    memory = exporter.create_memory("OPAQUE_FD", 1 << 16)
    drawn, shown = [exporter.create_timeline() if kind == "timeline" else exporter.create_binary() for _ in range(2)]
    here, seen, used = imported(device, memory, drawn, shown)
    there, draws_signal, draws_wait = imported(drawing, memory, drawn, shown)
    ours, theirs = here.map_buffer(0, BYTES), there.map_buffer(0, BYTES)
    copies, replies = ([each.host_buffer(BYTES) for _ in range(AHEAD)] for each in (device, drawing))
    draws, commands = drawing.create_command_list(), device.create_command_list()
    settings = {gl.GL_UNPACK_SWAP_BYTES: 1, gl.GL_UNPACK_SKIP_PIXELS: 3}   # of the application, for its own pixels
    for name, value in settings.items():
        gl.glPixelStorei(name, value)
    commands.append_fill(ours, b"\x05\x06\x07\x08")
    commands.append_copy(copies[0], ours)
    commands.synchronize()
    assert copies[0].numpy().tobytes() == b"\x05\x06\x07\x08" * (BYTES // 4)
    assert all(gl.glGetIntegerv(name) == value for name, value in settings.items())
    for first in range(1, count + 1, AHEAD):
        some = range(first, min(first + AHEAD, count + 1))
        for frame, copied in zip(some, copies, strict=False):
            done = device.create_event()
            values = [frame] if kind == "timeline" else []
            commands.append_wait(seen, *values, acquire=[here])
            commands.append_copy(copied, ours, signal_event=done)
            commands.append_fill(ours, bytes([frame * 7 % 251]))
            commands.append_signal(used, *values, release=[here])
            assert not done.query()
            done.release()
            stale_error(gl)   # of the application, before the next append
            if kind == "binary":   # two waits for one signal would be undefined
                draw(draws, frame, theirs, there, draws_signal, draws_wait, replies[frame - first], [])
        if kind == "timeline":
            for frame in some:
                draw(draws, frame, theirs, there, draws_signal, draws_wait, replies[frame - first], [frame])
        draws.synchronize()
        commands.synchronize()
        for frame, copied, reply in zip(some, copies, replies, strict=False):
            assert (copied.numpy() == frame % 251).all(), frame
            assert (reply.numpy() == np.uint8(frame * 7 % 251)).all(), frame
    held = exporter.create_timeline()
    with held.export(for_device=drawing) as desc, drawing.import_semaphore(desc) as hold:
        control(commands, draws, (hold, held), copies[0], ours, theirs)
    with ThreadPoolExecutor(1) as pool:   # on a thread without a context
        pool.submit(refused, "not_current", lambda: commands.append_fill(ours, b"\x01")).result()
    buffer = ours.native_handle
    assert bool(gl.glIsBuffer(buffer))
    for each in (*copies, *replies, theirs, ours, here, memory, seen, used, drawn, shown, held, commands, draws):
        each.release()
    until(lambda: not device.releasing() and not gl.glIsBuffer(buffer))


def imported(device: xsem.Device, memory: xsem.Memory, *semaphores: xsem.Semaphore) -> tuple[Any, Any, Any]:
    """Import the memory and two semaphores into a device."""
    with memory.export(for_device=device) as desc:
        made: list[Any] = [device.import_memory(desc)]
    for each in semaphores:
        with each.export(for_device=device) as other:
            made.append(device.import_semaphore(other))
    return made[0], made[1], made[2]


def draw(
    draws: xsem.CommandList, frame: int, theirs: Any, there: Any, drawn: Any, shown: Any, reply: Any, values: list[int]
) -> None:
    """Write a frame, and copy what OpenGL writes back."""
    draws.append_fill(theirs, bytes([frame % 251]))
    draws.append_signal(drawn, *values, release=[there])
    draws.append_wait(shown, *values, acquire=[there])
    draws.append_copy(reply, theirs)


def control(
    commands: xsem.CommandList, draws: xsem.CommandList, held: tuple[Any, Any], copied: Any, ours: Any, theirs: Any
) -> None:
    """Check that a copy without a wait does not see the frame of a device that is held back."""
    draws.append_fill(theirs, b"\xfc")
    draws.synchronize()
    draws.append_wait(held[0], 1)
    draws.append_fill(theirs, b"\xfd")
    commands.append_copy(copied, ours)
    commands.synchronize()
    assert (copied.numpy() == 0xfc).all()
    held[1].host_signal(1)
    draws.synchronize()


def buffers_begin_at_their_offset(gl: Any, device: xsem.Device, vulkan: xsem.Device) -> None:
    """The name of a mapping is a buffer of exactly its bytes, or refused where the driver ignores the offset."""
    with vulkan.create_memory("OPAQUE_FD", 1 << 16) as memory, memory.export(for_device=device) as desc:
        halves, fills = [memory.map_buffer(at, BYTES) for at in (0, BYTES)], vulkan.create_command_list()
        for number, half in enumerate(halves):
            fills.append_fill(half, bytes([number]))
        fills.synchronize()
        second, found = device.import_memory(desc).map_buffer(BYTES, BYTES), (c_ubyte * BYTES)()
        if device.info.name.startswith("zink"):
            with pytest.raises(xsem.UnsupportedError):
                _ = second.native_handle
        else:
            gl.glGetNamedBufferSubData(second.native_handle, 0, BYTES, found)
            assert bytes(found) == b"\x01" * BYTES


def stale_error(gl: Any) -> None:
    """Set the error of the context, as an application does that does not look."""
    try:
        gl.glEnable(0xFFFF)
    except gl.GLError:   # PyOpenGL has looked, and so taken it
        assert gl.checks


def cannot_share(gl: Any, context: GlxContext) -> None:
    """X errors of xsem's calls do not end the process, also late ones, and the next ones are the application's."""
    from xsem_opengl.glx import GlxContext as Adopted

    x11 = ctypes.CDLL("libX11.so.6")
    x11.XSetErrorHandler.restype = ctypes.c_void_p
    mine = ctypes.cast(x11.XSynchronize, ctypes.c_void_p)   # of a handler that is never called
    before = x11.XSetErrorHandler(mine)
    context.make_current()
    refused("unsupported", lambda: xsem.open_device("opengl", native=context.address))
    adopted: Any = Adopted.adopted(gl)
    refused("driver_error", lambda: adopted._checked("XDestroyWindow", x11.XDestroyWindow,
                                                     ctypes.c_void_p(adopted._display), 7))
    assert x11.XSetErrorHandler(ctypes.c_void_p(before)) == mine.value
    context.make_none_current()
    context.destroy()


def files_are_refused(device: xsem.Device) -> None:
    """Files that no driver exports do not reach the driver."""
    ends = os.pipe()
    files = [*ends, os.open("/dev/null", os.O_RDONLY), os.eventfd(0), os.open("/", os.O_RDONLY)]
    for fd in files:
        semaphore = xsem.SemaphoreDesc.opaque_fd(fd, device_uuid=device.info.uuid)
        memory = xsem.MemoryDesc.opaque_fd(fd, allocation_size=4096, device_uuid=device.info.uuid)
        for imported, desc in ((device.import_semaphore, semaphore), (device.import_memory, memory)):
            with pytest.raises(xsem.BadHandleError) as caught:
                imported(desc)   # type: ignore[arg-type]
            assert caught.value.call is None   # the driver has not seen it
        os.fstat(fd)   # still the application's
        os.close(fd)


def refused(reason: str, act: Any) -> None:
    """Check that xsem refuses the act with this reason."""
    with pytest.raises(xsem.XsemError) as caught:
        act()
    assert caught.value.reason == reason, caught.value


if __name__ == "__main__":
    main(*sys.argv[1:])
