"""Immediate command lists, created by the backend or borrowed from the application."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any, ClassVar, Final, Protocol

from xsem.errors import BadArgumentError, DriverError, UnsupportedError, XsemError
from xsem.spi import Callers, CopyQueue, ImageCopyQueue, ImageRegion, SemaphoreQueue
from xsem.types import SemaphoreKind, SignalParams, WaitParams
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.extension import SIGNAL, WAIT, Extension
from xsem_levelzero.fences import Events, Fence, Order
from xsem_levelzero.images import Image, image_region
from xsem_levelzero.loader import Loader, handle_out
from xsem_levelzero.results import INVALID_ARGUMENT, INVALID_COMMAND_LIST_TYPE, UNSUPPORTED_FEATURE
from xsem_levelzero.semaphores import Batches, Semaphore

__all__ = ["ImmediateList", "Step", "check_immediate"]

_log = logging.getLogger("xsem")

_BARRIER: Final = "zeCommandListAppendBarrier"
_RULE_8 = "the list is not immediate: only immediate lists take waits and signals of semaphores (rule 8)"


class Step(Protocol):
    """One append: its call of the driver."""

    def call(self, signal: Fence | None, waits: Sequence[Fence]) -> None:
        """Append the operation behind `waits`. It sets `signal`."""


class _LoaderStep:
    """An append by a function of the loader, whose last arguments are the events."""

    __slots__ = ("_arguments", "_loader", "_name")

    def __init__(self, loader: Loader, name: str, *arguments: object) -> None:
        self._loader = loader
        self._name = name
        self._arguments = arguments

    def call(self, signal: Fence | None, waits: Sequence[Fence]) -> None:
        self._loader.do(self._name, *self._arguments, signal.handle if signal else None, len(waits),
                        handle_out([each.handle for each in waits]))


class _SemaphoreStep:
    """An append of a wait or a signal by a function of the extension."""

    __slots__ = ("_commands", "_extension", "_name", "_semaphores", "_structs")

    def __init__(
        self, extension: Extension, name: str, commands: int, semaphores: Sequence[Semaphore], structs: Any
    ) -> None:
        self._extension = extension
        self._name = name
        self._commands = commands
        self._semaphores = semaphores
        self._structs = structs

    def call(self, signal: Fence | None, waits: Sequence[Fence]) -> None:
        self._extension.append(self._name, self._commands, [each.handle for each in self._semaphores], self._structs,
                               signal.native if signal else 0, [each.native for each in waits])


class ImmediateList(SemaphoreQueue, CopyQueue, ImageCopyQueue):
    """One immediate list."""

    order_class: ClassVar[type[Order]] = Order

    def __init__(
        self, core: Core, events: Events, handle: int, *, in_order: bool, lent: object | None = None,
        known_immediate: bool = True,
    ) -> None:
        self.identity = handle
        self.native_handle = handle
        # Level Zero forbids simultaneous calls on one list, and the application appends its own kernels to its list.
        self.callers = Callers.ONE_AT_A_TIME if lent is None else Callers.APPLICATION
        self._handle = handle
        self._core = core
        self._events = events
        self._order = self.order_class()
        self._in_order = in_order   # by itself; if not, each append is placed between two barriers
        self._lent = lent           # the application's list, kept alive
        self._own = lent is None
        self._known_immediate = known_immediate   # by the loader or the driver
        self._refused: XsemError | None = None
        self._native = core.extension.command_list(handle)
        self._signals = Batches(ze.SignalParams)
        self._waits = Batches(ze.WaitParams)

    # ---- appends
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[WaitParams], wait_fences: Sequence[Fence],
        acquire: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendWaitExternalSemaphoreExt, or append a barrier if only events can be unmet."""
        # A timeline has at least 0. Intel's driver for Linux never meets a wait for 0 before the first signal.
        left = [each for each in zip(semaphores, params, strict=True)
                if each[1].value or each[0].type.kind is not SemaphoreKind.TIMELINE]
        if not left:
            return self.append_barrier(wait_fences, want_fence)
        return self._append_wait([each for each, _ in left], [each for _, each in left], wait_fences, want_fence)

    def _append_wait(
        self, semaphores: Sequence[Any], params: Sequence[WaitParams], wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        structs = self._waits.fill(semaphores, params)
        step = _SemaphoreStep(self._core.extension, WAIT, self._native, semaphores, structs)
        return self._issue(step, wait_fences, want_fence)

    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams], wait_fences: Sequence[Fence],
        release: Sequence[object], want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendSignalExternalSemaphoreExt, or append a barrier for an empty batch."""
        if not semaphores:
            return self.append_barrier(wait_fences, want_fence)
        return self._issue(self._signal(semaphores, params), wait_fences, want_fence)

    def append_barrier(self, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Call zeCommandListAppendBarrier."""
        self._check_known()
        barrier = self._step(_BARRIER)
        if wait_fences or want_fence:
            return self._place(barrier, wait_fences, want_fence)
        barrier.call(None, ())   # without events it waits for all earlier work, also on a list that may reorder
        return None

    def append_copy(
        self, dst: int, dst_offset: int, src: int, src_offset: int, size: int, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendMemoryCopy."""
        self._check_known()
        return self._issue(self._step("zeCommandListAppendMemoryCopy", dst + dst_offset, src + src_offset, size),
                           wait_fences, want_fence)

    def append_region_copy(
        self, level: Image, region: ImageRegion, buffer: int, offset: int, row_pitch: int, slice_pitch: int, read: bool,
        wait_fences: Sequence[Fence], want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendImageCopyToMemory or …FromMemory, with Ext for rows with padding."""
        self._check_known()
        width, height, _ = region.extent
        row = width * level.element_size
        # The slice pitch of an image without slices must be 0.
        slices = slice_pitch if region.slices > 1 else 0
        padded = (row_pitch != row and height > 1) or slices not in (0, row * height)
        if slices >> 32:
            raise UnsupportedError(f"Level Zero's slice pitch has 32 bits, and {slices} needs more",
                                   capability="image_copy.slice_pitch", reason="not_supported")
        step = self._image_step(level, buffer + offset, read, byref(image_region(region)),
                                (row_pitch, slices) if padded else ())
        return self._issue(step, wait_fences, want_fence)

    def append_image_copy(
        self, dst: Image, dst_region: ImageRegion, src: Image, src_region: ImageRegion, wait_fences: Sequence[Fence],
        want_fence: bool,
    ) -> Fence | None:
        """Call zeCommandListAppendImageCopyRegion."""
        self._check_known()
        step = self._step("zeCommandListAppendImageCopyRegion", dst.handle, src.handle,
                          byref(image_region(dst_region)), byref(image_region(src_region)))
        return self._issue(step, wait_fences, want_fence)

    def append_fill(
        self, dst: int, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Fence], want_fence: bool
    ) -> Fence | None:
        """Call zeCommandListAppendMemoryFill."""
        length, longest = len(pattern), self._core.queues.fill_pattern
        if length & (length - 1) or length > longest:
            raise BadArgumentError(
                f"this device fills with patterns of 1, 2, 4, … {longest} bytes, not with {length}; copy from a "
                "filled host buffer instead", reason="bad_pattern",
            )
        self._check_known()
        data = ctypes.create_string_buffer(pattern, length)
        return self._issue(self._step("zeCommandListAppendMemoryFill", dst + offset, data, length, size),
                           wait_fences, want_fence)

    def append_work(self, work: Callable[[], object]) -> None:
        """Call `work` if the list is known to be immediate."""
        self._check_known()
        work()

    def close(self) -> None:
        """Destroy an owned list. A borrowed list stays the application's."""
        if self._own:
            self._core.destroy("zeCommandListDestroy", self._handle)
        self._lent = None

    # ---- steps
    def _signal(self, semaphores: Sequence[Semaphore], params: Sequence[SignalParams]) -> Step:
        structs = self._signals.fill(semaphores, params)
        return _SemaphoreStep(self._core.extension, SIGNAL, self._native, semaphores, structs)

    def _step(self, name: str, *arguments: object) -> Step:
        return _LoaderStep(self._core.loader, name, self._handle, *arguments)

    def _image_step(
        self, level: Image, address: int, read: bool, area: object, pitches: tuple[int, ...] = ()
    ) -> Step:
        name = "zeCommandListAppendImageCopyToMemory" if read else "zeCommandListAppendImageCopyFromMemory"
        ends = (address, level.handle) if read else (level.handle, address)
        return self._step(name + ("Ext" if pitches else ""), *ends, area, *pitches)

    # ---- inside
    def _issue(self, step: Step, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append an operation that begins after `wait_fences`. Later work of the list begins after the operation."""
        fence = self._place(step, wait_fences, want_fence)
        if not self._in_order:
            self._hold_later_work()
        # On a list of unknown type, only a wait or a signal reaches this line, and a regular list refuses both.
        self._known_immediate = True
        return fence

    def _place(self, step: Step, wait_fences: Sequence[Fence], want_fence: bool) -> Fence | None:
        """Append an operation that begins after `wait_fences` and after all earlier work of the list."""
        # Take the event before the first append: creating an event can fail.
        fence = self._events.take() if want_fence else None
        self._order.appended += 1
        if fence is not None:
            fence.place = self._order, self._order.appended
        try:
            if not self._in_order:
                # A barrier of its own, because an append with events waits only for these events.
                self._step(_BARRIER).call(None, ())
            step.call(fence, wait_fences)
        except XsemError as error:
            # Only after an error of the driver: after Ctrl-C, the driver may have the operation and set the event.
            if fence is not None:
                self._events.give_back(fence)
            self._explain(error)
            raise
        return fence

    def _check_known(self) -> None:
        """Refuse an operation on a list of unknown type, because a regular list would never execute it."""
        # A regular list refuses waits and signals, so the first wait or signal identifies the type.
        if self._known_immediate:
            return
        if self._refused is not None:
            raise DriverError(_RULE_8, reason="not_immediate", from_earlier_work=True, call=self._refused.call,
                              code=self._refused.code, code_name=self._refused.code_name)
        raise BadArgumentError(
            "neither the loader nor the driver tells whether the list is immediate, and a regular list would never "
            "execute this operation: append a wait (not for 0) or a signal first, because a regular list refuses them",
            reason="not_immediate",
        )

    def _hold_later_work(self) -> None:
        """Order the application's later work after the last append, on a list that is not in order."""
        try:
            self._step(_BARRIER).call(None, ())
        except XsemError:
            # The append is queued by now, so this failure does not concern it. xsem's next append begins with a barrier
            # in any case.
            _log.warning("the list took no barrier behind an append: the application's own work may begin before the "
                         "append is done, until the next append", exc_info=True)

    def _explain(self, error: XsemError) -> None:
        """Add rule 8 to the causes: a borrowed list of unknown type may be a regular list."""
        # A closed regular list refuses the barrier before a wait or a signal, if the list may reorder.
        if self._known_immediate or error.call not in (SIGNAL, WAIT, _BARRIER):
            return
        error.likely_causes = (*error.likely_causes, _RULE_8)
        if error.code in (INVALID_ARGUMENT, UNSUPPORTED_FEATURE, INVALID_COMMAND_LIST_TYPE):
            self._refused = error


def check_immediate(core: Core, handle: int) -> bool:
    """Refuse a regular list. Return whether the loader (1.17) or the driver (specification 1.9) identifies the type."""
    immediate = None if core.is_immediate is None else core.is_immediate(handle)
    if immediate == 0:
        raise BadArgumentError(_RULE_8, reason="not_immediate")
    return immediate is not None
