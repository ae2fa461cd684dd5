"""A prefill process hands KV-cache blocks to decode processes. Each copies every block into a cache of its own.

The blocks of an fp8 cache are bytes. On a GPU, they stay there, and no host waits for a frame: the ring's waits and
signals are operations of torch's streams. A decode process that is killed gives its slots back. Without torch, NumPy
takes its place on the CPU.

    python examples/kv_blocks.py --consumers 3 --frames 64
    python examples/kv_blocks.py --device cuda:0

It replaces a pool, IPC handles and flags by hand. SGLang 0.5.23 has 829 lines for them
(`srt/multimodal/transport/memory_pool.py` and `cuda_ipc.py`), LMCache 0.5.6 has 658
(`v1/platform/devices/cuda/timeline_semaphore_event_ipc.py`). This program has 112 lines.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import multiprocessing
import sys
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import numpy as np

import xsem

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

SHAPE = (2, 4, 16, 8, 64)   # keys and values, layers, tokens, heads, bytes of a head
TIMEOUT_S = 30.0

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
view: Any = np.asarray if torch is None else torch.from_dlpack   # a frame as an array, without a copy


def computed(count: int) -> Any:
    """Return the blocks. All differ."""
    return np.random.default_rng(7).integers(0, 256, (count, *SHAPE), np.uint8)


def cache_of(blocks: Any, device_id: str) -> Any:
    """Return a cache with these blocks, in the memory of the device."""
    return blocks if torch is None else torch.from_numpy(blocks).to("cpu" if device_id == "host" else device_id)


def stream_of(device_id: str) -> Any:
    """Return the stream of torch's work; None: the work is done when its call returns."""
    return None if device_id == "host" else torch.cuda.current_stream()


def decode(message: xsem.ipc.Message, count: int, device_id: str, all_joined: Barrier) -> None:
    """Copy the blocks into a cache, in a child process, and exit with status 1 if one is wrong."""
    cache = cache_of(np.zeros((count, *SHAPE), np.uint8), device_id)
    with xsem.open_device(device_id) as device:
        with message:
            reader = xsem.FrameRing.open(device, message)
        all_joined.wait(TIMEOUT_S)
        for _ in range(count):
            with reader.read(stream_of(device_id)) as block:
                cache[int.from_bytes(block.payload)] = view(block)
        reader.close()
    found = cache if torch is None else cache.cpu().numpy()
    sys.exit(int((found != computed(count)).any()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consumers", type=int, default=3)
    parser.add_argument("--frames", type=int, default=64, help="number of blocks")
    parser.add_argument("--device", default="host")
    asked = parser.parse_args()
    if torch is None and asked.device != "host":
        print("kv_blocks: PyTorch is missing: pip install torch", file=sys.stderr)
        return 2

    cache = cache_of(computed(asked.frames), asked.device)   # as the prefill has computed it
    context = multiprocessing.get_context("spawn")
    all_joined = context.Barrier(asked.consumers + 1)
    processes = list[BaseProcess]()
    with (
        xsem.open_device(asked.device) as device,
        xsem.FrameRing.create(device, shape=SHAPE, dtype="uint8", slots=4, consumers=asked.consumers) as ring,
    ):
        try:
            for _ in range(asked.consumers):
                with ring.export() as message:
                    processes.append(context.Process(target=decode, args=(
                        message, asked.frames, asked.device, all_joined)))
                    processes[-1].start()
            all_joined.wait(TIMEOUT_S)   # each decode process gets every block
            for number in range(asked.frames):
                with ring.write(stream_of(asked.device), payload=number.to_bytes(4)) as block:
                    view(block)[...] = cache[number]
            for process in processes:
                process.join(TIMEOUT_S)
        finally:
            for process in processes:
                process.kill()   # no effect on a process that has ended
                process.join()
    failed = sum(process.exitcode != 0 for process in processes)
    print(f"kv_blocks: {asked.frames} frames to {asked.consumers} consumers, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"kv_blocks: {error!r}")
