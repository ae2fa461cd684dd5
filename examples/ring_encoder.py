"""A process makes NV12 pictures, another one encodes them: with NVENC, straight from the ring's memory.

A frame of the ring is what PyNvVideoCodec's encoder takes: an object whose `cuda()` returns the two planes. Where
PyNvVideoCodec is missing, a class with the same calls compresses the planes with zlib, and each picture is compared
after its decompression. It reads them with NumPy on the host, and with torch on a GPU.

    python examples/ring_encoder.py --frames 30
    python examples/ring_encoder.py --device cuda:0 --out film.h264

It replaces a cache of slots, their imports and semaphores by hand: about 430 lines of mscf/OrdinaryLight
(`ordinarylight/outputs/nvenc.py`). This program has 150 lines.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import multiprocessing
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import xsem

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

WIDTH, HEIGHT = 320, 240
TIMEOUT_S = 30.0


def drawn(number: int) -> Any:
    """Return picture `number`, as the rows of luma and then of chroma. All differ."""
    y, x = np.mgrid[0:HEIGHT * 3 // 2, 0:WIDTH]
    return (x + (y >> 1) + 3 * number).astype(np.uint8)


def film(to_encoder: Connection, device_id: str, frames: int) -> None:
    """Make the pictures, in a child process."""
    with xsem.open_device(device_id) as device, xsem.FrameRing.create(device, shape=xsem.Nv12(WIDTH, HEIGHT)) as ring:
        xsem.ipc.send(to_encoder, ring)
        to_encoder.recv()   # the encoder has joined, so it gets every picture
        commands, upload = device.create_command_list(), device.host_buffer(drawn(0).size)
        for number in range(frames):
            upload.numpy()[:] = drawn(number).reshape(-1)
            with ring.write(commands) as picture:
                commands.append_copy(picture.buffer, upload)
            commands.synchronize(timeout_s=TIMEOUT_S)   # until `upload` can be written again


class ZlibEncoder:
    """The calls of PyNvVideoCodec's encoder, without a loss."""

    def __init__(self, on_gpu: bool) -> None:
        self._torch: Any = importlib.import_module("torch") if on_gpu else None

    def Encode(self, picture: Any) -> bytes:   # noqa: N802 - the name that PyNvVideoCodec has
        """Return the compressed planes."""
        if self._torch is None:
            return zlib.compress(np.asarray(picture).tobytes(), 1)
        planes = [self._torch.as_tensor(plane, device="cuda").cpu().numpy() for plane in picture.cuda()]
        return zlib.compress(b"".join(plane.tobytes() for plane in planes), 1)

    def EndEncode(self) -> bytes:   # noqa: N802
        """Return nothing: each picture was complete."""
        return b""


def encoder_of(on_gpu: bool, commands: xsem.CommandList) -> Any:
    """Return NVENC's encoder, whose work is in the order of the list, or its replacement."""
    if not on_gpu or importlib.util.find_spec("PyNvVideoCodec") is None:
        return ZlibEncoder(on_gpu)
    try:
        return importlib.import_module("PyNvVideoCodec").CreateEncoder(
            WIDTH, HEIGHT, "NV12", False, cudastream=commands.native_handle, codec="h264")
    except Exception as error:   # an A100 or H100 has no NVENC
        print(f"the GPU does not encode: {error}", file=sys.stderr)
        return ZlibEncoder(on_gpu)


def content(encoded: Any) -> bytes:
    """Return the bytes of what an encoder returned: bytes, or in newer versions of PyNvVideoCodec packets."""
    if isinstance(encoded, (bytes, bytearray)):
        return bytes(encoded)
    packets: Any = encoded
    return b"".join(each if isinstance(each, (bytes, bytearray)) else each["data"] for each in packets)


def encode(from_film: Connection, device_id: str) -> tuple[bytes, int, int]:
    """Return the encoded film, the number of its pictures, and the number of wrong ones."""
    data, pictures, wrong = bytearray(), 0, 0
    on_gpu = device_id != "host"
    with xsem.open_device(device_id) as device:
        with xsem.ipc.receive(from_film, timeout_s=TIMEOUT_S) as message:
            reader = xsem.FrameRing.open(device, message)
        from_film.send(None)
        commands = device.create_command_list()
        encoder = encoder_of(on_gpu, commands)
        with reader, commands.as_current() if on_gpu else contextlib.nullcontext():
            with contextlib.suppress(xsem.RingEndedError):
                while True:
                    # The encoder's work waits in the list. NumPy's does not, so the host waits for it.
                    with reader.read(commands if on_gpu else None) as picture:
                        packet = content(encoder.Encode(picture))
                    data += packet
                    if isinstance(encoder, ZlibEncoder):
                        wrong += zlib.decompress(packet) != drawn(pictures).tobytes()
                    pictures += 1
            data += content(encoder.EndEncode())
    return bytes(data), pictures, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=30)
    parser.add_argument("--device", default="host")
    parser.add_argument("--out", type=Path, help="file for the encoded film")
    asked = parser.parse_args()
    if asked.device != "host" and not any(map(importlib.util.find_spec, ("PyNvVideoCodec", "torch"))):
        print("ring_encoder: PyNvVideoCodec is missing: pip install PyNvVideoCodec, or torch", file=sys.stderr)
        return 2
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=film, args=(theirs, asked.device, asked.frames))
    process.start()
    try:
        theirs.close()   # the child has its own, so its end is seen
        data, pictures, wrong = encode(ours, asked.device)
        process.join(TIMEOUT_S)
    finally:
        process.kill()   # no effect on a process that has ended
        process.join()
    if asked.out is not None:
        asked.out.write_bytes(data)
    wrong += asked.frames - pictures
    print(f"{len(data)} bytes for {pictures} pictures")
    print(f"ring_encoder: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong or process.exitcode else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"ring_encoder: {error}")
