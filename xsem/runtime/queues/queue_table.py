"""The queues of one device."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Final

from xsem.data import locks
from xsem.runtime.device_state import DeviceState
from xsem.runtime.queues.queue import Queue, StreamUse
from xsem.runtime.tracing import add_table, tracing
from xsem.spi import QueueDriver

__all__ = ["QueueTable"]

# The queue of a borrowed stream is kept for a later use of the stream. Beyond this number, idle queues are released.
_MANY_QUEUES: Final = 64


class QueueTable:
    """The queues of one device, by the identity of their native queues."""

    def __init__(self, device_state: DeviceState) -> None:
        self.device_state = device_state
        # Held while a borrowed stream gets its queue, and while an idle queue is released.
        self.streams_lock = locks.Lock()
        self.copy_queue: Queue | None = None   # for xsem's own blocking copies; created under `copy_lock`
        self.copy_lock = locks.Lock()
        # Re-entrant, like the lock of the releaser: a finalizer of the application may release a list.
        self.lock = locks.Lock()
        self._queues: dict[Hashable, Queue] = {}
        self._numbers = itertools.count(1)
        self._next_look = 0
        if device_state.gate is not None:
            device_state.gate.add(self)
        add_table(self)

    def __len__(self) -> int:
        return len(self._queues)

    def next_name(self) -> str:
        """Return the name for a new list of the device's own."""
        return f"{self.device_state.info.id}/list-{next(self._numbers)}"

    def stream_name(self, driver: QueueDriver) -> str:
        """Return the name for a borrowed stream, with its native handle, or with a number if it has no handle."""
        handle = driver.native_handle
        return f"{self.device_state.info.id}/stream-{next(self._numbers) if handle is None else format(handle, '#x')}"

    def borrowed(self, identity: Hashable) -> Queue | None:
        """Return the queue with this identity, for a list on a borrowed stream; None if it is unknown or released."""
        queue = self._queues.get(identity)
        return None if queue is None or queue.lifetime.released else queue

    def use_borrowed(self, identity: Hashable) -> tuple[Queue, StreamUse] | None:
        """Return the queue as `borrowed`, and the use of its lists; None if the queue is unknown or released."""
        queue = self._queues.get(identity)
        if queue is None or queue.lifetime.released:
            return None
        use = queue.stream_lists.kept
        if use is None:
            with self.streams_lock:
                if self._queues.get(identity) is not queue:   # `release_idle` has just removed it
                    return None
                use = queue.stream_lists.use()
        return queue, use

    def add(self, driver: QueueDriver, name: str, *, borrowed: bool = False) -> Queue:
        """Create the `Queue` of a native queue, and add it to the table until its free or `release_idle`."""
        # The lifetime closes `driver`, also if the device was released meanwhile (ReleasedError).
        queue = Queue(self.device_state, driver, name, borrowed=borrowed)

        def close() -> None:
            self.remove(queue)
            queue.close()

        queue.start(self.device_state.new_lifetime(queue.name, close))
        with self.lock:
            self._queues[driver.identity] = queue
        if tracing.note is not None:
            queue.trace()
        return queue

    def remove(self, queue: Queue) -> None:
        """Remove a queue from the table, so that reports no longer name it."""
        with self.lock:
            if self._queues.get(queue.driver.identity) is queue:
                del self._queues[queue.driver.identity]

    def live(self) -> list[Queue]:
        """Return a snapshot of all queues."""
        with self.lock:
            return list(self._queues.values())

    def has_pending_wait(self) -> bool:
        """Return whether a queue may have a pending wait. Queries the driver."""
        return any(queue.has_pending_wait() for queue in self.live())

    def release_idle(self) -> None:
        """Release the idle queues of borrowed streams if the table has many queues."""
        # A queue is idle if no list wraps it and no operation is in flight.
        if len(self._queues) <= max(_MANY_QUEUES, self._next_look):
            return
        for queue in self.live():
            if not queue.borrowed:
                continue
            with self.streams_lock:
                used = queue.stream_lists.exist()
            if not used:
                queue.look()
                with self.streams_lock:
                    idle = not queue.stream_lists.exist() and queue.done_seq >= queue.last_seq
                    if idle:
                        self.remove(queue)
                if idle:
                    queue.lifetime.release()
        # The next look comes at twice as many queues, so that busy queues are not polled too often.
        self._next_look = 2 * len(self._queues)
