"""Threads beside an application that calls its native queue itself."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import xsem
from xsem.plugins import registry
from xsem.spi import BorrowedQueues, NativeQueue
from xsem.types import DeviceInfo
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.polling import SETTLE_S, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, NotDeclaredError, NotExaminedError, expect

_SEMAPHORES: Final = 8


class _Overlaps:
    """Counts the calls on a borrowed queue during the native calls of the application."""

    # A native call counts from `begin` to `end`, because the application may call its queue at any moment in between.

    def __init__(self) -> None:
        self.found: list[str] = []   # the calls, each with its thread
        self._native = False

    def begin(self) -> None:
        """Begin the native calls. The calling thread makes no call of xsem until `end`."""
        self._native = True

    def end(self) -> None:
        """End the native calls."""
        self._native = False

    def watch(self, queue: Any) -> None:
        """Count the appends to a queue."""
        for name in dir(type(queue)):
            if name.startswith("append_"):
                setattr(queue, name, self._counted(name, getattr(queue, name)))

    def _counted(self, name: str, append: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(append)
        def counted(*arguments: Any, **named: Any) -> Any:
            if self._native:
                self.found.append(f"{name} on the thread {threading.current_thread().name}")
            return append(*arguments, **named)

        return counted


@check("XSEM-THR-007", deadline_s=60)
def no_call_overlaps_with_the_applications(context: CaseContext, case: Case) -> None:
    """Append signals to a borrowed queue. Call the queue natively while another thread releases the semaphores."""
    type = case.handle_type
    with contextlib.ExitStack() as at_end:
        device, driver = at_end.enter_context(_opened(context.device.info))
        hooks = registry().get(device.info.backend).suite_hooks(driver)
        if not isinstance(driver, BorrowedQueues):
            raise NotDeclaredError("not declared: the driver borrows no queues")
        native = hooks.native_queue()
        if native is None:
            raise NotExaminedError(f"the backend {device.info.backend} does not implement the hook native_queue()")
        at_end.callback(native.close)
        overlaps = _Overlaps()
        commands = _borrowed(device, driver, native, overlaps)
        used = []
        for _ in range(_SEMAPHORES):
            with context.exporter.create_semaphore(type, context.importer_uuid)[1] as desc:
                used.append(device.import_semaphore(desc))
            commands.append_signal(used[-1], value_of(type))
        overlaps.begin()
        try:
            _release_elsewhere(device, used, native)
        finally:
            overlaps.end()
        commands.synchronize(timeout_s=context.patience_s)
        soon(lambda: not device.releasing(), "released objects of a borrowed queue are not freed", context.patience_s,
             None)
        expect(native.works(), "the native queue does not work after its use by several threads")
        commands.release()
        expect(native.simultaneous or not overlaps.found,
               f"{len(overlaps.found)} calls of other threads overlap with the application's calls on its queue, "
               f"first {overlaps.found[:1]}")


def _release_elsewhere(device: xsem.Device, used: list[xsem.Semaphore], native: NativeQueue) -> None:
    """Release the semaphores on another thread. Call the native queue on this thread until then, and a while longer."""
    def release() -> None:
        for each in used:
            each.release()
            device.pending()

    other = threading.Thread(target=release, name="of the application that releases", daemon=True)
    other.start()
    while other.is_alive():
        expect(native.works(), "the native queue does not work beside releases")
    until = time.monotonic() + SETTLE_S   # xsem's own threads free the objects later
    while time.monotonic() < until:
        expect(native.works(), "the native queue does not work beside releases")


def _borrowed(device: xsem.Device, driver: Any, native: NativeQueue, overlaps: _Overlaps) -> xsem.CommandList:
    """Return a list on the native queue whose calls are counted, unless simultaneous calls are allowed."""
    stream: Any = native.stream
    borrow = driver.borrow_queue

    def borrow_counted(borrowed: object, in_order: bool) -> Any:
        queue = borrow(borrowed, in_order)
        overlaps.watch(queue)
        return queue

    if native.simultaneous:
        return device.command_list(stream)
    try:
        with _replaced(driver, "borrow_queue", borrow_counted):
            return device.command_list(stream)
    except AttributeError as error:
        raise NotExaminedError(f"the calls on a queue of the driver cannot be counted: {error}") from error


@contextlib.contextmanager
def _opened(info: DeviceInfo) -> Iterator[tuple[xsem.Device, Any]]:
    """Open the device once more, and yield it with its driver."""
    backend, drivers = registry().get(info.backend), []
    opens = backend.open

    def open_(index: int) -> Any:
        drivers.append(opens(index))
        return drivers[-1]

    with contextlib.ExitStack() as opened:
        try:
            with _replaced(backend, "open", open_):
                device = opened.enter_context(xsem.open_device(info.id))
        except AttributeError as error:
            raise NotExaminedError(f"the driver of a device cannot be found: {error}") from error
        yield device, drivers[0]


@contextlib.contextmanager
def _replaced(owner: Any, name: str, replacement: object) -> Iterator[None]:
    """Replace a method of one object inside the block."""
    before = vars(owner).get(name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
