"""The semaphore behind an exported handle: an import in the same process reads the value through it."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING

from xsem.data.handles import OwnedHandle
from xsem.errors import XsemError
from xsem.types import Feature

if TYPE_CHECKING:
    from xsem.runtime.device_state import DeviceState
    from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["Origin", "note_origin", "origin_of"]


class Origin:
    """The exported semaphore and its device, by weak references."""

    __slots__ = ("_device_state", "_state")

    def __init__(self, device_state: DeviceState, state: SemaphoreState) -> None:
        self._device_state = weakref.ref(device_state)
        self._state = weakref.ref(state)

    def value(self) -> int | None:
        """The timeline's value now; None if the exporter cannot read it, or is released."""
        device_state, state = self._device_state(), self._state()
        if device_state is None or state is None or Feature.READ_VALUE not in device_state.capabilities.features:
            return None
        with device_state.lifetime.visited() as open_, state.lifetime.visited() as there:
            if open_ and there:
                with contextlib.suppress(XsemError), device_state.driver.quiet():
                    return device_state.driver.semaphore_value(state.token)
        return None


_origins: weakref.WeakKeyDictionary[OwnedHandle, Origin] = weakref.WeakKeyDictionary()


def note_origin(handle: OwnedHandle, device_state: DeviceState, state: SemaphoreState) -> None:
    """Remember the semaphore that `handle` was exported from."""
    _origins[handle] = Origin(device_state, state)


def origin_of(handle: object) -> Origin | None:
    """Return the origin of a descriptor's handle; None for a handle from elsewhere."""
    return _origins.get(handle) if isinstance(handle, OwnedHandle) else None
