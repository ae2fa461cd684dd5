"""Print as JSON what a CUDA driver does with images in another API's memory, with a separate process for each question.

    python tests/gpu/probe_images.py [--device cuda:0] [--exporter vulkan] > images.json

The answers are facts, not verdicts. The image checks and docs/cuda.md may rely on them. On the stand-in for libcuda,
with the host device as the exporter, the program also runs, but the answers mean nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import xsem
from xsem.plugins import registry
from xsem.types import MemoryHandleType, SemaphoreHandleType
from xsem_conformance.case.direct import duplicate

ROOM = 1 << 21   # bytes of the memory for the images
LIMIT_S = 60.0
FORMATS = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32")


class Rig(NamedTuple):
    """A memory that the exporter created and the device imported."""

    device: xsem.Device
    exporter: xsem.Device
    there: xsem.Memory
    here: xsem.Memory


@contextmanager
def rig(args: argparse.Namespace, size: int = ROOM, dedicated: bool = False) -> Iterator[Rig]:
    with xsem.open_device(args.device) as device:
        choice: dict[str, Any] = {} if args.exporter == "host" else {"uuid": device.info.uuid}
        with xsem.open_device(args.exporter, **choice) as exporter:
            there = exporter.create_memory(MemoryHandleType.OPAQUE_FD, size, dedicated=dedicated)
            with there.export(for_device=device) as desc:
                here = device.import_memory(desc)
            yield Rig(device, exporter, there, here)


def told(work: Callable[[], Any]) -> Any:
    """Return the result of the call, or the text of its error."""
    try:
        return work()
    except Exception as error:
        return [type(error).__name__, getattr(error, "reason", None), getattr(error, "call", None),
                getattr(error, "code_name", None) or getattr(error, "code", None) or str(error)]


def desc(extent: tuple[int, int, int], dtype: str = "uint8", channels: int = 4, **more: Any) -> xsem.MipmapDesc:
    return xsem.MipmapDesc(extent=extent, format=dtype, channels=channels, **more)


def noise(shape: tuple[int, ...], dtype: str, seed: int = 5) -> Any:
    """Return random bytes, which include NaNs: compare them as bytes."""
    rng = np.random.default_rng(seed)
    length = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(length), dtype).reshape(shape)


def same(a: Any, b: Any) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def round_trip(memory: xsem.Memory, layout: xsem.MipmapDesc) -> Any:
    """Write every level, then read every level: return "same", or the levels that differ."""
    with memory.map_mipmapped_array(layout) as image:
        levels = [image.level(index) for index in range(layout.levels)]
        written = []
        for index, level in enumerate(levels):
            data = noise(level.read().shape, layout.format, index)
            level.write(data)
            written.append(data)
        wrong = [index for index, (level, data) in enumerate(zip(levels, written, strict=True))
                 if not same(level.read(), data)]
    return {"wrong levels": wrong} if wrong else "same"


def raw(memory: xsem.Memory, offset: int = 0, size: int | None = None) -> Any:
    """Return the bytes of the memory, by a mapping that ends with the call."""
    with memory.map_buffer(offset, size, overlap=True) as buffer:
        return buffer.copy_to_host(timeout_s=20).view("uint8")


def fill(memory: xsem.Memory, value: int) -> None:
    with memory.map_buffer(overlap=True) as buffer:
        buffer.copy_from_host(np.full(memory.allocation_size, value, "uint8"), timeout_s=20)


# ---- questions: each gets its own process, because a lost context stays lost
def formats(args: argparse.Namespace) -> Any:
    with rig(args) as at:
        return {f"{name} x {channels}": told(lambda n=name, c=channels: round_trip(  # type: ignore[misc]
            at.here, desc((33, 17, 0), n, c))) for name in FORMATS for channels in (1, 2, 4)}


SHAPES: dict[str, xsem.MipmapDesc] = {
    "1d": desc((64, 0, 0)), "1d, 3 levels": desc((64, 0, 0), levels=3), "1d, 5 layers": desc((64, 0, 0), layers=5),
    "1d, 4096": desc((4096, 0, 0)),
    "2d": desc((64, 32, 0)), "2d, odd": desc((37, 19, 0)), "2d, 1 x 1": desc((1, 1, 0)),
    "2d, all levels": desc((64, 32, 0), levels=7), "2d, 1 layer": desc((16, 8, 0), layers=1),
    "2d, 5 layers": desc((16, 8, 0), layers=5), "2d, 3 layers, 3 levels": desc((16, 8, 0), layers=3, levels=3),
    "cubemap": desc((16, 16, 0), layers=6, cubemap=True),
    "cubemap, 3 levels": desc((16, 16, 0), layers=6, cubemap=True, levels=3),
    "12 layers of cubemaps": desc((16, 16, 0), layers=12, cubemap=True),
    "3d": desc((16, 8, 4)), "3d, 3 levels": desc((16, 8, 4), levels=3), "3d, depth 1": desc((16, 8, 1)),
    "2d, surface": desc((64, 32, 0), surface_load_store=True),
    "2d, colour attachment": desc((64, 32, 0), color_attachment=True),
    "2d, both, 3 levels": desc((64, 32, 0), surface_load_store=True, color_attachment=True, levels=3),
    "3d, surface": desc((16, 8, 4), surface_load_store=True),
    "1d, surface": desc((64, 0, 0), surface_load_store=True),
    "cubemap, surface": desc((16, 16, 0), layers=6, cubemap=True, surface_load_store=True),
    "2d, 3 layers, colour attachment": desc((16, 8, 0), layers=3, color_attachment=True),
    "3d, colour attachment": desc((16, 8, 4), color_attachment=True),
    "cubemap, colour attachment": desc((16, 16, 0), layers=6, cubemap=True, color_attachment=True),
    "float32 x 4, colour attachment": desc((16, 8, 0), "float32", 4, color_attachment=True),
}


def shapes(args: argparse.Namespace) -> Any:
    with rig(args) as at:
        return {name: told(lambda each=each: round_trip(at.here, each))  # type: ignore[misc]
                for name, each in SHAPES.items()}


def dedicated_shapes(args: argparse.Namespace) -> Any:
    with rig(args, dedicated=True) as at:
        return {name: told(lambda n=name: round_trip(at.here, SHAPES[n]))  # type: ignore[misc]
                for name in ("1d", "2d", "2d, all levels", "3d", "cubemap", "2d, colour attachment")}


def offsets(args: argparse.Namespace) -> Any:
    """Return the first and the last byte of the memory that a write to an image at an offset changes.

    xsem refuses offsets that are not multiples of 512: on an H200 the first copy to an image at 256 ended the context.
    """

    def at_offset(at: Rig, offset: int) -> Any:
        fill(at.here, 0x55)
        layout = desc((64, 32, 0), offset=offset)
        result = round_trip(at.here, layout)
        changed = np.flatnonzero(raw(at.here) != 0x55)
        return [result, {"first byte": int(changed[0]) - offset, "last byte": int(changed[-1]) - offset}
                if changed.size else "no byte changed"]

    with rig(args) as at:
        return {str(offset): told(lambda o=offset: at_offset(at, o))  # type: ignore[misc]
                for offset in (0, 1 << 20, 1 << 17, 1 << 16, 1 << 15, 8192, 69632, 4096, 2560, 1536, 1024, 512)}


def footprints(args: argparse.Namespace) -> Any:
    """Return the number of bytes from the start of an image to the last one that a write of all levels changes."""

    def footprint(at: Rig, layout: xsem.MipmapDesc) -> Any:
        fill(at.here, 0x55)
        with at.here.map_mipmapped_array(layout) as image:
            for index in range(layout.levels):
                level = image.level(index)
                level.write(np.full(level.read().shape, 0xAA, "uint8"))
        changed = np.flatnonzero(raw(at.here) != 0x55)
        return {"bytes": int(changed.size), "last byte": int(changed[-1]) if changed.size else None}

    with rig(args) as at:
        return {name: told(lambda each=each: footprint(at, each))  # type: ignore[misc]
                for name, each in SHAPES.items() if each.format == "uint8"}


def linear(args: argparse.Namespace) -> Any:
    """Return whether bytes that a buffer wrote are the pixels of an image, row by row."""

    def rows(at: Rig, layout: xsem.MipmapDesc) -> Any:
        data = noise((ROOM,), "uint8")
        with at.here.map_buffer(overlap=True) as buffer:
            buffer.copy_from_host(data, timeout_s=20)
        with at.here.map_mipmapped_array(layout) as image:
            found = image.level(0).read().reshape(-1)
        return bool((found == data[:found.size]).all())

    with rig(args) as at:
        return {name: told(lambda n=name: rows(at, SHAPES[n]))  # type: ignore[misc]
                for name in ("1d", "1d, 4096", "2d", "2d, 1 x 1", "3d")}


def two_images(args: argparse.Namespace) -> Any:
    """Try a second image over the same bytes: beside the first, after the first, and over a second import."""
    answers: dict[str, Any] = {}
    layout = desc((64, 32, 0), levels=3)
    with rig(args) as at:
        data = [noise((32 >> i, 64 >> i, 4), "uint8", i) for i in range(3)]
        overlap = _overlap()
        first = at.here.map_mipmapped_array(layout)
        for index, each in enumerate(data):
            first.level(index).write(each)

        def shows(memory: xsem.Memory) -> list[bool]:
            with memory.map_mipmapped_array(layout, **overlap) as second:
                return [same(second.level(index).read(), each) for index, each in enumerate(data)]

        def sees_later_write() -> bool:
            with at.here.map_mipmapped_array(layout, **overlap) as second:
                second.level(0).read()
                first.level(0).write(data[0][::-1].copy())
                found = same(second.level(0).read(), data[0][::-1])
                second.level(0).write(data[0])
                return found and same(first.level(0).read(), data[0])

        answers["while the first lives"] = told(lambda: shows(at.here))
        answers["a write through one is read through the other"] = told(sees_later_write)
        first.release()
        at.device.create_command_list().synchronize(timeout_s=20)   # by then released objects are freed
        answers["after the first was released"] = told(lambda: shows(at.here))
        with at.there.export(for_device=at.device) as again:
            other = at.device.import_memory(again)
        answers["over a second import"] = told(lambda: shows(other))
        shifted = desc((64, 32, 0), levels=3, offset=1 << 16)
        answers["at another offset it shows something else"] = told(
            lambda: not same(at.here.map_mipmapped_array(shifted).level(0).read(), data[0]))
    return answers


def _overlap() -> dict[str, Any]:
    return {"overlap": True} if "overlap" in inspect.signature(xsem.Memory.map_mipmapped_array).parameters else {}


def image_and_exporter(args: argparse.Namespace) -> Any:
    """Return whether the exporter's buffer and the device's buffer see the same bytes of an image."""
    with rig(args) as at:
        fill(at.here, 0x55)
        with at.here.map_mipmapped_array(desc((64, 32, 0))) as image:
            image.level(0).write(noise((32, 64, 4), "uint8"))
        mine = raw(at.here)
        with at.there.map_buffer() as buffer:
            theirs = buffer.copy_to_host(timeout_s=20).view("uint8")[:ROOM]
        return {"same bytes": bool((mine == theirs).all()), "changed": int((mine != 0x55).sum())}


REFUSED: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "beyond the memory": ((256, 256, 0), {}),
    "beyond it by its offset": ((64, 64, 0), {"offset": 1 << 16}),
    "exactly as large as the memory": ((128, 128, 0), {}),
    "far beyond the memory": ((8192, 8192, 0), {}),
    "3 channels": ((16, 16, 0), {"channels": 3}),
    "0 levels": ((16, 16, 0), {"levels": 0}),
    "more levels than halves": ((16, 16, 0), {"levels": 6}),
    "17 levels": ((16, 16, 0), {"levels": 17}),
    "width 0": ((0, 16, 0), {}),
    "a cubemap that is not square": ((16, 8, 0), {"layers": 6, "cubemap": True}),
    "a cubemap of 5": ((16, 16, 0), {"layers": 5, "cubemap": True}),
    "depth without height": ((16, 0, 4), {}),
    "wider than any image": ((1 << 18, 0, 0), {"channels": 1, "offset": 0}),
    "more layers than any image": ((4, 4, 0), {"channels": 1, "layers": 4095}),
    "a level too many": ((16, 16, 0), {"levels": 3}),
}


def refusal(args: argparse.Namespace, name: str) -> Any:
    """Ask the backend directly for the driver's answers to arguments that xsem mostly refuses before the driver."""
    extent, more = REFUSED[name]
    fields: dict[str, Any] = {"format": "uint8", "channels": 4, "levels": 1, "layers": 0, "offset": 0,
                              "cubemap": False, "surface_load_store": False, "color_attachment": False}
    layout: Any = SimpleNamespace(extent=extent, **fields | more)
    with rig(args, 1 << 16) as at:
        driver: Any = registry().get("cuda").open(at.device.info.index)
        with at.there.export(for_device=at.device) as mine, duplicate(mine) as given:
            token = given.imported_by(driver, mine)

        def ask() -> Any:
            array = driver.map_mipmapped_array(token, layout)
            try:
                driver.mipmap_level(array, layout.levels - (name != "a level too many"))
            finally:
                driver.release_array(array)
            return "mapped, with that level"

        answer = told(ask)
        driver.release_memory(token)
        driver.close()
    return answer


def behind_a_wait(args: argparse.Namespace) -> Any:
    """Measure the seconds of reads, writes, mappings and releases of images during an unmet wait of another list."""
    took: dict[str, Any] = {}
    with rig(args) as at:
        exported = at.exporter.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        with exported.export(for_device=at.device) as mine:
            semaphore = at.device.import_semaphore(mine)
        image = at.here.map_mipmapped_array(desc((64, 32, 0), levels=2))
        data = noise((32, 64, 4), "uint8")
        commands = at.device.create_command_list()
        commands.append_wait(semaphore, 1)

        def timed(name: str, work: Callable[[], Any]) -> Any:
            begin = time.monotonic()
            result = told(work)
            took[name] = [round(time.monotonic() - begin, 3), result if isinstance(result, list) else "done"]
            return result

        timed("write", lambda: image.level(0).write(data))
        timed("read", lambda: image.level(0).read())
        timed("map", lambda: at.here.map_mipmapped_array(desc((64, 32, 0), offset=1 << 20)))
        timed("release", image.release)
        took["still waiting"] = not commands.query()
        exported.host_signal(1)
        commands.synchronize(timeout_s=20)
    return took


def least_memory(args: argparse.Namespace) -> Any:
    """Find the smallest allocations for an image of 64 x 32 RGBA8, which has 8192 bytes of pixels."""
    answers: dict[str, Any] = {}
    for size in (8192, 12288, 16384, 32768, 65536, 131072):
        with rig(args, size) as at:
            answers[str(size)] = [at.here.allocation_size, told(lambda: round_trip(at.here, desc((64, 32, 0)))),
                                  told(lambda: round_trip(at.here, desc((64, 32, 0), levels=7)))]
    return answers


def nvscisync_null(args: argparse.Namespace) -> Any:
    return _nvscisync(args, 0, (0, 1, 2, 3, 4))


def nvscisync_zeros(args: argparse.Namespace) -> Any:
    """Pass the address of zeros instead of an attribute list."""
    zeros = ctypes.create_string_buffer(1 << 16)
    return _nvscisync(args, ctypes.addressof(zeros), (0, 4, 1, 2, 3))


def _nvscisync(args: argparse.Namespace, address: int, flags: tuple[int, ...]) -> Any:
    cuda: Any = importlib.import_module("cuda.bindings.driver")
    with xsem.open_device(args.device) as device:
        _, number = cuda.cuDeviceGet(device.info.index)
        return {str(each): told(lambda f=each: str(cuda.cuDeviceGetNvSciSyncAttributes(  # type: ignore[misc]
            address, number, f)[0])) for each in flags}


QUESTIONS: dict[str, Callable[[argparse.Namespace], Any]] = {
    each.__name__: each for each in (
        formats, shapes, dedicated_shapes, offsets, footprints, linear, two_images, image_and_exporter, behind_a_wait,
        least_memory, nvscisync_null, nvscisync_zeros)
} | {f"refused: {name}": partial(refusal, name=name) for name in REFUSED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--exporter", default="vulkan")
    parser.add_argument("--only", choices=sorted(QUESTIONS), help="one question, in this process")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(QUESTIONS[args.only](args)))
        return
    answers: dict[str, Any] = {}
    for name in QUESTIONS:
        command = [sys.executable, __file__, "--device", args.device, "--exporter", args.exporter, "--only", name]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            answers[name] = f"no end after {LIMIT_S:g} s"
            continue
        answers[name] = json.loads(ran.stdout) if ran.returncode == 0 else {
            "exit": ran.returncode, "output": ran.stderr[-2000:]}
    json.dump(answers, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
