"""Frames between Vulkan and an application's OpenGL context, both ways, as a program.

    tests/drivers/zink -- python -m support.gl_frames [without-checks]
"""

from __future__ import annotations

import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_ubyte
from typing import Any, Final

import numpy as np
import pytest

import xsem
from support.waiting import until

FRAMES: Final = 60
BYTES: Final = 4096


def main(*options: str) -> None:
    """Check the frames, the refusals without a current context, and the errors of the application."""
    os.environ["PYOPENGL_PLATFORM"] = "egl"
    if "without-checks" in options:   # as an application does that wants speed
        importlib.import_module("OpenGL").ERROR_CHECKING = False   # type: ignore[attr-defined]
    from xsem_opengl.contexts import Context, displays
    from xsem_opengl.loader import load

    gl = load()
    context = Context.create(gl, displays(gl)[0])
    refused("bad_native", lambda: xsem.open_device("opengl", native=context.address))   # it is not current
    context.make_current()
    refused("bad_native", lambda: xsem.open_device("opengl", native=7))
    gl.eglBindAPI(gl.EGL_OPENGL_ES_API)   # the application's next contexts
    with (xsem.open_device("opengl", native=context.address) as device,
          xsem.open_device("vulkan", uuid=device.info.uuid) as vulkan):
        assert device.native_handle == context.address
        frames(gl, device, vulkan)
        buffers_begin_at_their_offset(gl, device, vulkan)
        files_are_refused(device)
        with xsem.open_device("opengl:0") as other:   # its appends leave the application's context current
            other.create_command_list().synchronize()
        assert gl.eglGetCurrentContext().address == context.handle.address
    assert gl.eglQueryAPI() == gl.EGL_OPENGL_ES_API
    context.make_none_current()
    context.destroy()
    print("done")


def frames(gl: Any, device: xsem.Device, vulkan: xsem.Device) -> None:
    """Vulkan writes, OpenGL copies and writes back, behind waits that are appended before the signals."""
    memory, drawn, shown = vulkan.create_memory("OPAQUE_FD", 1 << 16), vulkan.create_binary(), vulkan.create_binary()
    with memory.export(for_device=device) as desc:
        here = device.import_memory(desc)
    with drawn.export(for_device=device) as one, shown.export(for_device=device) as two:
        seen, used = device.import_semaphore(one), device.import_semaphore(two)
    theirs, ours, copied = memory.map_buffer(0, BYTES), here.map_buffer(0, BYTES), device.host_buffer(BYTES)
    draws, commands = vulkan.create_command_list(), device.create_command_list()
    settings = {gl.GL_UNPACK_SWAP_BYTES: 1, gl.GL_UNPACK_SKIP_PIXELS: 3}   # of the application, for its own pixels
    for name, value in settings.items():
        gl.glPixelStorei(name, value)
    commands.append_fill(ours, b"\x05\x06\x07\x08")
    commands.append_copy(copied, ours)
    commands.synchronize()
    assert copied.numpy().tobytes() == b"\x05\x06\x07\x08" * (BYTES // 4)
    assert all(gl.glGetIntegerv(name) == value for name, value in settings.items())
    for frame in range(1, FRAMES + 1):
        with device.create_event() as done:
            commands.append_wait(seen, acquire=[here])
            commands.append_copy(copied, ours, signal_event=done)
            commands.append_fill(ours, bytes([frame + 100]))
            commands.append_signal(used, release=[here])
            assert not done.query()
            draws.append_fill(theirs, bytes([frame]))
            draws.append_signal(drawn, release=[memory])
            draws.append_wait(shown, acquire=[memory])
            draws.synchronize()
            commands.synchronize()
            assert done.query()
        assert (copied.numpy() == frame).all()
        assert (theirs.copy_to_host() == np.uint8(frame + 100)).all()
        stale_error(gl)   # of the application, before the next append
    with ThreadPoolExecutor(1) as pool:   # on a thread without a context
        pool.submit(refused, "not_current", lambda: commands.append_fill(ours, b"\x01")).result()
    buffer = ours.native_handle
    assert bool(gl.glIsBuffer(buffer))
    for each in (copied, theirs, ours, here, memory, seen, used, drawn, shown, commands, draws):
        each.release()
    until(lambda: not device.releasing() and not gl.glIsBuffer(buffer))


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
