"""A participant of a test: a device and its objects, driven by plain calls that can cross processes.

Numbers stand for objects. Every append goes to a list of the participant. `read` copies into memory of the participant;
`fetch` returns the bytes after the list is idle.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import xsem
from xsem.errors import BusyError, UnsupportedError, WaitTimeoutError
from xsem.types import Feature, MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType
from xsem_conformance.case.noise import first_difference, noise

__all__ = ["OPERATIONS", "LocalParticipant", "Participant"]

_CPU: Final = 1
_LISTS_S: Final = 5.0
_FILLED: Final = 1 << 26
_MOST_FILLS: Final = 4096
_STAGED: Final = 1 << 16
_WRITES: Final = 4   # behind work that occupies a list

OPERATIONS: Final = frozenset({
    "about", "new_list", "create_semaphore", "export_semaphore", "export_read_only", "import_semaphore",
    "create_memory", "export_memory", "import_memory", "wait", "signal", "occupy", "reached", "write", "write_noise",
    "read", "fetch", "first_difference", "done", "synchronize", "value", "host_signal", "host_wait", "meets_now",
    "release", "forget",
})
"""Operations that a participant in another process accepts."""


class Participant(Protocol):
    """The operations of a test on either side; `LocalParticipant` documents each of them."""

    def about(self) -> dict[str, Any]: ...
    def new_list(self) -> int: ...
    def create_semaphore(self, type: str, importer: str | None,
                         initial_value: int = 0) -> tuple[int, SemaphoreDesc]: ...
    def export_semaphore(self, semaphore: int, importer: str | None) -> SemaphoreDesc: ...
    def export_read_only(self, semaphore: int, importer: str | None) -> SemaphoreDesc: ...
    def import_semaphore(self, desc: SemaphoreDesc) -> int: ...
    def create_memory(self, type: str, size: int, importer: str | None,
                      dedicated: bool = False) -> tuple[int, MemoryDesc]: ...
    def export_memory(self, memory: int, importer: str | None) -> MemoryDesc: ...
    def import_memory(self, desc: MemoryDesc) -> int: ...
    def wait(self, commands: int, semaphores: Sequence[int], values: Sequence[int | None],
             acquire: Sequence[int] = ()) -> None: ...
    def signal(self, commands: int, semaphores: Sequence[int], values: Sequence[int | None],
               release: Sequence[int] = ()) -> None: ...
    def occupy(self, commands: int, seconds: float) -> int: ...
    def reached(self, event: int) -> bool: ...
    def write(self, commands: int, memory: int, offset: int, data: str) -> None: ...
    def write_noise(self, commands: int, memory: int, size: int, seed: int) -> None: ...
    def read(self, commands: int, memory: int, offset: int, size: int) -> int: ...
    def fetch(self, reading: int) -> str: ...
    def first_difference(self, reading: int, seed: int) -> int | None: ...
    def done(self, commands: int) -> bool: ...
    def synchronize(self, commands: int, timeout_s: float) -> None: ...
    def value(self, semaphore: int) -> int: ...
    def host_signal(self, semaphore: int, value: int | None) -> None: ...
    def host_wait(self, semaphore: int, value: int | None, timeout_s: float) -> None: ...
    def meets_now(self, semaphore: int, value: int | None) -> bool: ...
    def release(self, object_: int) -> None: ...
    def forget(self) -> None: ...


class LocalParticipant:
    """A `Participant` in this process."""

    def __init__(self, device: xsem.Device, lend: Callable[[int], int] | None = None) -> None:
        self.device = device
        self._lend = lend
        self._objects: dict[int, Any] = {}
        self._mappings: dict[int, xsem.Buffer] = {}
        self._numbers = itertools.count(1)
        self._host_list: int | None = None
        self._filled: xsem.Buffer | None = None
        self._staging: list[xsem.Buffer] = []

    def about(self) -> dict[str, Any]:
        """Return the identity of the device and the capabilities that its role as exporter needs."""
        info, declared = self.device.info, self.device.capabilities
        return {
            "id": info.id,
            "pid": os.getpid(),
            "uuid": None if info.uuid is None else info.uuid.hex,
            "semaphore_export": sorted(each.value for each in declared.semaphore_export),
            "memory_export": sorted(each.value for each in declared.memory_export),
            "semaphore_import": sorted(each.value for each in declared.semaphore_import),
            "features": sorted(each.value for each in declared.features),
            "wait_before_signal": sorted(each.value for each in declared.wait_before_signal),
            "max_value_difference": declared.max_value_difference,
            "independent_lists": declared.independent_lists,
        }

    def keep(self, made: Any) -> int:
        """Store an object; return its number."""
        number = next(self._numbers)
        self._objects[number] = made
        return number

    def get(self, number: int) -> Any:
        """Return the object with that number."""
        return self._objects[number]

    # ---- objects
    def new_list(self) -> int:
        """Create a command list; retry while the device has no free queue."""
        deadline = time.monotonic() + _LISTS_S
        while True:
            try:
                return self.keep(self.device.create_command_list())
            except BusyError:
                # On a device with few queues, a released list may still occupy its queue.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    def create_semaphore(self, type: str, importer: str | None, initial_value: int = 0) -> tuple[int, SemaphoreDesc]:
        """Create a semaphore; return its number and a descriptor for the device with the UUID `importer`."""
        # The caller closes the descriptor.
        number = self.keep(self.device.create_semaphore(SemaphoreHandleType(type), initial_value=initial_value))
        return number, self.export_semaphore(number, importer)

    def export_semaphore(self, semaphore: int, importer: str | None) -> SemaphoreDesc:
        """Export another descriptor. For a sync file without an appended signal, append the signal first."""
        made: xsem.Semaphore = self.get(semaphore)
        try:
            return made.export(for_device=importer)
        except BusyError as error:
            if error.reason != "nothing_signalled":
                raise
        self.signal(self._hosts_list(), [semaphore], [None])
        return made.export(for_device=importer)

    def export_read_only(self, semaphore: int, importer: str | None) -> SemaphoreDesc:
        """Export a descriptor of a portable timeline that its importer cannot signal. The caller closes it."""
        desc: SemaphoreDesc = self.get(semaphore).export(for_device=importer, read_only=True)
        return desc

    def import_semaphore(self, desc: SemaphoreDesc) -> int:
        """Import a semaphore; return its number. The caller keeps `desc`."""
        return self.keep(self.device.import_semaphore(desc))

    def create_memory(self, type: str, size: int, importer: str | None,
                      dedicated: bool = False) -> tuple[int, MemoryDesc]:
        """Create memory; return its number and a descriptor for the importer. The caller closes the descriptor."""
        number = self.keep(self.device.create_memory(MemoryHandleType(type), size, dedicated=dedicated))
        return number, self.export_memory(number, importer)

    def export_memory(self, memory: int, importer: str | None) -> MemoryDesc:
        """Export another descriptor; the caller closes it."""
        desc: MemoryDesc = self.get(memory).export(for_device=importer)
        return desc

    def import_memory(self, desc: MemoryDesc) -> int:
        """Import memory; return its number. The caller keeps `desc`."""
        return self.keep(self.device.import_memory(desc))

    # ---- appends
    def wait(self, commands: int, semaphores: Sequence[int], values: Sequence[int | None],
             acquire: Sequence[int] = ()) -> None:
        """Append a wait for the semaphores, and acquire the memory in `acquire`."""
        self.get(commands).append_wait(*self._given(semaphores, values), acquire=[self.get(each) for each in acquire])

    def signal(self, commands: int, semaphores: Sequence[int], values: Sequence[int | None],
               release: Sequence[int] = ()) -> None:
        """Append a signal of the semaphores, and release the memory in `release`."""
        self.get(commands).append_signal(*self._given(semaphores, values), release=[self.get(each) for each in release])

    def _given(self, semaphores: Sequence[int], values: Sequence[int | None]) -> tuple[Any, Any]:
        # xsem lets the driver prepare the append of one binary semaphore only in a call without a sequence.
        if len(semaphores) == 1:
            return self.get(semaphores[0]), values[0]
        return [self.get(each) for each in semaphores], list(values)

    def occupy(self, commands: int, seconds: float) -> int:
        """Append work of about `seconds` to an idle list: fills of its own memory. Return the event of its end."""
        # NVIDIA's OpenCL driver fills such memory, and copies from it, on the caller's thread when no work is pending.
        # It copies to such memory on the device. Both were measured on an H200.
        if self._filled is None:
            self._filled = self.device.host_buffer(_FILLED)
        while len(self._staging) < _WRITES:
            self._staging.append(self.device.host_buffer(_STAGED))
        own, work = self._filled, self.get(commands)

        def fill() -> None:
            work.append_fill(own, b"\x5a")

        each, at_once = _cost(work, fill)
        act = fill
        if at_once and self._lend is not None:
            lent = self.mapping(self._lend(_FILLED)).view((_FILLED,), "uint8")

            def act() -> None:
                work.append_copy(own, lent)

            each, _ = _cost(work, act)
        for _ in range(min(_MOST_FILLS, math.ceil(seconds / each))):
            act()
        event = self.device.create_event()
        work.append_barrier(signal_event=event)
        return self.keep(event)

    def reached(self, event: int) -> bool:
        """Return whether the event is reached."""
        return bool(self.get(event).query())

    def write(self, commands: int, memory: int, offset: int, data: str) -> None:
        """Append a copy of `data` (base64) to the memory."""
        self._copy(commands, memory, offset, base64.b64decode(data))

    def write_noise(self, commands: int, memory: int, size: int, seed: int) -> None:
        """Append a copy of the bytes of `noise` to the start of the memory."""
        self._copy(commands, memory, 0, noise(size, seed))

    def _copy(self, commands: int, memory: int, offset: int, raw: bytes) -> None:
        target = self.mapping(memory).view((len(raw),), "uint8", offset=offset)
        try:
            source = self._staged(len(raw))
        except UnsupportedError:
            self._on_cpu(commands, target, lambda: target.numpy().data.__setitem__(slice(None), raw))
            return
        source.numpy().data[:] = raw
        self.keep(source)
        self.get(commands).append_copy(target, source)

    def _staged(self, size: int) -> xsem.Buffer:
        """Return page-locked memory, first from the supply of `occupy`: an allocation may wait for all pending work."""
        if size <= _STAGED and self._staging:
            whole = self._staging.pop()
            self.keep(whole)   # otherwise its release waits for the view, and `let_go` for the release
            return whole.view((size,), "uint8")
        return self.device.host_buffer(size)

    def read(self, commands: int, memory: int, offset: int, size: int) -> int:
        """Append a copy from the memory to memory of the participant; return a number for `fetch`."""
        source = self.mapping(memory).view((size,), "uint8", offset=offset)
        try:
            target = self.device.host_buffer(size)
        except UnsupportedError:
            kept = bytearray(size)
            self._on_cpu(commands, source, lambda: kept.__setitem__(slice(None), source.numpy().tobytes()))
            return self.keep(kept)
        self.get(commands).append_copy(target, source)
        return self.keep(target)

    def _on_cpu(self, commands: int, buffer: xsem.Buffer, work: Callable[[], object]) -> None:
        if buffer.__dlpack_device__()[0] != _CPU:
            raise UnsupportedError(f"{self.device.info.id} maps memory, but gives no host buffers and is not a CPU",
                                   capability="host_buffer")
        self.get(commands).append_work(work)

    def mapping(self, memory: int) -> xsem.Buffer:
        """Return a mapping of the whole memory, made once."""
        if memory not in self._mappings:
            self._mappings[memory] = self.get(memory).map_buffer()
        return self._mappings[memory]

    # ---- results
    def fetch(self, reading: int) -> str:
        """Return the bytes that `read` copied, in base64; the list must be idle."""
        return base64.b64encode(self._read_bytes(reading)).decode()

    def first_difference(self, reading: int, seed: int) -> int | None:
        """Return the offset of the first copied byte that differs from `noise`; None if all bytes are equal."""
        return first_difference(self._read_bytes(reading), seed)

    def _read_bytes(self, reading: int) -> bytes:
        kept = self.get(reading)
        return bytes(kept) if isinstance(kept, bytearray) else kept.numpy().tobytes()

    def done(self, commands: int) -> bool:
        """Return whether the list is idle."""
        return bool(self.get(commands).query())

    def synchronize(self, commands: int, timeout_s: float) -> None:
        """Wait until the list is idle."""
        self.get(commands).synchronize(timeout_s=timeout_s)

    def value(self, semaphore: int) -> int:
        """Return the current value of a timeline."""
        return int(self.get(semaphore).value())

    def host_signal(self, semaphore: int, value: int | None) -> None:
        """Signal from the host if the device can, else through a separate list."""
        if self.can(semaphore, Feature.HOST_SIGNAL):
            try:
                self.get(semaphore).host_signal(value)
            except UnsupportedError:   # the host of Vulkan signals only timelines
                pass
            else:
                return
        self.signal(self._hosts_list(), [semaphore], [value])

    def host_wait(self, semaphore: int, value: int | None, timeout_s: float) -> None:
        """Wait on the host if the device can, else through a separate list."""
        if self.can(semaphore, Feature.HOST_WAIT):
            try:
                self.get(semaphore).host_wait(value, timeout_s=timeout_s)
            except UnsupportedError:   # the host of Vulkan waits only for timelines
                pass
            else:
                return
        commands = self._hosts_list()
        self.wait(commands, [semaphore], [value])
        self.synchronize(commands, timeout_s)

    def meets_now(self, semaphore: int, value: int | None) -> bool:
        """Return whether a wait is met now. Without host waits, a list gets the time that its driver needs."""
        try:
            if self.can(semaphore, Feature.HOST_WAIT):
                with contextlib.suppress(UnsupportedError):   # Vulkan has host waits only for timelines
                    self.get(semaphore).host_wait(value, timeout_s=0.0)
                    return True
            self.host_wait(semaphore, value, _LISTS_S)
        except WaitTimeoutError:
            return False
        return True

    def can(self, semaphore: int, feature: Feature) -> bool:
        """Return whether the host makes these calls: for a portable timeline on each device."""
        return self.get(semaphore).type.portable or feature in self.device.capabilities.features

    def _hosts_list(self) -> int:
        # One list for all host operations: some devices have few queues.
        if self._host_list is None:
            self._host_list = self.new_list()
        return self._host_list

    def release(self, object_: int) -> None:
        """Release one object."""
        self._mappings.pop(object_, None)
        kept = self._objects.pop(object_)
        if not isinstance(kept, bytearray):
            kept.release()

    def forget(self) -> None:
        """Release everything, newest first."""
        self._mappings.clear()
        self._host_list = None
        while self._objects:
            _, kept = self._objects.popitem()
            if not isinstance(kept, bytearray):
                kept.release()


def _cost(work: xsem.CommandList, act: Callable[[], object]) -> tuple[float, bool]:
    """Return the seconds per operation, and whether all operations were done right after their appends."""
    each, at_once = 1.0, False
    for count in (2, 8):   # the first ones are slow: they touch the memory for the first time
        began = time.monotonic()
        for _ in range(count):
            act()
        at_once = work.query()
        work.synchronize()
        each = (time.monotonic() - began) / count
    return each, at_once
