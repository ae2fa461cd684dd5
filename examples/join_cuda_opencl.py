"""CUDA and OpenCL share memory and semaphores that Vulkan allocated. Every value is checked.

    python examples/join_cuda_opencl.py --rounds 1000 [--devices cuda:0 opencl:0] [--exporter vulkan]

Both devices only import. In each round the first device writes a number into the whole memory. The second device reads
it and writes the next number. The first device reads that number. The OpenCL device is used as in an application of
pyopencl: with its own context, its own queue and a pyopencl.Buffer over the memory. Every other device uses xsem's
copies and fills.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import xsem

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINARY, MEMORY = xsem.SemaphoreHandleType.OPAQUE_FD, xsem.MemoryHandleType.OPAQUE_FD   # KHR OpenCL has no timelines


class Side(Protocol):
    """One device that works on the memory. Each call only appends, and its work is done when the list is."""

    @property
    def device(self) -> xsem.Device: ...
    @property
    def commands(self) -> xsem.CommandList: ...
    @property
    def seen(self) -> NDArray[np.uint32]: ...
    def use(self, memory: xsem.Memory, count: int) -> None: ...
    def read(self) -> None: ...
    def write(self, value: int) -> None: ...


class PyopenclSide:
    """A device of pyopencl: pyopencl's calls on pyopencl's queue. xsem borrows the context and the queue."""

    def __init__(self, device: str) -> None:
        try:
            import pyopencl as cl
        except ImportError as error:
            raise xsem.BackendUnavailableError("pyopencl is missing: pip install 'xsem[opencl]'",
                                               reason="pyopencl_missing") from error
        # This is the order of xsem's indices: all devices of all platforms.
        found = [each for platform in cl.get_platforms() for each in platform.get_devices()]
        chosen = [each for each, info in zip(found, xsem.devices("opencl"), strict=True) if info.id == device]
        if not chosen:
            raise xsem.DeviceNotFoundError(f"{device} does not exist", reason="no_such_device")
        self._cl = cl
        self._reading: object = None
        self._queue = cl.CommandQueue(cl.Context(chosen))
        self.device = xsem.open_device("opencl", native=self._queue)
        self.commands = self.device.command_list(self._queue)

    def use(self, memory: xsem.Memory, count: int) -> None:
        self._mapping = memory.map_buffer()   # all of it; the allocation may be larger than requested
        # The buffer holds a reference of its own. Kernels can use it like any other buffer.
        self._buffer = self._cl.Buffer.from_int_ptr(self._mapping.native_handle)
        self.seen: NDArray[np.uint32] = np.zeros(count, dtype="uint32")

    def read(self) -> None:
        def enqueue() -> None:
            # Keep the event: pyopencl waits for a copy to the host when its event is freed.
            self._reading = self._cl.enqueue_copy(self._queue, self.seen, self._buffer, is_blocking=False)

        self.commands.append_work(enqueue)

    def write(self, value: int) -> None:
        pattern = np.array(value, dtype="uint32")
        self.commands.append_work(
            lambda: self._cl.enqueue_fill_buffer(self._queue, self._buffer, pattern, 0, self.seen.nbytes))


class PlainSide:
    """A device that uses xsem's copies and fills."""

    def __init__(self, device: str) -> None:
        self.device = xsem.open_device(device)
        self.commands = self.device.create_command_list()

    def use(self, memory: xsem.Memory, count: int) -> None:
        self._mapping = memory.map_buffer(shape=(count,), dtype="uint32")
        self._host = self.device.host_buffer(4 * count)
        self.seen: NDArray[np.uint32] = self._host.numpy().view("uint32")

    def read(self) -> None:
        self.commands.append_copy(self._host, self._mapping)

    def write(self, value: int) -> None:
        self.commands.append_fill(self._mapping, value.to_bytes(4, sys.byteorder))


def join(first: Side, second: Side, exporter: xsem.Device, rounds: int, count: int) -> tuple[int, int]:
    """Return the number of checked values, and the number of wrong values."""
    shared = exporter.create_memory(MEMORY, 4 * count)
    to_second, to_first = exporter.create_semaphore(BINARY), exporter.create_semaphore(BINARY)

    def imported(side: Side) -> tuple[xsem.Memory, xsem.Semaphore, xsem.Semaphore]:
        with shared.export(for_device=side.device) as memory, to_second.export(for_device=side.device) as there, \
                to_first.export(for_device=side.device) as back:
            return (side.device.import_memory(memory), side.device.import_semaphore(there, label="to second"),
                    side.device.import_semaphore(back, label="to first"))

    mine, to_it, from_it = imported(first)
    its, from_me, to_me = imported(second)
    first.use(mine, count)
    second.use(its, count)

    looked, wrong = 0, 0

    def check(seen: Any, expected: int) -> None:
        nonlocal looked, wrong
        looked += count
        wrong += int((seen != expected).sum())

    second.commands.append_signal(to_me)   # at the start, the first device owns the memory
    first.commands.append_wait(from_it, acquire=[mine])
    for number in range(1, 2 * rounds, 2):
        first.write(number)
        first.commands.append_signal(to_it, release=[mine])

        second.commands.append_wait(from_me, acquire=[its])
        second.read()
        second.write(number + 1)
        second.commands.append_signal(to_me, release=[its])

        first.commands.append_wait(from_it, acquire=[mine])
        first.read()
        second.commands.synchronize()
        first.commands.synchronize()
        check(second.seen, number)
        check(first.seen, number + 1)
    return looked, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--values", type=int, default=4096, help="32-bit values in the memory")
    parser.add_argument("--devices", nargs=2, default=["cuda:0", "opencl:0"], metavar=("FIRST", "SECOND"))
    parser.add_argument("--exporter", default="vulkan:0")
    asked = parser.parse_args()
    with xsem.open_device(asked.exporter) as exporter, ExitStack() as opened:
        sides: list[Side] = []
        for each in asked.devices:
            sides.append(PyopenclSide(each) if each.startswith("opencl") else PlainSide(each))
            opened.enter_context(sides[-1].device)
        looked, wrong = join(sides[0], sides[1], exporter, asked.rounds, asked.values)
        names = " and ".join(side.device.info.id for side in sides)
    print(f"join: {asked.rounds} rounds between {names}, {looked} values checked, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except xsem.XsemError as error:
        sys.exit(f"join_cuda_opencl: {error}")
