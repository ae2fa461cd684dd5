"""The producer's end of a ring of frames."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, cast

from xsem.data.file_descriptors import duplicate_fd
from xsem.data.handles import number_of
from xsem.data.layout import parse_dtype, parse_layout
from xsem.data.streams import Stream
from xsem.errors import (
    BadArgumentError,
    BadHandleError,
    DriverError,
    ReleasedError,
    WaitTimeoutError,
)
from xsem.facade.command_list import CommandList
from xsem.facade.device import Device
from xsem.facade.discovery import open_device
from xsem.ipc.message import Message
from xsem.ring import protocol
from xsem.ring.consumer import END, FrameReader
from xsem.ring.control import Control, entries
from xsem.ring.ends import TIMELINE, End, Line, Slots, Watch, check_device, list_on
from xsem.ring.frames import Frame, Turn
from xsem.ring.message import Policy, Shape
from xsem.ring.pictures import Picture
from xsem.ring.protocol import Layout
from xsem.ring.waiting import Need, Steps, run
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.types import Handle, MemoryDesc, MemoryHandleType, MipmapDesc, UUIDLike

__all__ = ["FrameRing"]

_MOMENT_S: Final = 0.0002
_LATE: Final = "the work that writes the last frame is not done"


class FrameRing(End):
    """A ring of frames: slots of one memory, one producer, and consumers that come and go, in any processes.

    `create` makes the ring, in the process of its producer. `export` returns a message for each consumer, and `open`
    makes a `FrameReader` of it. With the policy ``"fifo"``, each consumer gets every frame from its joining on, and the
    producer waits for the slowest one. With ``"mailbox"``, a consumer gets the newest whole frame, and the producer
    waits only if consumers hold all slots but two.

    A process can be killed at any moment: no consumer gets a torn or an old frame, no slot is lost, and the others go
    on within a second (docs/explanation/frame-ring.md).

    Attributes
    ----------
    device : Device
        The device whose work writes the frames.
    waits_on_device : bool
        Whether the producer's waits and signals are operations of the device. False: the device has no portable
        timelines, so the host waits for its work.

    Examples
    --------
    >>> import numpy as np
    >>> import xsem
    >>> with (xsem.open_device("host") as device,
    ...       xsem.FrameRing.create(device, shape=(4,), dtype="uint8") as ring):
    ...     with ring.export() as message:
    ...         reader = xsem.FrameRing.open(device, message)
    ...     with ring.write() as frame:
    ...         frame.numpy()[:] = 7
    ...     with reader.read() as frame:
    ...         print(frame.number, frame.numpy())
    ...     reader.close()
    1 [7 7 7 7]
    """

    def __init__(
        self, device: Device, shape: Shape, memory_type: MemoryHandleType | str, memories: Sequence[MemoryDesc],
        drop_after_s: float | None,
    ) -> None:
        super().__init__()
        self.device = device
        self._shape = shape
        self._drop_after_s = drop_after_s
        self._layout = Layout(shape.slots, shape.consumers)
        with contextlib.ExitStack() as made:
            self._host = made.enter_context(open_device("host"))
            self._given = [_duplicate(each) for each in memories]
            for desc in self._given:
                made.callback(desc.close)
            self._slots = (Slots.imported(device, memories, shape) if memories
                           else Slots([device.create_memory(memory_type, shape.slots * shape.stride)], shape))
            made.callback(self._slots.release)
            self._control = Control.create(self._host, self._layout, shape.payload_bytes)
            made.callback(self._control.close)
            self._control.take_producer()
            self._committed = made.enter_context(self._host.create_semaphore(TIMELINE, label="committed frames"))
            self._published = self._line("published frames")
            made.callback(self._published.release)
            self._done = [self._line(f"consumer {place}") for place in range(shape.consumers)]
            for line in self._done:
                made.callback(line.release)
            self._cleanup = made.pop_all()
        self.waits_on_device: bool = self._published.device is not None
        self._number = 0   # the last frame that was written
        self._slot = 0   # of the frame that is being written
        self._joining: dict[int, int] = {}
        self._seen = [0] * shape.consumers   # the value of each consumer's timeline, or an earlier one
        self._last: CommandList | None = None   # the list of the last frame
        self._clearing = threading.Lock()
        self._waits: dict[int, int] = {}   # operations of the device that wait for a place
        self._watch = Watch("producer", self._look)
        self._closed = False

    @classmethod
    def create(
        cls, device: Device, *, shape: Sequence[int] | Picture | MipmapDesc, dtype: Any = None, slots: int = 3,
        policy: Policy = "fifo", consumers: int = 8, payload_bytes: int = 1024,
        memory_type: MemoryHandleType | str | None = None, memory: MemoryDesc | Sequence[MemoryDesc] | None = None,
        drop_after_s: float | None = None,
    ) -> FrameRing:
        """Make a ring, as its producer.

        Parameters
        ----------
        device : Device
            The device that writes the frames. It is borrowed, and must stay open until `close`.
        shape : sequence of int, Nv12, P010 or MipmapDesc
            Number of elements of a frame in each dimension; or a picture of two planes; or an image.
        dtype : str or dtype
            As for `Memory.map_buffer`. Not with a picture or an image, which has its own.
        slots : int
            How many frames the memory has room for, 2 to 1024; of images at most 32.
        policy : "fifo" or "mailbox"
            Every frame in order, or the newest one.
        consumers : int
            Most consumers at a time, 1 to 64. Each has a timeline, and so a file descriptor in the message.
        payload_bytes : int
            Most bytes that come with a frame, up to 65,536.
        memory_type : MemoryHandleType or str, optional
            Type of the memory. Default: the first type that the device creates for itself, else ``HOST_MEMORY_FD``,
            which the device must be able to import.
        memory : MemoryDesc or sequence of MemoryDesc, optional
            Memory of another API in which the slots are, for example of a renderer: frame *n* of ``"fifo"`` is at
            ``n % slots`` times the bytes of a frame, which are first rounded up to a multiple of 256. Images need this
            argument, with one memory for each image: frame *n* of ``"fifo"`` is in ``memory[n % slots]``. The handles
            stay the caller's, on success and on failure. Default: the ring creates memory.
        drop_after_s : float, optional
            Only ``"fifo"``: give up a consumer for which the producer has waited that long. It gets RingEndedError
            (``dropped``). Default: wait until the timeout of `write`.

        Returns
        -------
        FrameRing
            The ring. `close` or its ``with`` block ends it.

        Raises
        ------
        BadArgumentError
            ``bad_slots``, ``bad_consumers``, ``bad_policy``, ``bad_shape``, ``bad_dtype``, ``payload_too_long``,
            ``bad_type``: also both of `memory` and `memory_type`; ``bad_size``: `memory` is too small;
            ``not_a_descriptor``, ``bad_timeout``, ``not_a_device``, ``not_an_int``; the reasons of
            `Device.import_memory` and `Memory.map_mipmapped_array`.
        BadHandleError, ReleasedError, WrongDeviceError, DriverError
            With `memory`: ``no_handle``, and the reasons of `Device.import_memory`.
        UnsupportedError
            The device cannot create or import such memory, or the system is not Linux.
        OutOfMemoryError
            ``out_of_memory``.
        BackendUnavailableError, DeviceNotFoundError
            The device `host` is not there.
        BusyError
            The device has no room for the ring's objects.

        Examples
        --------
        >>> import xsem
        >>> with (xsem.open_device("host") as device,
        ...       xsem.FrameRing.create(device, shape=(480, 640, 4), dtype="uint8", policy="mailbox") as ring):
        ...     with ring.write() as frame:
        ...         frame.numpy().shape
        (480, 640, 4)
        """
        check_device(device)
        if isinstance(shape, (Picture, MipmapDesc)) is not (dtype is None):
            raise BadArgumentError("a shape needs a dtype, and a picture or an image has its own", reason="bad_dtype")
        if isinstance(shape, MipmapDesc):
            given = Shape(policy, slots, consumers, (), "uint8", payload_bytes, image=shape)
        else:
            element = parse_dtype(shape.dtype if isinstance(shape, Picture) else dtype)
            lengths = shape.shape if isinstance(shape, Picture) else shape
            given = Shape(policy, slots, consumers, parse_layout(lengths, None, element.itemsize).shape, element.name,
                          payload_bytes, isinstance(shape, Picture))
        check_timeout(drop_after_s)
        if drop_after_s is not None and (policy != "fifo" or not drop_after_s > 0):
            raise BadArgumentError(f"drop_after_s is seconds above 0, with the policy 'fifo', not {drop_after_s!r} "
                                   f"with {policy!r}", reason="bad_timeout")
        if memory is not None or given.image is not None:
            return cls(device, given, "", _memories(memory, memory_type, given), drop_after_s)
        if memory_type is None:
            own = [each for each in device.capabilities.memory_export if not each.portable and each in _SENT]
            memory_type = min(own, key=_SENT.index, default=MemoryHandleType.HOST_MEMORY_FD)
        return cls(device, given, memory_type, (), drop_after_s)

    def _line(self, label: str) -> Line:
        made = self._host.create_semaphore(TIMELINE, label=label)
        with made.export() as desc:
            return Line.of(made, self.device, desc)

    @staticmethod
    def open(device: Device, message: Message) -> FrameReader:
        """Join a ring as a consumer.

        Parameters
        ----------
        device : Device
            The device whose work reads the frames. It is borrowed, and must stay open until `FrameReader.close`.
        message : Message
            The message of `export`, as it was received. The caller keeps it and closes it, on success and on failure.

        Returns
        -------
        FrameReader
            The consumer. It has a place in the ring until its `FrameReader.close`, or the end of its process.

        Raises
        ------
        BadArgumentError
            ``bad_ring``: the message is not that of a ring, or was cut. ``not_a_device``. Also the reasons of
            `Device.import_memory`.
        BadHandleError
            ``wrong_magic``, and the reasons of `Device.import_memory` and `Device.import_semaphore`.
        ReleasedError
            The message or the device is released.
        UnsupportedError
            The device cannot import or map the memory of the frames, or the system is not Linux.
        WrongDeviceError
            ``wrong_device``: the frames are in memory of another GPU.
        BusyError
            ``too_many_consumers``: the ring has as many consumers as it was made for.
        BackendUnavailableError, DeviceNotFoundError
            The device `host` is not there.

        Examples
        --------
        >>> import xsem
        >>> with (xsem.open_device("host") as device,
        ...       xsem.FrameRing.create(device, shape=(480, 640, 4), dtype="uint8") as ring):
        ...     with ring.export() as message:              # in another process: xsem.ipc.receive
        ...         reader = xsem.FrameRing.open(device, message)
        ...     reader.close()
        """
        return FrameReader(device, message)

    def export(self, *, for_device: Device | UUIDLike | None = None) -> Message:
        """Return the message for a consumer, for `ipc.send`, `ipc.offer` and channels of multiprocessing.

        Parameters
        ----------
        for_device : Device or its UUID, optional
            The device of the consumer, as for `Memory.export`. Not needed for memory of type ``HOST_MEMORY_FD``.

        Returns
        -------
        Message
            New descriptors at each call. The caller owns and closes them.

        Raises
        ------
        ReleasedError
            ``released``: the ring is closed.
        WrongDeviceError
            ``wrong_device``: the memory belongs to another GPU than `for_device`.
        BadArgumentError
            ``bad_uuid``.

        Examples
        --------
        >>> import xsem
        >>> with (xsem.open_device("host") as device,
        ...       xsem.FrameRing.create(device, shape=(480, 640, 4), dtype="uint8") as ring):
        ...     with ring.export() as message:              # to another process: xsem.ipc.send(sock, message)
        ...         reader = xsem.FrameRing.open(device, message)
        ...     reader.close()
        """
        self._check()
        semaphores = [self._committed.export(read_only=True), self._published.host.export(),
                      *[each.host.export() for each in self._done]]
        memories = [self._control.memory.export()]
        try:
            memories += ([_duplicate(each) for each in self._given] if self._given
                         else [each.export(for_device=for_device) for each in self._slots.memories])
        except BaseException:
            Message(semaphores=tuple(semaphores), memories=tuple(memories), payload=b"").close()
            raise
        return Message(semaphores=tuple(semaphores), memories=tuple(memories), payload=self._shape.encode())

    def __xsem_message__(self) -> Message:
        """Return the message of `export`, for `ipc.send` and `ipc.offer`.

        Returns
        -------
        Message
            As `export`.

        Raises
        ------
        ReleasedError, WrongDeviceError, BadArgumentError
            As `export`.
        """
        return self.export()

    def write(
        self, stream: CommandList | Stream | None = None, *, payload: bytes = b"",
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
    ) -> Turn:
        """Write the next frame, in a ``with`` or ``async with`` block.

        The block gets the `Frame`, fills it or appends the work that fills it, and publishes it at its end. If the
        block raises, nothing is published, and the next frame has the same number.

        Parameters
        ----------
        stream : CommandList or stream, optional
            The list or the stream with the work that fills the frame: `Device.command_list` has the kinds. Consumers
            see the frame when this work is done. Default: the frame is filled at the end of the block.
        payload : bytes
            The bytes that come with the frame; also `Frame.payload`, until the end of the block.
        timeout_s : float or None
            Seconds for a free slot; None: no limit.

        Returns
        -------
        Turn
            For ``with`` or ``async with``, once.

        Raises
        ------
        WaitTimeoutError
            ``timeout``: a consumer holds the frame in the slot.
        BusyError
            ``frame_open``: another block of this ring is open.
        ReleasedError
            ``released``: the ring is closed.
        BadArgumentError
            ``payload_too_long``; ``bad_timeout``.

        Examples
        --------
        >>> import xsem
        >>> with (xsem.open_device("host") as device,
        ...       xsem.FrameRing.create(device, shape=(480, 640, 4), dtype="uint8") as ring):
        ...     with ring.write(payload=b"camera 1") as frame:
        ...         frame.numpy()[:] = 7
        """
        return Turn("write", self._control.identity, lambda: self._begin(list_on(self.device, stream), payload),
                    self._end, timeout_s)

    def close(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """End the ring, when the work on its frames is done. Consumers get the frames that they have not had.

        A second call has no effect.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        BadArgumentError
            ``bad_timeout``.
        WaitTimeoutError
            ``timeout``: the work of the last frame is not done. The ring stays open.
        BusyError
            ``frame_open``: a block is open.
        """
        if self._closed:
            return
        self._occupy("a frame of the ring is open")
        try:
            with contextlib.suppress(DriverError):   # failed work writes no more
                run(self._published.finished(self._number, self._last, _LATE), timeout_s)
            self._closed = True
            self._control.store(self._layout.ended, self._number + 1)
            self._control.fence()
            self._committed.host_signal(END)
        finally:
            self._open.release()
        self._watch.end()
        self._cleanup.close()

    # ---- inside
    def _check(self) -> None:
        if self._closed:
            raise ReleasedError("the ring is closed", reason="released")

    def _begin(self, commands: CommandList | None, payload: bytes) -> Steps[Frame]:
        self._check()
        self._occupy("another frame of the ring is open: one block at a time writes")
        try:
            number = self._number + 1
            if self._shape.policy == "fifo":
                slot = yield from self._in_order(number, commands)
            else:
                slot = yield from self._newest(number)
            if commands is not self._last:
                yield from self._published.keep_order(commands, self._number, self._last, _LATE)
            self._slot, self._last = slot, commands
            return self._slots.frame(slot, number, 0, payload)
        except BaseException:
            self._open.release()
            raise

    def _in_order(self, number: int, commands: CommandList | None) -> Steps[int]:
        """Wait until each consumer is done with the slot of the frame, here or on the device."""
        slots, began = self._shape.slots, time.monotonic()
        on_device = commands is not None and self.waits_on_device and self._drop_after_s is None
        protocol.begin(self._control, self._layout, number)
        waits: dict[int, int] = {}
        ask = True
        while ask:
            ask = False
            # A place that is done with the slot stays so: who joins later begins with a later frame.
            for place, least, joining in protocol.demands(self._control, self._layout, number, self._joining):
                # The device waits for the slot, and the host only until no payload that is needed is overwritten.
                needed = number - entries(self._layout) if on_device and not joining else least
                while joining or self._given_back(place, needed) < needed:
                    if self._clear_if_ended(place):
                        break
                    if joining:   # for the time of a few stores of its process
                        ask = True
                        time.sleep(_MOMENT_S)
                    elif self._drop_after_s is not None and time.monotonic() - began > self._drop_after_s:
                        protocol.drop(self._control, self._layout, place, number)
                        break
                    if (yield Need(self._done[place].host, 0 if joining else needed)):
                        raise WaitTimeoutError(f"consumer {place} has not given frame {needed} back, for which frame "
                                               f"{number} waits", reason="timeout")
                    if joining:
                        break
                else:
                    if self._given_back(place, least) < least:
                        waits[place] = least
        if waits and commands is not None:
            self._waits |= waits
            timelines = [timeline for each in waits if (timeline := self._done[each].device) is not None]
            commands.append_wait(timelines, list(waits.values()))
            self._watch.begin()
        return number % slots

    def _given_back(self, place: int, least: int) -> int:
        """Return the value of a consumer's timeline, or an earlier one that is not below `least`."""
        if self._seen[place] < least:
            self._seen[place] = self._done[place].value()
        return self._seen[place]

    def _newest(self, number: int) -> Steps[int]:
        """Wait until a slot has neither the newest whole frame nor one that a consumer holds."""
        words, layout = self._control, self._layout
        while True:
            whole = self._published.value()
            slot = protocol.claim_slot(words, layout, whole, self._done_of)
            if slot is not None:
                return slot
            behind = {place for at in range(layout.slots)
                      for place in protocol.holders(words, layout, words.load(layout.frame(at)), self._done_of)}
            if [place for place in behind if self._clear_if_ended(place)]:
                continue
            # A frame becomes whole, or a consumer gives one back. The wait is for one of them, and ends for a look at
            # the others.
            if whole < self._number:
                need = Need(self._published.host, whole + 1)
            elif behind:
                need = Need(self._done[place := min(behind)].host, self._done_of(place) + 1)
            else:
                continue   # given back meanwhile
            if (yield need):
                raise WaitTimeoutError(f"consumers hold all slots but the newest one, so frame {number} has none",
                                       reason="timeout")

    def _done_of(self, place: int) -> int:
        return self._done[place].value()

    def _end(self, frame: Frame, whole: bool) -> None:
        try:
            if whole:
                self._publish(frame, self._last)
        finally:
            self._open.release()

    def _publish(self, frame: Frame, commands: CommandList | None) -> None:
        number, slot = frame.number, self._slot
        fifo = self._shape.policy == "fifo"
        self._control.put(number % entries(self._layout) if fifo else slot, frame.payload)
        if not fifo:
            protocol.commit(self._control, self._layout, slot, number)
        self._published.signal(commands, number, self._slots.handed_over(slot))
        self._number = number
        self._committed.host_signal(number)

    def _look(self) -> bool:
        """Release the waits of the device for consumers that have ended. Return whether there are other waits."""
        for place, value in self._waits.copy().items():
            if self._closed:
                return False
            met = self._done[place].value() >= value or self._clear_if_ended(place)
            if met and self._waits.get(place) == value:
                del self._waits[place]
        return bool(self._waits)

    def _clear_if_ended(self, place: int) -> bool:
        """Clear a place whose consumer has ended. Return whether it has."""
        with self._clearing:   # two threads of this process have one lock of the kernel
            if not self._control.take(place):
                return False
            try:
                self._done[place].raise_to(protocol.clear(self._control, self._layout, place))
            finally:
                self._control.give_back(place)
        return True

    def __repr__(self) -> str:
        shape = self._shape
        what = f"{shape.dtype} {shape.shape}" if shape.image is None else f"images of {shape.image.extent}"
        return (f"<FrameRing {shape.policy}, {shape.slots} slots of {what} on {self.device.info.id}"
                f"{', closed' if self._closed else ''}>")


def _memories(memory: object, memory_type: object, shape: Shape) -> tuple[MemoryDesc, ...]:
    """Return the given memories, checked."""
    if isinstance(memory, MemoryDesc) or not isinstance(memory, Sequence):
        found: tuple[object, ...] = (memory,)
    else:
        found = tuple(memory)
    given = [each for each in found if isinstance(each, MemoryDesc)]
    if len(given) != len(found):
        raise BadArgumentError("memory is a MemoryDesc, or for images a sequence with one for each slot, not "
                               f"{memory!r:.100}", reason="not_a_descriptor")
    if len(given) != shape.memories:
        raise BadArgumentError(f"this ring needs {shape.memories} memories, not {len(given)}: images have one for each "
                               "slot, arrays one for all", reason="bad_slots")
    if memory_type is not None:
        raise BadArgumentError("memory_type is that of memory which the ring creates: give only one of memory and "
                               "memory_type", reason="bad_type")
    for each in given:
        if each.handle is None:
            raise BadHandleError("memory needs a handle, which the message to a consumer carries", reason="no_handle")
        if shape.image is None and each.allocation_size < shape.slots * shape.stride:
            raise BadArgumentError(f"memory has {each.allocation_size} bytes; the slots need "
                                   f"{shape.slots * shape.stride}", reason="bad_size")
    return tuple(given)


def _duplicate(desc: MemoryDesc) -> MemoryDesc:
    number = number_of(cast("Handle", desc.handle))
    return dataclasses.replace(desc, handle=duplicate_fd(number, for_driver=False))


_SENT: Final = (MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD)
