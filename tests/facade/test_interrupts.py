"""Ctrl-C, by real signals, in every public operation: afterwards each object can be used, or at least released.

No lock is held, no number is closed twice, and the device ends. What the interrupted call had just got from the system
may leak, so this file does not count descriptors.
"""

from __future__ import annotations

import gc
import inspect
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from support.at_once import threads
from support.cuda_sim import on_stand_in
from support.waiting import until

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

pytestmark = pytest.mark.timeout(100)

TIMELINE, BINARY = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, SemaphoreHandleType.OPAQUE_FD
SIZE = 4096
DEADLINE_S = 10.0
FEW, MANY = 8, 200


class Scene:
    """A device with an object of each kind. Host and CUDA import what a host device exports."""

    def __init__(self, device: str) -> None:
        self.exporter = xsem.open_device("host")
        self.memories = self.exporter.create_memory(MemoryHandleType.OPAQUE_FD, SIZE)
        self.timelines = [self.exporter.create_semaphore(TIMELINE) for _ in range(2)]
        self.binaries = self.exporter.create_semaphore(BINARY)
        self.device = xsem.open_device(device)
        self.value = 0
        self.sem, self.other = [self.device.import_semaphore(each.export()) for each in self.timelines]
        self.binary = self.device.import_semaphore(self.binaries.export())
        self.memory = self.device.import_memory(self.memories.export())
        self.buffer = self.memory.map_buffer(0, SIZE // 2)
        self.bytes = self.device.host_buffer(64)
        self.commands = self.device.create_command_list()
        self.event = self.device.create_event()

    def next(self) -> int:
        self.value += 1
        return self.value

    # ---- operations that need more than a line. Each can be repeated.
    def signal(self, **more: Any) -> None:
        self.commands.append_signal(self.sem, self.next(), **more)

    def bind(self) -> None:
        self.event.reset()
        self.commands.append_barrier(signal_event=self.event)

    def signal_with_event(self) -> None:
        self.event.reset()
        self.signal(signal_event=self.event)

    def signal_both(self) -> None:
        self.commands.append_signal([self.sem, self.other], [self.next()] * 2)

    def binary_round(self) -> None:
        self.commands.append_signal(self.binary)
        self.commands.append_wait(self.binary)

    def wait_for_event(self) -> None:
        self.bind()
        self.event.wait(timeout_s=DEADLINE_S)

    def query_event(self) -> None:
        self.bind()
        self.event.query()

    def callback(self) -> None:
        self.bind()
        self.event.add_done_callback(lambda _: None)

    def host_signal(self) -> None:
        self.commands.synchronize(timeout_s=DEADLINE_S)
        self.sem.host_signal(self.next())

    def list_of_its_own(self) -> None:
        with self.device.create_command_list() as commands:
            commands.append_signal(self.other, self.next())

    def imported(self) -> None:
        with self.timelines[0].export() as desc, self.device.import_semaphore(desc):
            pass

    def imported_memory(self) -> None:
        with self.memories.export() as desc, self.device.import_memory(desc) as memory:
            memory.map_buffer().release()

    def mapped(self) -> None:
        with self.memory.map_buffer(SIZE // 2, SIZE // 2):
            pass

    def opened(self) -> None:
        device = xsem.open_device(self.device.info.id)
        device.release()
        while device.releasing():   # otherwise each round adds a releasing thread
            time.sleep(0.001)


Act = Callable[[Scene], object]

OPERATIONS: dict[str, Act] = {
    "CommandList.append_signal": Scene.signal,
    "CommandList.append_signal with an event": Scene.signal_with_event,
    "CommandList.append_signal of several": Scene.signal_both,
    "CommandList.append_signal of a binary semaphore": Scene.binary_round,
    "CommandList.append_wait": lambda scene: scene.commands.append_wait(scene.sem, 0),
    "CommandList.append_work": lambda scene: scene.commands.append_work(int),
    "CommandList.append_barrier": Scene.bind,
    "CommandList.append_fill": lambda scene: scene.commands.append_fill(scene.buffer, b"\1"),
    "CommandList.append_copy": lambda scene: scene.commands.append_copy(scene.bytes, scene.buffer.view((64,), "uint8")),
    "CommandList.query": lambda scene: scene.commands.query(),
    "CommandList.synchronize": lambda scene: scene.commands.synchronize(timeout_s=DEADLINE_S),
    "Device.create_command_list": Scene.list_of_its_own,
    "Device.create_event": lambda scene: scene.device.create_event().release(),
    "Device.create_timeline": lambda scene: scene.exporter.create_timeline().release(),
    "Device.create_binary": lambda scene: scene.exporter.create_binary().release(),
    "Device.create_semaphore": lambda scene: scene.exporter.create_semaphore(TIMELINE).release(),
    "Device.create_memory": lambda scene: scene.exporter.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).release(),
    "Device.import_semaphore": Scene.imported,
    "Device.import_memory": Scene.imported_memory,
    "Device.host_buffer": lambda scene: scene.device.host_buffer(64).release(),
    "Device.pending": lambda scene: scene.device.pending(),
    "Device.releasing": lambda scene: scene.device.releasing(),
    "Device.release": Scene.opened,
    "Event.query": Scene.query_event,
    "Event.wait": Scene.wait_for_event,
    "Event.add_done_callback": Scene.callback,
    "Event.reset": lambda scene: scene.event.reset(),
    "Semaphore.export": lambda scene: scene.timelines[0].export().close(),
    "Semaphore.value": lambda scene: scene.timelines[0].value(),
    "Semaphore.host_signal": Scene.host_signal,
    "Semaphore.host_wait": lambda scene: scene.timelines[0].host_wait(0),
    "Semaphore.mark_reset": lambda scene: scene.binary.mark_reset(),
    "Memory.export": lambda scene: scene.memories.export().close(),
    "Memory.map_buffer": Scene.mapped,
    "Buffer.view": lambda scene: scene.buffer.view((8,), "uint8").release(),
    "Buffer.numpy": lambda scene: scene.bytes.numpy(),
    "Buffer.copy_to_host": lambda scene: scene.buffer.copy_to_host(),
    "Buffer.copy_from_host": lambda scene: scene.buffer.copy_from_host(np.zeros(SIZE // 2, "uint8")),
}

HOST_ONLY = {   # in both scenes, the exporter's
    "Device.create_timeline", "Device.create_binary", "Device.create_semaphore", "Device.create_memory",
    "Semaphore.export", "Semaphore.value", "Semaphore.host_signal", "Semaphore.host_wait", "Memory.export",
}

ELSEWHERE: dict[str, str] = {
    "CommandList.as_current": "tests/facade/test_current_stream.py",
    "CommandList.record": "a driver's capture has two ends: tests/facade/test_recording.py",
    "Device.event": "makes an event, as create_event",
    "Device.share": "as create_memory",
    "Device.command_list": "as create_command_list",
    "Device.companion_exporter": "as open_device",
    "Device.nvscisync_attributes": "only on Tegra",
    "Device.watch": "tests/runtime/test_watchdog.py",
    "Semaphore.abandon": "as host_signal",
    "Semaphore.reached": "a coroutine: asyncio takes the signal",
    "Semaphore.signal": "as CommandList.append_signal",
    "Semaphore.signalled_by": "changes nothing but a set",
    "Semaphore.wait": "as CommandList.append_wait",
    "Memory.map_mipmapped_array": "as map_buffer",
}


class Sender:
    """Sends SIGINT to the main thread some time after each `ask`."""

    def __init__(self) -> None:
        # C code: the signal can come in `ask`, and Ctrl-C in Python code of `threading` can leave its lock held.
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self.arrived = False
        self._chance, self._main = random.Random(7), threading.get_ident()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def ask(self) -> None:
        self.arrived = False
        self._asked.put(True)

    def _run(self) -> None:
        while self._asked.get():
            time.sleep(self._chance.random() * 0.003)
            signal.pthread_kill(self._main, signal.SIGINT)

    def interrupt(self, number: int, frame: object) -> None:
        """Handle the signal as Python does, and note it."""
        self.arrived = True
        raise KeyboardInterrupt

    def end(self) -> None:
        self._asked.put(False)
        self._thread.join()


@contextmanager
def signals(swallowed: list[object]) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Yield a function that repeats its argument until a signal has interrupted it.

    `swallowed` gets the finalizers in which CPython has swallowed the exception, and None for a library that has, as
    cuda.bindings 13.5 does in 1 of 200 interrupts, in `FastEnum.__new__`.
    """
    hook, interval, sender = sys.unraisablehook, sys.getswitchinterval(), Sender()

    def note(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            swallowed.append(unraisable.object)
        else:
            hook(unraisable)

    def interrupted(repeat: Callable[[], object]) -> None:
        with suppress(KeyboardInterrupt):
            sender.ask()
            while not sender.arrived:
                repeat()
            swallowed.append(None)

    handler = signal.signal(signal.SIGINT, sender.interrupt)
    sys.unraisablehook = note
    sys.setswitchinterval(1e-4)   # so that the signal can come at each place, not only after 5 ms
    try:
        yield interrupted
    finally:
        sys.setswitchinterval(interval)
        sys.unraisablehook = hook
        sender.end()
        signal.signal(signal.SIGINT, handler)


def signal_and_wait(scene: Scene) -> None:
    try:
        scene.commands.append_signal([scene.sem, scene.other], [scene.value] * 2)
    except xsem.WouldBlockError:   # the loop has run ahead of the device, up to its limit
        scene.commands.synchronize(timeout_s=DEADLINE_S)
        scene.commands.append_signal([scene.sem, scene.other], [scene.value] * 2)
    scene.commands.synchronize(timeout_s=DEADLINE_S)


def settle(scene: Scene) -> None:
    """Use each object, or release it and make a new one. On another thread, which a lock that is held would stop."""
    scene.value += 10
    try:
        signal_and_wait(scene)
    except xsem.DriverError:   # its work failed with the interrupt
        scene.commands.release()
        scene.commands = scene.device.create_command_list()
        scene.value += 10
        signal_and_wait(scene)
    assert scene.timelines[0].value() == scene.value
    try:
        scene.bind()
        scene.event.wait(timeout_s=DEADLINE_S)
    except xsem.BusyError:
        scene.event.release()
        scene.event = scene.device.create_event()
    until(lambda: not scene.device.pending(), DEADLINE_S)
    with suppress(xsem.BadArgumentError):   # the interrupted mapping may still own its bytes
        scene.mapped()


def end(scene: Scene, *, freed: bool) -> None:
    for device in (scene.device, scene.exporter):
        device.release()
    if freed:
        gc.collect()   # a traceback of the interrupt can be part of a cycle, and keep what the call had
        until(lambda: not (scene.device.releasing() or scene.exporter.releasing()), DEADLINE_S)


def act(scene: Scene, name: str) -> None:
    try:
        OPERATIONS[name](scene)
    except xsem.WouldBlockError:   # this loop is faster than the device
        scene.commands.synchronize(timeout_s=DEADLINE_S)


def run(device: str, name: str, count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    scene = Scene(device)
    OPERATIONS[name](scene)
    swallowed: list[object] = []
    with ThreadPoolExecutor(1) as pool, signals(swallowed) as interrupted:
        for _ in range(count):
            interrupted(lambda: act(scene, name))
            pool.submit(settle, scene).result(4 * DEADLINE_S)
        pool.submit(end, scene, freed=not swallowed).result(4 * DEADLINE_S)
    # OwnedHandle logs the second close of a number, and the releasing thread a driver that refuses.
    assert not caplog.records


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Permit what leaked: in this file, in place of the fixture that fails such a test."""
    yield
    # What a traceback owns is closed now, and not during a later test, which would miss it.
    until(lambda: not gc.collect() and not threads())


DEVICES = pytest.mark.filterwarnings("ignore:unreleased:ResourceWarning")   # made by the call that was interrupted
COUNTS = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@DEVICES
@COUNTS
@pytest.mark.parametrize("name", OPERATIONS)
def test_ctrl_c_leaves_each_object_usable_or_releasable(
    name: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    run("host", name, count, caplog)


@DEVICES
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in HOST_ONLY])
@on_stand_in(SIMCUDA_LATE_US="0")   # late signals would hold back hundreds of rounds of a loop longer than its limits
def test_ctrl_c_on_cuda(name: str, caplog: pytest.LogCaptureFixture) -> None:
    run("cuda:0", name, FEW, caplog)


def test_operations_are_all() -> None:
    classes = (xsem.CommandList, xsem.Device, xsem.Event, xsem.Semaphore, xsem.Memory, xsem.Buffer)
    public = {f"{each.__name__}.{name}" for each in classes for name, member in vars(each).items()
              if not name.startswith("_") and inspect.isroutine(member)}
    release = {f"{each.__name__}.release" for each in classes}
    assert public - release == ({name.partition(" ")[0] for name in OPERATIONS} | set(ELSEWHERE)) - release
