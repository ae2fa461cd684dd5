"""Lists of the fake backend with C functions for quick appends, which note each call."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import xsem
from support.fake_backend import ALL, FakeDriver, FakeFence, FakeList, FakeStream, batch, fake, last_of, values_of
from support.system_types import C_LIBRARY
from xsem import spi
from xsem.errors import DriverError, XsemError
from xsem.types import Capabilities, SignalParams, WaitParams

CALLS = ["append_signal", "append_wait"]
STRIDE = 24
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
IS_CAPTURED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
ARGUMENTS = (1, 2**63, 3, 4)
EVENTS = (0xE1, 2**63 + 1, 0xE3)


def address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Prepared:
    """A prepared call. Its C function notes the call with the values that it finds, and returns the next code."""

    def __init__(self, owner: NativeList, operation: str, semaphores: Sequence[Any]) -> None:
        self.owner, self.operation, self.semaphores = owner, operation, tuple(semaphores)
        self.values = bytearray(b"\x77" * STRIDE * len(semaphores))
        self.function = FUNCTION(self.called)
        self.native = spi.NativeAppend(
            (address(self.function), owner.failed), ARGUMENTS, self.values, STRIDE, self)

    def called(self, first: int, second: int, third: int, fourth: int) -> int:
        gc.disable()   # a function in C makes no objects
        try:
            return self._called((first, second, third, fourth))
        finally:
            gc.enable()

    def _called(self, arguments: tuple[int, ...]) -> int:
        assert arguments == ARGUMENTS
        self.owner.quick += 1
        if self.owner.codes:
            return self.owner.codes.pop(0)
        found = tuple(int.from_bytes(self.values[at:at + 8], sys.byteorder)
                      for at in range(0, len(self.values), STRIDE))
        self.owner.order.append((self.operation, found))
        self._append(found, (), False)
        return 0

    def __call__(self, values: Any, wait_fences: Sequence[Any], want_fence: bool) -> Any:
        return self._append(values if isinstance(values, tuple) else (values,), wait_fences, want_fence)

    def _append(self, values: Sequence[Any], wait_fences: Sequence[Any], want_fence: bool) -> Any:
        if self.operation == "signal":
            signals = [SignalParams(value=each) for each in values]
            return self.owner.append_signal(self.semaphores, signals, wait_fences, (), want_fence)
        waits = [WaitParams(value=each) for each in values]
        return self.owner.append_wait(self.semaphores, waits, wait_fences, (), want_fence)


def blocking_signals(owner: NativeList) -> Callable[[], object]:
    """Let the signals that the list prepares from now on block in their C function. Return what ends one of them."""
    semaphore = (ctypes.c_char * 64)()
    assert C_LIBRARY.sem_init(semaphore, 0, 0) == 0

    class Blocking(Prepared):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.native = self.native._replace(
                function=(address(C_LIBRARY.sem_wait), owner.failed), arguments=(ctypes.addressof(semaphore),))

    owner.prepare_signal = lambda semaphores: Blocking(owner, "signal", semaphores)  # type: ignore[method-assign]
    return lambda: C_LIBRARY.sem_post(semaphore)


class NativeList(FakeList, spi.RecordingQueue):
    """A list whose prepared calls, and whose calls for events, are C functions."""

    driver: NativeDriver
    identity: int

    def __init__(self, driver: NativeDriver, identity: int) -> None:
        super().__init__(driver, identity)
        self.quick = 0   # calls of the C functions of prepared calls
        self.order: list[tuple[Any, ...]] = []   # successful calls of C functions
        self.codes: list[int] = []   # results of the next calls
        self.event_codes: dict[str, list[int]] = {"wait_event": [], "record": []}
        self.failures: list[int] = []
        self.on_failure: Callable[[], object] = lambda: None
        self.capture_code = 0
        self.carried: list[object] = []
        self.functions = (
            IS_CAPTURED(self._is_captured), FUNCTION(self._wait_event), FUNCTION(self._record_event))
        captured, wait, record = ((address(each), self.failed) for each in self.functions)
        self.native_calls = spi.QueueCalls(
            identity, captured, wait, record, driver.events, driver.recorded.__getitem__, self.carried)

    def _is_captured(self, queue: int, captured: Any) -> int:
        assert queue == self.identity
        captured[0] = self.capture
        return self.capture_code

    def _wait_event(self, queue: int, event: int, *more: object) -> int:
        assert (queue, more) == (self.identity, (None, None))
        return self._done("wait_event", event)

    def _record_event(self, event: int, queue: int, *more: object) -> int:
        assert (queue, more) == (self.identity, (None, None))
        code = self._done("record", event)
        if code == 0:
            fence = self.driver.recorded[event] = FakeFence(next(self.driver.numbers), "event")
            fence.reached = self.driver.everything_is_done
            self.fences.append(fence)
        return code

    def _done(self, what: str, event: int) -> int:
        codes = self.event_codes[what]
        code = codes.pop(0) if codes else 0
        if code == 0:
            self.order.append((what, event))
        return code

    def failed(self, code: int) -> None:
        self.failures.append(code)
        self.on_failure()
        if code < 0:
            raise DriverError("no", reason="driver", code=code)

    def prepare_wait(self, semaphores: Sequence[Any]) -> spi.PreparedCall:
        return Prepared(self, "wait", semaphores)

    def prepare_signal(self, semaphores: Sequence[Any]) -> spi.PreparedCall:
        return Prepared(self, "signal", semaphores)

    def append_signal(self, semaphores: Any, params: Any, *more: Any) -> Any:
        self.driver.signalled.extend(param.value for param in params)
        return super().append_signal(semaphores, params, *more)

    def begin_recording(self) -> None: ...

    def end_recording(self) -> object:
        return "recorded"

    def replay(self, recording: Any, values: Any) -> None: ...
    def release_recording(self, recording: Any) -> None: ...


class NativeDriver(FakeDriver):
    lists: list[NativeList]  # type: ignore[assignment]

    def __init__(self, capabilities: Capabilities = ALL) -> None:
        super().__init__(capabilities)
        self.signalled: list[int] = []   # on all lists, in order
        self.events = deque(EVENTS)   # the unused ones
        self.recorded: dict[int, FakeFence] = {}   # the last record of each event

    def create_queue(self) -> NativeList:
        self.lists.append(NativeList(self, 0x1000 + len(self.lists)))
        return self.lists[-1]

    def borrow_queue(self, stream: object, in_order: bool) -> NativeList:
        self.lists.append(NativeList(self, stream.__cuda_stream__()[1]))  # type: ignore[attr-defined]
        return self.lists[-1]

    def finish(self) -> None:
        """Complete all operations, past and future."""
        super().finish()
        for made in self.lists:
            made.reach_all()


class Scene:
    """A list, some timelines and an append that is quick from its next call on."""

    def __init__(self, device: xsem.Device, driver: NativeDriver, call: str = "append_signal", *, count: int = 1,
                 stream: bool = False) -> None:
        self.device, self.driver = device, driver
        self.commands = device.command_list(FakeStream(0x9000)) if stream else device.create_command_list()
        self.queue = self.commands._queue
        self.list = driver.lists[-1]
        self.sems = batch(device, count)
        self._append = getattr(self.commands, call)
        for value in (1, 2):
            self.append(value)
        assert self.list.quick == 0

    def append(self, value: Any, **more: Any) -> None:
        """Append the value for each semaphore, or the values of a batch."""
        if len(self.sems) == 1:
            self._append(self.sems[0], value, **more)
        else:
            self._append(self.sems, [value] * len(self.sems) if isinstance(value, int) else value, **more)

    def values(self) -> list[tuple[int | None, ...]]:
        return values_of(self.driver, at=self.driver.lists.index(self.list))

    def unchanged(self) -> tuple[Any, ...]:
        """What a refused append leaves as it was."""
        return (last_of(self.sems), self.queue.pending(), self.queue.state.given, self.queue.done_seq,
                self.queue.state.issuing, self.queue.lock._is_owned())


@contextmanager
def native(capabilities: Capabilities = ALL) -> Iterator[tuple[xsem.Device, NativeDriver]]:
    driver = NativeDriver(capabilities)
    with fake(capabilities, driver=driver) as (device, _):
        yield device, driver


def refusal(act: Callable[[], object]) -> tuple[type[XsemError], str, str]:
    with pytest.raises(XsemError) as caught:
        act()
    return type(caught.value), caught.value.reason, str(caught.value)


@contextmanager
def finalizer_inside(
    act: Callable[[], object], number: int, wanted: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Call `act` in one of the wanted garbage collections of the block, as a finalizer of the application could.

    CPython 3.11 can collect garbage at each object that C code creates, here at each of them.
    """
    left, kept = number, list[object]()

    def called(phase: str, _: object) -> None:
        nonlocal left
        if phase == "stop":
            kept.extend((set(), set(), set()))   # new memory, so the next object in new memory begins a collection
        elif wanted():
            left -= 1
            if left == -1:
                act()

    # New tuples take new memory, where a collection can begin.
    fresh = [(each,) * size for each in range(3000) for size in (2, 3, 5)]
    thresholds = gc.get_threshold()
    gc.callbacks.append(called)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(called)
        del fresh
