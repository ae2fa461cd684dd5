"""Test the driver calls that the facade makes on CUDA, and a capture beside them. On the stand-in for libcuda."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.at_once import in_threads
from support.cuda_sim import on_stand_in, stand_in_environment
from support.importer import BOUND_S, Pair

import xsem
from xsem.types import SemaphoreHandleType


@contextmanager
def rig() -> Iterator[Pair]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Pair(host, cuda, SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)


# ---- release
SCRIPT = """
import os, signal, sys, threading, time
import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

host = xsem.open_device("host")
cuda = xsem.open_device("cuda:0")

def semaphore():
    there = host.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
    with there.export(for_device=cuda) as desc:
        return there, cuda.import_semaphore(desc)

def mark(text):
    with open(os.environ["SIMCUDA_LOG"], "a") as log:
        log.write(f"MARK {text}\\n")
"""


def script(text: str, log: Path) -> list[str]:
    """Run the text in a new process; return the log of driver calls without the numbers of threads."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT + text], env=stand_in_environment(SIMCUDA_LOG=str(log)),
                         capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return [line.removeprefix("MARK ") if line.startswith("MARK ") else line.split(" ", 1)[1]
            for line in log.read_text().splitlines()]


def test_each_semaphore_is_destroyed_once_after_its_last_use(tmp_path: Path) -> None:
    calls = script("""
gate_there, gate = semaphore()
there, here = semaphore()
commands = cuda.create_command_list()
commands.append_wait(gate, 1)
commands.append_signal(here, 1)
for _ in range(3):
    for each in (gate, here, commands):
        each.release()
mark("released")
gate_there.host_signal(1)
there.host_wait(1, timeout_s=20)
cuda.release()
host.release()
deadline = time.monotonic() + 20
while cuda.releasing() and time.monotonic() < deadline:
    time.sleep(0.001)
mark("closed")
""", tmp_path / "log")
    released, closed = calls.index("released"), calls.index("closed")
    destroyed = [index for index, line in enumerate(calls) if line.startswith("cuDestroyExternalSemaphore")]
    assert len({calls[index] for index in destroyed}) == len(destroyed) == 2
    assert all(released < index < closed for index in destroyed)
    assert sum(line.startswith("cuDevicePrimaryCtxRelease") for line in calls[:closed]) == 1
    assert [line for line in calls if line.startswith("->") and not line.endswith(" 600")] == []


def calls_between(calls: list[str], begin: str, end: str) -> list[str]:
    """Return the names of the driver calls between two marks."""
    return [line.split()[0] for line in calls[calls.index(begin) + 1:calls.index(end)]]


EXCHANGE = "cuThreadExchangeStreamCaptureMode"


@pytest.mark.parametrize("current", [False, True])
def test_import_and_free_make_only_these_driver_calls(tmp_path: Path, current: bool) -> None:
    calls = script(f"""
from cuda.bindings import driver as cu
if {current}:
    cu.cuCtxPushCurrent(cu.CUcontext(cuda.native_handle))

def gone():
    deadline = time.monotonic() + 20
    while cuda.releasing() and time.monotonic() < deadline:
        time.sleep(0.001)

memory = host.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
semaphore()[1].release()   # the first release starts the releasing thread
gone()
there = host.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
with there.export(for_device=cuda) as desc, memory.export(for_device=cuda) as memory_desc:
    mark("import of a semaphore")
    here = cuda.import_semaphore(desc)
    mark("free of a semaphore")
    here.release()
    gone()
    mark("import of memory")
    imported = cuda.import_memory(memory_desc)
    mark("mapping")
    buffer = imported.map_buffer()
    mark("free of memory")
    buffer.release()
    imported.release()
    gone()
    mark("host memory")
    pinned = cuda.host_buffer(64)
    mark("free of host memory")
    pinned.release()
    gone()
    mark("end")
cuda.release()
host.release()
""", tmp_path / "log")
    marks = ["import of a semaphore", "free of a semaphore", "import of memory", "mapping", "free of memory",
             "host memory", "free of host memory", "end"]
    parts = {begin: calls_between(calls, begin, end) for begin, end in itertools.pairwise(marks)}

    def in_context(call: str) -> list[str]:
        inside = [EXCHANGE, call, EXCHANGE]
        return ["cuCtxGetCurrent", *inside] if current else ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", *inside,
                                                             "cuCtxPopCurrent_v2"]

    assert parts["import of a semaphore"] == in_context("cuImportExternalSemaphore")
    assert parts["free of a semaphore"] == [EXCHANGE, "cuDestroyExternalSemaphore", EXCHANGE]
    assert parts["import of memory"] == in_context("cuImportExternalMemory")
    assert parts["mapping"] == in_context("cuExternalMemoryGetMappedBuffer")
    assert parts["host memory"] == in_context("cuMemHostAlloc")
    assert parts["free of host memory"] == [EXCHANGE, "cuMemFreeHost", EXCHANGE]
    # The releasing thread has no context.
    assert parts["free of memory"] == [
        EXCHANGE, "cuMemFree_v2", EXCHANGE, "cuCtxGetCurrent", "cuCtxPushCurrent_v2", EXCHANGE,
        "cuDestroyExternalMemory", EXCHANGE, "cuCtxPopCurrent_v2"]


@pytest.mark.parametrize("events", [False, True])
def test_append_that_would_block_never_reaches_the_driver(tmp_path: Path, events: bool) -> None:
    calls = script(f"""
gate_there, gate = semaphore()
there, here = semaphore()
commands, other = cuda.create_command_list(), cuda.create_command_list()
between = cuda.create_event()
other.append_wait(gate, 1, signal_event=between)
commands.append_wait(gate, 1)
appended = 0
try:
    for value in range(1, 5000):
        commands.append_signal(here, value, wait_events=[between] if {events} else ())
        appended += 1
except xsem.WouldBlockError as error:
    assert error.reason == "would_block"
    mark(f"would block after {{appended}}")
for _ in range(3):
    try:
        commands.append_barrier(signal_event=cuda.create_event())
    except xsem.WouldBlockError:
        mark("again")
gate_there.host_signal(1)
commands.synchronize(timeout_s=20)
commands.append_signal(here, 10_000)
there.host_wait(10_000, timeout_s=20)
host.release()
cuda.release()
""", tmp_path / "log")
    (end,) = [index for index, line in enumerate(calls) if line.startswith("would block after ")]
    appended = int(calls[end].rpartition(" ")[2])
    # Events take no place. The facade reserves one place for its marker.
    assert 1000 < appended <= 1020
    takes_places = ("cuSignalExternal", "cuWaitExternal")
    assert len([line for line in calls[:end] if line.startswith(takes_places)]) <= 1 + 1020
    assert calls.count("again") == 3


# ---- captures
@on_stand_in
def test_capture_and_its_graph_survive_releases_and_queries() -> None:
    cu = importlib.import_module("cuda.bindings.driver")

    def ask(function: Any, *args: Any) -> Any:
        code, *results = function(*args)
        assert int(code) == 0, (function.__name__, code)
        return results[0] if results else None

    ready, stop = threading.Barrier(3, timeout=BOUND_S), threading.Event()
    rounds = [0, 0]

    def disturb(at: Pair, index: int) -> None:
        gate_there, gate = at.semaphore()
        waiting = at.here.create_command_list()
        pending = at.here.create_event()
        waiting.append_wait(gate, 1, signal_event=pending)
        while rounds[index] == 0 or not stop.is_set():
            there, here = at.semaphore()
            _memory, imported = at.memory(4096)
            buffer = imported.map_buffer()
            commands = at.here.create_command_list()
            done = at.here.create_event()
            commands.append_fill(buffer, b"\x01")
            commands.append_signal(here, 1, signal_event=done)
            there.host_wait(1, timeout_s=BOUND_S)
            done.wait(timeout_s=BOUND_S)
            assert not pending.query()
            assert not waiting.query()
            at.here.pending()
            for each in (buffer, imported, here, commands):
                each.release()
            if rounds[index] == 0:
                ready.wait()
            rounds[index] += 1
        gate_there.host_signal(1)
        waiting.synchronize(timeout_s=BOUND_S)

    with rig() as at:
        there, here = at.semaphore()
        context = cu.CUcontext(at.here.native_handle)
        ask(cu.cuCtxPushCurrent, context)
        stream = ask(cu.cuStreamCreate, 1)
        workers = threading.Thread(target=in_threads, args=(2, lambda index: disturb(at, index)))
        workers.start()
        try:
            ready.wait()
            ask(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
            commands = at.here.command_list(int(stream))
            commands.append_wait(here, 1)
            seen = sum(rounds)
            value = 2
            while sum(rounds) < seen + 6:  # the other threads make several rounds meanwhile
                commands.append_signal(here, value)
                value += 1
                time.sleep(0)
            graph = ask(cu.cuStreamEndCapture, stream)
        finally:
            stop.set()
            workers.join()
        executable = ask(cu.cuGraphInstantiate, graph, 0)
        here.release()  # the graph uses it until the device is released
        ask(cu.cuGraphLaunch, executable, stream)
        assert there.value() == 0
        there.host_signal(1)
        there.host_wait(value - 1, timeout_s=BOUND_S)
        ask(cu.cuStreamSynchronize, stream)
        ask(cu.cuGraphExecDestroy, executable)
        ask(cu.cuGraphDestroy, graph)
        ask(cu.cuCtxPopCurrent)
