"""Devices of Intel's driver: one class for each combination of its two quirks."""

from __future__ import annotations

import time
from typing import Any, ClassVar, cast

from xsem.spi import duplicate_fd
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_levelzero.core import Core
from xsem_levelzero.device import LevelZeroDevice
from xsem_levelzero.fences import Fence
from xsem_levelzero.intel.host_functions import HostFunctionDevice
from xsem_levelzero.intel.passes import Passes, own_queues
from xsem_levelzero.intel.queues import BlockingLateList, BlockingList, LateList
from xsem_levelzero.intel.semaphores import LateSemaphore
from xsem_levelzero.intel.unmet_waits import unmet_waits_of
from xsem_levelzero.objects import Counter, counter_of
from xsem_levelzero.queue import ImmediateList
from xsem_levelzero.semaphores import Semaphore

__all__ = ["device_class"]


class BlockingDevice(LevelZeroDevice):
    """A device before 26.22: its driver blocks in a signal behind an unmet wait (`unmet_waits`)."""

    list_class: ClassVar[type[ImmediateList]] = BlockingList
    release_semaphore_blocks = True   # the wait of `Passes` may block behind a signal of another list

    def _finish(self) -> bool:
        unmet_waits_of(self._core.driver).forget(self._events)
        return super()._finish()


class LateDevice(LevelZeroDevice):
    """A device whose imports support one wait, and whose signals come after their event (`passes`).

    Both come from the same thread of the driver.
    """

    list_class: ClassVar[type[ImmediateList]] = LateList
    waits_for_a_pass: ClassVar[int] = 1

    def __init__(self, core: Core, *args: Any, **more: Any) -> None:
        super().__init__(core, *args, **more)
        self._passes = Passes(core, self._events, self.waits_for_a_pass)

    @staticmethod
    def own_queues(core: Core) -> int:
        """The number of queues for own lists: `passes.own_queues`."""
        return own_queues(core)

    def release_semaphore(self, semaphore: Any) -> None:
        """Call zeDeviceReleaseExternalSemaphoreExt when the driver's thread does not use the semaphore."""
        self._passes.release(semaphore)

    def query_fence(self, fence: Fence) -> bool:
        """Call zeEventQueryStatus. The signals before the fence are made, too."""
        # First `late`: a caller may ask for an event that another thread releases, and the next operation of the event
        # has other signals, which the answer says nothing about.
        late = fence.late
        return super().query_fence(fence) and self._passes.reached(late)

    def wait_fence(self, fence: Fence, timeout_ns: int) -> bool:
        """Call zeEventHostSynchronize. The signals before the fence are made, too."""
        deadline, late = time.monotonic_ns() + timeout_ns, fence.late
        return super().wait_fence(fence, timeout_ns) and self._passes.wait(late, deadline - time.monotonic_ns())

    def _import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Semaphore:
        self._passes.sweep()
        # The duplicate is made before the driver's call, because some releases of the driver close the fd in the call.
        kept = duplicate_fd(cast("OwnedHandle", handle).fileno())   # every type on Linux is an fd
        try:
            made = super()._import_semaphore(desc, handle)
        except BaseException:
            kept.close()
            raise
        return LateSemaphore(self._core, self._events, made.handle, made.type, kept, self._counter(made.type, kept))

    def _counter(self, type: SemaphoreHandleType, kept: OwnedHandle) -> Counter | None:
        """The value of a timeline, read without the driver. None: it cannot be read."""
        return counter_of(kept.fileno()) if type.kind is SemaphoreKind.TIMELINE else None

    def _finish(self) -> bool:
        ended = self._passes.close()
        return super()._finish() and ended


class BlockingLateDevice(LateDevice, BlockingDevice):
    """Both, of a driver before 26.22."""

    list_class: ClassVar[type[ImmediateList]] = BlockingLateList
    waits_for_a_pass = 2   # the thread begins with the newest entry


def device_class(*, blocks: bool, late: bool, host_functions: bool) -> type[LevelZeroDevice]:
    """Return the class of a device with these quirks."""
    if host_functions:
        return HostFunctionDevice
    if blocks:
        return BlockingLateDevice if late else BlockingDevice
    return LateDevice if late else LevelZeroDevice
