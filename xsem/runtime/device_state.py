"""One open device as its objects see it: the driver, what it declares, its releases, and who is on it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from xsem.data.handles import store
from xsem.errors import BusyError, DriverError, ReleasedError, UnsupportedError, XsemError
from xsem.runtime.callbacks import Notifier
from xsem.runtime.forks import check_generation, generation
from xsem.runtime.lifetime import Lifetime, Releaser
from xsem.runtime.release_gate import release_gate_of
from xsem.spi import DeviceDriver, Token
from xsem.types import Capabilities, DeviceInfo, Feature, MemoryHandleType, SemaphoreHandleType

if TYPE_CHECKING:
    from xsem.runtime.completion import CompletionTracker
    from xsem.runtime.queue import Queue

__all__ = ["DeviceState", "Fence", "Making"]

_log = logging.getLogger("xsem")

_T = TypeVar("_T")


class DeviceState:
    """What `Device` opens and everything on it shares. Not public."""

    def __init__(self, info: DeviceInfo, driver: DeviceDriver) -> None:
        self.info = info
        self.driver = driver
        self.capabilities: Capabilities = driver.capabilities
        self.generation = generation()
        self.releaser = Releaser(info.id, driver.quiet)
        self.queues: dict[int, Queue] = {}
        # Re-entrant, as the releaser's: a finalizer of the application's may release a list.
        self.queues_lock = threading.RLock()
        self.copy_queue: Queue | None = None
        self.copy_lock = threading.Lock()
        self.streams_lock = threading.RLock()
        self.values_lock = threading.RLock()
        self.many_streams = 0
        self.stop_watching: Callable[[], None] = lambda: None
        self.notifier = Notifier(info.id, self.calling)
        self.numbers = itertools.count(1)
        self._fences: dict[int, Token] = {}
        self._fence_keys = itertools.count(1)
        self.gate = None if self.capabilities.release_never_blocks else release_gate_of(info.backend)
        if self.gate is not None:
            self.gate.add(self)
        self.lifetime = Lifetime(self.releaser, f"device {info.id}", self._close, may_block=True, parent=None,
                                 gate=self.gate)

    def check(self) -> None:
        """Refuse use in a forked child and after release; do what finalizers left to be done."""
        check_generation(self.generation, self.info.id)
        self.lifetime.check()
        self.releaser.drain()
        if self.notifier.stalled:
            self.notifier.ensure()

    def require(self, feature: Feature) -> None:
        """Refuse a call whose feature is not declared."""
        if feature not in self.capabilities.features:
            self.unsupported(feature.value)

    def unsupported(self, capability: str) -> NoReturn:
        """Raise `UnsupportedError` for something the device does not declare."""
        raise UnsupportedError(
            f"{self.info.id} does not declare {capability}", capability=capability, backend=self.info.backend
        )

    @contextmanager
    def calling(self, handle_type: SemaphoreHandleType | MemoryHandleType | None = None) -> Iterator[None]:
        """Around a driver call of xsem's own: quiet, the device stays open, errors say what they are about."""
        try:
            with self.lifetime.held(), self.driver.quiet():
                yield
        except XsemError as error:
            self.annotate_error(error, handle_type)
            raise

    def annotate_error(
        self, error: XsemError, handle_type: SemaphoreHandleType | MemoryHandleType | None = None
    ) -> None:
        """Add what the driver that raised an error could not know."""
        if error.backend is None:
            error.backend = self.info.backend
        if error.handle_type is None:
            error.handle_type = handle_type

    def add_queue(self, queue: Queue) -> None:
        """Have a list's books in the reports, until its record frees the list."""
        def close() -> None:
            self.remove_queue(queue)
            queue.detach()
            queue.driver.close()

        queue.lifetime = self.new_lifetime(queue.name, close)
        with self.queues_lock:
            self.queues[queue.driver.key] = queue

    def remove_queue(self, queue: Queue) -> None:
        """Have no more reports of a list, nor anybody find its books."""
        with self.queues_lock:
            if self.queues.get(queue.driver.key) is queue:
                del self.queues[queue.driver.key]

    def live_queues(self) -> list[Queue]:
        """The books of all lists, a snapshot."""
        with self.queues_lock:
            return list(self.queues.values())

    def waits(self) -> bool:
        """Whether a list may have a wait pending; asks the driver."""
        return any(queue.waits() for queue in self.live_queues())

    def _close(self) -> None:
        # Points must go before the driver does, also those that somebody still refers to: nobody may ask them any more.
        for key in self._fences.copy():
            self._return_fence(key)
        self.driver.close()

    def new_lifetime(
        self, what: str, free: Callable[[], None], *, may_block: bool = False, parent: Lifetime | None = None,
        light: bool = False, on_thread: bool = False,
    ) -> Lifetime:
        """A record of something on this device; `parent` is the device's own unless given.

        `may_block`: where the device declares that releases may block, `free` is called on the releasing thread, at a
        moment when no wait is pending. `on_thread`: `free` waits for a lock of xsem's, so it is for the releasing
        thread on every device.

        Raises
        ------
        ReleasedError
            The parent, or the device, was released meanwhile; the new object is released with it.
        """
        gate = self.gate if may_block else None
        parent = parent or self.lifetime
        lifetime = Lifetime(self.releaser, what, free, may_block=on_thread or gate is not None, parent=parent,
                            light=light, gate=gate)
        try:
            self.lifetime.check()
            parent.check()
        except ReleasedError:
            lifetime.release()
            raise
        return lifetime

    @contextmanager
    def making(
        self, what: str, free: Callable[[DeviceDriver, Any], None], parent: Lifetime | None = None
    ) -> Iterator[Making]:
        """Own a new object of the driver until a public object owns it.

        If the block raises, also by Ctrl-C, the new object is released.

        Parameters
        ----------
        what : str
            As in `new_lifetime`.
        free : callable
            Releases the object; its arguments are the driver and the result of the driver's call.
        parent : Lifetime, optional
            As in `new_lifetime`.
        """
        making = Making(self, what, free, parent)
        try:
            yield making
        except BaseException:
            making.undo()
            raise

    # ---- points
    def add_fence(self, token: Token) -> int:
        """Take charge of a point's token: it goes back to the driver once, with `detach_fence` or with the device."""
        key = next(self._fence_keys)
        self._fences[key] = token
        return key

    def detach_fence(self, key: int) -> None:
        """From a finalizer: give a point's token back to the driver in a later call."""
        self.releaser.post_later(lambda: self._detach_fence(key))

    def _detach_fence(self, key: int) -> None:
        with self.lifetime.visited() as there:
            if there:
                with self.driver.quiet():
                    self._return_fence(key)

    def _return_fence(self, key: int) -> None:
        try:
            token = self._fences.pop(key)
        except KeyError:
            return
        try:
            self.driver.release_point(token)
        except Exception:
            _log.warning("releasing a point failed", exc_info=True)


class Making:
    """Owns a new object of the driver until a public object owns it; made by `DeviceState.making`. Not public.

    Attributes
    ----------
    made : list
        Result of the driver's call; empty before the call, and after the release.
    """

    __slots__ = ("_device_state", "_free", "_lifetime", "_parent", "_what", "made")

    def __init__(
        self, device_state: DeviceState, what: str, free: Callable[[DeviceDriver, Any], None], parent: Lifetime | None
    ) -> None:
        self.made: list[Any] = []
        self._device_state = device_state
        self._what = what
        self._free = free
        self._parent = parent
        self._lifetime: Lifetime | None = None

    def call(self, function: Callable[..., _T], *args: Any) -> _T:
        """Make the driver's call and keep its result."""
        store(self.made, function, *args)
        made: _T = self.made[0]
        return made

    def lifetime(self) -> Lifetime:
        """Make the lifetime record of the new object.

        Raises
        ------
        ReleasedError
            The parent, or the device, was released meanwhile.
        """
        made, free, driver = self.made, self._free, self._device_state.driver

        def release() -> None:
            if made:
                free(driver, made.pop())

        self._lifetime = self._device_state.new_lifetime(self._what, release, may_block=True, parent=self._parent)
        return self._lifetime

    def undo(self) -> None:
        """Release the new object, if the driver has made one."""
        if self._lifetime is not None:
            self._lifetime.release()
        elif self.made:
            with contextlib.suppress(ReleasedError):   # `new_lifetime` has released the object then
                self.lifetime().release()


class Fence:
    """A completion token of the driver; given back when nothing refers to it any more, or when the device closes.

    A caller keeps the device open during each query (`DeviceState.calling`, `Lifetime.visited`).
    """

    __slots__ = ("__weakref__", "_key", "captured", "device_state", "queue", "seq", "token")

    def __init__(
        self, device_state: DeviceState, token: Token, queue: CompletionTracker | None, seq: int, *,
        captured: bool = False,
    ) -> None:
        self.device_state = device_state
        self.token = token
        self.queue = queue
        self.seq = seq
        self.captured = captured
        self._key = device_state.add_fence(token)

    def done(self) -> bool:
        """Whether it is reached; raises if it never will be."""
        driver = self.device_state.driver
        try:
            with driver.quiet():
                return driver.done(self.token)
        except DriverError as failure:
            if self.queue is not None:
                self.queue.fail(failure)
            raise

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is reached or the time is over."""
        driver = self.device_state.driver
        try:
            with driver.quiet():
                return driver.wait(self.token, timeout_ns)
        except DriverError:
            if self.queue is not None:
                self.queue.poll()
            raise

    def check_running(self) -> None:
        """Refuse a point of a captured operation.

        Raises
        ------
        BusyError
            ``capturing``: what was captured runs when its graph is launched, and to ask would break the capture
            (CUDA_ERROR_CAPTURED_EVENT).
        """
        if self.captured:
            raise BusyError("the event's operation was captured or recorded, not executed: it can be waited for inside "
                            "that capture alone", reason="capturing")

    def __del__(self) -> None:
        # Where the constructor failed there is no key.
        key = getattr(self, "_key", None)
        if key is not None:
            self.device_state.detach_fence(key)
