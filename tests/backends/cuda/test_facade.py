"""Test the facade on CUDA: no call blocks or crashes, and nothing is lost or left open. On the stand-in for libcuda."""

from __future__ import annotations

import gc
import importlib
import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.at_once import in_threads
from support.cuda_sim import on_stand_in, stand_in_environment
from support.importer import BOUND_S, Pair
from support.paths import TESTS

import xsem
from xsem import ipc
from xsem.types import MemoryHandleType, MipmapDesc, SemaphoreHandleType

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
SIZE = 1 << 16


@contextmanager
def rig(device: str = "cuda:0") -> Iterator[Pair]:
    with xsem.open_device("host") as host, xsem.open_device(device) as cuda:
        yield Pair(host, cuda, TIMELINE)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not reached():
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.002)


# ---- a frame
@on_stand_in
@pytest.mark.parametrize("kind", [TIMELINE, BINARY])
def test_frames_pass_through_every_operation_in_order(kind: SemaphoreHandleType) -> None:
    with rig() as at:
        drawn_there, drawn = at.semaphore(kind)
        filtered_there, filtered = at.semaphore(kind)
        there, here = at.memory(SIZE)
        half = SIZE // 2
        picture, margin = here.map_buffer(0, half), here.map_buffer(half, half)
        staging = at.here.host_buffer(half)
        view = there.map_buffer().numpy()
        commands = at.here.create_command_list()
        in_order: list[int] = []
        for frame in range(1, 6):
            value = frame if kind is TIMELINE else None
            copied, marked = at.here.create_event(), at.here.create_event()
            commands.append_wait(drawn, value)
            commands.append_copy(staging, picture, signal_event=copied)
            commands.append_fill(margin, bytes([frame]), wait_events=[copied])
            commands.append_work(partial(in_order.append, frame))
            commands.append_barrier(signal_event=marked)
            commands.append_signal(filtered, value)
            view[:half] = 100 + frame
            assert not copied.query()
            drawn_there.host_signal(value)
            filtered_there.host_wait(value, timeout_s=BOUND_S)
            marked.wait(timeout_s=BOUND_S)
            assert (staging.numpy() == 100 + frame).all()
            assert (view[half:] == frame).all()
        assert in_order == [1, 2, 3, 4, 5]
        commands.synchronize(timeout_s=BOUND_S)   # the host sees the signal before the operation is done
        assert commands.query()
        assert at.here.pending() == ()


@on_stand_in
def test_lists_of_many_threads_signal_all_that_they_append() -> None:
    with rig() as at:
        shared = [at.semaphore() for _ in range(4)]

        def work(index: int) -> None:
            commands = at.here.create_command_list()
            for value in range(1, 301):
                commands.append_signal(shared[index][1], value)
            commands.synchronize(timeout_s=BOUND_S)
            commands.release()

        in_threads(4, work)
        assert [there.value() for there, _ in shared] == [300] * 4


@on_stand_in
def test_one_list_takes_appends_of_many_threads() -> None:
    with rig() as at:
        shared = [at.semaphore() for _ in range(4)]
        commands = at.here.create_command_list()

        def work(index: int) -> None:
            for value in range(1, 201):
                commands.append_signal(shared[index][1], value)

        in_threads(4, work)
        commands.synchronize(timeout_s=BOUND_S)
        assert [there.value() for there, _ in shared] == [200] * 4


# ---- images
@on_stand_in
@pytest.mark.parametrize(
    ("desc", "shapes"),
    [(MipmapDesc(extent=(64, 32, 0), format="uint8", channels=4, levels=3), [(32, 64, 4), (16, 32, 4), (8, 16, 4)]),
     (MipmapDesc(extent=(16, 0, 0), format="float32", channels=1, levels=2, offset=512), [(16, 1), (8, 1)]),
     (MipmapDesc(extent=(8, 8, 4), format="uint16", channels=2, levels=2), [(4, 8, 8, 2), (2, 4, 4, 2)]),
     (MipmapDesc(extent=(8, 8, 0), format="float16", channels=1, layers=6, cubemap=True), [(6, 8, 8, 1)]),
     (MipmapDesc(extent=(16, 0, 0), format="int8", channels=2, layers=3, levels=3),
      [(3, 16, 2), (3, 8, 2), (3, 4, 2)]),
     (MipmapDesc(extent=(8, 4, 0), format="int32", channels=4, layers=5, levels=2), [(5, 4, 8, 4), (5, 2, 4, 4)]),
     (MipmapDesc(extent=(4, 4, 0), format="uint32", channels=2, layers=12, cubemap=True, levels=3),
      [(12, 4, 4, 2), (12, 2, 2, 2), (12, 1, 1, 2)]),
     (MipmapDesc(extent=(7, 5, 0), format="int16", channels=4, surface_load_store=True, color_attachment=True),
      [(5, 7, 4)])],
)
def test_levels_of_an_image_keep_what_is_written(desc: MipmapDesc, shapes: list[tuple[int, ...]]) -> None:
    with rig() as at:
        there, here = at.memory(SIZE)
        image = here.map_mipmapped_array(desc)
        written = []
        for index, shape in enumerate(shapes):
            data = (np.arange(np.prod(shape)) % 100 + index).astype(desc.format).reshape(shape)
            image.level(index).write(data)
            written.append(data)
        for index, data in enumerate(written):
            assert (image.level(index).read() == data).all()
        # The stand-in puts level 0 at the offset in the exporter's memory.
        raw = there.map_buffer().numpy()[desc.offset : desc.offset + written[0].nbytes]
        assert raw.tobytes() == written[0].tobytes()
        with pytest.raises(xsem.BadArgumentError):
            image.level(len(shapes))
        for each in (here, image):
            each.release()
            each.release()


@on_stand_in
def test_unaligned_image_offset_is_refused_before_the_driver() -> None:
    with rig() as at:
        _, here = at.memory(SIZE)
        desc = MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, offset=256)
        with pytest.raises(xsem.BadArgumentError) as refused:
            here.map_mipmapped_array(desc)
        assert (refused.value.reason, refused.value.call) == ("bad_offset", None)


# ---- several devices
@on_stand_in(SIMCUDA_DEVICES="3")
def test_three_devices_pass_a_value_round() -> None:
    infos = xsem.devices("cuda")
    assert [info.id for info in infos] == ["cuda:0", "cuda:1", "cuda:2"]
    assert len({info.uuid for info in infos} - {None}) == 3
    with xsem.open_device("host") as host, ExitStack() as opened:
        devices = [opened.enter_context(xsem.open_device("cuda", uuid=info.uuid)) for info in infos]
        there = host.create_semaphore(TIMELINE)
        memory = host.create_memory(MemoryHandleType.OPAQUE_FD, SIZE)
        for index, device in enumerate(devices):
            assert device.info.index == index
            with there.export(for_device=device) as semaphore, memory.export(for_device=device) as shared:
                if index:
                    with pytest.raises(xsem.WrongDeviceError):
                        devices[0].import_semaphore(semaphore)
                here, imported = device.import_semaphore(semaphore), device.import_memory(shared)
            buffer, target = imported.map_buffer(0, 256), imported.map_buffer(256 * (index + 1), 256)
            commands = device.create_command_list()
            commands.append_wait(here, 2 * index + 1)
            commands.append_copy(target, buffer)
            commands.append_fill(buffer, bytes([index + 1]))
            commands.append_signal(here, 2 * index + 2)
        view = memory.map_buffer().numpy()
        view[:256] = 77
        for index in range(3):
            assert there.value() == 2 * index
            there.host_signal(2 * index + 1)
            there.host_wait(2 * index + 2, timeout_s=BOUND_S)
        assert [int(view[256 * part]) for part in range(4)] == [3, 77, 1, 2]


# ---- release
@on_stand_in
def test_all_is_released_at_once_while_all_is_pending() -> None:
    with xsem.open_device("host") as host:
        cuda = xsem.open_device("cuda:0")
        at = Pair(host, cuda, TIMELINE)
        gate_there, gate = at.semaphore()
        binary_there, binary = at.semaphore(BINARY)
        there, here = at.semaphore()
        memory_there, memory = at.memory(SIZE)
        buffer, staging = memory.map_buffer(), cuda.host_buffer(SIZE)
        commands, other = cuda.create_command_list(), cuda.create_command_list()
        event = cuda.create_event()
        commands.append_wait(gate, 1)
        commands.append_fill(buffer, b"\x05")
        commands.append_copy(staging, buffer, signal_event=event)
        other.append_wait(binary, wait_events=[event])
        other.append_signal(here, 3)   # after the fill, which the assertions below check
        everything = (gate, binary, here, buffer, memory, staging, commands, other, event, cuda)

        # None of these calls may wait: this thread signals the semaphores only below.
        def release(_index: int) -> None:
            for each in everything:
                each.release()

        in_threads(2, release)
        release(0)
        view = memory_there.map_buffer().numpy()
        assert there.value() == 0
        assert not view.any()
        gate_there.host_signal(1)
        binary_there.host_signal()
        there.host_wait(3, timeout_s=BOUND_S)
        assert (view == 5).all()
        del view   # otherwise the exporter's memory outlives its device


@on_stand_in
def test_dropped_objects_are_released_when_their_work_is_done() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        commands.append_wait(gate, 1)
        commands.append_signal(here, 1)
        del gate, here, commands
        gc.collect()
        assert there.value() == 0
        gate_there.host_signal(1)
        there.host_wait(1, timeout_s=BOUND_S)


@on_stand_in
def test_fds_and_threads_of_the_process_are_as_before() -> None:
    def counts() -> tuple[int, int]:
        # The count includes threads of the driver: every stream of the stand-in has one.
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def cycle() -> None:
        with rig() as at:
            gate_there, gate = at.semaphore()
            there, here = at.semaphore(BINARY)
            _memory, imported = at.memory(SIZE)
            buffer, staging = imported.map_buffer(), at.here.host_buffer(64)
            commands = at.here.create_command_list()
            commands.append_wait(gate, 1)
            commands.append_fill(buffer, b"\x01")
            commands.append_signal(here)
            for each in (gate, here, buffer, staging):
                each.release()
            gate_there.host_signal(1)
            there.host_wait(timeout_s=BOUND_S)

    # This device keeps the primary context alive. The end of the context would free all its objects.
    with xsem.open_device("cuda:0"):
        before = counts()
        for _ in range(20):
            cycle()
        # The count is lower if a stream's thread of an earlier test ends meanwhile.
        until(lambda: all(now <= then for now, then in zip(counts(), before, strict=True)))


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
    mark("end")
cuda.release()
host.release()
""", tmp_path / "log")
    marks = ["import of a semaphore", "free of a semaphore", "import of memory", "mapping", "free of memory", "end"]
    parts = {begin: calls_between(calls, begin, end) for begin, end in itertools.pairwise(marks)}

    def in_context(call: str) -> list[str]:
        inside = [EXCHANGE, call, EXCHANGE]
        return ["cuCtxGetCurrent", *inside] if current else ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", *inside,
                                                             "cuCtxPopCurrent_v2"]

    assert parts["import of a semaphore"] == in_context("cuImportExternalSemaphore")
    assert parts["free of a semaphore"] == [EXCHANGE, "cuDestroyExternalSemaphore", EXCHANGE]
    assert parts["import of memory"] == in_context("cuImportExternalMemory")
    assert parts["mapping"] == in_context("cuExternalMemoryGetMappedBuffer")
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


# ---- processes
def exporter(descriptor: int) -> None:
    """Export a timeline, in a process that the test kills."""
    with socket.socket(fileno=descriptor) as sock, xsem.open_device("host") as host:
        semaphore = host.create_semaphore(TIMELINE)
        with semaphore.export() as desc:
            ipc.send(sock, desc)
        sock.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)


@on_stand_in
def test_semaphore_outlives_its_killed_exporter() -> None:
    ours, theirs = socket.socketpair()
    with xsem.open_device("cuda:0") as cuda, ours:
        child = subprocess.Popen(
            [sys.executable, "-c",
             "import sys; from backends.cuda import test_facade as t; t.exporter(int(sys.argv[1]))",
             str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env={**os.environ, "PYTHONPATH": str(TESTS)})
        theirs.close()
        with ipc.receive(ours, timeout_s=BOUND_S) as message:
            (desc,) = message.semaphores
            semaphore = cuda.import_semaphore(desc)
        waiting, done = cuda.create_command_list(), cuda.create_event()
        waiting.append_wait(semaphore, 5, signal_event=done)
        ours.send(b"x")
        assert child.wait(BOUND_S) == -signal.SIGKILL
        with pytest.raises(xsem.WaitTimeoutError):
            waiting.synchronize(timeout_s=0.05)
        assert not done.query()
        cuda.create_command_list().append_signal(semaphore, 5)
        done.wait(timeout_s=BOUND_S)


@on_stand_in
def test_forked_child_is_refused_and_its_end_is_harmless() -> None:
    with rig() as at:
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        commands.append_wait(here, 1)
        child = multiprocessing.get_context("fork").Process(target=in_child, args=(at, here, commands))
        child.start()
        child.join(BOUND_S)
        assert child.exitcode == 0
        child.close()
        commands.append_signal(here, 2)
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)


def in_child(at: Pair, here: xsem.Semaphore, commands: xsem.CommandList) -> None:
    for call in (lambda: commands.append_signal(here, 9), at.here.create_command_list, commands.query):
        with pytest.raises(xsem.XsemError) as caught:
            call()
        assert caught.value.reason == "forked"
    for each in (here, commands, at.here):
        each.release()


def test_ctrl_c_ends_the_waiting_and_not_the_work() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT + """
from support.at_once import ctrl_c_in
there, here = semaphore()
commands = cuda.create_command_list()
commands.append_wait(here, 1)
try:
    with ctrl_c_in("wait_in_slices"):
        commands.synchronize(timeout_s=None)
except KeyboardInterrupt:
    print("interrupted")
there.host_signal(1)
commands.synchronize(timeout_s=20)
print("done")
cuda.release()
host.release()
"""], env=stand_in_environment(PYTHONPATH=os.pathsep.join(sys.path)), capture_output=True, text=True, timeout=50,
        check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted\ndone\n", "")
