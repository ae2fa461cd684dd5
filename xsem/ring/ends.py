"""What both ends of a ring have: its timelines, its slots, and the thread that looks who is alive."""

from __future__ import annotations

import contextlib
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from xsem.data.streams import Stream
from xsem.errors import BadArgumentError, BusyError, DriverError, WaitTimeoutError, XsemError
from xsem.facade.buffer import Buffer
from xsem.facade.command_list import CommandList
from xsem.facade.device import Device
from xsem.facade.image import MipmappedArray
from xsem.facade.memory import Memory
from xsem.facade.semaphore import Semaphore
from xsem.ring.frames import Frame
from xsem.ring.message import Shape
from xsem.ring.pictures import planes
from xsem.ring.waiting import Need, Steps
from xsem.runtime.threads import Background, Pause, exiting
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S
from xsem.types import MemoryDesc, SemaphoreDesc, SemaphoreHandleType

__all__ = ["TIMELINE", "End", "Line", "Slots", "Watch", "check_device", "check_work", "list_on"]

TIMELINE: Final = SemaphoreHandleType.HOST_TIMELINE_FD
_LOOK_S: Final = 0.1


class End(ABC):
    """What the producer's and a consumer's end have: one open block at a time, and a close."""

    _closed = True   # until all is made

    def __init__(self) -> None:
        self._open = threading.Lock()   # held during a frame

    @abstractmethod
    def close(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Leave the ring."""

    def _occupy(self, busy: str) -> None:
        """Begin a block or the close, or raise BusyError with this text."""
        if not self._open.acquire(blocking=False):
            raise BusyError(busy, reason="frame_open")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            warnings.warn(f"unreleased {self!r}", ResourceWarning, source=self, stacklevel=2)


class Line(NamedTuple):
    """A timeline of the ring, for the host and for the device."""

    host: Semaphore
    device: Semaphore | None   # None: the device has no such timelines, so the host waits and signals

    @classmethod
    def of(cls, host: Semaphore, device: Device, desc: SemaphoreDesc) -> Line:
        """Import the timeline on the device, too. The caller keeps `desc`."""
        if TIMELINE not in device.capabilities.semaphore_import:
            return cls(host, None)
        return cls(host, device.import_semaphore(desc, label=host.label))

    def finished(self, value: int, last: CommandList | None, late: str) -> Steps[None]:
        """Wait until the work of the last frame, on `last`, is done (DriverError: it failed).

        `late` is the text of the timeout.
        """
        while self.value() < value:
            check_work(last)
            if (yield Need(self.host, value)):
                raise WaitTimeoutError(late, reason="timeout")

    def keep_order(
        self, commands: CommandList | None, value: int, last: CommandList | None, late: str
    ) -> Steps[None]:
        """Let the next signal, of another list than `last` or of the host, come after an earlier one of `value`."""
        if self.value() >= value:
            return
        if commands is not None and self.device is not None:
            commands.append_wait(self.device, value)
        else:
            yield from self.finished(value, last, late)

    def signal(self, commands: CommandList | None, value: int, release: Sequence[Memory]) -> None:
        """Signal when the work of the list is done, or now."""
        if commands is not None and self.device is not None:
            commands.append_signal(self.device, value, release=release)
            return
        if commands is not None:
            commands.append_barrier()   # behind work that the list's owner has not appended by it
            commands.synchronize(timeout_s=None)
        self.host.host_signal(value)

    def value(self) -> int:
        """Return the value."""
        return self.host.value()

    def raise_to(self, value: int) -> None:
        """Signal from the host, unless the value is as high already."""
        if self.host.value() < value:
            self.host.host_signal(value)

    def release(self) -> None:
        """Release both."""
        if self.device is not None:
            self.device.release()
        self.host.release()


class Slots:
    """The memory of the frames, and the buffer or the image of each slot."""

    def __init__(self, memories: Sequence[Memory], shape: Shape) -> None:
        self.memories = memories
        self._payload_bytes = shape.payload_bytes
        self._mapping: Buffer | None = None
        if shape.image is None:
            self._mapping = mapping = memories[0].map_buffer(0, shape.slots * shape.stride)
            views = [mapping.view(shape.shape, shape.dtype, offset=slot * shape.stride) for slot in range(shape.slots)]
            self._planes = [self._of_picture(view) if shape.planes else (view,) for view in views]
            self._contents: list[Buffer | MipmappedArray] = [*views]
        else:
            self._planes = [()] * shape.slots
            with contextlib.ExitStack() as made:
                self._contents = [made.enter_context(each.map_mipmapped_array(shape.image)) for each in memories]
                made.pop_all()
        needs = memories[0].device.capabilities.needs_handover and not memories[0].type.portable
        self._handed_over = [(each,) if needs else () for each in memories]

    @classmethod
    def imported(cls, device: Device, memories: Sequence[MemoryDesc], shape: Shape) -> Slots:
        """Import the memory of the slots. The caller keeps the descriptors."""
        with contextlib.ExitStack() as made:
            slots = cls([made.enter_context(device.import_memory(each)) for each in memories], shape)
            made.pop_all()
            return slots

    @staticmethod
    def _of_picture(view: Buffer) -> tuple[Buffer, ...]:
        luma, chroma = planes(view.shape)
        rest = view.size * 2 // 3
        return view.view(luma, view.dtype), view.view(chroma, view.dtype, offset=rest)

    def handed_over(self, slot: int) -> tuple[Memory, ...]:
        """Return the memory of a slot, if the device takes memory over and hands it over."""
        return self._handed_over[slot % len(self._handed_over)]

    def frame(self, slot: int, number: int, skipped: int, payload: bytes) -> Frame:
        """Return the frame in a slot."""
        return Frame(self._contents[slot], self._planes[slot], number, skipped, payload, self._payload_bytes)

    def release(self) -> None:
        """Release the buffers, the images and the memory."""
        for each in (*[plane for both in self._planes for plane in both], *self._contents):
            each.release()
        if self._mapping is not None:
            self._mapping.release()
        for memory in self.memories:
            memory.release()


class Watch:
    """A thread that looks, a few times in a second, while there is something to look after."""

    def __init__(self, name: str, look: Callable[[], bool]) -> None:
        self._look = look   # returns whether to look again
        self._more = False
        self._nap = Pause()
        self._thread = Background(f"xsem-ring-{name}", self._work, lambda: self._more, joined=False)

    def begin(self) -> None:
        """Look from now on."""
        self._more = True
        self._thread.ensure()

    def end(self) -> None:
        """Look no more, soon."""
        self._more = False
        self._nap.end()

    def _work(self) -> None:
        while self._more and not exiting():
            self._more = False   # first, because `begin` may come during the look
            if self._look():
                self._more = True
                self._nap.wait(_LOOK_S)


def check_work(commands: CommandList | None) -> None:
    """Raise the failure of the list's work (DriverError), if there is one."""
    if commands is not None:
        try:
            commands.query()
        except DriverError:
            raise
        except XsemError:   # released, or in a capture
            pass


def check_device(device: object) -> None:
    """Refuse what is not an open device."""
    if not isinstance(device, Device):
        raise BadArgumentError(f"a Device is needed, not {type(device).__name__}", reason="not_a_device")


def list_on(device: Device, stream: CommandList | Stream | None) -> CommandList | None:
    """Return the command list of a stream; None for the host's own order."""
    if stream is None or isinstance(stream, CommandList):
        return stream
    return device.command_list(stream)
