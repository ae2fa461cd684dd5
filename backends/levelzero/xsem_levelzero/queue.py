"""Immediate command lists, created by the backend or borrowed from the application."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from ctypes import byref
from typing import Final

from xsem.errors import BadArgumentError, DriverError, UnsupportedError, XsemError
from xsem.spi import Callers, CopyQueue, ImageCopyQueue, ImageQueue, ImageRegion, SemaphoreQueue
from xsem.types import SemaphoreKind, SignalParams, WaitParams
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.events import Events, Fence
from xsem_levelzero.functions import SIGNAL, WAIT
from xsem_levelzero.images import Image, image_region
from xsem_levelzero.intel.passes import Signals
from xsem_levelzero.intel.unmet_waits import UnmetWaits
from xsem_levelzero.loader import handle_out
from xsem_levelzero.results import INVALID_ARGUMENT, INVALID_COMMAND_LIST_TYPE, UNSUPPORTED_FEATURE
from xsem_levelzero.semaphores import Batches, Semaphore

__all__ = ["ImmediateList", "check_immediate"]

_log = logging.getLogger("xsem")

_Append = Callable[[Fence | None, Sequence[Fence]], None]
_BARRIER: Final = "zeCommandListAppendBarrier"
_RULE_8 = "the list is not immediate: only immediate lists take waits and signals of semaphores (rule 8)"


class ImmediateList(SemaphoreQueue, CopyQueue, ImageQueue, ImageCopyQueue):
    """One immediate list.

    Parameters
    ----------
    handle : int
        ze_command_list_handle_t from the loader.
    in_order : bool
        Whether the list executes in order by itself. If False, each append is placed between two barriers.
    lent : object
        The application's list. The driver keeps a reference to it. None: this object owns the list.
    known_immediate : bool
        Whether the loader or the driver has confirmed that the list is immediate.
    unmet : UnmetWaits, optional
        The record of a driver that blocks in a signal behind an unmet wait.
    late : bool
        Whether the driver may make a signal after its event (`xsem_levelzero.intel.passes`).
    """

    def __init__(
        self, core: Core, events: Events, handle: int, *, in_order: bool, lent: object | None = None,
        known_immediate: bool = True, unmet: UnmetWaits | None = None, late: bool = False,
    ) -> None:
        self.identity = handle
        self.native_handle = handle
        # Level Zero forbids simultaneous calls on one list, and the application appends its own kernels to its list.
        self.callers = Callers.ONE_AT_A_TIME if lent is None else Callers.APPLICATION
        self._handle = handle
        self._core = core
        self._events = events
        self._in_order = in_order
        self._lent = lent
        self._own = lent is None
        self._known_immediate = known_immediate
        self._refused: XsemError | None = None
        self._unmet = unmet
        self._made = Signals() if late else None
        self._native = core.extension.command_list(handle)
        self._signals = Batches(ze.SignalParams)
        self._waits = Batches(ze.WaitParams)

    # ---- appends
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendWaitExternalSemaphoreExt.

        Raises
        ------
        UnsupportedError
            ``not_supported``: a keyed mutex with a timeout.
        """
        core, events = self._core, self._events
        _check_keyed(semaphores, params)
        fresh: list[tuple[Semaphore, int]] = []
        try:
            handles = [self._handle_for_wait(semaphore, fresh) for semaphore in semaphores]
            structs = self._waits.fill(semaphores, params)
            with self._unmet.lock if self._unmet else nullcontext():
                fence = self._issue(
                    lambda signal, waits: core.extension.append(
                        WAIT, self._native, handles, structs, signal.native if signal else 0,
                        [each.native for each in waits]),
                    wait_fences, int(want_fence) + len(fresh) + (self._unmet is not None),
                )
                if self._unmet is not None and fence is not None:
                    self._unmet.add(events, fence)
        except Exception:
            for _, handle in fresh:
                core.extension.release_semaphore(handle)
            raise
        except BaseException:
            # Ctrl-C: the driver may have the wait.
            for semaphore, handle in fresh:
                semaphore.keep(handle)
            raise
        if fence is not None:
            for semaphore, handle in fresh:
                semaphore.waits_with(handle, fence)
        return fence if want_fence else None

    def _handle_for_wait(self, semaphore: Semaphore, fresh: list[tuple[Semaphore, int]]) -> int:
        """Return the handle for one wait, and add a fresh import to `fresh`."""
        handle = semaphore.handle_for_wait(self._core, self._events)
        if handle != semaphore.handle:
            fresh.append((semaphore, handle))
        return handle

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendSignalExternalSemaphoreExt.

        Raises
        ------
        BusyError
            ``signal_behind_wait``: a wait of the process is unmet, and the driver would block for ever.
        """
        handles = [semaphore.handle for semaphore in semaphores]
        structs = self._signals.fill(semaphores, params)
        made, number, users = self._made, 0, int(want_fence)

        def append(signal: Fence | None, waits: Sequence[Fence]) -> None:
            if made is not None and signal is not None:
                # This record precedes the driver's call: after Ctrl-C in the call, the driver may have the signal.
                for semaphore in semaphores:
                    semaphore.signals_with(made, number, signal)
            try:
                self._core.extension.append(SIGNAL, self._native, handles, structs, signal.native if signal else 0,
                                            [each.native for each in waits])
            except XsemError:
                for semaphore in semaphores:
                    semaphore.signal_refused(made, number)
                raise

        with self._unmet.lock if self._unmet else nullcontext():
            if self._unmet is not None:
                self._unmet.check(self._events, wait_fences)
            if made is not None:
                made.appended += 1
                number = made.appended
                users += len(semaphores)
            fence = self._issue(append, wait_fences, users)
            if made is not None:
                for semaphore in semaphores:
                    semaphore.signal_appended(made, number, self._events)
            return fence if want_fence else None

    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Call zeCommandListAppendBarrier."""
        self._check_known()

        def append(signal: Fence | None, waits: Sequence[Fence]) -> None:
            # On a list that may reorder, `_place` has appended a barrier without events, which waits for all earlier
            # work. A barrier with events waits only for these events.
            if signal is not None or waits or self._in_order:
                self._barrier(signal, waits)

        return self._place(append, wait_fences, int(want_fence))

    def append_copy(
        self, dst: int, dst_offset: int, src: int, src_offset: int, size: int, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendMemoryCopy."""
        self._check_known()
        return self._issue(
            lambda signal, waits: self._core.loader.do(
                "zeCommandListAppendMemoryCopy", self._handle, dst + dst_offset, src + src_offset, size,
                *_events(signal, waits)),
            wait_fences, int(want_fence),
        )

    def append_level_copy(
        self, level: Image, buffer: int, offset: int, read: bool, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call zeCommandListAppendImageCopyToMemory or …FromMemory."""
        self._check_known()
        address = buffer + offset
        name, ends = (("zeCommandListAppendImageCopyToMemory", (address, level.handle)) if read
                      else ("zeCommandListAppendImageCopyFromMemory", (level.handle, address)))
        return self._issue(
            lambda signal, waits: self._core.loader.do(name, self._handle, *ends, None, *_events(signal, waits)),
            wait_fences, int(want_fence),
        )

    def append_region_copy(
        self, level: Image, region: ImageRegion, buffer: int, offset: int, row_pitch: int, slice_pitch: int, read: bool,
        wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendImageCopyToMemory or …FromMemory, with Ext for rows with padding.

        Raises
        ------
        UnsupportedError
            ``not_supported``: the driver lacks the function with pitches, which `capability` names, or the slice pitch
            exceeds 32 bits. ``driver_too_old``: the loader lacks the function.
        """
        self._check_known()
        width, height, _ = region.extent
        row = width * level.element_size
        # The slice pitch of an image without slices must be 0.
        slices = slice_pitch if region.slices > 1 else 0
        padded = (row_pitch != row and height > 1) or slices not in (0, row * height)
        if slices >> 32:
            raise UnsupportedError(f"Level Zero's slice pitch has 32 bits, and {slices} needs more",
                                   capability="image_copy.slice_pitch", reason="not_supported")
        address, area = buffer + offset, byref(image_region(region))
        name = "zeCommandListAppendImageCopyToMemory" if read else "zeCommandListAppendImageCopyFromMemory"
        ends = (address, level.handle) if read else (level.handle, address)
        extended, pitches = ("Ext", (row_pitch, slices)) if padded else ("", ())
        return self._issue(
            lambda signal, waits: self._core.loader.do(
                name + extended, self._handle, *ends, area, *pitches, *_events(signal, waits)),
            wait_fences, int(want_fence),
        )

    def append_image_copy(
        self, dst: Image, dst_region: ImageRegion, src: Image, src_region: ImageRegion, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendImageCopyRegion."""
        self._check_known()
        to, out_of = byref(image_region(dst_region)), byref(image_region(src_region))
        return self._issue(
            lambda signal, waits: self._core.loader.do(
                "zeCommandListAppendImageCopyRegion", self._handle, dst.handle, src.handle, to, out_of,
                *_events(signal, waits)),
            wait_fences, int(want_fence),
        )

    def append_fill(
        self, dst: int, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call zeCommandListAppendMemoryFill.

        Raises
        ------
        BadArgumentError
            ``bad_pattern``: the length of the pattern is not a power of two, or the pattern is too long for the device.
        """
        length, longest = len(pattern), self._core.queues.fill_pattern
        if length & (length - 1) or length > longest:
            raise BadArgumentError(
                f"this device fills with patterns of 1, 2, 4, … {longest} bytes, not with {length}; copy from a "
                "filled host buffer instead", reason="bad_pattern",
            )
        self._check_known()
        data = ctypes.create_string_buffer(pattern, length)
        return self._issue(
            lambda signal, waits: self._core.loader.do(
                "zeCommandListAppendMemoryFill", self._handle, dst + offset, ctypes.addressof(data), length, size,
                *_events(signal, waits)),
            wait_fences, int(want_fence),
        )

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` if the list is known to be immediate."""
        self._check_known()
        work()

    def close(self) -> None:
        """Destroy an owned list. A borrowed list stays the application's."""
        if self._own:
            self._core.destroy("zeCommandListDestroy", self._handle)
            if self._made is not None:
                self._made.passed = self._made.appended   # zeCommandListDestroy requires the end of the list's work
        self._lent = None

    # ---- inside
    def _issue(self, append: _Append, wait_fences: Sequence[Fence], users: int) -> Fence | None:
        """Append one operation that begins after `wait_fences`. Later work of the list begins after the operation.

        Returns
        -------
        Fence or None
            The fence of the operation if `users` is not 0.
        """
        fence = self._place(append, wait_fences, users)
        if not self._in_order:
            self._hold_later_work()
        # On a list of unknown type, only a wait or a signal reaches this line, and a regular list refuses both.
        self._known_immediate = True
        return fence

    def _place(self, append: _Append, wait_fences: Sequence[Fence], users: int) -> Fence | None:
        """Append one operation that begins after `wait_fences` and after all earlier work of the list.

        Returns
        -------
        Fence or None
            The fence of the operation if `users` is not 0.
        """
        self._follow(wait_fences)
        with self._unmet.lock if self._unmet else nullcontext():
            held = self._unmet is not None and self._unmet.holds(self._events, wait_fences)
            # Take the event before the first append: creating an event can fail.
            fence = self._events.take(users + held) if users or held else None
            try:
                if not self._in_order:
                    self._barrier(None, ())
                append(fence, wait_fences)
            except XsemError as error:
                # Only after an error of the driver: after Ctrl-C, the driver may have the operation and set the event.
                if fence is not None:
                    self._events.give_back(fence)
                self._explain(error)
                raise
            if held and self._unmet is not None and fence is not None:
                self._unmet.add(self._events, fence)
        self._note_signals(fence)
        return fence if users else None

    def _note_signals(self, fence: Fence | None) -> None:
        """Note the signals before a fence that the driver may make after the event."""
        if fence is not None and self._made is not None:
            fence.signals = self._made.open()

    def _follow(self, wait_fences: Sequence[Fence]) -> None:
        """Note the signals before fences of other lists, before the driver's call: it may fail after the append."""
        if wait_fences and self._made is not None:
            self._made.follow(wait_fences)

    def _check_known(self) -> None:
        """Refuse an operation on a list of unknown type, because a regular list would never execute it.

        A regular list refuses waits and signals, so the first wait or signal identifies the type.
        """
        if self._known_immediate:
            return
        if self._refused is not None:
            raise DriverError(_RULE_8, reason="not_immediate", from_earlier_work=True, call=self._refused.call,
                              code=self._refused.code, code_name=self._refused.code_name)
        raise BadArgumentError(
            "neither the loader nor the driver tells whether the list is immediate, and a regular list would never "
            "execute this operation: append a wait or a signal first, because a regular list refuses them",
            reason="not_immediate",
        )

    def _barrier(self, signal: Fence | None, waits: Sequence[Fence]) -> None:
        self._core.loader.do(_BARRIER, self._handle, *_events(signal, waits))

    def _hold_later_work(self) -> None:
        """Order the application's later work after the last append, on a list that is not in order.

        The append is queued by now, so a failure of this barrier does not concern the append. xsem's next append begins
        with a barrier in any case.
        """
        try:
            self._barrier(None, ())
        except XsemError:
            _log.warning("the list took no barrier behind an append: the application's own work may begin before the "
                         "append is done, until the next append", exc_info=True)

    def _explain(self, error: XsemError) -> None:
        """Add rule 8 to the causes: a borrowed list of unknown type may be a regular list.

        A closed regular list refuses the barrier before a wait or a signal, if the list may reorder.
        """
        if self._known_immediate or error.call not in (SIGNAL, WAIT, _BARRIER):
            return
        error.likely_causes = (*error.likely_causes, _RULE_8)
        if error.code in (INVALID_ARGUMENT, UNSUPPORTED_FEATURE, INVALID_COMMAND_LIST_TYPE):
            self._refused = error


def check_immediate(core: Core, handle: int) -> bool:
    """Refuse a regular list.

    Returns
    -------
    bool
        Whether the loader (1.17 or newer) or the driver (specification 1.9) identifies the type of the list.

    Raises
    ------
    BadArgumentError
        ``not_immediate``.
    """
    immediate = None if core.is_immediate is None else core.is_immediate(handle)
    if immediate == 0:
        raise BadArgumentError(_RULE_8, reason="not_immediate")
    return immediate is not None


def _events(signal: Fence | None, waits: Sequence[Fence]) -> tuple[object, ...]:
    return (signal.handle if signal else None, len(waits), handle_out([each.handle for each in waits]))


def _check_keyed(semaphores: Sequence[Semaphore], params: Sequence[WaitParams]) -> None:
    for semaphore, param in zip(semaphores, params, strict=True):
        if semaphore.type.kind is SemaphoreKind.KEYED_MUTEX and param.timeout_ms not in (None, 0xFFFFFFFF):
            raise UnsupportedError("Level Zero's wait for a keyed mutex has no timeout", capability="timeout_ms",
                                   reason="not_supported")
