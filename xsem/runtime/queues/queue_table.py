"""The queues of one device."""

from __future__ import annotations

import itertools
import threading
from typing import Final

from xsem.runtime.device_state import DeviceState
from xsem.runtime.queues.queue import Queue
from xsem.spi import CommandListDriver

__all__ = ["QueueTable"]

# A queue of a borrowed stream is kept while the stream may be used again. Beyond this number, idle ones are released.
_MANY_QUEUES: Final = 64


class QueueTable:
    """The queues of one device, by the identity of the native queue. Not public.

    Attributes
    ----------
    device_state : DeviceState
    streams_lock : RLock
        Held while a borrowed stream gets its queue, and while an idle queue is released.
    copy_queue : Queue or None
        For xsem's own blocking copies; made at the first copy, under `copy_lock`.
    """

    def __init__(self, device_state: DeviceState) -> None:
        self.device_state = device_state
        self.streams_lock = threading.RLock()
        self.copy_queue: Queue | None = None
        self.copy_lock = threading.Lock()
        # Re-entrant, as the releaser's: a finalizer of the application's may release a list.
        self.lock = threading.RLock()
        self._queues: dict[int, Queue] = {}
        self._numbers = itertools.count(1)
        self._next_look = 0
        if device_state.gate is not None:
            device_state.gate.add(self)

    def __len__(self) -> int:
        return len(self._queues)

    def next_name(self) -> str:
        """Name of a new list of the device's own."""
        return f"{self.device_state.info.id}/list-{next(self._numbers)}"

    def get(self, key: int) -> Queue | None:
        """Return the queue with that identity, if it is in the table."""
        return self._queues.get(key)

    def add(self, driver: CommandListDriver, name: str, *, borrowed: bool = False) -> Queue:
        """Make the queue of a native queue. It stays in the table until its lifetime frees it.

        Raises
        ------
        ReleasedError
            The device was released meanwhile; `driver` is closed.
        """
        queue = Queue(self.device_state, driver, name, borrowed=borrowed)

        def close() -> None:
            self.remove(queue)
            queue.detach()
            queue.driver.close()

        queue.lifetime = self.device_state.new_lifetime(queue.name, close)
        with self.lock:
            self._queues[driver.key] = queue
        return queue

    def remove(self, queue: Queue) -> None:
        """Take a queue out of the table: no report names it any more."""
        with self.lock:
            if self._queues.get(queue.driver.key) is queue:
                del self._queues[queue.driver.key]

    def live(self) -> list[Queue]:
        """All queues, a snapshot."""
        with self.lock:
            return list(self._queues.values())

    def waits(self) -> bool:
        """Whether a queue may have a wait pending; asks the driver."""
        return any(queue.waits() for queue in self.live())

    def release_idle(self) -> None:
        """Release queues of borrowed streams that no list wraps and that have nothing in flight, if there are many."""
        if len(self._queues) <= max(_MANY_QUEUES, self._next_look):
            return
        for queue in self.live():
            if queue.borrowed and not queue.wrappers:
                queue.ensure_fence(queue.seq)
                queue.poll()
                with self.streams_lock:
                    idle = not queue.wrappers and queue.done_seq >= queue.seq
                    if idle:
                        self.remove(queue)
                if idle:
                    queue.lifetime.release()
        # Twice as many before the next look, so that busy ones are not asked again and again.
        self._next_look = 2 * len(self._queues)
