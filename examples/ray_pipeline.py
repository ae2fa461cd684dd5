"""Hand frames from one Ray actor to the next without a copy, by tickets.

    python examples/ray_pipeline.py [--address auto] [--exporter host] [--memory host] [--device host] [--frames 20]

Ray carries only bytes, so the renderer gives Ray a ticket of `xsem.ipc.offer` for each frame: a text of 122 letters.
The filter claims the ticket, and imports the memory and the timeline of the renderer. The frame itself stays in its
memory. Both actors must be on one node. On another node, the claim is refused with the reason `other_host`, because
handles do not cross machines: copy the data there, for example with `ray.put`.

With a GPU: --exporter vulkan --device cuda. The exporter must be on the same GPU as the device. With --memory cuda,
CUDA allocates and writes the frames, and the exporter creates only the timeline.

Exit status: 0 all frames are right, 1 a frame is wrong, 2 a ticket was refused or Ray is missing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

SIZE = 1 << 20


class Renderer:
    """Writes frames into memory that it exports."""

    def __init__(self, exporter: str, importer: str, memory: str | None = None) -> None:
        self._exporter = xsem.open_device(exporter)   # creates the timeline
        self._device = self._exporter if memory is None else xsem.open_device(memory)   # allocates and writes
        # The importer's UUID is in the descriptors of objects that belong to no GPU.
        with xsem.open_device(importer) as other:
            self._for = other.info.uuid if exporter == "host" else None
        self._memory = self._device.create_memory(MemoryHandleType.OPAQUE_FD, SIZE)
        self._buffer = self._memory.map_buffer(dtype="uint8", shape=(SIZE,))
        self._created = self._done = self._exporter.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        if self._device is not self._exporter:
            with self._created.export(for_device=self._device) as desc:
                self._done = self._device.import_semaphore(desc)
        self._commands = self._device.create_command_list()

    def render(self, frame: int) -> str:
        """Write a frame, signal its number, and return a ticket for one claim."""
        self._buffer.copy_from_host(np.full(SIZE, frame % 251, np.uint8))
        self._commands.append_signal(self._done, frame)
        own = None if self._device is not self._exporter else self._for
        with self._memory.export(for_device=own) as memory, self._created.export(for_device=self._for) as done:
            return str(xsem.ipc.offer(done, memory, payload=frame.to_bytes(8, "little")))

    def close(self) -> None:
        self._device.release()
        self._exporter.release()


class Filter:
    """Reads frames from the renderer's memory."""

    def __init__(self, device: str) -> None:
        self._device = xsem.open_device(device)

    def read(self, ticket: str) -> str:
        """Return "right", "wrong", or the reason why the ticket was refused."""
        try:
            message = xsem.ipc.claim(ticket)
        except xsem.BadArgumentError as error:
            return f"refused ({error.reason}): {error}"
        with message, self._device.import_semaphore(message.semaphores[0]) as done, \
                self._device.import_memory(message.memories[0]) as memory:
            frame = int.from_bytes(message.payload, "little")
            commands = self._device.create_command_list()
            commands.append_wait(done, frame)
            commands.synchronize()
            pixels = memory.map_buffer(dtype="uint8", shape=(SIZE,)).copy_to_host()
            return "right" if bool((pixels == frame % 251).all()) else "wrong"

    def close(self) -> None:
        self._device.release()


def verdict(answers: Sequence[str]) -> int:
    """Print the result, and return the exit status."""
    refused = [each for each in answers if each.startswith("refused")]
    for each in dict.fromkeys(refused):
        print(each)
    print(f"{answers.count('right')} frames right, {answers.count('wrong')} wrong, {len(refused)} refused")
    return 2 if refused else 1 if "wrong" in answers else 0


def on_ray(address: str | None, exporter: str, memory: str | None, device: str, frames: int) -> list[str]:
    """Run the two actors on the node of this program, and return the answers of the filter."""
    ray: Any = importlib.import_module("ray")
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    ray.init(address=address, log_to_driver=False)
    here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)

    def actor(cls: type, *arguments: object) -> Any:
        return ray.remote(cls).options(scheduling_strategy=here, num_cpus=0).remote(*arguments)

    renderer, reader = actor(Renderer, exporter, device, memory), actor(Filter, device)
    answers: list[str] = [ray.get(reader.read.remote(renderer.render.remote(frame))) for frame in range(1, frames + 1)]
    ray.get([renderer.close.remote(), reader.close.remote()])
    ray.shutdown()
    return answers


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", help="address of a Ray cluster; without it, Ray starts on this machine")
    parser.add_argument("--exporter", default="host", help="device that creates the timeline, and the memory")
    parser.add_argument("--memory", help="device of the renderer that allocates and writes the frames, if another one")
    parser.add_argument("--device", default="host", help="device of the filter")
    parser.add_argument("--frames", type=int, default=20)
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("ray") is None:
        print("ray_pipeline: Ray is missing: pip install 'xsem[fleet]'", file=sys.stderr)
        return 2
    return verdict(on_ray(given.address, given.exporter, given.memory, given.device, given.frames))


if __name__ == "__main__":
    sys.exit(main())
