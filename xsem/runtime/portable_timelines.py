"""Portable timelines, on one device (docs/host-objects.md)."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from xsem.errors import XsemError
from xsem.portable import Timeline, new_timeline, open_any_timeline, opened
from xsem.runtime.device_state import DeviceState
from xsem.spi import HostTimelines, Imported, ImportFailure, Token
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType

__all__ = ["LARGEST_DIFFERENCE", "PortableTimeline", "PortableTimelines"]

LARGEST_DIFFERENCE: Final = 2**63 - 1
"""CUDA compares cyclically, so a larger difference would count as a lower value there."""


class PortableTimeline(NamedTuple):
    """A timeline's page, and the driver's token for it. Without a token, the timeline is bridged."""

    page: Timeline
    token: Token | None


class PortableTimelines:
    """Makes and releases the timelines of one type on a device."""

    def __init__(self, device_state: DeviceState, type: SemaphoreHandleType) -> None:
        bridged = type in device_state.capabilities.bridged
        self._driver = None if bridged else device_state.ability(HostTimelines, f"semaphore.import.{type.value}")

    def create(self, initial_value: int) -> PortableTimeline:
        """Create a timeline."""
        return self._taken(new_timeline(initial_value))

    def open(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Import a timeline, as `SemaphoreImport.import_semaphore`; the token is a `PortableTimeline`."""
        try:
            return Imported(self._taken(opened(desc, handle, open_any_timeline)), handle="left")
        except XsemError as error:
            raise ImportFailure(error, handle="left") from error

    def release(self, made: PortableTimeline) -> None:
        """Release a timeline."""
        try:
            if self._driver is not None:
                self._driver.release_semaphore(made.token)
        finally:
            made.page.close()

    def _taken(self, page: Timeline) -> PortableTimeline:
        try:
            if self._driver is None:
                return PortableTimeline(page, None)
            if not (self._driver.signals_wake or page.read_only):
                page.note_silent_signals()
            return PortableTimeline(page, self._driver.import_host_timeline(page))
        except BaseException:
            with contextlib.suppress(XsemError):
                page.close()
            raise
