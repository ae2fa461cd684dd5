"""Appends keep no object, in C code and in Python. `tests/sanitized` tests the memory of the C code."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from support.paths import ROOT
from support.system_types import C_LIBRARY

import xsem
from xsem import spi
from xsem.facade.device import Device
from xsem.types import Capabilities, DeviceInfo, SemaphoreHandleType

TIMELINE, BINARY = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, SemaphoreHandleType.OPAQUE_FD
ABS = ctypes.cast(C_LIBRARY.abs, ctypes.c_void_p).value or 0   # returns 0, its argument


class Call:
    def __init__(self, count: int) -> None:
        self.native = spi.NativeAppend((ABS, print), (0,), bytearray(16 * count), 16, None)

    def __call__(self, values: Any, wait_fences: Any, want_fence: bool) -> object:
        return 1 if want_fence else None


class Queue(spi.SemaphoreQueue):
    """A queue that does nothing, and whose prepared calls have the address of a C function."""

    def __init__(self, identity: int) -> None:
        self.identity = self.native_handle = identity
        self.native_calls = spi.QueueCalls(
            0, (ABS, print), (ABS, print), (ABS, print), deque((0, 0, 0)), int, [])

    def append_barrier(self, wait_fences: Any, want_fence: bool) -> object:
        return 1 if want_fence else None

    def append_wait(
        self, semaphores: Any, params: Any, wait_fences: Any, acquire: Any, want_fence: bool
    ) -> object:
        return 1 if want_fence else None

    def append_signal(
        self, semaphores: Any, params: Any, wait_fences: Any, release: Any, want_fence: bool
    ) -> object:
        return 1 if want_fence else None

    def prepare_wait(self, semaphores: Any) -> spi.PreparedCall:
        return Call(len(semaphores))

    prepare_signal = prepare_wait

    def close(self) -> None: ...


class Driver(spi.DeviceDriver, spi.SemaphoreImport, spi.SemaphoreExport, spi.BorrowedQueues):
    def __init__(self) -> None:
        self._identities = iter(range(100, 1000))

    @property
    def capabilities(self) -> Capabilities:
        types = frozenset({TIMELINE, BINARY})
        return Capabilities(semaphore_import=types, semaphore_export=types, max_value_difference=2**64 - 1,
                            resets_on_wait=True)

    def create_queue(self) -> Queue:
        return Queue(next(self._identities))

    def borrow_queue(self, stream: object, in_order: bool) -> Queue:
        return Queue(7)

    def queue_identity(self, stream: object) -> int:
        return 7

    def query_fence(self, fence: object) -> bool:
        return True

    def release_fence(self, fence: object) -> None: ...
    def close(self) -> None: ...

    def import_semaphore(self, desc: Any, handle: Any) -> spi.Imported:
        return spi.Imported(1, handle="left")

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int | None) -> object:
        return 1

    def export_semaphore(self, semaphore: object) -> Any:
        raise NotImplementedError

    def release_semaphore(self, semaphore: object) -> None: ...


KINDS = ("signal", "wait", "binary", "event", "barrier", "batch", "frame", "refused", "parameters", "work")


class Stream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 7


class Scene:
    """One call of `append[kind]` per value."""

    def __init__(self) -> None:
        info = DeviceInfo(id="nothing:0", backend="nothing", index=0, name="nothing")
        device = self.device = Device(info, Driver())
        sem, other, binary = (device.create_semaphore(type) for type in (TIMELINE, TIMELINE, BINARY))
        signals, waits = [device.create_semaphore(TIMELINE) for _ in range(8)], device.create_semaphore(TIMELINE)
        commands, event, bound, stream = (
            device.create_command_list(), device.create_event(), device.create_event(), Stream())
        commands.append_signal(sem, 1)
        commands.append_barrier(signal_event=bound)

        def with_event(value: int) -> None:
            event.reset()
            commands.append_signal(other, value, signal_event=event, wait_events=[bound])

        def refused(_: int) -> None:
            with pytest.raises(xsem.BadArgumentError):
                commands.append_signal(sem, 1)

        def frame(value: int) -> None:
            borrowed = device.command_list(stream)
            borrowed.append_wait(waits, value)
            borrowed.append_signal(waits, value)

        def barrier(_: int) -> None:
            event.reset()
            commands.append_barrier(signal_event=event)

        self.append: dict[str, Callable[[int], object]] = {
            "signal": lambda value: commands.append_signal(sem, value + 1),
            "wait": lambda value: commands.append_wait(sem, value),
            "binary": lambda _: commands.append_signal(binary),
            "event": with_event,
            "barrier": barrier,
            "batch": lambda value: commands.append_signal(signals, [value] * 8),
            "frame": frame,
            "refused": refused,
            "parameters": lambda value: commands.append_wait(sem, xsem.WaitParams(value=value)),
            "work": lambda _: commands.append_work(int),
        }


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_appends_keep_no_object(kind: str, count: int) -> None:
    scene = Scene()
    append = scene.append[kind]
    shared = (None, True, False, (), 0, 1, int, print, scene.device, scene.device._device_state)

    def look() -> tuple[int, list[int]]:
        for queue in scene.device._queues.live():
            queue.ensure_marker(queue.last_seq)
            queue.poll()
            assert queue.pending() == []
        gc.collect()
        return sys.getallocatedblocks(), [sys.getrefcount(each) for each in shared]

    for value in range(1, 1001):
        append(value)
    blocks, counts = look()
    for value in range(1001, 1001 + count):
        append(value)
    blocks_now, counts_now = look()
    assert blocks_now - blocks < 500
    assert max(now - before for now, before in zip(counts_now, counts, strict=True)) < 500
    assert min(now - before for now, before in zip(counts_now, counts, strict=True)) > -500
    scene.device.release()


UNFINISHED = """
import faulthandler, gc, importlib, inspect, sys
faulthandler.enable()
faulthandler.dump_traceback_later(90, exit=True)
from hatch_build import MODULES

class Odd:
    def __len__(self): return 2
    def __iter__(self): return iter([5] * 100_000)
    def __getitem__(self, index): return 5

calls = 0
for module in MODULES:
    module = importlib.import_module(module.rpartition(".")[0].replace("/", "."))
    for made in [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]:
        names = [each for each in dir(made) if each not in ("__class__", "__new__")] if inspect.isclass(made) else [""]
        for name in names:
            for argument in (None, 1, (), {}, (None,), Odd()):
                for count in range(10):
                    try:
                        (getattr(made.__new__(made), name) if name else made)(*[argument] * count)
                    except Exception:
                        pass
                    calls += 1
print(calls)
"""


@pytest.mark.skipif(not spi.compiled(), reason="xsem is not compiled here")
def test_no_method_of_an_unfinished_object_ends_the_process() -> None:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", UNFINISHED], text=True, timeout=100, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > 1_000
