"""Threads: Level Zero forbids simultaneous appends to one list, and the application appends to its own list."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.levelzero_facade import BOUND_S, Pair, opened, soon
from support.levelzero_rig import Rig, rig
from support.levelzero_sim import on_level_zero

import xsem
from xsem_levelzero import Native
from xsem_levelzero.fences import Events, Fence, Order
from xsem_levelzero.intel.devices import LateDevice
from xsem_levelzero.intel.passes import Passes
from xsem_levelzero.intel.signals import Signals, SignalsBefore

SLOW = {"SIMZE_APPEND_US": "500"}
INTEL_BUILD = str(1 << 24 | 14 << 16 | 38646)   # the first release with frame loops


class Application:
    """A program that appends its own barriers to its list, on one thread."""

    def __init__(self, app: Rig, at: Pair) -> None:
        self.app = app
        self.stream = app.stream()
        self.commands = at.here.command_list(self.stream)
        self._in_work = False
        self._end = threading.Event()
        self.rounds = 0

    def append(self) -> None:
        self.app.barrier(self.stream)
        self.rounds += 1

    def frames(self, at: Pair, *, work: bool) -> None:
        """Append a wait and a signal, then own work until `end`."""
        there, here = at.semaphore()
        there.host_signal(1)
        self.commands.append_wait(here, 1)
        self.commands.append_signal(here, 2)
        while not self._end.is_set():
            if work:
                self.commands.append_work(self.append)
            else:
                self.append()

    def end(self) -> None:
        self._end.set()


@contextmanager
def frames(*, work: bool) -> Iterator[tuple[Application, Pair, list[xsem.Semaphore]]]:
    """Run the program. The program has appended a wait for a semaphore, and `used` has the only reference to it."""
    with rig() as app, opened("levelzero", native=Native(app.driver, app.context, app.device)) as at:
        application = Application(app, at)
        there, imported = at.semaphore()
        used = [imported]
        del imported
        there.host_signal(5)
        before = app.counter(b"overlaps")
        ready = threading.Event()

        def run() -> None:
            application.commands.append_wait(used[0], 5)
            ready.set()
            application.frames(at, work=work)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert ready.wait(BOUND_S)
            soon(lambda: application.rounds > 2)
            yield application, at, used
            rounds = application.rounds
            soon(lambda: application.rounds > rounds + 20)
        finally:
            application.end()
            thread.join()
        assert app.counter(b"overlaps") == before
        application.commands.synchronize(timeout_s=BOUND_S)


@pytest.mark.parametrize("work", [False, True])
@on_level_zero(**SLOW)
def test_release_in_another_thread_appends_nothing_to_the_list(work: bool) -> None:
    with frames(work=work) as (_, at, used):
        used[0].release()
        for _ in range(50):
            at.here.releasing()
            at.semaphore()[1].release()


@pytest.mark.parametrize("work", [False, True])
@on_level_zero(**SLOW, SIMZE_DRIVER_VERSION=INTEL_BUILD)
def test_releasing_thread_appends_nothing_to_the_list(work: bool) -> None:
    with frames(work=work) as (_, at, used):
        used.clear()   # a thread of xsem releases the semaphore
        own = at.here.create_command_list()
        there, here = at.semaphore()
        for value in range(1, 30):
            own.append_wait(here, value)
            there.host_signal(value)
            own.synchronize(timeout_s=BOUND_S)


@on_level_zero(**SLOW)
def test_reports_in_another_thread_append_nothing_to_the_list() -> None:
    with frames(work=False) as (_, at, _used):
        at.here.watch(after_s=0.01, report=lambda _: None)
        for _ in range(20):
            at.here.pending()


@on_level_zero
def test_marker_of_an_ended_thread_is_appended_by_another() -> None:
    with rig() as app, opened("levelzero", native=Native(app.driver, app.context, app.device)) as at:
        there, used = at.semaphore()
        there.host_signal(1)
        commands = at.here.command_list(app.stream())
        thread = threading.Thread(target=commands.append_wait, args=(used, 1))
        thread.start()
        thread.join()
        lifetime = used._lifetime
        used.release()

        def freed() -> bool:
            at.semaphore()[1].release()   # any call on the device
            return lifetime.freed

        soon(freed)
        commands.synchronize(timeout_s=BOUND_S)


def test_answer_about_a_released_event_says_nothing_about_its_next_operation() -> None:
    order, fence = Order(), Fence(1, 1)

    class Loader:
        def raw(self, _call: str, *_arguments: int) -> int:
            fence.place = order, 7   # another thread has released the event, and the next append has taken it
            return 0

    events = Events(cast("Any", SimpleNamespace(loader=Loader())))
    assert events.wait(fence, 1)
    assert order.passed == 0
    assert events.done(fence)
    assert order.passed == 7


def test_answer_about_a_released_event_says_nothing_about_the_signals_of_its_next_operation() -> None:
    fence, signals = Fence(1, 1), Signals()

    class Loader:
        def raw(self, _call: str, *_arguments: int) -> int:
            fence.late = SignalsBefore(((signals, 7),))   # another thread has released the event, and a signal has it
            return 0

    core = cast("Any", SimpleNamespace(loader=Loader()))
    device = LateDevice.__new__(LateDevice)
    device._events = Events(core)
    device._passes = Passes(core, device._events, 1)
    assert device.query_fence(fence)
    fence.late = None
    assert device.wait_fence(fence, 1)
    assert signals.passed == 0
