"""One open device as its objects see it: the driver, what it declares, its releases, and who is on it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from xsem.data.handles import store
from xsem.errors import ReleasedError, UnsupportedError, XsemError
from xsem.runtime.callbacks import Notifier
from xsem.runtime.forks import check_generation, generation
from xsem.runtime.lifetime import Lifetime, Releaser
from xsem.runtime.release_gate import release_gate_of
from xsem.spi import DeviceDriver, Token
from xsem.types import Capabilities, DeviceInfo, Feature, MemoryHandleType, SemaphoreHandleType

__all__ = ["DeviceState", "Making"]

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
        self.values_lock = threading.RLock()
        self.stop_watching: Callable[[], None] = lambda: None
        self.notifier = Notifier(info.id, self.calling)
        self._fences: dict[int, Token] = {}
        self._fence_keys = itertools.count(1)
        self.gate = None if self.capabilities.release_never_blocks else release_gate_of(info.backend)
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
