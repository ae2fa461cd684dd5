"""A tensor transport for Ray: actors of one node pass tensors by their memory, and the GPU orders both sides.

Ray moves the tensors of a method with ``@ray.method(tensor_transport="XSEM")``. The transport is registered with Ray's
public function, so Ray itself stays as it is:

    import ray_transport
    ray_transport.register()     # before the actors are created

A tensor of CUDA is not copied: `Device.share` exports its memory (torch: expandable segments), and a portable timeline
orders the streams. Each message is a ticket of `xsem.ipc.offer`, so Ray carries 122 characters for a tensor. The GPU is
found by its UUID, so the actors may see different CUDA_VISIBLE_DEVICES. A tensor of the CPU is copied once, into memory
that the receivers map.

    python examples/ray_transport.py [--address auto] [--device cpu] [--elements 1000000]

Exit status: 0 the receiver has seen the right elements, 1 it has not, 2 Ray or torch is missing.

It does what `ray/experimental/rdt/cuda_ipc_transport.py` of Ray 2.60.0 does with handles and events by hand in 214
lines. This program has 235 lines, 50 of them for the two actors.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import sys
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import xsem

if importlib.util.find_spec("ray") is None:
    print("Ray is missing: pip install 'xsem[fleet]', and torch", file=sys.stderr)
    raise SystemExit(2)
_rdt: Any = importlib.import_module("ray.experimental.rdt.tensor_transport_manager")

LIFETIME_S = 600.0   # how long a tensor can be fetched after its method has returned
CLAIMS = 64          # how often


@dataclass
class Metadata(_rdt.TensorTransportMetadata):
    """What Ray carries: a ticket, and the value that the timeline has when the tensors are written."""

    ticket: str = ""
    written: int = 0


class XsemTransport(_rdt.TensorTransportManager):
    """One object for each actor. Ray calls it from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: dict[Any, xsem.Device] = {}
        self._written: dict[xsem.Device, tuple[xsem.Semaphore, int]] = {}
        self._kept: dict[str, contextlib.ExitStack] = {}

    @property
    def tensor_transport_backend(self) -> str:
        """The name in ``tensor_transport=``."""
        return "XSEM"

    @staticmethod
    def is_one_sided() -> bool:
        """The receiver maps the memory without the sender."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """A transfer has no second half that could be left over."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Every actor has it."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: Sequence[Any]) -> Metadata:
        """Offer the memory of the tensors of a result."""
        if not rdt_object:
            return Metadata(tensor_meta=[])
        place = rdt_object[0].device
        if any(each.device != place for each in rdt_object):
            raise ValueError("all tensors of one result must be on one device")
        if not all(each.numel() for each in rdt_object):
            raise ValueError("a tensor without elements has no memory to map")
        device = self._device(place)
        with contextlib.ExitStack() as kept, contextlib.ExitStack() as exports:
            shared: list[Any] = [kept.enter_context(_shared(device, each)) for each in rdt_object]
            written, value = self._next_value(device)
            if place.type == "cuda":
                written.signal(value, stream=_torch().cuda.current_stream(place))
            else:
                written.host_signal(value)
            layouts = [{"offset": getattr(memory, "offset", 0), "strides": list(tensor.stride())}
                       for memory, tensor in zip(shared, rdt_object, strict=True)]
            ticket = xsem.ipc.offer(
                *(exports.enter_context(each.export()) for each in (written, *shared)),
                payload=json.dumps(layouts).encode(), claims=CLAIMS, lifetime_s=LIFETIME_S)
            with self._lock:
                self._kept[obj_id] = kept.pop_all()   # until garbage_collect
        return Metadata(tensor_meta=[(each.shape, each.dtype) for each in rdt_object], tensor_device=place.type,
                        ticket=str(ticket), written=value)

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
        """The ticket has all that the receiver needs."""
        return _rdt.CommunicatorMetadata()

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Metadata, communicator_metadata: Any,
        target_buffers: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Map the tensors. The current stream waits until they are written; a tensor of the CPU is written already."""
        if not tensor_transport_metadata.tensor_meta:
            return []
        torch, cuda = _torch(), tensor_transport_metadata.tensor_device == "cuda"
        tensors = list[Any]()
        with xsem.ipc.claim(tensor_transport_metadata.ticket) as message, contextlib.ExitStack() as imports:
            device = self._device(message.memories[0].device_uuid if cuda else None)
            written = imports.enter_context(device.import_semaphore(message.semaphores[0], label="written"))
            if cuda:
                written.wait(tensor_transport_metadata.written, stream=torch.cuda.current_stream())
            else:
                written.host_wait(tensor_transport_metadata.written)
            for desc, layout, (shape, dtype) in zip(message.memories, json.loads(message.payload),
                                                    tensor_transport_metadata.tensor_meta, strict=True):
                memory = imports.enter_context(device.import_memory(desc))   # a tensor over it keeps it
                last = sum((n - 1) * step for n, step in zip(shape, layout["strides"], strict=True))
                flat = torch.from_dlpack(memory.map_buffer(layout["offset"], dtype.itemsize * (1 + last)))
                tensors.append(flat.view(dtype).as_strided(shape, layout["strides"]))
        if not target_buffers:
            return tensors
        for target, tensor in zip(target_buffers, tensors, strict=True):
            target.copy_(tensor)
        return list(target_buffers)

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        """Ray does not call this for a one-sided transport."""
        raise NotImplementedError

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Metadata, tensors: Sequence[Any]) -> None:
        """Release the exports of a result. Its receivers keep the memory."""
        with self._lock:
            kept = self._kept.pop(obj_id, contextlib.ExitStack())
        kept.close()

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Do nothing: a receiver that has failed has released its imports."""

    def _device(self, place: Any) -> xsem.Device:
        """Return the device of a torch.device, of a UUID, or the CPU for None."""
        on_gpu = place is not None and getattr(place, "type", "cuda") == "cuda"
        if on_gpu and hasattr(place, "type"):
            place = uuid.UUID(bytes=bytes(_torch().cuda.get_device_properties(place).uuid.bytes))
        key = place if on_gpu else None
        with self._lock:
            if key not in self._devices:
                self._devices[key] = xsem.open_device("cuda", uuid=key) if on_gpu else xsem.open_device("host")
            return self._devices[key]

    def _next_value(self, device: xsem.Device) -> tuple[xsem.Semaphore, int]:
        with self._lock:
            written, value = self._written.get(device) or (device.create_timeline(label="written"), 0)
            self._written[device] = written, value + 1
            return written, value + 1


def _torch() -> Any:
    return importlib.import_module("torch")


def _shared(device: xsem.Device, tensor: Any) -> xsem.SharedArray | xsem.Memory:
    """Return exportable memory with the elements of a tensor: its own on a GPU, a copy on the CPU."""
    if tensor.device.type == "cuda":
        return device.share(tensor)
    memory = device.create_memory("OPAQUE_FD", max(1, tensor.untyped_storage().nbytes()))
    flat = _torch().from_dlpack(memory.map_buffer(0, tensor.untyped_storage().nbytes()))
    flat.view(tensor.dtype).as_strided(tensor.shape, tensor.stride()).copy_(tensor)
    return memory


def register() -> None:
    """Register the transport in this process. Ray registers it in the actors that this process creates."""
    util = importlib.import_module("ray.experimental.rdt.util")
    util.register_tensor_transport("XSEM", ["cuda", "cpu"], XsemTransport, _torch().Tensor)


class Producer:
    """An actor that makes tensors."""

    def make(self, place: str, elements: int, first: int) -> Any:
        """Return first, first + 1, …"""
        return _torch().arange(first, first + elements, device=place, dtype=_torch().int64)


class Consumer:
    """An actor that uses them."""

    def total(self, tensor: Any) -> int:
        """Return the sum."""
        return int(tensor.sum().item())


def main(arguments: Sequence[str] | None = None) -> int:
    """Pass three tensors between two actors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default=None, help="the address of a cluster; without: a new one on this machine")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:0")
    parser.add_argument("--elements", type=int, default=1_000_000)
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("torch") is None:
        print("torch is missing", file=sys.stderr)
        return 2
    ray: Any = importlib.import_module("ray")
    ray.init(address=given.address)
    register()
    gpus = {"num_gpus": 0.5} if given.device != "cpu" else {}
    make = ray.method(tensor_transport="XSEM")(Producer.make)
    producer = ray.remote(**gpus, enable_tensor_transport=True)(type("Producer", (Producer,), {"make": make})).remote()
    consumer = ray.remote(**gpus, enable_tensor_transport=True)(Consumer).remote()
    wrong = 0
    for first in (0, 7, 1 << 40):
        found = ray.get(consumer.total.remote(producer.make.remote(given.device, given.elements, first)))
        wrong += found != given.elements * (2 * first + given.elements - 1) // 2
    print(f"3 tensors of {given.elements} elements, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
