"""Ctrl-C at every place of every operation of `host`: each object is usable afterwards.

Python cannot combine two steps into one. So the result of a system call is lost if the interrupt comes before it is
stored, and so is a file descriptor or a mapping that a finalizer was about to close. A round may lose one of each,
and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.at_once import assert_free
from support.fake_backend import until
from support.host_peers import mapped
from support.interrupts import Place, interruptions
from support.open_files import numbers

import xsem
from xsem.data.handles import own
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

pytestmark = pytest.mark.timeout(300)

TIMELINE, BINARY = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, SemaphoreHandleType.OPAQUE_FD
MEMORY = MemoryHandleType.OPAQUE_FD
SIZE = 4096
DEADLINE_S = 5.0


class Scene:
    """A device with one object of each kind."""

    def __init__(self) -> None:
        self.device = xsem.open_device("host")
        self.other = self.device.create_semaphore(TIMELINE)
        self.sem = self.device.create_semaphore(TIMELINE, label="frames")
        self.binary = self.device.create_semaphore(BINARY)
        self.memory = self.device.create_memory(MEMORY, SIZE)
        self.commands = self.device.create_command_list()
        self.event = self.device.create_event()
        self.mapped: Any = None
        for value in (1, 3):   # two rounds, so that later appends use prepared appends
            self.commands.append_signal(self.sem, value)
            self.commands.append_signal([self.sem, self.other], [value + 1, value + 1])
        self.commands.synchronize()

    def signal_with_event(self) -> None:
        self.commands.append_signal(self.sem, 20, signal_event=self.event)

    def bind(self) -> None:
        self.commands.append_barrier(signal_event=self.event)

    def buffer(self) -> xsem.Buffer:
        return self.memory.map_buffer(shape=(8, 8), dtype="float32")


Act = Callable[[Scene], Callable[[], object]]


def plain(act: Callable[[Scene], object]) -> Act:
    return lambda scene: lambda: act(scene)


def imported(scene: Scene) -> Callable[[], object]:
    desc = scene.sem.export()
    return lambda: scene.device.import_semaphore(desc).release()


def refused_import(scene: Scene) -> Callable[[], object]:
    """Import a timeline's fd as a binary semaphore."""
    desc = SemaphoreDesc.opaque_fd(scene.sem.native_handle, device_uuid=None)

    def run() -> None:
        with contextlib.suppress(xsem.BadHandleError):
            scene.device.import_semaphore(desc)

    return run


def owned(scene: Scene) -> None:
    with own(os.dup, scene.sem.native_handle) as handle:
        os.close(OwnedHandle(handle.detach()).detach())


def imported_memory(scene: Scene) -> Callable[[], object]:
    desc = scene.memory.export()
    return lambda: scene.device.import_memory(desc).release()


def bound(act: Callable[[Scene], object]) -> Act:
    def made(scene: Scene) -> Callable[[], object]:
        scene.bind()
        return lambda: act(scene)

    return made


def with_buffer(act: Callable[[xsem.Buffer], object]) -> Act:
    def made(scene: Scene) -> Callable[[], object]:
        scene.mapped = scene.buffer()
        return lambda: act(scene.mapped)

    return made


def dropped(scene: Scene) -> Callable[[], object]:
    def run() -> None:
        for made in (scene.device.create_semaphore(TIMELINE), scene.device.create_event()):
            assert not made.released

    return run


def copies(scene: Scene) -> Callable[[], object]:
    one, two = scene.device.host_buffer(64), scene.device.host_buffer(64)
    return lambda: scene.commands.append_copy(one, two)


def fills(scene: Scene) -> Callable[[], object]:
    one = scene.device.host_buffer(64)
    return lambda: scene.commands.append_fill(one, b"\1", signal_event=scene.event)


def waits_for_an_event_of_threading(scene: Scene) -> Callable[[], object]:
    native = threading.Event()
    native.set()

    def wait() -> None:
        scene.device.event(native).wait()

    return wait


def waits_for_a_future(scene: Scene) -> Callable[[], object]:
    native: Future[int] = Future()
    native.set_result(1)

    def wait() -> None:
        scene.device.event(native).wait()

    return wait


def first_append(scene: Scene) -> None:
    commands = scene.device.create_command_list()
    commands.append_signal(scene.sem, 20)
    commands.synchronize()
    commands.release()


def in_a_with_block(scene: Scene) -> None:
    with scene.device.create_semaphore(TIMELINE) as sem, sem.export() as desc, scene.device.import_semaphore(desc):
        pass


def array_of(buffer: xsem.Buffer) -> None:
    buffer.numpy()[0] = 1


def written(buffer: xsem.Buffer) -> None:
    buffer.copy_from_host(np.ones((8, 8), "float32"))


OPERATIONS: dict[str, Act] = {
    "append_signal": plain(lambda scene: scene.commands.append_signal(scene.sem, 20)),
    "append_signal with an event": plain(Scene.signal_with_event),
    "append_signal that waits for an event": bound(
        lambda scene: scene.commands.append_signal(scene.sem, 20, wait_events=[scene.event])),
    "append_signal of a binary semaphore": plain(lambda scene: scene.commands.append_signal(scene.binary)),
    "append_signal of several": plain(
        lambda scene: scene.commands.append_signal([scene.sem, scene.other], [20, 20])),
    "append_signal of a pair that is new": plain(
        lambda scene: scene.commands.append_signal([scene.other, scene.sem], [20, 20])),
    "append_signal with parameters": plain(
        lambda scene: scene.commands.append_signal(scene.sem, xsem.SignalParams(value=20))),
    "append_wait": plain(lambda scene: scene.commands.append_wait(scene.sem, 1)),
    "append_wait with an event": plain(
        lambda scene: scene.commands.append_wait(scene.sem, 1, signal_event=scene.event)),
    "append_work": plain(lambda scene: scene.commands.append_work(int)),
    "append_barrier": plain(Scene.bind),
    "append_copy": copies,
    "append_fill": fills,
    "query": plain(lambda scene: scene.commands.query()),
    "synchronize": plain(lambda scene: scene.commands.synchronize()),
    "list": plain(first_append),
    "event.query": bound(lambda scene: scene.event.query()),
    "event.wait": bound(lambda scene: scene.event.wait()),
    "event.reset": bound(lambda scene: scene.event.reset()),
    "event.add_done_callback": bound(lambda scene: scene.event.add_done_callback(lambda _: None)),
    "event of threading": waits_for_an_event_of_threading,
    "event of a future": waits_for_a_future,
    "create_semaphore": plain(lambda scene: scene.device.create_semaphore(TIMELINE).release()),
    "create_semaphore, binary": plain(lambda scene: scene.device.create_semaphore(BINARY).release()),
    "objects that are dropped": dropped,
    "export": plain(lambda scene: scene.sem.export().close()),
    "import_semaphore": imported,
    "import that is refused": refused_import,
    "handles": plain(owned),
    "with blocks": plain(in_a_with_block),
    "value": plain(lambda scene: scene.sem.value()),
    "host_signal": plain(lambda scene: scene.sem.host_signal(20)),
    "host_signal of a binary semaphore": plain(lambda scene: scene.binary.host_signal()),
    "host_wait": plain(lambda scene: scene.sem.host_wait(1)),
    "create_memory": plain(lambda scene: scene.device.create_memory(MEMORY, SIZE).release()),
    "import_memory": imported_memory,
    "map_buffer": plain(lambda scene: scene.buffer().release()),
    "view": with_buffer(lambda buffer: buffer.view((4,), "uint8").release()),
    "numpy": with_buffer(array_of),
    "from_dlpack": with_buffer(np.from_dlpack),
    "copy_to_host": with_buffer(lambda buffer: buffer.copy_to_host()),
    "copy_from_host": with_buffer(written),
    "host_buffer": plain(lambda scene: scene.device.host_buffer(64).release()),
    "pending": plain(lambda scene: scene.device.pending()),
    "releasing": plain(lambda scene: scene.device.releasing()),
    "open_device": plain(lambda scene: xsem.open_device("host").release()),
    "device.release": plain(lambda scene: scene.device.release()),
    "semaphore.release": plain(lambda scene: scene.sem.release()),
    "memory.release": plain(lambda scene: scene.memory.release()),
    "list.release": plain(lambda scene: scene.commands.release()),
    "release behind a signal": bound(lambda scene: scene.sem.release()),
}


class Table:
    """The process's file descriptors and mappings, compared with those at the beginning."""

    def __init__(self) -> None:
        self._fds, self._pages = numbers(), set(mapped())

    def lost(self) -> tuple[int, int]:
        """Return the numbers of lost file descriptors and mappings; -1 if an initial one is gone."""
        return _more(self._fds, numbers()), _more(self._pages, set(mapped()))

    def give_back(self) -> None:
        """Close the lost descriptors and mappings, so that the next round begins in the same state."""
        libc = ctypes.CDLL(None)
        for number in numbers() - self._fds:
            with contextlib.suppress(OSError):   # closed meanwhile, by a finalizer
                os.close(number)
        for line in set(mapped()) - self._pages:
            first, _, end = line.split(maxsplit=1)[0].partition("-")
            libc.munmap(ctypes.c_void_p(int(first, 16)), ctypes.c_size_t(int(end, 16) - int(first, 16)))


def _more(before: set[Any], now: set[Any]) -> int:
    return -1 if before - now else len(now - before)


def usable(scene: Scene, *, exact: bool) -> None:
    """Use and release every object. Runs on another thread, so that it detects a lock still held.

    `exact`: an unsent signal must not count as signalled.
    """
    device = scene.device
    try:
        if not device.released:
            if not scene.commands.released:
                use_queue(scene, exact=exact)
            if not scene.memory.released:
                if scene.mapped is not None:
                    scene.mapped.release()
                reached(lambda: tuple(what for what in device.releasing() if what == "buffer"), "releasing")
                scene.memory.map_buffer().release()
    finally:
        device.release()
        reached(device.releasing, "releasing")


def use_queue(scene: Scene, *, exact: bool) -> None:
    """Signal, wait and export on the list of the scene."""
    device, sem, commands, event = scene.device, scene.sem, scene.commands, scene.event
    commands.synchronize(timeout_s=DEADLINE_S)
    reached(device.pending, "pending")
    if not sem.released:
        # xsem must know the last signalled value; otherwise it would accept a lower one.
        assert sem.value() <= (sem._state.last or 0)
        assert sem.value() == sem._state.last or not exact
        value = (sem._state.last or 0) + 10
        commands.append_signal(sem, value)
        commands.append_signal([sem, scene.other], [value + 1, value + 1])
        commands.synchronize(timeout_s=DEADLINE_S)
        assert sem.value() == scene.other.value() == value + 1
        sem.host_signal(value + 2)
        sem.host_wait(value + 2, timeout_s=DEADLINE_S)
        with sem.export() as desc:
            device.import_semaphore(desc).release()
    event.reset()
    commands.append_barrier(signal_event=event)
    event.wait(timeout_s=DEADLINE_S)


def reached(remaining: Callable[[], tuple[object, ...]], state: str) -> None:
    """Wait until nothing remains. Otherwise, say what remains, and what each thread does."""
    try:
        until(lambda: not remaining(), DEADLINE_S)
    except AssertionError:
        frames = sys._current_frames()
        stacks = "\n".join(f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
                           for thread in threading.enumerate() if thread.ident in frames)
        raise AssertionError(f"still {state}: {remaining()}\n{stacks}") from None


@pytest.fixture
def quiet_collector() -> Iterator[None]:
    """Run the garbage collector only between rounds, so that all rounds are the same."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# All others together take a minute or more; they are marked slow.
EVERY_DAY = ("append_signal with an event", "event.wait")


@pytest.mark.filterwarnings("ignore:unreleased:ResourceWarning")   # a device whose facade object was not created
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.slow) for name in OPERATIONS])
def test_interrupt_anywhere_breaks_nothing(
    name: str, quiet_collector: None, caplog: pytest.LogCaptureFixture, record_property: Callable[[str, object], None]
) -> None:
    caplog.set_level(logging.WARNING)
    act = OPERATIONS[name]
    scenes: list[Scene] = []
    calls: list[Callable[[], object]] = []

    def set_up() -> None:
        scenes.append(Scene())
        calls.append(act(scenes[0]))

    def look(pool: ThreadPoolExecutor, *, exact: bool = True) -> str:
        """Return the fault after a round, or an empty string."""
        try:
            pool.submit(usable, scenes[0], exact=exact).result(4 * DEADLINE_S)
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        finally:
            calls.clear()
            scenes.clear()
        return ""

    with ThreadPoolExecutor(1) as pool:
        set_up()
        calls[0]()
        assert look(pool) == ""
        gc.collect()
        table = Table()
        places: set[Place] = set()
        lost: set[Place] = set()
        bad: dict[Place, str] = {}
        set_up()
        for place, otherwise in interruptions(lambda: calls[0]()):
            places.add(place)
            wrong = look(pool, exact=not place.driver) or (otherwise and f"raised {otherwise}")
            if table.lost() != (0, 0):
                gc.collect()
                fds, pages = table.lost()
                # An object that could not be used may still own them.
                if (fds or pages) and not wrong:
                    lost.add(place)
                    table.give_back()
                if max(fds, pages) > 1 or min(fds, pages) < 0:
                    wrong = wrong or f"{fds} file descriptors and {pages} mappings are lost"
            if wrong:
                bad[place] = wrong
            set_up()
        assert look(pool) == ""
    record_property("places", len(places))
    record_property("places that lose one", len(lost))
    print(f"{name}: {len(places)} places; {len(lost)} lose one object of the kernel's, {len(bad)} are bad")
    assert places
    assert not bad, "\n".join(f"{place}: {why}" for place, why in bad.items())
    assert not caplog.records


def test_ctrl_c_in_a_mapping_leaves_the_lock_of_the_lifetimes_free() -> None:
    """Each mapping of a memory takes this lock. The other tests use it on one thread, which may take it again."""
    with xsem.open_device("host") as device, device.create_memory(MEMORY, SIZE) as memory:
        lock = device._device_state.releaser.lock
        places = []
        for place, _otherwise in interruptions(lambda: memory.map_buffer(overlap=True).release()):
            places.append(place)
            assert_free(lock, timeout_s=DEADLINE_S)
        assert places
