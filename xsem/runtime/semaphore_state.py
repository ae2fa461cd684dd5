"""State of one semaphore: its token, its lifetime, and the last value signalled in this process."""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

from xsem.data import locks
from xsem.data.handles import OwnedHandle, follower_of
from xsem.data.locks import Lock
from xsem.data.signallers import Ended, Signallers
from xsem.errors import BadArgumentError, BusyError, ReleasedError, XsemError
from xsem.portable import Timeline
from xsem.runtime.device_state import DeviceState
from xsem.runtime.lifetime import Lifetime
from xsem.spi import HostSemaphore, Token
from xsem.types import Feature, SemaphoreHandleType, SemaphoreKind

__all__ = ["Origin", "SemaphoreState", "can_read", "note_origin", "origin_of", "read_value", "shared_name"]


class SemaphoreState:
    """The state that the public `Semaphore` and the queues share. A queue must not keep the public object alive."""

    # "Signalled here" means: signalled through this object, and not by another process, API or import.

    __slots__ = (
        "__weakref__",
        "_signal_is_there",
        "_turning",
        "_unreset",
        "exported",
        "host_order",
        "imported",
        "kind",
        "label",
        "last",
        "lent",
        "lifetime",
        "limit",
        "lock",
        "origin",
        "page",
        "rewound",
        "signal_first",
        "signallers",
        "token",
        "type",
    )

    def __init__(
        self, type: SemaphoreHandleType, label: str, token: Token, lifetime: Lifetime, *, imported: bool,
        initial_value: int | None, lock: Lock, signallers: Signallers, limit: int, page: Timeline | None = None,
    ) -> None:
        self.type = type
        self.kind = type.kind
        self.label = label
        self.token = token
        self.lifetime = lifetime
        self.page = page   # of a portable timeline: all reads, signals and waits of the host are made in it
        self.limit = limit   # largest difference between a value and the last one
        self.imported = imported
        self.exported = False
        self.origin: Origin | None = None   # the exported semaphore, for an import whose exporter is in this process
        # The other processes that can signal. All imports of an exported handle share them with the exported semaphore.
        self.signallers = signallers
        # Protects the last values; all semaphores of a device share it. Re-entrant: a finalizer of the application can
        # run while this thread holds the lock, and may signal.
        self.lock = lock
        self.last = initial_value   # the value last signalled here, or the initial one; None if neither is known
        self._unreset = False
        self.rewound = False   # a value not above its predecessor was signalled here
        self.signal_first = False   # the device takes a wait only after its signal (`Capabilities.wait_before_signal`)
        # The application has the native handle, or a recording has an operation, so xsem does not see each signal.
        self.lent = False
        self._signal_is_there = imported  # of a sync file; of a binary semaphore with `signal_first`
        self._turning = False   # a driver's call that uses or makes the signal of a sync file is in progress
        self.host_order = locks.Lock()

    @property
    def described(self) -> str:
        """Type and label, as in reports."""
        return f"{self.type.value} {self.label!r}" if self.label else self.type.value

    def ended_signallers(self) -> Ended | None:
        """Return the other processes that can signal if all have ended; otherwise None."""
        return self.signallers.ended(None if self.page is None else self.page.holder)

    # ---- timeline values
    def check_advance(self, value: int, *, allow_rewind: bool) -> None:
        """Refuse a value that cannot be signalled next: not above the last one, or too far above it."""
        if self.page is not None and self.page.abandoned:
            raise self._abandoned()
        previous = self.last
        if previous is None:
            self.check_difference(value)   # from the present value, if there is a page
            return
        if value <= previous and not allow_rewind:
            raise BadArgumentError(
                f"{self.described} was last signalled here with {previous}; {value} is not above it "
                "(SignalParams(allow_rewind=True) permits it)",
                reason="value_not_above_last",
                handle_type=self.type,
            )
        if self.page is None:
            self._check_above(value, previous, "the last value signalled here")
        elif value > self.limit:   # others may have signalled since
            self._check_above(value, max(self.page.value, previous), "the present or the last value")

    def check_difference(self, value: int) -> None:
        """Refuse a value to wait for that is too far above the last value, or that an abandoned timeline never has."""
        if self.page is not None and self.page.lost(value):
            raise self._abandoned()
        if value <= self.limit:   # then it is not more than that above any value
            return
        if self.page is not None:
            self._check_above(value, self.page.value, "the present value")
        elif self.last is not None:
            self._check_above(value, self.last, "the last value signalled here")

    def _check_above(self, value: int, base: int, what: str) -> None:
        if value - base > self.limit:
            raise BadArgumentError(f"{value} is more than {self.limit} above {what}, {base}",
                                   reason="value_difference", handle_type=self.type)

    def _abandoned(self) -> ReleasedError:
        return ReleasedError(f"{self.described} was abandoned, so no process will signal it any more: create a new one",
                             reason="abandoned", handle_type=self.type)

    def check_can_signal(self) -> None:
        """Refuse to signal a timeline that was imported only for reading."""
        if self.page is not None and self.page.read_only:
            raise BadArgumentError(f"{self.described} was exported with read_only=True: it can only be waited for",
                                   reason="only_waits", handle_type=self.type)

    def restore(self, value: int, previous: int | None) -> None:
        """Undo the signal of `value`, because it was not appended."""
        with self.lock:
            if self.last == value:
                self.last = previous

    # ---- binary semaphores that a wait does not reset
    def check_reset(self) -> None:
        """Refuse a second wait on a device where `resets_on_wait` is False."""
        # Level Zero's semantics rule 7 leaves the reset to the exporter.
        if self._unreset:
            raise BusyError(
                f"a wait for {self.described} was appended, and this device does not reset it: the exporter must reset "
                "it (Level Zero external semaphores, rule 7); call mark_reset() after the reset",
                reason="not_reset",
                handle_type=self.type,
            )

    def claim_wait(self) -> None:
        """Check and note a wait of a binary semaphore before its append. `mark_reset` undoes the note."""
        if self.kind is SemaphoreKind.BINARY:
            with self.lock:
                self.check_reset()
                self._unreset = True

    def mark_reset(self) -> None:
        """Note that the exporter has reset the semaphore."""
        with self.lock:
            self._unreset = False

    # ---- binary semaphores with `signal_first`
    def require_signal(self) -> bool:
        """Note a wait before its append, and return whether a signal was there, for `note_signal`."""
        with self.lock:
            there = self._signal_is_there
            if not (there or self.imported or self.exported or self.lent):
                raise BusyError(
                    f"no signal of {self.described} is appended, and this device takes a wait for it only afterwards "
                    "(Capabilities.wait_before_signal): append the signal first. The semaphore was not exported, so "
                    "no other device or process can signal it", reason="nothing_signalled", handle_type=self.type)
            self._signal_is_there = False
            return there

    def note_signal(self, there: bool = True) -> bool:
        """Note a signal before its append; return whether one was there. Undoes `require_signal` and itself, too."""
        with self.lock:
            before, self._signal_is_there = self._signal_is_there, there
            return before

    # ---- sync files: imported for one wait, or created here for export
    def claim_signal(self) -> None:
        """Claim the semaphore for a signal, which serves one export or one wait (``signalled_already``)."""
        self._turn(False, "has a signal already: export it, or wait for it, before the next one",
                   reason="signalled_already")

    def claim_use(self) -> None:
        """Claim the signal for an export or a wait, which uses it up (``nothing_signalled``, ``sync_file_used``)."""
        if self.imported:
            self._turn(True, "was imported for one wait, and that wait was appended: import it again for the "
                                    "next wait", reason="sync_file_used")
        else:
            self._turn(True, "has no signal: each export and each wait uses one up; append a signal first",
                       reason="nothing_signalled")

    def settle(self) -> None:
        """End a claim: the driver's call is made."""
        with self.lock:
            self._turning = False

    def take_back(self) -> None:
        """Undo a claim: the driver's call failed."""
        with self.lock:
            self._turning = False
            self._signal_is_there = not self._signal_is_there

    def _turn(self, there: bool, otherwise: str, *, reason: str) -> None:
        with self.lock:
            # During the driver's call of one thread, no other thread may export, wait or signal.
            if self._turning or self._signal_is_there is not there:
                raise BusyError(f"{self.described} {otherwise}", reason=reason, handle_type=self.type)
            self._turning = True
            self._signal_is_there = not there


def can_read(device_state: DeviceState, state: SemaphoreState) -> bool:
    """Return whether the host can read the value of a timeline."""
    return state.page is not None or Feature.READ_VALUE in device_state.capabilities.features


def read_value(device_state: DeviceState, state: SemaphoreState) -> int:
    """Return the current value of a timeline that `can_read` permits."""
    if state.page is not None:
        return state.page.value
    return device_state.ability(HostSemaphore, Feature.READ_VALUE.value).semaphore_value(state.token)


class HostSide(Protocol):
    """The signals and the waits of the host for one semaphore."""

    def signal(self, value: int | None) -> None:
        """Signal, as `HostSemaphore.host_signal`."""

    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Wait, as `HostSemaphore.host_wait`."""


class _DriverSide:
    """The host's side of a semaphore of the driver."""

    def __init__(self, driver: HostSemaphore, token: Token) -> None:
        self._driver = driver
        self._token = token

    def signal(self, value: int | None) -> None:
        self._driver.host_signal(self._token, value)

    def wait(self, value: int | None, timeout_ns: int) -> bool:
        return self._driver.host_wait(self._token, value, timeout_ns)


def host_side(device_state: DeviceState, state: SemaphoreState, feature: Feature) -> HostSide:
    """Return the host's side of a semaphore, if the device declares the feature or the timeline is portable."""
    if state.page is not None:
        return state.page
    device_state.require(feature)
    return _DriverSide(device_state.ability(HostSemaphore, feature.value), state.token)


# ---- exported semaphores that this process imports again
def shared_name(state: SemaphoreState) -> str:
    """Return a name that the semaphore has in all processes; empty if it has none."""
    if state.page is not None and state.page.identity:
        return state.page.identity
    return f"label:{state.label}" if state.label else ""


class Origin:
    """The exported semaphore and its device, by weak references."""

    __slots__ = ("_device_state", "_state")

    def __init__(self, device_state: DeviceState, state: SemaphoreState) -> None:
        self._device_state = weakref.ref(device_state)
        self._state = weakref.ref(state)

    def value(self) -> int | None:
        """Return the timeline's value now; None if the exporter cannot read the value, or is released."""
        device_state, state = self._device_state(), self._state()
        if device_state is None or state is None:
            return None
        if not can_read(device_state, state):
            return None
        with device_state.lifetime.visited() as open_, state.lifetime.visited() as there:
            if open_ and there:
                with contextlib.suppress(XsemError):
                    return read_value(device_state, state)
        return None


_origins: weakref.WeakKeyDictionary[OwnedHandle, Origin] = weakref.WeakKeyDictionary()


def note_origin(handle: OwnedHandle, device_state: DeviceState, state: SemaphoreState) -> None:
    """Remember the semaphore behind an exported handle."""
    _origins[handle] = Origin(device_state, state)


def _lose_open_handles() -> None:
    """Note that a forked child has the exported handles that were open at the fork."""
    for handle in list(_origins):
        follower = follower_of(handle)
        if not handle.closed and follower is not None:
            follower.number_given()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_lose_open_handles)


def origin_of(handle: object) -> Origin | None:
    """Return the origin of a descriptor's handle; None for a handle from elsewhere."""
    return _origins.get(handle) if isinstance(handle, OwnedHandle) else None
