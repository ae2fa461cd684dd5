"""A device whose driver the test controls: the test reaches the fences, and the driver records its calls."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import xsem
from support import waiting
from xsem import spi
from xsem.facade.device import Device
from xsem.runtime.queues.queue_table import QueueTable
from xsem.types import (
    Capabilities,
    DeviceInfo,
    Feature,
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)

SEMAPHORES = frozenset(each for each in SemaphoreHandleType if not each.portable)
MEMORIES = frozenset(each for each in MemoryHandleType if not each.portable)
ALL = Capabilities(
    semaphore_import=SEMAPHORES,
    semaphore_export=SEMAPHORES,
    memory_import=MEMORIES,
    memory_export=MEMORIES,
    features=frozenset({Feature.HOST_SIGNAL, Feature.HOST_WAIT, Feature.READ_VALUE, Feature.NATIVE_EVENTS}),
    wait_before_signal=SEMAPHORES,
    resets_on_wait=True,
    needs_handover=True,
    max_value_difference=2**64 - 1,
)


_XSEM = os.path.dirname(xsem.__file__)


class FakeFence:
    def __init__(self, number: int, what: str) -> None:
        self.number = number
        self.what = what
        self.reached = False
        self.error: Exception | None = None
        self.released = 0


class FakeList(spi.SemaphoreQueue, spi.CopyQueue):
    def __init__(self, driver: FakeDriver, identity: int) -> None:
        self.driver = driver
        self.identity = self.native_handle = identity
        self.calls: list[tuple[Any, ...]] = []
        self.by_marker: list[bool] = []   # for each of `calls`: a marker of xsem, not an append of the application
        self.fences: list[FakeFence] = []
        self.fail_next: Exception | None = None
        self.capture = False
        self.closed = 0
        self.inside = 0
        self.during: Callable[[], object] | None = None   # called during the next append

    def _issue(self, want: bool, *call: Any) -> FakeFence | None:
        self.inside += 1
        if self.inside != 1:
            self.driver.complain("two appends at once on one list")
        if self.closed:
            self.driver.complain(f"{call[0]} on a closed list")
        self.driver.check_open(call[0])
        try:
            if self.during is not None:
                during, self.during = self.during, None
                during()
            if self.fail_next is not None:
                error, self.fail_next = self.fail_next, None
                raise error
            self.calls.append(call)
            self.by_marker.append(call[0] == "barrier" and self.driver.marks(self.identity))
            if not want:
                return None
            fence = FakeFence(next(self.driver.numbers), call[0])
            self.driver.fences.append(fence)
            fence.reached = self.driver.everything_is_done
            self.fences.append(fence)
            return fence
        finally:
            self.inside -= 1

    def append_barrier(self, wait_fences: Sequence[Any], want_fence: bool) -> Any:
        return self._issue(want_fence, "barrier", tuple(wait_fences))

    def append_wait(
        self, semaphores: Sequence[Any], params: Sequence[WaitParams], wait_fences: Sequence[Any],
        acquire: Sequence[Any], want_fence: bool,
    ) -> Any:
        return self._issue(want_fence, "wait", tuple(semaphores), tuple(params), tuple(wait_fences), tuple(acquire))

    def append_signal(
        self, semaphores: Sequence[Any], params: Sequence[SignalParams], wait_fences: Sequence[Any],
        release: Sequence[Any], want_fence: bool,
    ) -> Any:
        return self._issue(want_fence, "signal", tuple(semaphores), tuple(params), tuple(wait_fences), tuple(release))

    def prepare_wait(self, semaphores: Sequence[Any]) -> spi.PreparedCall:
        return _repeated(self.append_wait, semaphores, WaitParams)

    def prepare_signal(self, semaphores: Sequence[Any]) -> spi.PreparedCall:
        return _repeated(self.append_signal, semaphores, SignalParams)

    def append_copy(
        self, dst: int, dst_offset: int, src: int, src_offset: int, size: int, wait_fences: Sequence[Any],
        want_fence: bool,
    ) -> Any:
        return self._issue(want_fence, "copy", dst, dst_offset, src, src_offset, size)

    def append_fill(
        self, dst: int, offset: int, pattern: bytes, size: int, wait_fences: Sequence[Any], want_fence: bool
    ) -> Any:
        return self._issue(want_fence, "fill", dst, offset, pattern, size)

    def is_capturing(self) -> bool:
        if self.closed:
            self.driver.complain("is_capturing() on a closed list")
        return self.capture

    def close(self) -> None:
        self.closed += 1
        if self.closed > 1:
            self.driver.complain("a list closed twice")
        self.driver.check_open("close_list")
        self.driver.log.append(("close_list", self.identity))

    def reach_all(self) -> None:
        """Complete all operations appended so far."""
        for fence in self.fences:
            fence.reached = True

    @property
    def markers(self) -> int:
        return sum(call[0] == "barrier" for call in self.calls)


def _repeated(append: Callable[..., Any], semaphores: Sequence[Any], params: type[Any]) -> spi.PreparedCall:
    def call(values: Any, wait_fences: Sequence[Any], want_fence: bool) -> Any:
        listed = values if isinstance(values, tuple) else (values,)
        return append(semaphores, [params(value=each) for each in listed], wait_fences, (), want_fence)

    return call


class FakeDriver(
    spi.DeviceDriver, spi.SemaphoreImport, spi.SemaphoreExport, spi.HostSemaphore, spi.NvSciSync, spi.MemoryImport,
    spi.MemorySharing, spi.BorrowedQueues, spi.BorrowedEvents,
):
    def __init__(self, capabilities: Capabilities = ALL) -> None:
        self._capabilities = capabilities
        self.queues: weakref.ref[QueueTable] | None = None
        self.log: list[tuple[Any, ...]] = []
        self.lists: list[FakeList] = []
        self.numbers = itertools.count(1)
        self.values: dict[int, int] = {}
        self.everything_is_done = False
        self.tells_identity = True   # `queue_identity` returns the identity of the stream
        self.import_fails: spi.ImportFailure | Exception | None = None
        self.import_state: spi.HandleState = "left"
        self.seen_handles: list[int] = []
        self.foreign: dict[int, FakeFence] = {}
        self.dlpack: tuple[int, int] | None = (2, 0)
        self.addresses = True   # of mappings
        self.unblock = threading.Event()
        self.unblock.set()
        self.fences: list[FakeFence] = []   # all fences
        self.slices: list[int] = []   # timeouts of each wait and host_wait, ns
        self.on_wait: Callable[[], object] = lambda: None   # called during each of these
        self.on_release: Callable[[], object] = lambda: None   # called during each release of a semaphore
        self.misuse: list[str] = []   # forbidden calls; also raised, but xsem's threads only log that
        self.threads: set[str] = set()   # names of the threads that released something
        self.calls = 0
        self.fail_signal: Exception | None = None

    def complain(self, text: str) -> None:
        self.misuse.append(text)
        raise AssertionError(text)

    def marks(self, identity: Hashable) -> bool:
        """Return whether an append to the list is a marker of xsem: no append of the application is in progress."""
        queues = None if self.queues is None else self.queues()
        queue = None if queues is None else queues._queues.get(identity)
        return queue is not None and not queue.state.issuing

    def check_open(self, what: str) -> None:
        """Check in each call: not after close(), not from a finalizer."""
        self.calls += 1
        if ("close",) in self.log:
            self.complain(f"{what} on a closed device")
        frame = sys._getframe(1)
        while frame.f_back is not None:
            frame = frame.f_back
            if frame.f_code.co_name == "__del__" and frame.f_code.co_filename.startswith(_XSEM):
                self.complain(f"{what} in a finalizer")

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def _own(self, what: str) -> None:
        """Record a call that xsem makes for itself."""
        self.check_open(what)
        if what.startswith(("release", "unmap", "close")):
            self.threads.add(threading.current_thread().name)

    def create_queue(self) -> FakeList:
        self._own("create_queue")
        self.lists.append(FakeList(self, 0x1000 + len(self.lists)))
        return self.lists[-1]

    def queue_identity(self, stream: object) -> int | None:
        identity: int = stream if isinstance(stream, int) else stream.__cuda_stream__()[1]  # type: ignore[attr-defined]
        return identity if self.tells_identity else None

    def borrow_queue(self, stream: object, in_order: bool) -> FakeList:
        self._own("borrow_queue")
        identity = stream if isinstance(stream, int) else stream.__cuda_stream__()[1]  # type: ignore[attr-defined]
        self.lists.append(FakeList(self, identity))
        return self.lists[-1]

    def query_fence(self, fence: FakeFence) -> bool:
        self._own("query_fence")
        if fence.released:
            self.complain("a released fence was asked")
        if fence.error is not None:
            raise fence.error
        return fence.reached

    def wait_fence(self, fence: FakeFence, timeout_ns: int) -> bool:
        self._own("wait_fence")
        self.slices.append(timeout_ns)
        self.on_wait()
        return super().wait_fence(fence, timeout_ns)

    def release_fence(self, fence: FakeFence) -> None:
        self._own("release_fence")
        fence.released += 1
        if fence.released > 1:
            self.complain("a fence was released twice")

    def close(self) -> None:
        self._own("close")
        self.log.append(("close",))

    def _import(self, what: str, desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> spi.Imported:
        self._own("import")
        if handle is not None:
            self.seen_handles.append(handle.fileno())
        if self.import_fails is not None:
            raise self.import_fails
        token = next(self.numbers)
        self.log.append(("import_" + what, token))
        return spi.Imported(token, handle=self.import_state)

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> spi.Imported:
        return self._import("semaphore", desc, handle)

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> spi.Imported:
        return self._import("memory", desc, handle)

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> int:
        token = next(self.numbers)
        self.values[token] = initial_value
        return token

    def export_semaphore(self, semaphore: int) -> OwnedHandle | None:
        raise NotImplementedError

    def release_semaphore(self, semaphore: int) -> None:
        self._own("release_semaphore")
        self.on_release()
        self.log.append(("release_semaphore", semaphore))

    def semaphore_value(self, semaphore: int) -> int:
        self._own("semaphore_value")
        if semaphore in self.released("release_semaphore"):
            self.complain("the value of a released semaphore was read")
        return self.values.get(semaphore, 0)

    def host_signal(self, semaphore: int, value: int | None) -> None:
        self._own("host_signal")
        if self.fail_signal is not None:
            raise self.fail_signal
        self.values[semaphore] = 1 if value is None else value

    def host_wait(self, semaphore: int, value: int | None, timeout_ns: int) -> bool:
        self._own("host_wait")
        self.slices.append(timeout_ns)
        self.on_wait()
        met = self.values.get(semaphore, 0) >= (1 if value is None else value)
        if not met:
            time.sleep(timeout_ns / 1e9)
        elif value is None:
            self.values[semaphore] = 0
        return met

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[int, int]:
        return next(self.numbers), -(-size // 4096) * 4096

    def share_memory(self, type: MemoryHandleType, address: int, size: int, owner: object) -> tuple[int, int, int]:
        return next(self.numbers), -(-size // 4096) * 4096, 0

    def export_memory(self, memory: int) -> OwnedHandle:
        raise NotImplementedError

    def map_buffer(self, memory: int, offset: int, size: int) -> tuple[int, int | None]:
        return next(self.numbers), 0x10_0000 * memory + offset if self.addresses else None

    def unmap_buffer(self, buffer: int) -> None:
        self._own("unmap_buffer")
        self.unblock.wait(30)
        self.log.append(("unmap_buffer", buffer))

    def release_memory(self, memory: int) -> None:
        self._own("release_memory")
        self.log.append(("release_memory", memory))

    def borrow_event(self, native: object) -> FakeFence:
        if not isinstance(native, FakeFence):
            raise xsem.BadArgumentError(f"{type(native).__name__} is not a FakeFence", reason="not_an_event")
        self.fences.append(native)
        return native

    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        self._own("nvscisync_attributes")

    def dlpack_device(self) -> tuple[int, int] | None:
        return self.dlpack

    def released(self, what: str) -> list[Any]:
        return [call[1] for call in self.log if call[0] == what]


    def finish(self) -> None:
        """Complete all operations, past and future."""
        self.everything_is_done = True
        self.unblock.set()
        for fence in list(self.fences):
            fence.reached = True


BRIDGED = replace(
    ALL,
    semaphore_import=SEMAPHORES | {SemaphoreHandleType.HOST_TIMELINE_FD},
    semaphore_export=SEMAPHORES | {SemaphoreHandleType.HOST_TIMELINE_FD},
    wait_before_signal=SEMAPHORES | {SemaphoreHandleType.HOST_TIMELINE_FD},
    bridged=frozenset({SemaphoreHandleType.HOST_TIMELINE_FD}),
)


class BridgedDriver(FakeDriver, spi.HostFences):
    """A driver whose timelines in host memory are bridged."""

    def __init__(self, capabilities: Capabilities = BRIDGED) -> None:
        super().__init__(capabilities)
        self.host_fences: list[FakeFence] = []
        self.fail_reach: Exception | None = None

    def create_host_fence(self) -> FakeFence:
        self._own("create_host_fence")
        self.host_fences.append(FakeFence(next(self.numbers), "host"))
        self.fences.append(self.host_fences[-1])
        return self.host_fences[-1]

    def reach_host_fence(self, fence: FakeFence) -> None:
        self._own("reach_host_fence")
        if ("reached", fence.number) in self.log or fence.released:
            self.complain("a host fence was reached twice, or after its release")
        self.log.append(("reached", fence.number))
        if self.fail_reach is not None:
            raise self.fail_reach
        fence.reached = True


INFO = DeviceInfo(id="fake:0", backend="fake", index=0, name="fake")


def open_fake(
    capabilities: Capabilities = ALL, info: DeviceInfo = INFO, driver: FakeDriver | None = None
) -> tuple[Device, FakeDriver]:
    driver = driver or FakeDriver(capabilities)
    device = Device(info, driver)
    driver.queues = weakref.ref(device._queues)
    return device, driver


@contextmanager
def fake(
    capabilities: Capabilities = ALL, info: DeviceInfo = INFO, driver: FakeDriver | None = None
) -> Iterator[tuple[Device, FakeDriver]]:
    """Open a device for one test. At the end it closes without misuse: each fence released once."""
    device, driver = open_fake(capabilities, info, driver)
    try:
        yield device, driver
    finally:
        driver.finish()
        device.release()
    del device
    waiting.until(lambda: ("close",) in driver.log)
    assert driver.misuse == []
    assert [fence.what for fence in driver.fences if fence.released != 1] == []
    assert [each.identity for each in driver.lists if each.closed != 1] == []


until = waiting.until   # the tests of backends import it from here


class FakeStream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


def timeline(device: Device, label: str = "") -> xsem.Semaphore:
    return device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, label=label)


def binary(device: Device, label: str = "") -> xsem.Semaphore:
    return device.create_semaphore(SemaphoreHandleType.OPAQUE_FD, label=label)


def hold_next(stream: FakeList) -> tuple[threading.Event, threading.Event]:
    """Block the next append in the driver. Return an event that it sets, and an event that unblocks it."""
    inside, go = threading.Event(), threading.Event()

    def during() -> None:
        inside.set()
        assert go.wait(10)

    stream.during = during
    return inside, go


def finish(commands: xsem.CommandList, driver: FakeDriver) -> None:
    """Complete all operations of the first list, and let xsem notice it."""
    commands.query()   # appends a marker
    driver.lists[0].reach_all()
    assert commands.query()


def values_of(driver: FakeDriver, *operations: str, at: int = 0) -> list[tuple[int | None, ...]]:
    """Return the values of these operations of a list, in order; by default of each signal and wait."""
    wanted = operations or ("signal", "wait")
    return [tuple(param.value for param in call[2]) for call in driver.lists[at].calls if call[0] in wanted]


def batch(device: Device, count: int) -> list[xsem.Semaphore]:
    return [timeline(device) for _ in range(count)]


def last_of(semaphores: Sequence[xsem.Semaphore]) -> list[int | None]:
    return [each._state.last for each in semaphores]


def set_last(semaphore: xsem.Semaphore, value: int | None) -> None:
    """Set the last value signalled here. None is the state of an import: the value of the exporter is unknown."""
    with semaphore._state.lock:
        semaphore._state.last = value
