"""The shared state of one open device: driver, capabilities, lifetimes, fences and callbacks."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, Final, NoReturn, Protocol, TypeVar, cast

from xsem.errors import ReleasedError, UnsupportedError, XsemError
from xsem.runtime.bridge import Bridge
from xsem.runtime.callbacks import Notifier
from xsem.runtime.forks import check_generation, clock, generation
from xsem.runtime.lifetime import Lease, Lifetime, Releaser
from xsem.runtime.quick import Lock
from xsem.runtime.release_gate import ReleaseGate, release_gate_of
from xsem.runtime.threads import on_own_thread
from xsem.runtime.tracing import fact, tracing
from xsem.spi import DeviceDriver, HostFences, QueueDriver, Token
from xsem.types import Capabilities, DeviceInfo, Feature, MemoryHandleType, SemaphoreHandleType

__all__ = ["FIRST", "Calling", "DeviceState", "Making"]

_log = logging.getLogger("xsem")

FIRST: Final = itemgetter(0)
"""Takes the token from a tuple that begins with it, for `DeviceState.making`."""

_TYPES: Final = ("semaphore.import", "semaphore.export", "memory.import", "memory.export")

_T = TypeVar("_T")
_Ability = TypeVar("_Ability")


# Held during the close of a device, by fork generation. Measured on an H200 (580.159.04): vkDestroyDevice on one thread
# and eglMakeCurrent on another can wait for each other for ever.
_closing: Final[dict[int, Lock]] = {}


class MarkedQueue(Protocol):
    """A queue that appends a marker on request."""

    @property
    def last_seq(self) -> int: ...

    def ensure_marker(self, seq: int) -> None:
        """Ensure that a marker tells when `seq` is done, if a marker is possible now."""


class DeviceState:
    """The state that a `Device` and all objects on it share."""

    def __init__(self, info: DeviceInfo, driver: DeviceDriver) -> None:
        self.info = info
        self.driver = driver
        self.capabilities: Capabilities = driver.capabilities
        self.needs_handover = self.capabilities.needs_handover
        self.generation = clock.now   # the fork generation in which the device was opened
        self.releaser = Releaser(info.id)
        self.values_lock = Lock()   # protects the last values of the device's semaphores and the bindings of its events
        self.stop_watching: Callable[[], None] = lambda: None   # stops the watchdog, if there is one
        # Abandons the timelines that hold a released queue, up to an operation.
        self.unblock: Callable[[Any, int], None] = lambda queue, seq: None
        self.notifier = Notifier(info.id, self.calling)
        self.callbacks_thread = self.notifier.thread
        self._fences: dict[int, Token] = {}
        self._fence_keys = itertools.count(1)
        self._abilities: dict[object, None] = {}   # those that `ability` found
        self._detached: dict[int, None] = {}   # keys of unused fences, from finalizers
        # Queues with `Callers.APPLICATION` that need a marker. The next call of the application appends the marker.
        self.owing: dict[MarkedQueue, None] = {}
        self.bridge: Bridge | None = None   # None if the device declares no bridged type
        if self.capabilities.bridged:
            self.bridge = Bridge(info.id, self.ability(HostFences, "bridged"), self._start_bridge_later)
        self.gate: ReleaseGate | None = None   # None if the device declares `release_never_blocks`
        if not self.capabilities.release_never_blocks:
            self.gate = release_gate_of(info.backend)
        self.lifetime = Lifetime(self.releaser, f"device {info.id}", self._close, may_block=True, parent=None,
                                 gate=self.gate)

    def check(self) -> None:
        """Refuse a use in a forked child or after release; then call `catch_up` if there is work."""
        if self.generation != clock.now:
            check_generation(self.generation, self.info.id)
        if self.lifetime.released:
            self.lifetime.check()
        releaser = self.releaser
        if releaser.jobs or releaser.inbox or self.owing or self.callbacks_thread.stalled:
            self.catch_up()
        elif self._detached:
            self.return_fences()

    def catch_up(self) -> None:
        """Do the jobs of finalizers, release the unused fences, and append the markers that are due."""
        self.releaser.drain()
        self.return_fences()
        if self.owing and not on_own_thread():   # the owing queues take calls only from the application's threads
            for queue in list(self.owing):
                self.owing.pop(queue, None)
                queue.ensure_marker(queue.last_seq)
        if self.callbacks_thread.stalled:   # the system has refused the thread
            self.callbacks_thread.ensure()
        if self.bridge is not None and self.bridge.thread.stalled:
            self.bridge.start()

    def _start_bridge_later(self) -> None:
        self.releaser.jobs = True   # the next call on the device comes to `catch_up`

    def require(self, feature: Feature) -> None:
        """Refuse a call if the device does not declare its feature."""
        if feature not in self.capabilities.features:
            self.unsupported(feature.value)

    def unsupported(self, capability: str) -> NoReturn:
        """Raise `UnsupportedError` for a capability that the device does not declare."""
        raise UnsupportedError(
            f"{self.info.id} does not declare {capability}{self._declared(capability)}", capability=capability,
            backend=self.info.backend, likely_causes=self.undeclared_causes(capability),
        )

    def undeclared_causes(self, capability: str) -> tuple[str, ...]:
        """Return why the device does not declare a capability, as far as its driver knows."""
        return tuple(self.driver.undeclared_causes.get(capability, ()))

    def _declared(self, capability: str) -> str:
        """Return what the device declares of the kind of the capability, for a message."""
        group = capability.rpartition(".")[0]
        names: list[str] = []
        if group in _TYPES:
            names = sorted(each.name for each in getattr(self.capabilities, group.replace(".", "_")))
        elif capability in {each.value for each in Feature}:
            group, names = "features", sorted(each.name for each in self.capabilities.features)
        else:
            return ""
        return f"; it declares for {group}: {', '.join(names) or 'none'}"

    def ability(self, ability: type[_Ability], capability: str, driver: QueueDriver | None = None) -> _Ability:
        """Return the driver of the device or of a queue as an instance of an ability, a class of xsem.spi."""
        # A driver that does not inherit the class is refused, and the error names `capability`.
        if driver is None and ability in self._abilities:   # faster than `isinstance`, which asks an abstract class
            return cast("_Ability", self.driver)
        found = self.driver if driver is None else driver
        if not isinstance(found, ability):
            self.unsupported(capability)
        if driver is None:
            self._abilities[ability] = None
        return found

    def calling(
        self, handle_type: SemaphoreHandleType | MemoryHandleType | None = None, held: Lifetime | None = None
    ) -> Calling:
        """Keep the device or `held` open during a driver call, and add the backend and the handle type to errors."""
        # `held` is the lifetime of an object, which keeps the device open, too.
        return Calling(self, handle_type, held)

    def annotate_error(
        self, error: XsemError, handle_type: SemaphoreHandleType | MemoryHandleType | None = None
    ) -> None:
        """Add the backend and the handle type to an error, where the driver did not set them."""
        if error.backend is None:
            error.backend = self.info.backend
        if error.handle_type is None:
            error.handle_type = handle_type

    def _close(self) -> None:
        # All fences are released before the driver closes, even those with references: no query of them may follow.
        for key in self._fences.copy():
            self._return_fence(key)
        with _closing.setdefault(generation(), Lock()):
            self.driver.close()

    def new_lifetime(
        self, what: str, free: Callable[[], None], *, may_block: bool = False, parent: Lifetime | None = None,
        on_thread: bool = False,
    ) -> Lifetime:
        """Create the lifetime of an object on this device; `parent` is the device unless given."""
        # `may_block`: `free` can block unless the device declares `release_never_blocks`, so the releasing thread calls
        # it while no wait is pending. `on_thread`: `free` waits for a lock of xsem, so the releasing thread calls it on
        # every device.
        gate = self.gate if may_block else None
        parent = parent or self.lifetime
        lifetime = Lifetime(self.releaser, what, free, may_block=on_thread or gate is not None, parent=parent,
                            gate=gate)
        try:
            self.lifetime.check()
            parent.check()
        except ReleasedError:   # released meanwhile, so the new object goes with it
            lifetime.release()
            raise
        if tracing.note is not None:
            fact("object", "create", what=what)
        return lifetime

    def making(
        self, what: str, free: Callable[[Any], None],
        handle_type: SemaphoreHandleType | MemoryHandleType | None = None, parent: Lifetime | None = None,
        token_of: Callable[[Any], Token] | None = None, may_block: bool = True,
    ) -> Making:
        """Call the driver, as `calling` does, and own the new driver object until a public object owns it."""
        # If the block raises, also by Ctrl-C, `free` releases the object by its token. `token_of` takes the token from
        # the result of the driver's call; without it, the result is the token. `parent` is held during the call.
        return Making(self, what, free, handle_type, parent, token_of, may_block)

    # ---- fences
    def query_fence(self, token: Token) -> bool:
        """Query the driver. If the fence is reached, all bridged signals before it are made, too."""
        reached = self.driver.query_fence(token)
        if reached and self.bridge is not None:
            self.bridge.turn()
        return reached

    def owe_marker(self, queue: MarkedQueue) -> None:
        """Note that a queue with `Callers.APPLICATION` needs a marker. The next call of the application appends it."""
        self.owing[queue] = None

    def add_fence(self, token: Token) -> int:
        """Register the token of a fence, and return its key. `detach_fence` or the device's close releases it once."""
        key = next(self._fence_keys)
        self._fences[key] = token
        return key

    def detach_fence(self, key: int) -> None:
        """Note that a fence is unused. A later `catch_up` releases the fence. Finalizers may call this method."""
        self._detached[key] = None

    def return_fences(self) -> None:
        """Release the fences that finalizers gave up."""
        if self._detached:
            with self.lifetime.visited() as there:
                for key in list(self._detached) if there else ():
                    self._return_fence(key)
                    self._detached.pop(key, None)

    def _return_fence(self, key: int) -> None:
        try:
            token = self._fences.pop(key)
        except KeyError:
            return
        try:
            self.driver.release_fence(token)
        except Exception:
            _log.warning("releasing a fence failed", exc_info=True)


class Calling(Lease):
    """A driver call, for ``with``, as `DeviceState.calling` describes."""

    __slots__ = ("_device_state", "_handle_type")

    def __init__(
        self, device_state: DeviceState, handle_type: SemaphoreHandleType | MemoryHandleType | None,
        held: Lifetime | None,
    ) -> None:
        self._device_state = device_state
        self._handle_type = handle_type
        try:
            Lease.__init__(self, device_state.lifetime if held is None else held)
        except XsemError as error:
            device_state.annotate_error(error, handle_type)
            raise

    def __exit__(self, *exc: object) -> None:
        self.end()
        if isinstance(exc[1], XsemError):
            self._device_state.annotate_error(exc[1], self._handle_type)


class Making(Calling):
    """Owns a new driver object until a public object owns it. `DeviceState.making` creates it."""

    __slots__ = ("_free", "_lifetime_made", "_made", "_may_block", "_parent", "_token_of", "_what")

    def __init__(
        self, device_state: DeviceState, what: str, free: Callable[[Any], None],
        handle_type: SemaphoreHandleType | MemoryHandleType | None, parent: Lifetime | None,
        token_of: Callable[[Any], Token] | None, may_block: bool,
    ) -> None:
        self._what = what
        self._free = free
        self._token_of = token_of
        self._may_block = may_block
        self._parent = parent
        self._made: Callable[[], None] | None = None   # frees the object, until a lifetime does
        self._lifetime_made: Lifetime | None = None
        Calling.__init__(self, device_state, handle_type, parent)

    def call(self, function: Callable[..., _T], *args: Any) -> _T:
        """Make the driver's call, and own its result."""
        made = function(*args)
        token = made if self._token_of is None else self._token_of(made)
        self._made = partial(self._free, token)
        return made

    def lifetime(self) -> Lifetime:
        """Create the lifetime of the new object (ReleasedError: the parent was released; the new object is, too)."""
        free = cast("Callable[[], None]", self._made)
        self._made = None
        self._lifetime_made = self._device_state.new_lifetime(
            self._what, free, may_block=self._may_block, parent=self._parent)
        return self._lifetime_made

    def __exit__(self, *exc: object) -> None:
        if exc[1] is not None:
            if self._lifetime_made is not None:
                self._lifetime_made.release()
            elif self._made is not None:
                with contextlib.suppress(ReleasedError):   # `new_lifetime` has released the object then
                    self.lifetime().release()
        Calling.__exit__(self, *exc)
