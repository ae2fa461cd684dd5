"""A Ray actor hands frames to other actors of its node without a copy, by a ticket of its ring.

Ray carries only bytes, so the renderer gives Ray a ticket of `xsem.ipc.offer`: a text of 122 letters, once. Each filter
claims it, and joins the ring. Ray carries no frame, and calls no actor for one.

On another node, the claim is refused with the reason `other_host`, because handles do not cross machines. There, use
what the engine has for it: Ray's object store (`ray.put`), or its tensor transports with NCCL or NIXL
(`@ray.method(tensor_transport=…)`).

    python examples/ray_pipeline.py [--address auto] [--exporter host] [--device host] [--frames 20] [--filters 2]

With a GPU: --exporter vulkan --device cuda:0, or cuda:0 for both.

Exit status: 0 all frames are right, 1 a frame is wrong, 2 a ticket was refused or Ray is missing.

It replaces the handles and the event that Ray 2.60.0 passes for each tensor: 214 lines
(`ray/experimental/rdt/cuda_ipc_transport.py`). This program has 131 lines.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import xsem

SIZE = 1 << 20


class Renderer:
    """Writes frames into its ring."""

    def __init__(self, exporter: str, filters: int) -> None:
        self._device = xsem.open_device(exporter)
        self._ring = xsem.FrameRing.create(
            self._device, shape=(SIZE,), dtype="uint8", consumers=filters,
            memory_type="HOST_MEMORY_FD" if exporter == "host" else None)
        self._ticket = xsem.ipc.offer(self._ring, claims=filters)

    def ticket(self) -> str:
        """Return the ticket, for one claim of each filter."""
        return str(self._ticket)

    def render(self, frames: int) -> None:
        """Write frames, and end the ring."""
        commands = self._device.create_command_list()
        for _ in range(frames):
            with self._ring.write(commands) as frame:
                commands.append_fill(frame.buffer, bytes([frame.number % 251]))
        self._ring.close()
        self._device.release()


class Filter:
    """Reads the frames of a renderer."""

    def __init__(self, device: str) -> None:
        self._device = xsem.open_device(device)

    def join(self, ticket: str) -> str:
        """Join the ring of the ticket. Return "joined", or the reason why the ticket was refused."""
        try:
            with xsem.ipc.claim(ticket) as message:
                self._reader = xsem.FrameRing.open(self._device, message)
        except xsem.BadArgumentError as error:
            return f"refused ({error.reason}): {error}"
        return "joined"

    def read(self, frames: int) -> list[bool]:
        """Return for each frame whether it is right."""
        right = list[bool]()
        for number in range(1, frames + 1):
            with self._reader.read() as frame:
                right.append(bool((frame.buffer.copy_to_host() == number % 251).all()))
        self._reader.close()
        self._device.release()
        return right


def verdict(joined: Sequence[str], right: Sequence[bool]) -> int:
    """Print the result, and return the exit status."""
    refused = [each for each in joined if each != "joined"]
    for each in dict.fromkeys(refused):
        print(each)
    print(f"{sum(right)} frames right, {len(right) - sum(right)} wrong, {len(refused)} filters refused")
    return 2 if refused else 0 if all(right) else 1


def on_ray(asked: argparse.Namespace) -> tuple[list[str], list[bool]]:
    """Run the actors on the node of this program. Return what the filters say of the ticket, and of the frames."""
    ray: Any = importlib.import_module("ray")
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    ray.init(address=asked.address, log_to_driver=False)
    here = strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)

    def actor(cls: type, *arguments: object) -> Any:
        return ray.remote(cls).options(scheduling_strategy=here, num_cpus=0).remote(*arguments)

    renderer = actor(Renderer, asked.exporter, asked.filters)
    filters = [actor(Filter, asked.device) for _ in range(asked.filters)]
    ticket = renderer.ticket.remote()
    joined: list[str] = ray.get([each.join.remote(ticket) for each in filters])
    right: list[bool] = []
    if set(joined) == {"joined"}:
        reading = [each.read.remote(asked.frames) for each in filters]
        ray.get(renderer.render.remote(asked.frames))
        right = [each for answers in ray.get(reading) for each in answers]
    ray.shutdown()
    return joined, right


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", help="address of a Ray cluster; without it, Ray starts on this machine")
    parser.add_argument("--exporter", default="host", help="device of the renderer")
    parser.add_argument("--device", default="host", help="device of the filters")
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--filters", type=int, default=2)
    asked = parser.parse_args(arguments)
    if importlib.util.find_spec("ray") is None:
        print("ray_pipeline: Ray is missing: pip install 'xsem[fleet]'", file=sys.stderr)
        return 2
    return verdict(*on_ray(asked))


if __name__ == "__main__":
    sys.exit(main())
