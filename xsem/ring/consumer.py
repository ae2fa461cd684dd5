"""A consumer's end of a ring of frames."""

from __future__ import annotations

import contextlib
from typing import Final

from xsem.data.streams import Stream
from xsem.errors import (
    BadArgumentError,
    BusyError,
    DriverError,
    ReleasedError,
    RingEndedError,
    WaitTimeoutError,
)
from xsem.facade.command_list import CommandList
from xsem.facade.device import Device
from xsem.facade.discovery import open_device
from xsem.facade.semaphore import Semaphore
from xsem.ipc.message import Message
from xsem.ring import protocol
from xsem.ring.control import Control, entries
from xsem.ring.ends import End, Line, Slots, Watch, check_device, check_work, list_on
from xsem.ring.frames import Frame, Turn
from xsem.ring.message import Shape
from xsem.ring.protocol import Layout
from xsem.ring.waiting import Need, Steps, run
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S
from xsem.types import SemaphoreDesc

__all__ = ["END", "FrameReader"]

END: Final = 2**62
"""Value of the committed frames when the ring is closed."""

_LATE: Final = "the work that reads the last frame is not done"
_COMMITTED, _PUBLISHED, _DONE = range(3)   # order of the semaphores in the message
_WORDS, _FRAMES = range(2)   # order of the memories; images have a memory each


class FrameReader(End):
    """A consumer of a ring of frames, made by `FrameRing.open`. One thread at a time reads.

    Attributes
    ----------
    device : Device
        The device.
    waits_on_device : bool
        As for `FrameRing`.
    """

    def __init__(self, device: Device, message: Message) -> None:
        super().__init__()
        check_device(device)
        if not isinstance(message, Message):
            raise BadArgumentError(f"a Message of FrameRing.export is needed, not {type(message).__name__}",
                                   reason="bad_ring")
        shape = Shape.decode(message.payload)
        if len(message.semaphores) != _DONE + shape.consumers or len(message.memories) != _FRAMES + shape.memories:
            raise BadArgumentError(f"the message of a ring with {shape.consumers} consumers has "
                                   f"{_DONE + shape.consumers} semaphores and {_FRAMES + shape.memories} memories, not "
                                   f"{len(message.semaphores)} and {len(message.memories)}", reason="bad_ring")
        if shape.image is None and message.memories[_FRAMES].allocation_size < shape.slots * shape.stride:
            raise BadArgumentError(f"the memory of the frames has {message.memories[_FRAMES].allocation_size} bytes; "
                                   f"{shape.slots} slots need {shape.slots * shape.stride}", reason="bad_ring")
        self.device = device
        self._shape = shape
        self._layout = Layout(shape.slots, shape.consumers)
        with contextlib.ExitStack() as made:
            self._host = made.enter_context(open_device("host"))
            self._control = Control.open(self._host, message.memories[_WORDS], self._layout, shape.payload_bytes)
            made.callback(self._control.close)
            self._committed = self._host.import_semaphore(message.semaphores[_COMMITTED], label="committed frames")
            self._published = self._line(message.semaphores[_PUBLISHED], "published frames")
            made.callback(self._published.release)
            self._slots = Slots.imported(device, message.memories[_FRAMES:], shape)
            made.callback(self._slots.release)
            self._place = self._taken_place()
            self._done = self._line(message.semaphores[_DONE + self._place], "done")
            made.callback(self._done.release)
            self._first = protocol.join(self._control, self._layout, self._place)
            # The producer's device may still wait for a consumer that was killed in this place.
            self._done.raise_to(self._first - 1)
            self._cleanup = made.pop_all()
        self.waits_on_device: bool = self._done.device is not None
        self._number = self._first - 1 if shape.policy == "fifo" else 0   # the last frame that was read
        self._given_back = self._done.value()   # the last value of `_done` that was signalled or appended
        self._last: CommandList | None = None
        self._slot = 0   # of the frame that is being read
        self._entry = 0
        self._waited = 0   # the newest frame for which the device waits
        self._watch = Watch("consumer", self._look)
        self._closed = False

    def read(
        self, stream: CommandList | Stream | None = None, *, timeout_s: float | None = DEFAULT_TIMEOUT_S
    ) -> Turn:
        """Read the next frame, or the newest one, in a ``with`` or ``async with`` block.

        The block gets the `Frame`, reads it or appends the work that reads it, and gives it back at its end. With a
        stream, this work waits on the device until the frame is whole, and the frame is given back when the work is
        done. With ``"mailbox"``, each read gives a newer frame than the read before.

        Parameters
        ----------
        stream : CommandList or stream, optional
            The list or the stream with the work that reads the frame. Default: the frame is whole at the begin of the
            block, and read at its end.
        timeout_s : float or None
            Seconds for the frame; None: no limit.

        Returns
        -------
        Turn
            For ``with`` or ``async with``, once.

        Raises
        ------
        WaitTimeoutError
            ``timeout``: the producer has written no further frame.
        RingEndedError
            ``producer_closed``: there are no more frames. ``producer_ended``: the producer has ended without `close`,
            and there are no more whole frames. ``dropped``: the producer has waited too long for this consumer; also
            at the end of a block, whose frame may be torn.
        BusyError
            ``frame_open``: another block of this reader is open.
        ReleasedError
            ``released``: the reader is closed.
        DriverError
            ``abandoned``: the producer ended while its work on a frame was pending. The list or stream raises it, as
            for `Semaphore.abandon`.

        Examples
        --------
        >>> import xsem
        >>> with (xsem.open_device("host") as device,
        ...       xsem.FrameRing.create(device, shape=(480, 640, 4), dtype="uint8") as ring, ring.export() as message,
        ...       xsem.FrameRing.open(device, message) as reader):
        ...     with ring.write(payload=b"camera 1") as frame:
        ...         frame.numpy()[:] = 7
        ...     with reader.read() as frame:
        ...         frame.number, frame.payload, frame.numpy()[0, 0, 0].item()
        (1, b'camera 1', 7)
        """
        return Turn("read", self._control.identity, lambda: self._begin(list_on(self.device, stream)), self._end,
                    timeout_s)

    def close(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Leave the ring, when the work on its frames is done. A second call has no effect.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        BadArgumentError
            ``bad_timeout``.
        WaitTimeoutError
            ``timeout``: work that reads a frame is not done. The reader stays open.
        BusyError
            ``frame_open``: a block is open.
        """
        if self._closed:
            return
        self._occupy("a frame of the reader is open")
        try:
            with contextlib.suppress(DriverError):   # failed work reads no more
                run(self._all_read(), timeout_s)
            self._closed = True
            self._done.raise_to(protocol.leave(self._control, self._layout, self._place))
        finally:
            self._open.release()
        self._watch.end()
        self._cleanup.close()

    # ---- inside
    def _all_read(self) -> Steps[None]:
        """Wait until the device has read the frames, as long as there is a producer that may overwrite them."""
        while self._done.value() < self._given_back and self._control.producer_runs():
            check_work(self._last)
            if (yield Need(self._done.host, self._given_back)):
                raise WaitTimeoutError(_LATE, reason="timeout")

    def _line(self, desc: SemaphoreDesc, label: str) -> Line:
        return Line.of(self._host.import_semaphore(desc, label=label), self.device, desc)

    def _taken_place(self) -> int:
        for place in range(self._layout.places):
            if self._control.take(place):
                return place
        raise BusyError(f"the ring has {self._layout.places} consumers, as many as it was made for: one of them must "
                        "close its reader, or make the ring with more `consumers`", reason="too_many_consumers")

    def _begin(self, commands: CommandList | None) -> Steps[Frame]:
        if self._closed:
            raise ReleasedError("the reader is closed", reason="released")
        self._occupy("another frame of the reader is open: one block at a time reads")
        try:
            last = self._number
            number, slot, entry = yield from (
                self._in_order() if self._shape.policy == "fifo" else self._newest())
            payload = self._control.get(entry)
            self._check_not_dropped()
            if commands is not self._last:
                yield from self._done.keep_order(commands, self._given_back, self._last, _LATE)
            yield from self._whole(number, slot, commands)
            self._number, self._last, self._slot = number, commands, slot
            return self._slots.frame(slot, number, number - last - 1 if last else 0, payload)
        except BaseException:
            self._open.release()
            raise

    def _in_order(self) -> Steps[tuple[int, int, int]]:
        """Wait until the producer has committed the next frame."""
        number = self._number + 1
        yield from self._signalled(self._committed, number)
        if 0 < self._control.load(self._layout.ended) <= number:
            raise self._ended(closed=True)
        return number, number % self._layout.slots, number % entries(self._layout)

    def _newest(self) -> Steps[tuple[int, int, int]]:
        """Wait for a whole frame that is newer than the last one, and keep it."""
        words, layout = self._control, self._layout
        ticket = words.load(layout.ticket(self._place, self._entry))
        # The entry's last frame may still be being read.
        yield from self._done.finished(ticket, self._last, "the work that reads earlier frames is pending")
        while True:
            whole = self._published.value()
            if whole > self._number:
                slot = protocol.reserve(words, layout, self._place, self._entry, whole, self._given_back + 1)
                if slot is not None:
                    self._entry = (self._entry + 1) % layout.slots
                    return whole, slot, slot
                continue
            closed, ended = words.load(layout.ended), not words.producer_runs()
            if (closed or ended) and self._published.value() <= self._number:
                raise self._ended(closed=bool(closed))
            if (yield Need(self._published.host, self._number + 1)):
                raise self._late(self._number + 1)

    def _whole(self, number: int, slot: int, commands: CommandList | None) -> Steps[None]:
        """Wait until the frame is whole, here or on the device."""
        if commands is not None and self._published.device is not None:
            handed_over = self._slots.handed_over(slot)
            if self._published.value() >= number and not handed_over:
                return
            commands.append_wait(self._published.device, number, acquire=handed_over)
            self._waited = number
            self._watch.begin()
            return
        yield from self._signalled(self._published.host, number)

    def _signalled(self, semaphore: Semaphore, number: int) -> Steps[None]:
        """Wait until the producer has signalled the number of a frame."""
        while semaphore.value() < number:
            late = yield Need(semaphore, number)
            # After the wait, because a frame seldom comes so late.
            if not self._control.producer_runs() and semaphore.value() < number:
                raise self._ended()
            if late and semaphore.value() < number:
                raise self._late(number)

    def _end(self, frame: Frame, whole: bool) -> None:
        try:
            commands = self._last
            number = frame.number if self._shape.policy == "fifo" else self._given_back + 1
            self._done.signal(commands, number, self._slots.handed_over(self._slot))
            self._given_back = number
            if whole:
                self._check_not_dropped()
        finally:
            self._open.release()

    def _look(self) -> bool:
        """End the waits of the device for a producer that has ended. Return whether there are such waits."""
        if self._closed or self._published.value() >= self._waited:
            return False
        if self._control.producer_runs():
            return True
        if self._published.value() < self._waited:
            self._published.host.abandon()
        return False

    def _check_not_dropped(self) -> None:
        if protocol.is_dropped(self._control, self._layout, self._place, self._first):
            raise RingEndedError("the producer has given up this consumer, because it held a frame for too long; open "
                                 "the ring again", reason="dropped")

    @staticmethod
    def _ended(*, closed: bool = False) -> RingEndedError:
        if closed:
            return RingEndedError("the producer has closed the ring", reason="producer_closed")
        return RingEndedError("the producer has ended without closing the ring", reason="producer_ended")

    @staticmethod
    def _late(number: int) -> WaitTimeoutError:
        return WaitTimeoutError(f"the producer has not written frame {number}", reason="timeout")

    def __repr__(self) -> str:
        return f"<FrameReader of {self._shape.policy}, after frame {self._number}{', closed' if self._closed else ''}>"
