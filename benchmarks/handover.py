"""Measure how two processes hand a value back and forth on GPUs, by five ways in one run.

    python benchmarks/handover.py --devices cuda:0 cuda:1 --json out.json
    tests/drivers/run cuda -- python benchmarks/handover.py --count 80 --exporter host   # a smoke test on the stand-in

A CUDA MPS server, where one runs (nvidia-cuda-mps-control -d), lets both processes use the GPU at the same time.

A signals 1 and waits for 2, B waits for 1 and signals 2, and so on: first alone, then with a small work before each
signal, which sets 4 bytes. Work of two processes on one GPU takes turns, so a switch of the GPU is then part of each
hand-over. Both processes append a chunk of such pairs ahead, behind a closed gate. Two events of A measure the time of
the GPU from the opening of the gate to the end of the chunk.
The figure of a chunk is this time by the number of its hand-overs; p50 and p99 are over the chunks.

- xsem: a timeline in host memory (HOST_TIMELINE_FD), by command lists of xsem
- by hand: the same page, by cuMemHostRegister, cuStreamWaitValue64 and cuStreamWriteValue64 of cuda.bindings
- external timeline: created by the device's companion_exporter(), which is Vulkan, imported by both, by command lists
- CUDA IPC events by hand: an event of each process, opened by the other one. A wait for an event is one for its last
  record, so each process polls a word in shared memory until the other has appended that record
- host flags by hand: each process synchronises an event, then writes a word that the other one polls

In the last two, the processes are part of each hand-over, so their gate is open before the chunk is appended.

After each chunk, both processes compare the value with the one that the chunk ends with, where they can read it. Exit
status 1: a value was wrong, or the deadline passed; 3: a CUDA device with timelines in host memory does not exist.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import importlib
import json
import mmap
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import xsem
from bench.hand_over_ways import BY_HAND, EXTERNAL, FLAGS, IPC_EVENTS, XSEM
from bench.timing import interleaved, percentiles
from xsem.spi import compiled
from xsem.types import SemaphoreHandleType

HOST_TIMELINE: Final = SemaphoreHandleType.HOST_TIMELINE_FD
VALUE_AT: Final = 16
BY_HOSTS = (IPC_EVENTS, FLAGS)
# Bytes of the shared words: a value of each process, whether its event is there, and the handles of the events.
HANDLES_AT, EVENT_HANDLE = 32, 64
Words64 = ctypes.Array[ctypes.c_uint64]
NOT_TRIED: Final = 3
DEADLINE_S: Final = 900


def driver() -> Any:
    """Return the module of cuda.bindings, which the run without a device does not need."""
    return importlib.import_module("cuda.bindings.driver")


def ask(function: Callable[..., Any], *args: Any) -> Any:
    """Make a call of cuda.bindings, for set-up and synchronisation."""
    code, *results = function(*args)
    if int(code):
        raise RuntimeError(f"{function.__name__}: {code!r}")
    return results[0] if len(results) == 1 else results


class Side(Protocol):
    """One process's side of a hand-over: appends to one stream."""

    stream: int

    def signal(self, value: int) -> None: ...
    def wait(self, value: int) -> None: ...


class Lists:
    """A timeline of xsem, on a command list."""

    def __init__(self, device: xsem.Device, semaphore: xsem.Semaphore) -> None:
        self._semaphore = semaphore
        self._commands = device.create_command_list()
        self.stream = self._commands.native_handle or 0

    def signal(self, value: int) -> None:
        self._commands.append_signal(self._semaphore, value)

    def wait(self, value: int) -> None:
        self._commands.append_wait(self._semaphore, value)


class Words:
    """A page that this process registers itself, on a stream of its own."""

    def __init__(self, desc: xsem.SemaphoreDesc) -> None:
        cu = driver()
        fd: Any = desc.handle
        self._map = mmap.mmap(fd.fileno(), 4096)
        self._start = start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        flags = int(cu.CU_MEMHOSTREGISTER_PORTABLE) | int(cu.CU_MEMHOSTREGISTER_DEVICEMAP)
        ask(cu.cuMemHostRegister, start, 4096, flags)
        self.word = cu.CUdeviceptr(int(ask(cu.cuMemHostGetDevicePointer, start, 0)) + VALUE_AT)
        self._native = ask(cu.cuStreamCreate, int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.stream = int(self._native)
        self._write, self._wait = cu.cuStreamWriteValue64, cu.cuStreamWaitValue64
        self._geq = int(cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)

    def signal(self, value: int) -> None:
        code, = self._write(self._native, self.word, value, 0)
        if code:
            raise RuntimeError(repr(code))

    def wait(self, value: int) -> None:
        code, = self._wait(self._native, self.word, value, self._geq)
        if code:
            raise RuntimeError(repr(code))

    def close(self) -> None:
        """Unregister the page. No wait of the device is unmet."""
        ask(driver().cuMemHostUnregister, self._start)


class Polled:
    """Words that both hosts poll, and an event of this process: the flags, or with the other's event the IPC events."""

    def __init__(self, words: Words64, mine: int, *, ipc: bool) -> None:
        cu = driver()
        self._words, self._mine, self._other = words, mine, 1 - mine
        self._native = ask(cu.cuStreamCreate, int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.stream = int(self._native)
        flags = cu.CUevent_flags.CU_EVENT_DISABLE_TIMING | (cu.CUevent_flags.CU_EVENT_INTERPROCESS if ipc else 0)
        self._event = ask(cu.cuEventCreate, int(flags))
        self._record, self._until, self._wait = cu.cuEventRecord, cu.cuEventSynchronize, cu.cuStreamWaitEvent
        self._theirs = self._opened() if ipc else None

    def _opened(self) -> Any:
        """Exchange the handles of the events, and return the other process's event."""
        cu, size = driver(), EVENT_HANDLE
        handle = ask(cu.cuIpcGetEventHandle, self._event)
        start = ctypes.addressof(self._words) + HANDLES_AT
        ctypes.memmove(start + size * self._mine, bytes(handle.reserved), size)
        self._words[2 + self._mine] = 1
        while not self._words[2 + self._other]:
            time.sleep(0.001)
        theirs = cu.CUipcEventHandle()
        theirs.reserved = ctypes.string_at(start + size * self._other, size)
        return ask(cu.cuIpcOpenEventHandle, theirs)

    def signal(self, value: int) -> None:
        code, = self._record(self._event, self._native)
        if not code and self._theirs is None:
            code, = self._until(self._event)
        if code:
            raise RuntimeError(repr(code))
        self._words[self._mine] = value

    def wait(self, value: int) -> None:
        while self._words[self._other] < value:
            pass
        if self._theirs is not None:
            code, = self._wait(self._native, self._theirs, 0)
            if code:
                raise RuntimeError(repr(code))


@contextlib.contextmanager
def side(way: str, device: xsem.Device, desc: xsem.SemaphoreDesc, words: Words64, mine: int) -> Iterator[Side]:
    """Open a side of this way, in the device's context, which is current in the block."""
    cu = driver()
    ask(cu.cuCtxPushCurrent, cu.CUcontext(device.native_handle))
    try:
        if way == BY_HAND:
            with contextlib.closing(Words(desc)) as here:
                yield here
        elif way in BY_HOSTS:
            yield Polled(words, mine, ipc=way == IPC_EVENTS)
        else:
            yield Lists(device, device.import_semaphore(desc))
    finally:
        ask(cu.cuCtxPopCurrent)


def work_on(stream: int, works: bool) -> Callable[[int], None]:
    """Return a function that appends a small work, which writes 4 bytes to memory of this process, or nothing."""
    if not works:
        return lambda value: None
    cu = driver()
    target, native, write = ask(cu.cuMemAlloc, 4), cu.CUstream(stream), cu.cuMemsetD32Async

    def work(value: int) -> None:
        code, = write(target, value, 1, native)
        if code:
            raise RuntimeError(repr(code))

    return work


def chunks(count: int, most: int) -> list[int]:
    """Return the pairs of each chunk. A pair is two hand-overs."""
    pairs = max(1, count // 2)
    return [min(most, pairs - begin) for begin in range(0, pairs, most)]


def answer(
    way: str, works: bool, name: str, desc: xsem.SemaphoreDesc, ready: xsem.SemaphoreDesc, words: Words64,
    sizes: list[int],
) -> None:
    """Be process B."""
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    with xsem.open_device("host") as host, xsem.open_device(name) as device, side(way, device, desc, words, 1) as here:
        cu, at, ahead, work = driver(), 0, host.import_semaphore(ready), work_on(here.stream, works)
        seen = host.import_semaphore(desc) if way in (XSEM, BY_HAND) else None
        for number, pairs in enumerate(sizes, 1):
            for value in range(at + 1, at + 2 * pairs, 2):
                here.wait(value)
                work(value)
                here.signal(value + 1)
            at += 2 * pairs
            ahead.host_signal(number)
            ask(cu.cuStreamSynchronize, cu.CUstream(here.stream))
            if seen is not None and seen.value() != at:
                os._exit(1)
        os._exit(0)   # without the releases, which a later failure of A could block


def hand_over(
    way: str, works: bool, names: list[str], made: xsem.Semaphore, device: xsem.Device, host: xsem.Device,
    sizes: list[int],
) -> list[float]:
    """Be process A, and return the microseconds of a hand-over in each chunk."""
    # xsem frees nothing while a wait is pending, but it does not know the waits of the gate and of the way by hand. The
    # driver would block a release among them, and with it each later call.
    while device.releasing():
        time.sleep(0.001)
    cu, gate, ready = driver(), device.create_timeline(), host.create_semaphore(HOST_TIMELINE)
    spawn = multiprocessing.get_context("spawn")
    words = spawn.RawArray(ctypes.c_uint64, (HANDLES_AT + 2 * EVENT_HANDLE) // 8)
    with made.export() as desc, ready.export() as started, made.export() as own, gate.export() as closed:
        process = spawn.Process(target=answer, daemon=True,
                                args=(way, works, names[-1], desc, started, words, sizes))
        process.start()
        found, at = [], 0
        with side(way, device, own, words, 0) as here, contextlib.closing(Words(closed)) as opened:
            stream, work = cu.CUstream(here.stream), work_on(here.stream, works)
            events = [ask(cu.cuEventCreate, 0) for _ in range(2)]
            for number, pairs in enumerate(sizes, 1):
                ask(cu.cuStreamWaitValue64, stream, opened.word, number, 0)
                ask(cu.cuEventRecord, events[0], stream)
                if way in BY_HOSTS:
                    gate.host_signal(number)
                for value in range(at + 1, at + 2 * pairs, 2):
                    work(value)
                    here.signal(value)
                    here.wait(value + 1)
                ask(cu.cuEventRecord, events[1], stream)
                at += 2 * pairs
                ready.host_wait(number, timeout_s=DEADLINE_S)
                if way not in BY_HOSTS:
                    gate.host_signal(number)
                ask(cu.cuStreamSynchronize, stream)
                seen = words[1] if way in BY_HOSTS else made.value()
                if seen != at:
                    raise ValueError(f"{way}: the value is {seen} after a chunk that ends with {at}")
                found.append(1000 * float(ask(cu.cuEventElapsedTime, *events)) / (2 * pairs))
        process.join(60)
        if process.exitcode != 0:
            raise ValueError(f"{way}: the other process ended with {process.exitcode}")
    return found


# ---- latencies of the host
def latencies(device: xsem.Device, rounds: int) -> dict[str, dict[str, float]]:
    """Return microseconds: host_signal to the GPU, and the GPU to host_wait, and the CPU time of a waiting process."""
    asked, answered = device.create_timeline(), device.create_timeline()
    commands = device.create_command_list()
    results: dict[str, list[float]] = {"host_signal, GPU, value() in a loop": [], "host_signal, GPU, host_wait": [],
                                       "host_signal, GPU, query() of an event in a loop": [],
                                       "the same to host_wait, after 5 ms of waiting": []}
    value = 0
    for name, found in results.items():
        late = "5 ms" in name
        for _ in range(min(rounds, 200) if late else rounds):
            value += 1
            event = device.create_event()
            commands.append_wait(asked, value)
            commands.append_signal(answered, value, signal_event=event)
            began = [0]

            def ask_gpu(value: int = value, began: list[int] = began) -> None:
                began[0] = time.perf_counter_ns()
                asked.host_signal(value)

            if late:
                timer = threading.Timer(0.005, ask_gpu)
                timer.start()
            else:
                ask_gpu()
            if "value()" in name:
                while answered.value() < value:
                    pass
            elif "query()" in name:
                while not event.query():
                    pass
            else:
                answered.host_wait(value, timeout_s=DEADLINE_S)
            found.append((time.perf_counter_ns() - began[0]) / 1000)
            commands.synchronize(timeout_s=DEADLINE_S)
    figures = {name: percentiles(found) for name, found in results.items()}
    began_s, used_s = time.perf_counter(), time.process_time()
    with contextlib.suppress(xsem.WaitTimeoutError):
        answered.host_wait(value + 1, timeout_s=1)
    share = 100 * (time.process_time() - used_s) / (time.perf_counter() - began_s)
    figures["CPU of a process in an unmet host_wait, percent"] = {"p50": share, "p99": share}
    return figures


# ---- cost of an append
def appends(device: xsem.Device, external: xsem.Semaphore | None, calls: int) -> dict[str, dict[str, float]]:
    """Return microseconds of one append of a signal, by each way in turn."""
    cu = driver()
    word, value = device.create_timeline(), [0]
    ask(cu.cuCtxPushCurrent, cu.CUcontext(device.native_handle))
    with word.export() as desc:
        by_hand = Words(desc)
    stream = cu.CUstream(by_hand.stream)
    operation = cu.CUstreamBatchMemOpParams()
    operation.writeValue.operation = cu.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WRITE_VALUE_64
    operation.writeValue.address = by_hand.word
    lists = device.create_command_list()

    def written(number: int) -> None:
        by_hand.signal(number)

    def batched(number: int) -> None:
        operation.writeValue.value64 = number
        code, = cu.cuStreamBatchMemOp(stream, 1, [operation], 0)
        if code:
            raise RuntimeError(repr(code))

    ways: dict[str, tuple[Callable[[int], object], Callable[[], object]]] = {
        "xsem: append_signal of a timeline in host memory": (
            lambda number: lists.append_signal(word, number), lambda: lists.synchronize(timeout_s=DEADLINE_S)),
        "cuStreamWriteValue64": (written, lambda: ask(cu.cuStreamSynchronize, stream)),
        "cuStreamBatchMemOp": (batched, lambda: ask(cu.cuStreamSynchronize, stream)),
    }
    if external is not None:
        with external.export(for_device=device) as desc, external.export(for_device=device) as other:
            imported = device.import_semaphore(other)
            described: Any = cu.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
            described.type = cu.CUexternalSemaphoreHandleType(9)   # TIMELINE_SEMAPHORE_FD
            fd: Any = desc.handle
            described.handle.fd = os.dup(fd.fileno())
            native = ask(cu.cuImportExternalSemaphore, described)
        params = cu.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()
        fence = params.params.fence
        semaphores, structs = [native], [params]

        def signalled(number: int) -> None:
            fence.value = number
            code, = cu.cuSignalExternalSemaphoresAsync(semaphores, structs, 1, stream)
            if code:
                raise RuntimeError(repr(code))

        others = device.create_command_list()
        ways["xsem: append_signal of an external timeline"] = (
            lambda number: others.append_signal(imported, number), lambda: others.synchronize(timeout_s=DEADLINE_S))
        ways["cuSignalExternalSemaphoresAsync, params reused"] = (
            signalled, lambda: ask(cu.cuStreamSynchronize, stream))

    def measured(call: Callable[[int], object], end: Callable[[], object]) -> Callable[[], float]:
        def once() -> float:
            first = value[0] + 1
            value[0] += calls
            began = time.perf_counter_ns()
            for number in range(first, first + calls):
                call(number)
            took = time.perf_counter_ns() - began
            end()
            return took / 1000 / calls

        return once

    figures = interleaved({name: measured(*each) for name, each in ways.items()}, 9)
    if word.value() > value[0]:
        raise ValueError("a value above all signals")
    ask(cu.cuCtxPopCurrent)
    return {name: {"p50": each.median, "p99": each.high} for name, each in figures.items()}


def exporter_of(device: xsem.Device, asked: str) -> xsem.Device | None:
    """Open the exporter of the external timeline; None, with a line, if it does not exist."""
    try:
        return device.companion_exporter() if asked == "companion" else xsem.open_device(asked)
    except xsem.XsemError as error:
        print(f"not measured: {EXTERNAL}: {error}")
        return None


def has_ipc_events(device: xsem.Device) -> bool:
    """Return whether the device's events can be opened by other processes. Print a line if not."""
    cu = driver()
    ask(cu.cuCtxPushCurrent, cu.CUcontext(device.native_handle))
    native = ask(cu.cuCtxGetDevice)
    ask(cu.cuCtxPopCurrent)
    code, found = cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, native)
    if code or not found:
        print(f"not measured: {IPC_EVENTS}: {device.info.id} has none")
    return not code and bool(found)


def show(title: str, figures: dict[str, dict[str, float]]) -> None:
    """Print the figures of one part."""
    print(title)
    for name, each in figures.items():
        print(f"  {name:<52} p50 {each['p50']:9.2f}   p99 {each['p99']:9.2f}")


def main() -> int:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="hand-overs of each way")
    parser.add_argument("--chunk", type=int, default=100, help="pairs that are appended ahead, at most 250")
    parser.add_argument("--devices", nargs="+", default=["cuda:0"], help="device of A, and of B")
    parser.add_argument("--exporter", default="companion", help="of the external timeline: companion, or a device")
    parser.add_argument("--commit", default="", help="of the tree, for the record")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    try:
        device = xsem.open_device(asked.devices[0])
    except xsem.XsemError as error:
        print(f"handover: {error}", file=sys.stderr)
        return NOT_TRIED
    if HOST_TIMELINE not in device.capabilities.semaphore_export:
        print(f"handover: {device.info.id} has no timelines in host memory", file=sys.stderr)
        return NOT_TRIED
    sizes = chunks(asked.count, min(asked.chunk, 250))
    found: dict[str, dict[str, dict[str, float]]] = {}
    host, exporter = xsem.open_device("host"), exporter_of(device, asked.exporter)
    if exporter is not None and exporter.info.uuid is not None and len(set(asked.devices)) > 1:
        print("handover: a timeline of one GPU cannot be imported on another one, so that way is left out")
        exporter.release()
        exporter = None
    try:
        ways = (XSEM, BY_HAND, *([EXTERNAL] if exporter is not None else []),
                *([IPC_EVENTS] if has_ipc_events(device) else []), FLAGS)
        for works, words in ((False, "signals alone"), (True, "with a small work")):
            for way in ways:
                maker = exporter if way == EXTERNAL and exporter is not None else device
                found.setdefault(words, {})[way] = percentiles(
                    hand_over(way, works, asked.devices, maker.create_timeline(), device, host, sizes))
            show(f"one hand-over between two processes, {words}, us ({', '.join(asked.devices)})", found[words])
        host_side = latencies(device, max(20, min(asked.count // 50, 2000)))
        show("round trips of the host, us", host_side)
        external = None if exporter is None else exporter.create_timeline()
        cost = appends(device, external, max(10, min(asked.count // 200, 500)))
        show("one append of a signal, us", cost)
    except ValueError as error:
        print(f"handover: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)   # a wait of the other process may be unmet for ever
    if asked.json is not None:
        asked.json.write_text(json.dumps({
            "schema": 2, "commit": asked.commit, "devices": asked.devices, "device": device.info.name,
            "driver": device.info.driver_version,
            "compiled": compiled(), "hand_overs": 2 * sum(sizes), "hand_over_us": found, "host_us": host_side,
            "append_us": cost}, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)   # the streams and events of the run end with the process


if __name__ == "__main__":
    raise SystemExit(main())
