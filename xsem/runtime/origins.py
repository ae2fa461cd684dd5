"""The semaphore behind an exported handle: an import in the same process reads the value through it."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING

from xsem.data.handles import OwnedHandle
from xsem.errors import XsemError
from xsem.types import Feature

if TYPE_CHECKING:
    from xsem.runtime.device_state import Session
    from xsem.runtime.semaphore_state import SemaphoreState

__all__ = ["Origin", "note_origin", "origin_of"]


class Origin:
    """The exported semaphore and its device, by weak references."""

    __slots__ = ("_session", "_state")

    def __init__(self, session: Session, state: SemaphoreState) -> None:
        self._session = weakref.ref(session)
        self._state = weakref.ref(state)

    def value(self) -> int | None:
        """The timeline's value now; None if the exporter cannot read it, or is released."""
        session, state = self._session(), self._state()
        if session is None or state is None or Feature.READ_VALUE not in session.capabilities.features:
            return None
        with session.record.visited() as open_, state.record.visited() as there:
            if open_ and there:
                with contextlib.suppress(XsemError), session.driver.quiet():
                    return session.driver.semaphore_value(state.token)
        return None


_origins: weakref.WeakKeyDictionary[OwnedHandle, Origin] = weakref.WeakKeyDictionary()


def note_origin(handle: OwnedHandle, session: Session, state: SemaphoreState) -> None:
    """Remember the semaphore that `handle` was exported from."""
    _origins[handle] = Origin(session, state)


def origin_of(handle: object) -> Origin | None:
    """Return the origin of a descriptor's handle; None for a handle from elsewhere."""
    return _origins.get(handle) if isinstance(handle, OwnedHandle) else None
