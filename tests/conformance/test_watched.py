"""The rules that xsem keeps towards a driver, observed by a driver that complains: `faults.watched` of the mutants."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.paths import TESTS
from support.waiting import until

import xsem
from xsem.facade.device import Device
from xsem.spi import Callers
from xsem.types import DeviceInfo, SemaphoreHandleType
from xsem_host.device import HostDevice

INFO = DeviceInfo(id="watched:0", backend="watched", index=0, name="host")
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD


@pytest.fixture(scope="module")
def watched() -> Any:
    """Return the module `faults.watched`. Its folder is not a package."""
    sys.path.insert(0, str(TESTS / "mutants"))
    try:
        return importlib.import_module("faults.watched")
    finally:
        sys.path.remove(str(TESTS / "mutants"))


class Slow:
    """A queue whose appends take some time, so that two calls at the same time meet."""

    def __init__(self, inner: Any, callers: Callers) -> None:
        self._inner = inner
        self.callers = callers
        self.identity = inner.identity
        self.native_handle = None

    def append_barrier(self, *args: Any) -> Any:
        time.sleep(0.0005)
        return self._inner.append_barrier(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def opened(watched: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that opens a watched device. Its complaints and the threads of its queues are in it."""

    def open_(callers: Callers) -> Any:
        complaints: list[str] = []
        names: set[str] = set()

        class Inner(HostDevice):
            def create_queue(self) -> Any:
                return Slow(super().create_queue(), callers)

        class List(watched.WatchedList):   # type: ignore[misc]
            @contextlib.contextmanager
            def watched(self, name: str, args: tuple[Any, ...]) -> Iterator[None]:
                names.add(threading.current_thread().name)
                with super().watched(name, args):
                    yield

        driver = watched.Watched(Inner())
        driver.list_type = List
        driver.complain = complaints.append
        return SimpleNamespace(device=Device(INFO, driver), driver=driver, complaints=complaints, names=names)

    return open_


# ---- the driver complains
def _overlap(at: Any, queue: Any) -> None:
    inside, go = threading.Event(), threading.Event()

    def append_barrier(*_: object) -> None:
        inside.set()
        go.wait(10)

    queue.inner = SimpleNamespace(append_barrier=append_barrier, is_capturing=lambda: False)
    thread = threading.Thread(target=queue.append_barrier, args=((), False))
    thread.start()
    inside.wait(10)
    queue.is_capturing()
    go.set()
    thread.join()


def _on_own_thread(at: Any, queue: Any) -> None:
    thread = threading.Thread(target=queue.append_barrier, args=((), False), name="xsem-release-x")
    thread.start()
    thread.join()


def _after_close(at: Any, queue: Any) -> None:
    queue.close()
    queue.append_barrier((), False)


def _twice(at: Any, queue: Any) -> None:
    fence = queue.append_barrier((), True)
    at.driver.release_fence(fence)
    at.driver.release_fence(fence)


def _left(at: Any, queue: Any) -> None:
    at.driver.create_semaphore(TIMELINE, 0)
    at.driver.close()


@pytest.mark.parametrize(("callers", "act", "said"), [
    (Callers.ONE_AT_A_TIME, _overlap, "is_capturing of a queue during another call of it"),
    (Callers.APPLICATION, _overlap, "is_capturing of a queue during another call of it"),
    (Callers.ANY, _overlap, ""),
    (Callers.APPLICATION, _on_own_thread, "append_barrier of a queue of the application in xsem-release-x"),
    (Callers.ONE_AT_A_TIME, _on_own_thread, ""),
    (Callers.ANY, _after_close, "append_barrier of a closed queue"),
    (Callers.ANY, _twice, "release_fence of an object that is released already"),
    (Callers.ANY, _left, "close before release_semaphore"),
], ids=lambda each: getattr(each, "value", getattr(each, "__name__", None)))
def test_broken_rule_is_complained_of(opened: Any, callers: Callers, act: Callable[..., None], said: str) -> None:
    at = opened(callers)
    queue = at.driver.create_queue()
    with contextlib.suppress(xsem.XsemError):   # of host, for a call that it refuses
        act(at, queue)
    _assert_said(at, said)


def _assert_said(at: Any, said: str) -> None:
    assert at.complaints == ([said] if said else [])
    at.driver.complain = lambda _: None
    at.device.release()


# ---- xsem keeps the rules
def _work(device: xsem.Device, shared: xsem.CommandList, turns: int) -> None:
    """Use most of xsem: own and shared lists, events with callbacks, imports, mappings, and releases behind waits."""
    own = device.create_command_list()
    for turn in range(1, turns + 1):
        gate, after = device.create_semaphore(TIMELINE), device.create_semaphore(TIMELINE)
        with gate.export() as desc:
            imported = device.import_semaphore(desc)
        memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
        buffer = memory.map_buffer(0, 64)
        reached, called = device.create_event(), threading.Event()
        own.append_wait(imported, 1)
        own.append_fill(buffer, bytes([turn]))
        own.append_barrier(signal_event=reached)
        reached.add_done_callback(_setting(called))
        shared.append_barrier(wait_events=[reached])
        for each in (imported, buffer, memory):
            each.release()   # behind the wait: xsem's own threads release them later
        shared.append_signal(after, 1)
        gate.host_signal(1) if turn % 2 else _signal(device, gate)
        until(called.is_set)
        shared.query()
        for each in (gate, after):
            each.release()
    own.synchronize(timeout_s=30)
    own.release()


def _setting(called: threading.Event) -> Callable[[xsem.Event], object]:
    return lambda _: called.set()


def _signal(device: xsem.Device, gate: xsem.Semaphore) -> None:
    signals = device.create_command_list()
    signals.append_signal(gate, 1)
    signals.release()


@pytest.mark.parametrize("callers", Callers, ids=lambda each: each.value)
def test_xsem_keeps_the_rules_of_the_interface(opened: Any, callers: Callers) -> None:
    at = opened(callers)
    at.device.watch(after_s=0.01, report=lambda _: None)
    shared = at.device.create_command_list()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            _work(at.device, shared, 10)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, name=f"application-{index}") for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    shared.synchronize(timeout_s=30)
    shared.release()
    at.device.release()
    until(lambda: at.device.releasing() == () and at.driver._closed)
    assert set(at.complaints) == set()
    if callers is not Callers.APPLICATION:   # the work is such that xsem calls queues on its own threads
        assert any(name.startswith("xsem-") for name in at.names)
