"""Intel's driver on Windows, from the source code of its releases up to August 2026.

The thread of the driver waits in the kernel for each semaphore, and holds the lock of the appends meanwhile. So a wait
or a signal behind an unmet wait blocks in its append until the wait is met, and nothing can end this before. xsem
refuses both. An import supports only one wait, and none after a signal.

Windows numbers its drivers otherwise than Linux, so xsem treats every release alike here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, cast

from xsem.errors import BusyError, UnsupportedError
from xsem.spi import ImportFailure
from xsem.types import (
    MemoryDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
    SignalParams,
    WaitParams,
)
from xsem_levelzero.core import Core
from xsem_levelzero.device import LevelZeroDevice
from xsem_levelzero.fences import Events, Fence
from xsem_levelzero.intel.devices import BlockingLateDevice
from xsem_levelzero.intel.passes import Passes
from xsem_levelzero.intel.queues import BlockingLateList
from xsem_levelzero.intel.semaphores import LateSemaphore
from xsem_levelzero.intel.signals import SignalsBefore
from xsem_levelzero.intel.unmet_waits import unmet_waits_of
from xsem_levelzero.queue import ImmediateList
from xsem_levelzero.results import UNSUPPORTED_FEATURE
from xsem_levelzero.semaphores import Semaphore, import_semaphore

__all__ = ["LIMIT", "WindowsDevice"]

# For `xsem doctor`.
LIMIT: Final = "a wait or a signal behind an unmet wait is refused (wait_behind_wait, signal_behind_wait)"

_S: Final = SemaphoreHandleType


class WindowsList(BlockingLateList):
    """A list whose appends block behind an unmet wait."""

    def append_wait(
        self, semaphores: Sequence[Any], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Append a wait for one semaphore, or refuse it (`BusyError`, ``wait_behind_wait``)."""
        # A wait for 0 on a timeline is a barrier: see `ImmediateList.append_wait`.
        count = sum(bool(param.value) or semaphore.type.kind is not SemaphoreKind.TIMELINE
                    for semaphore, param in zip(semaphores, params, strict=True))
        with self._unmet.lock:
            if count > 1 or (count and self._unmet.count(self._events, wait_fences)):
                raise BusyError(
                    "Intel's driver for Windows blocks in the append of a wait while another wait of the process is "
                    "unmet: append a wait for one semaphore at a time, and synchronize its list before the next one",
                    reason="wait_behind_wait",
                )
            return super().append_wait(semaphores, params, wait_fences, acquire, want_fence)

    def append_signal(
        self, semaphores: Sequence[Any], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Append a signal, or refuse it while a wait is unmet (`BusyError`, ``signal_behind_wait``)."""
        with self._unmet.lock:
            if semaphores and self._unmet.count(self._events, wait_fences):
                raise BusyError(
                    "Intel's driver for Windows blocks in the append of a signal while a wait of the process is unmet: "
                    "synchronize the lists with waits before the signal", reason="signal_behind_wait",
                )
            return super().append_signal(semaphores, params, wait_fences, release, want_fence)


class WindowsSemaphore(LateSemaphore):
    """A semaphore that was imported by its name, and is imported again by the name for each wait."""

    __slots__ = ("_name",)

    def __init__(self, core: Core, events: Events, handle: int, type: SemaphoreHandleType, name: str) -> None:
        super().__init__(core, events, handle, type, None)
        self._name = name

    def _import_again(self) -> Semaphore:
        return import_semaphore(self._core, SemaphoreDesc(type=self.type, name=self._name), None)


class WindowsPasses(Passes):
    """Passes by waits for 0 on a timeline of the application: xsem can create no object that the driver imports."""

    met_value: ClassVar[int] = 0   # always met on Windows

    def __init__(self, core: Core, events: Events, waits: int) -> None:
        super().__init__(core, events, waits)
        self._unmet = unmet_waits_of(core.driver)

    def lend(self, semaphore: LateSemaphore) -> None:
        """Use this semaphore if it is the first timeline."""
        with self._lock:
            if self._semaphore is None and semaphore.type.kind is SemaphoreKind.TIMELINE:
                self._semaphore = semaphore.for_one_wait()

    def reached(self, before: SignalsBefore | None) -> bool:
        """Whether the thread has made all signals before a fence. Without a timeline, nothing can be known."""
        return self._semaphore is None or super().reached(before)

    def close(self) -> bool:
        """Release all semaphores. False: the objects and events stay."""
        # A binary semaphore whose signal may not be made stays imported: a release would be a use after free.
        return not (self._semaphore is None and self._released) and super().close()

    def _sweep(self) -> None:
        if self._semaphore is not None:
            super()._sweep()

    def _advance(self, wanted: int) -> None:
        with self._unmet.lock:   # no wait of the process comes between the check and the append
            if not self._unmet.count(self._events, ()):
                super()._advance(wanted)


class WindowsDevice(BlockingLateDevice):
    """A device of Intel's driver on Windows."""

    list_class: ClassVar[type[ImmediateList]] = WindowsList

    def __init__(self, core: Core, *args: Any, **more: Any) -> None:
        super().__init__(core, *args, **more)
        self._passes: WindowsPasses = WindowsPasses(core, self._events, self.waits_for_a_pass)

    def _import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Semaphore:
        if desc.type is _S.OPAQUE_WIN32:
            _refuse_name(desc)   # the driver would end the process: it maps the handle without a check
        try:
            made = self._import_by(desc, handle)
        except UnsupportedError as error:
            if desc.type is not _S.D3D11_FENCE or error.code != UNSUPPORTED_FEATURE:
                raise
            # Before 26.14 the driver does not know this type. It imports the object as a fence of D3D12.
            named = {"name": desc.name} if handle is None else {"handle": handle.fileno()}
            made = self._import_by(SemaphoreDesc(type=_S.D3D12_FENCE, **named), handle)
        try:
            self._passes.lend(made)
        except BaseException:
            made.release(self._core)
            raise
        return cast("Semaphore", made)

    def _counter(self, type: SemaphoreHandleType, kept: OwnedHandle) -> None:
        """Nothing reads the value of an NT handle."""

    def _import_by(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if handle is not None:
            return super()._import_semaphore(desc, handle)
        self._passes.sweep()
        made = LevelZeroDevice._import_semaphore(self, desc, None)
        return WindowsSemaphore(self._core, self._events, made.handle, made.type, str(desc.name))

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Any:
        """Call zeMemAllocDevice with the handle."""
        try:
            _refuse_name(desc)
        except UnsupportedError as error:
            raise ImportFailure(error, handle="left") from error
        return super().import_memory(desc, handle)


def _refuse_name(desc: SemaphoreDesc | MemoryDesc) -> None:
    if desc.name is not None:
        raise UnsupportedError(
            f"Intel's driver imports {desc.type.name} by its handle only: open the object by its name in the API that "
            "made it, and pass the handle", capability=f"import.{desc.type.value}.name", reason="name_not_taken")
