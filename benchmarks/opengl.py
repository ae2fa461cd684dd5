"""Measure how a tensor of torch becomes a texture of OpenGL, by each way in one run.

    python benchmarks/opengl.py --json out.json

In each frame, torch fills a tensor of 3840 x 2160 RGBA8 on CUDA with a new value, and the way brings it into one
texture. The frame ends when a fence behind the upload is reached, so the figure is the time of a whole frame, with
nothing else in flight. The ways take turns, the first turn of each is not measured, and the texture is checked after
each turn.

- xsem: the tensor is in memory that OpenGL has as a buffer; a timeline orders both sides on the GPU
- registered: a buffer of OpenGL, by cudaGraphicsGLRegisterBuffer; each frame maps and unmaps it
- host: `tensor.cpu()`, and an upload from memory of the host; "page-locked" has one such buffer for all frames

"and a copy" ways fill another tensor, as a model does whose output has its own memory, and copy it on the GPU. Exit
status 1: a texture was wrong, or the deadline passed; 3: what the run needs is not there.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import xsem
from bench.timing import figure, percentiles, rounds
from xsem.spi import compiled

WIDTH, HEIGHT = 3840, 2160
SIZE: Final = 4 * WIDTH * HEIGHT
SHAPE: Final = (HEIGHT, WIDTH, 4)
XSEM, XSEM_COPY = "xsem", "xsem, and a copy"
REGISTERED, REGISTERED_COPY = "registered, a new tensor for each frame", "registered, and a copy"
HOST, LOCKED = "host", "host, page-locked"
A_TURN: Final = 25   # frames
NOT_TRIED: Final = 3
DEADLINE_S: Final = 300
Way = Callable[[int], None]   # brings a frame with this value into the texture, without a wait for it


class Texture:
    """The texture, and the buffer or the memory of the host that it is written from."""

    def __init__(self, gl: Any) -> None:
        self._gl = gl
        names = (ctypes.c_uint * 1)()
        gl.glCreateTextures(gl.GL_TEXTURE_2D, 1, names)
        self._name = names[0]
        gl.glTextureStorage2D(self._name, 1, gl.GL_RGBA8, WIDTH, HEIGHT)

    def write(self, buffer: int, address: int = 0) -> None:
        """Append the upload from a buffer, or from an address with 0 as the buffer."""
        gl = self._gl
        gl.glBindBuffer(gl.GL_PIXEL_UNPACK_BUFFER, buffer)
        gl.glTextureSubImage2D(self._name, 0, 0, 0, WIDTH, HEIGHT, gl.GL_RGBA, gl.GL_UNSIGNED_BYTE,
                               ctypes.c_void_p(address))
        gl.glBindBuffer(gl.GL_PIXEL_UNPACK_BUFFER, 0)

    def wait(self) -> None:
        """Wait until the texture has what was written."""
        gl = self._gl
        fence = gl.glFenceSync(gl.GL_SYNC_GPU_COMMANDS_COMPLETE, 0)
        found = gl.glClientWaitSync(fence, gl.GL_SYNC_FLUSH_COMMANDS_BIT, 5_000_000_000)
        gl.glDeleteSync(fence)
        if found not in (gl.GL_ALREADY_SIGNALED, gl.GL_CONDITION_SATISFIED):
            raise ValueError(f"glClientWaitSync: {found}")

    def check(self, value: int) -> None:
        """Compare the first and the last pixel."""
        gl = self._gl
        for x, y in ((0, 0), (WIDTH - 1, HEIGHT - 1)):
            found = (ctypes.c_ubyte * 4)()
            gl.glGetTextureSubImage(self._name, 0, x, y, 0, 1, 1, 1, gl.GL_RGBA, gl.GL_UNSIGNED_BYTE, 4, found)
            if list(found) != [value] * 4:
                raise ValueError(f"the texture has {list(found)} at {x}, {y}, and not {value}")


class Mapped:
    """An address as what torch makes a tensor of."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {"shape": SHAPE, "typestr": "|u1", "data": (address, False), "version": 3}


class Ways:
    """The ways, with their objects."""

    def __init__(self, gl: xsem.Device, cuda: xsem.Device, libraries: SimpleNamespace) -> None:
        self._gl, self._cuda, self._torch, self._runtime = libraries.gl, cuda, libraries.torch, libraries.runtime
        self._stream = self._torch.cuda.current_stream()
        self.texture = Texture(self._gl)
        self._source = self._torch.zeros(SHAPE, dtype=self._torch.uint8, device="cuda")
        self._share(gl)
        names = (ctypes.c_uint * 1)()
        self._gl.glCreateBuffers(1, names)
        self._gl.glNamedBufferData(names[0], SIZE, None, self._gl.GL_STREAM_DRAW)
        self._buffer = int(names[0])
        flags = int(self._runtime.cudaGraphicsRegisterFlags.cudaGraphicsRegisterFlagsWriteDiscard)
        self._registered = self._ask("cudaGraphicsGLRegisterBuffer", self._buffer, flags)
        self._locked = self._torch.zeros(SHAPE, dtype=self._torch.uint8, pin_memory=True)
        self.all: dict[str, Way] = {
            XSEM: self._by_xsem, XSEM_COPY: partial(self._by_xsem, copied=True), REGISTERED: self._by_registration,
            REGISTERED_COPY: partial(self._by_registration, copied=True), HOST: self._by_host,
            LOCKED: partial(self._by_host, locked=True),
        }

    def _share(self, gl: xsem.Device) -> None:
        """Make the objects of xsem: Vulkan creates them, and OpenGL and CUDA import them."""
        vulkan = xsem.open_device("vulkan", uuid=gl.info.uuid)
        self._made = memory, timeline = vulkan.create_memory("OPAQUE_FD", SIZE), vulkan.create_timeline()
        with memory.export() as memory_desc, timeline.export() as timeline_desc:
            self._ours, self._theirs = gl.import_memory(memory_desc), self._cuda.import_memory(memory_desc)
            self._seen, self._done = gl.import_semaphore(timeline_desc), self._cuda.import_semaphore(timeline_desc)
        self._mapped = self._ours.map_buffer(0, SIZE)
        self._pixels = self._mapped.native_handle
        self._tensor = self._torch.from_dlpack(self._theirs.map_buffer(0, SIZE, shape=SHAPE))
        self._draws = gl.create_command_list()
        self._frames = 0

    def _by_xsem(self, value: int, *, copied: bool = False) -> None:
        drawn, number = 2 * self._frames, 2 * self._frames + 1
        self._frames += 1
        commands = self._cuda.command_list(self._stream)
        if copied:
            self._source.fill_(value)
        if drawn:
            commands.append_wait(self._done, drawn, acquire=[self._theirs])
        if copied:
            self._tensor.copy_(self._source)
        else:
            self._tensor.fill_(value)
        commands.append_signal(self._done, number, release=[self._theirs])
        self._draws.append_wait(self._seen, number, acquire=[self._ours])
        self.texture.write(self._pixels)
        self._draws.append_signal(self._seen, number + 1, release=[self._ours])

    def _by_registration(self, value: int, *, copied: bool = False) -> None:
        stream = self._stream.cuda_stream
        if copied:
            self._source.fill_(value)
        self._ask("cudaGraphicsMapResources", 1, self._registered, stream)
        address, _ = self._ask("cudaGraphicsResourceGetMappedPointer", self._registered)
        if copied:
            self._ask("cudaMemcpyAsync", address, self._source.data_ptr(), SIZE,
                      self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice, stream)
        else:
            self._torch.as_tensor(Mapped(int(address)), device="cuda").fill_(value)
        self._ask("cudaGraphicsUnmapResources", 1, self._registered, stream)
        self.texture.write(self._buffer)

    def _by_host(self, value: int, *, locked: bool = False) -> None:
        self._source.fill_(value)
        pixels = self._locked.copy_(self._source) if locked else self._source.cpu()   # waits for the stream
        self.texture.write(0, pixels.data_ptr())   # returns when OpenGL has read the pixels

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Make a call of CUDA's runtime."""
        code, *results = getattr(self._runtime, name)(*arguments)
        if int(code):
            raise ValueError(f"{name}: {code!r}")
        return results[0] if len(results) == 1 else results


def measure(ways: Ways, frames: int) -> dict[str, dict[str, Any]]:
    """Return the microseconds of a frame by each way, and those until its last call has returned."""
    value = 0

    def turn(way: Way) -> list[tuple[float, float]]:
        nonlocal value
        found = []
        for _ in range(A_TURN):
            value = value % 250 + 1
            began = time.perf_counter_ns()
            way(value)
            called = time.perf_counter_ns()
            ways.texture.wait()
            found.append(((time.perf_counter_ns() - began) / 1000, (called - began) / 1000))
        ways.texture.check(value)
        return found

    turns = rounds({name: partial(turn, way) for name, way in ways.all.items()}, -(-frames // A_TURN))
    answers = {}
    for name, each in turns.items():
        frame_us, calls_us = (list(found) for found in zip(*chain.from_iterable(each), strict=True))
        answers[name] = {"frames": len(frame_us), "frame_us": {**asdict(figure(frame_us)), **percentiles(frame_us)},
                         "calls_us": percentiles(calls_us)}
    return answers


def main() -> int:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=300, help="of each way")
    parser.add_argument("--commit", default="", help="of the tree, for the record")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    try:
        xsem.devices("cuda")   # its error comes before those of missing packages
        names = {"moderngl": "moderngl", "torch": "torch", "gl": "OpenGL.GL", "runtime": "cuda.bindings.runtime"}
        os.environ.setdefault("PYOPENGL_PLATFORM", "egl")
        libraries = SimpleNamespace(**{short: importlib.import_module(name) for short, name in names.items()})
        context = libraries.moderngl.create_context(standalone=True, backend="egl", libgl="libGL.so.1",
                                                    libegl="libEGL.so.1")
        gl = xsem.open_device("opengl", native=context)
        cuda = xsem.open_device("cuda", uuid=gl.info.uuid)
    except Exception as error:   # those of moderngl have no class of their own
        print(f"opengl: {error}", file=sys.stderr)
        return NOT_TRIED
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    try:
        libraries.torch.cuda.set_device(cuda.info.index)
        with libraries.torch.cuda.stream(libraries.torch.cuda.Stream()):
            found = measure(Ways(gl, cuda, libraries), asked.frames)
    except (ValueError, RuntimeError, xsem.XsemError) as error:
        print(f"opengl: {type(error).__name__}: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)   # work of the device may wait for ever
    ratios = {name: each["frame_us"]["median"] / found[XSEM]["frame_us"]["median"] for name, each in found.items()}
    print(f"{WIDTH} x {HEIGHT} RGBA8 from a tensor to a texture, {gl.info.name}")
    for name, each in found.items():
        frame = each["frame_us"]
        print(f"  {name:<40} {frame['median']:8.0f} us a frame ({frame['low']:.0f} to {frame['high']:.0f}, p99 "
              f"{frame['p99']:.0f}), {ratios[name]:.2f} times that of xsem; calls {each['calls_us']['p50']:.0f} us")
    if asked.json is not None:
        asked.json.write_text(json.dumps({
            "schema": 1, "commit": asked.commit, "device": cuda.info.id, "name": cuda.info.name,
            "driver": cuda.info.driver_version, "opengl": gl.info.driver_version, "cores": os.cpu_count(),
            "compiled": compiled(), "frame_bytes": SIZE, "ways": found, "ratios": ratios,
        }, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)   # the objects of the run end with the process


if __name__ == "__main__":
    raise SystemExit(main())
