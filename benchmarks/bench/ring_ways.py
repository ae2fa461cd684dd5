"""Frames between two processes: by a ring of xsem, and by hand with the same timelines and the same memory."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

__all__ = ["BY_HAND", "HOST_TIMELINE", "RING", "SLOTS", "Reader", "Work", "Writer", "content", "readers", "writers"]

HOST_TIMELINE: Final = SemaphoreHandleType.HOST_TIMELINE_FD
RING, BY_HAND = "FrameRing", "by hand"
SLOTS: Final = 3
AHEAD: Final = 2 * SLOTS   # frames that a host is ahead of a device: as many as a ring permits
CONSUMERS: Final = 8   # as many as a ring takes by default, also if it has fewer
TIMEOUT_S: Final = 900


def content(number: int) -> int:
    """Return the value of each byte of a frame."""
    return number % 251


class Work:
    """What a process does with frames: on a list, or on the host itself."""

    def __init__(self, device: xsem.Device, size: int, memory_type: MemoryHandleType) -> None:
        self.device = device
        self.size = size
        self.memory_type = memory_type
        self.commands = None if device.info.backend == "host" else device.create_command_list()
        self.copied = device.create_memory(memory_type, size).map_buffer(0, size)
        self.array: Any = self.copied.numpy() if self.commands is None else None

    def settle(self) -> None:
        """Wait for the work of the list."""
        if self.commands is not None:
            self.commands.synchronize(timeout_s=TIMEOUT_S)

    def check(self, number: int) -> None:
        """Compare the frame that was copied last."""
        if not (self.copied.copy_to_host() == content(number)).all():
            raise ValueError(f"frame {number} is wrong")


class Writer(Protocol):
    """The producer of one way."""

    def write(self) -> None: ...
    def export(self, place: int) -> xsem.ipc.Message: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer of one way."""

    number: int   # of the last frame

    def read(self) -> None: ...


class RingWriter:
    """The producer of a ring."""

    def __init__(self, work: Work, consumers: int) -> None:
        self._commands = work.commands
        self.ring = xsem.FrameRing.create(work.device, shape=(work.size,), dtype="uint8", slots=SLOTS,
                                          consumers=max(CONSUMERS, consumers), memory_type=work.memory_type)

    def write(self) -> None:
        with self.ring.write(self._commands, timeout_s=TIMEOUT_S) as frame:
            if self._commands is None:
                np.asarray(frame)[:] = content(frame.number)
            else:
                self._commands.append_fill(frame.buffer, bytes([content(frame.number)]))

    def export(self, place: int) -> xsem.ipc.Message:
        return self.ring.export()

    def close(self) -> None:
        self.ring.close()


class RingReader:
    """A consumer of a ring."""

    def __init__(self, work: Work, message: xsem.ipc.Message) -> None:
        self.number = 0
        self._work = work
        self._reader = xsem.FrameRing.open(work.device, message)

    def read(self) -> None:
        work = self._work
        with self._reader.read(work.commands, timeout_s=TIMEOUT_S) as frame:
            if frame.number != self.number + 1:
                raise ValueError(f"frame {frame.number} came after frame {self.number}")
            self.number = frame.number
            if work.commands is None:
                work.array[:] = np.asarray(frame)
            else:
                work.commands.append_copy(work.copied, frame.buffer)


class ByHand:
    """The slots, for both ends."""

    def __init__(self, work: Work, memory: xsem.Memory) -> None:
        self.number = 0
        self._work = work
        self._memory = memory
        mapping = memory.map_buffer(0, SLOTS * work.size)
        self._slots = [mapping.view((work.size,), "uint8", offset=slot * work.size) for slot in range(SLOTS)]
        self._arrays = [each.numpy() for each in self._slots] if work.commands is None else []
        needs = work.device.capabilities.needs_handover and not memory.type.portable
        self._handed_over = (memory,) if needs else ()


class HandWriter(ByHand):
    """The producer by hand."""

    def __init__(self, work: Work, consumers: int) -> None:
        super().__init__(work, work.device.create_memory(work.memory_type, SLOTS * work.size))
        self._published = work.device.create_semaphore(HOST_TIMELINE)
        self._done = [work.device.create_semaphore(HOST_TIMELINE) for _ in range(consumers)]

    def write(self) -> None:
        self.number = number = self.number + 1
        commands = self._work.commands
        free = number - (SLOTS if commands is None else AHEAD)
        if free > 0:
            for done in self._done:
                done.host_wait(free, timeout_s=TIMEOUT_S)
        if commands is None:
            self._arrays[number % SLOTS][:] = content(number)
            self._published.host_signal(number)
            return
        if number > SLOTS:
            commands.append_wait(self._done, [number - SLOTS] * len(self._done))
        commands.append_fill(self._slots[number % SLOTS], bytes([content(number)]))
        commands.append_signal(self._published, number, release=self._handed_over)

    def export(self, place: int) -> xsem.ipc.Message:
        return xsem.ipc.Message(semaphores=(self._published.export(), self._done[place].export()),
                                memories=(self._memory.export(),), payload=b"")

    def close(self) -> None:
        for each in (self._published, *self._done, self._memory):
            each.release()


class HandReader(ByHand):
    """A consumer by hand."""

    def __init__(self, work: Work, message: xsem.ipc.Message) -> None:
        super().__init__(work, work.device.import_memory(message.memories[0]))
        self._published, self._done = [work.device.import_semaphore(each) for each in message.semaphores]

    def read(self) -> None:
        self.number = number = self.number + 1
        work, slot = self._work, number % SLOTS
        if work.commands is None:
            self._published.host_wait(number, timeout_s=TIMEOUT_S)
            work.array[:] = self._arrays[slot]
            self._done.host_signal(number)
            return
        if number > AHEAD:
            self._published.host_wait(number - AHEAD, timeout_s=TIMEOUT_S)
        work.commands.append_wait(self._published, number, acquire=self._handed_over)
        work.commands.append_copy(work.copied, self._slots[slot])
        work.commands.append_signal(self._done, number, release=self._handed_over)


def writers(work: Work, consumers: int) -> dict[str, Writer]:
    """Return the producer of each way."""
    return {RING: RingWriter(work, consumers), BY_HAND: HandWriter(work, consumers)}


def readers(work: Work, messages: dict[str, xsem.ipc.Message]) -> dict[str, Reader]:
    """Return a consumer of each way."""
    return {RING: RingReader(work, messages[RING]), BY_HAND: HandReader(work, messages[BY_HAND])}
