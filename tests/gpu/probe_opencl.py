"""Print as JSON what an OpenCL driver does with another API's semaphores and memory, with a process for each question.

    python tests/gpu/probe_opencl.py [--device opencl:0] [--exporter vulkan] [--only NAME …] > opencl.json

The answers are facts, not verdicts. The backend and docs/opencl.md may rely on them. On the simulated device, with the
host device as the exporter, the program also runs, but the answers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p, create_string_buffer
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xsem
from xsem.plugins import registry
from xsem.spi import same_open_file
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_opencl import cl
from xsem_opencl.core import array, properties

SIZE = 1 << 20
LIMIT_S = 90.0
BLOCKED_S = 1.0   # far above the cost of a call
BINARY, MEMORY = SemaphoreHandleType.OPAQUE_FD, MemoryHandleType.OPAQUE_FD


class Rig:
    """The exporter, and the backend's driver object with its functions."""

    def __init__(self, args: argparse.Namespace) -> None:
        backend: Any = registry().get("opencl")
        index = int(args.device.rpartition(":")[2])
        self.info = backend.devices()[index]
        self.details = backend.details(index)
        self.driver: Any = backend.open(index)
        self.core = self.driver._core
        self.api = self.core.api
        choice: dict[str, Any] = {} if args.exporter == "host" else {"uuid": self.info.uuid}
        self.exporter = xsem.open_device(args.exporter, **choice)
        self.binary_from_host = args.exporter == "host"
        self._signals = self.exporter.create_command_list()

    def close(self) -> None:
        self.exporter.release()

    # ---- objects
    def fd(self, there: xsem.Semaphore | xsem.Memory) -> int:
        handle = there.export().handle
        assert isinstance(handle, OwnedHandle)
        return handle.detach()

    def semaphore(self) -> tuple[xsem.Semaphore, int]:
        """Return a semaphore of the exporter, and its import as a cl_semaphore_khr."""
        there = self.exporter.create_semaphore(BINARY)
        return there, self.import_semaphore(self.fd(there))

    def import_semaphore(self, fd: int) -> int:
        made: int = self.api.make("clCreateSemaphoreWithPropertiesKHR", self.core.context, properties(
            cl.SEMAPHORE_TYPE, cl.SEMAPHORE_TYPE_BINARY, BINARY.native["opencl"][1], fd))
        return made

    def import_memory(self, fd: int, size: int = SIZE) -> int:
        made: int = self.api.make("clCreateBufferWithProperties", self.core.context,
                                  properties(MEMORY.native["opencl"][1], fd), cl.MEM_READ_WRITE, size, None)
        return made

    def signal(self, there: xsem.Semaphore) -> None:
        """Have the exporter signal."""
        if self.binary_from_host:
            there.host_signal()
        else:
            self._signals.append_signal(there)

    # ---- queues
    def queue(self) -> int:
        made: int = self.core.create_queue()
        return made

    def wait(self, queue: int, semaphore: int, events: tuple[int, ...] = (), *, event: bool = False) -> int:
        return self._enqueue("clEnqueueWaitSemaphoresKHR", queue, semaphore, events, event=event)

    def note_signal(self, queue: int, semaphore: int, events: tuple[int, ...] = (), *, event: bool = False) -> int:
        return self._enqueue("clEnqueueSignalSemaphoresKHR", queue, semaphore, events, event=event)

    def _enqueue(self, name: str, queue: int, semaphore: int, events: tuple[int, ...], *, event: bool) -> int:
        made = c_void_p()
        self.api.do(name, queue, 1, array([semaphore]), None, len(events), array(list(events)),
                    byref(made) if event else None)
        self.core.flush(queue)
        return made.value or 0

    def marker(self, queue: int, events: tuple[int, ...] = ()) -> int:
        made = c_void_p()
        self.api.do("clEnqueueBarrierWithWaitList", queue, len(events), array(list(events)), byref(made))
        self.core.flush(queue)
        return made.value or 0

    def reached(self, event: int, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while (status := self.api.number("clGetEventInfo", event, cl.EVENT_COMMAND_EXECUTION_STATUS)) != 0:
            if status > 0x7FFFFFFF:
                raise RuntimeError(f"status {status - (1 << 32)}")
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    @contextmanager
    def unmet_wait(self) -> Iterator[int]:
        """Yield a queue that waits; the wait is met at the end."""
        there, here = self.semaphore()
        queue = self.queue()
        self.wait(queue, here)
        try:
            yield queue
        finally:
            self.signal(there)
            assert self.reached(self.marker(queue), 20), "the wait was not met"


def timed(call: Callable[[], Any]) -> list[Any]:
    """Return the seconds, and the result or the error of the call."""
    began = time.monotonic()
    try:
        found = call()
    except Exception as error:   # an error is an answer too
        found = f"{type(error).__name__}: {error}"
    return [round(time.monotonic() - began, 4), found]


def held(call: Callable[[], Any], let_go: Callable[[], None]) -> dict[str, Any]:
    """Return whether the call blocks its thread until `let_go`, and its result after that."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(timed(call)), daemon=True)
    thread.start()
    thread.join(BLOCKED_S)
    blocked = thread.is_alive()
    let_go()
    thread.join(20)
    return {"blocked": blocked, "ended": not thread.is_alive(), "seconds, result": found[0] if found else None}


QUESTIONS: dict[str, Callable[[Rig], Any]] = {}


def question(function: Callable[[Rig], Any]) -> Callable[[Rig], Any]:
    QUESTIONS[function.__name__] = function
    return function


# ---- identity of the device
@question
def device(at: Rig) -> Any:
    """Return the device's description, and the driver UUIDs of both APIs for a comparison."""
    return {"info": str(at.info), "details": dict(at.details), "capabilities": str(at.driver.capabilities),
            "exporter": str(at.exporter.info), "exporter_driver_uuid": str(at.exporter.info.driver_uuid)}


@question
def functions(at: Rig) -> Any:
    """Return which functions of the extensions and of the loader exist."""
    return {name: at.api.find(name) is not None for name in sorted(cl.PROTOTYPES)}


@question
def not_exportable(at: Rig) -> Any:
    """Return the code for a semaphore for export on a device without exports."""
    return timed(lambda: at.api.make("clCreateSemaphoreWithPropertiesKHR", at.core.context, properties(
        cl.SEMAPHORE_TYPE, cl.SEMAPHORE_TYPE_BINARY, cl.SEMAPHORE_EXPORT_HANDLE_TYPES, BINARY.native["opencl"][1], 0)))


# ---- file descriptors
def _fate(at: Rig, fd: int, make: Callable[[int], int], release: Callable[[int], None]) -> Any:
    kept = os.dup(fd)
    made = make(fd)
    after_import = same_open_file(kept, fd)
    other = None
    if after_import:
        # Does the driver still use the number? Another file gets the number. If the release closes that file, the
        # driver still used the number.
        other = os.open("/dev/null", os.O_RDONLY)
        os.dup2(other, fd)
    release(made)
    found: dict[str, Any] = {"the number is open after the import": after_import}
    if other is not None:
        found["a file that got the number is left alone by the release"] = same_open_file(other, fd)
    return found


@question
def fd_of_a_semaphore(at: Rig) -> Any:
    """Return the fate of the number."""
    return _fate(at, at.fd(at.exporter.create_semaphore(BINARY)), at.import_semaphore,
                 lambda made: at.api.do("clReleaseSemaphoreKHR", made))


@question
def fd_of_memory(at: Rig) -> Any:
    """Return the fate of the number."""
    return _fate(at, at.fd(at.exporter.create_memory(MEMORY, SIZE)), at.import_memory,
                 lambda made: at.api.do("clReleaseMemObject", made))


@question
def fd_left_open_until_release(at: Rig) -> Any:
    """Does the release of memory close the number that stays open after the import?"""
    fd = at.fd(at.exporter.create_memory(MEMORY, SIZE))
    kept = os.dup(fd)
    made = at.import_memory(fd)
    at.api.do("clReleaseMemObject", made)
    return {"open after the release": same_open_file(kept, fd)}


@question
def fds_refused(at: Rig) -> Any:
    """Return the codes for files that the exporter did not make, and whether the number is still open."""
    read, write = os.pipe()
    kinds = {"pipe": read, "eventfd": os.eventfd(0), "memfd": os.memfd_create("probe"),
             "/dev/null": os.open("/dev/null", os.O_RDWR)}
    os.ftruncate(kinds["memfd"], SIZE)
    found: dict[str, Any] = {}
    for name, fd in kinds.items():
        for what, make in (("semaphore", at.import_semaphore), ("memory", at.import_memory)):
            given = os.dup(fd)
            answer = timed(lambda make=make, given=given: make(given))   # type: ignore[misc]
            found[f"{name} as {what}"] = [*answer, "open" if same_open_file(fd, given) else "closed"]
    for what, make in (("semaphore", at.import_semaphore), ("memory", at.import_memory)):
        found[f"-1 as {what}"] = timed(lambda make=make: make(-1))   # type: ignore[misc]
    os.close(write)
    memory = at.fd(at.exporter.create_memory(MEMORY, SIZE))
    found["semaphore's fd as memory"] = timed(lambda: at.import_memory(at.fd(at.exporter.create_semaphore(BINARY))))
    found["memory's fd as semaphore"] = timed(lambda: at.import_semaphore(memory))
    for name, size in (("16 times the size", 16 * SIZE), ("half the size", SIZE // 2), ("size 0", 0)):
        found[name] = timed(lambda size=size: at.import_memory(  # type: ignore[misc]
            at.fd(at.exporter.create_memory(MEMORY, SIZE)), size))
    return found


@question
def fds_after_many_imports(at: Rig) -> Any:
    """Import 300 times each as the backend does: return the open files before and after."""
    def number() -> int:
        return len(os.listdir("/proc/self/fd"))

    there, memory = at.exporter.create_semaphore(BINARY), at.exporter.create_memory(MEMORY, SIZE)
    found: dict[str, Any] = {}
    for what in ("semaphore", "memory"):
        counts = []
        for turn in range(301):
            if turn in (1, 300):
                counts.append(number())
            handle = OwnedHandle(at.fd(there if what == "semaphore" else memory))
            if what == "semaphore":
                made = at.driver.import_semaphore(SemaphoreDesc.opaque_fd(handle, device_uuid=None), handle)
                at.driver.release_semaphore(made.token)
            else:
                made = at.driver.import_memory(MemoryDesc.opaque_fd(
                    handle, allocation_size=memory.allocation_size, device_uuid=None), handle)
                at.driver.release_memory(made.token)
            if made.handle == "taken":
                handle.detach()
            handle.close()
        found[what] = counts
    return found


# ---- waits
@question
def wait_before_signal(at: Rig) -> Any:
    """Is the wait pending before the signal and met after it, and is a second wait pending after one signal?"""
    there, here = at.semaphore()
    queue = at.queue()
    first, second = at.wait(queue, here, event=True), at.wait(queue, here, event=True)
    found = {"pending before the signal": not at.reached(first, 0.2)}
    at.signal(there)
    found["met by the signal"] = at.reached(first, 10)
    found["the next one is pending"] = not at.reached(second, 0.2)
    at.signal(there)
    found["and met by the next signal"] = at.reached(second, 10)
    return found


def _most(at: Rig, append: Callable[[int], Any], limit: int = 5000) -> Any:
    """Count the appends behind an unmet wait that return at once, on a thread that may block."""
    there, here = at.semaphore()
    queue = at.queue()
    at.wait(queue, here)
    count = [0]
    slow: list[float] = []

    def work() -> None:
        for _ in range(limit):
            began = time.monotonic()
            append(queue)
            if time.monotonic() - began > BLOCKED_S / 2:
                slow.append(count[0])
            count[0] += 1

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    last = -1
    while thread.is_alive() and count[0] != last:
        last = count[0]
        thread.join(BLOCKED_S)
    at_once, blocked = count[0], thread.is_alive()
    at.signal(there)
    thread.join(30)
    met = at.reached(at.marker(queue), 30) if not thread.is_alive() else False
    return {"returned at once": at_once, "then one blocked": blocked, "slow ones": slow[:5],
            "all done after the signal": met}


@question
def appends_of_barriers(at: Rig) -> Any:
    """Count barriers behind an unmet wait."""
    return _most(at, lambda queue: (at.api.do("clEnqueueBarrierWithWaitList", queue, 0, None, None),
                                    at.core.flush(queue)))


@question
def appends_of_barriers_with_events(at: Rig) -> Any:
    """Count barriers behind an unmet wait, each with an event."""
    return _most(at, at.marker)


@question
def appends_of_signals(at: Rig) -> Any:
    """Count signals of another semaphore behind an unmet wait."""
    there, here = at.semaphore()
    found = _most(at, lambda queue: at.note_signal(queue, here), limit=3000)
    del there
    return found


@question
def appends_of_fills(at: Rig) -> Any:
    """Count calls of clEnqueueFillBuffer behind an unmet wait."""
    memory = at.import_memory(at.fd(at.exporter.create_memory(MEMORY, SIZE)))
    zero = create_string_buffer(b"\0" * 4, 4)
    return _most(at, lambda queue: (at.api.do("clEnqueueFillBuffer", queue, memory, zero, 4, 0, SIZE, 0, None, None),
                                    at.core.flush(queue)))


@question
def independent_queues(at: Rig) -> Any:
    """Does another queue make progress while a number of queues wait?"""
    found: dict[str, Any] = {}
    for number in (1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 40, 64):
        free, waiting = at.queue(), []
        for _ in range(number):
            there, here = at.semaphore()
            queue = at.queue()
            at.wait(queue, here)
            waiting.append((there, queue))
        goes_on = at.reached(at.marker(free), BLOCKED_S)
        late = at.queue()
        new_goes_on = at.reached(at.marker(late), BLOCKED_S)
        for there, _ in waiting:
            at.signal(there)
        met = all(at.reached(at.marker(queue), 20) for _, queue in waiting)
        found[str(number)] = {"an older one": goes_on, "a newer one": new_goes_on, "all met": met}
        if not met:
            break
    return found


# ---- blocking calls
@question
def behind_an_unmet_wait(at: Rig) -> Any:
    """Does each call return while another queue waits?"""
    api, core = at.api, at.core
    zero = create_string_buffer(b"\0" * 4, 4)

    def host_buffer() -> None:
        at.driver.release_host_buffer(at.driver.host_buffer(SIZE)[0])

    found: dict[str, Any] = {}

    def ask(name: str, prepare: Callable[[], Callable[[int], Any]]) -> None:
        there, here = at.semaphore()
        call = prepare()
        queue = at.queue()
        at.wait(queue, here)
        found[name] = held(lambda: bool(call(queue)) and None, lambda: at.signal(there))
        assert at.reached(at.marker(queue), 20)

    def idle_semaphore() -> Callable[[int], Any]:
        _, other = at.semaphore()
        return lambda _: api.do("clReleaseSemaphoreKHR", other)

    def idle_memory() -> Callable[[int], Any]:
        memory = at.import_memory(at.fd(at.exporter.create_memory(MEMORY, SIZE)))
        return lambda _: api.do("clReleaseMemObject", memory)

    def used_memory() -> Callable[[int], Any]:
        memory, queue = at.import_memory(at.fd(at.exporter.create_memory(MEMORY, SIZE))), at.queue()
        api.do("clEnqueueFillBuffer", queue, memory, zero, 4, 0, SIZE, 0, None, None)
        assert at.reached(at.marker(queue), 20)
        return lambda _: api.do("clReleaseMemObject", memory)

    def ordinary_buffer() -> Callable[[int], Any]:
        memory, queue = api.make("clCreateBuffer", core.context, cl.MEM_READ_WRITE, SIZE, None), at.queue()
        api.do("clEnqueueFillBuffer", queue, memory, zero, 4, 0, SIZE, 0, None, None)
        assert at.reached(at.marker(queue), 20)
        return lambda _: api.do("clReleaseMemObject", memory)

    def idle_queue() -> Callable[[int], Any]:
        other = at.queue()
        return lambda _: api.do("clReleaseCommandQueue", other)

    def event() -> Callable[[int], Any]:
        made = at.marker(at.queue())
        return lambda _: api.do("clReleaseEvent", made)

    def read(pinned: bool, behind: bool) -> Callable[[], Callable[[int], Any]]:
        def prepare() -> Callable[[int], Any]:
            memory, own = at.import_memory(at.fd(at.exporter.create_memory(MEMORY, SIZE))), at.queue()
            data: NDArray[np.uint8] = np.zeros(SIZE, dtype="uint8")
            address = at.driver.host_buffer(SIZE)[1] if pinned else data.ctypes.data

            def call(waiting: int) -> Any:
                queue = waiting if behind else own
                api.do("clEnqueueReadBuffer", queue, memory, cl.CL_FALSE, 0, SIZE, address, 0, None, None)
                core.flush(queue)
                return data is None
            return call
        return prepare

    def write(pinned: bool) -> Callable[[], Callable[[int], Any]]:
        def prepare() -> Callable[[int], Any]:
            memory = at.import_memory(at.fd(at.exporter.create_memory(MEMORY, SIZE)))
            data: NDArray[np.uint8] = np.zeros(SIZE, dtype="uint8")
            address = at.driver.host_buffer(SIZE)[1] if pinned else data.ctypes.data

            def call(waiting: int) -> Any:
                api.do("clEnqueueWriteBuffer", waiting, memory, cl.CL_FALSE, 0, SIZE, address, 0, None, None)
                core.flush(waiting)
                return data is None
            return call
        return prepare

    ask("release of an idle semaphore", idle_semaphore)
    ask("release of imported memory", idle_memory)
    ask("release of imported memory that was used", used_memory)
    ask("release of an ordinary buffer", ordinary_buffer)
    ask("release of an event", event)
    ask("release of a queue", idle_queue)
    ask("a new queue", lambda: lambda _: at.queue())
    ask("a new context", lambda: lambda _: registry().get("opencl").open(at.info.index).close())
    ask("import of a semaphore", lambda: lambda _: at.semaphore())
    ask("import of memory", lambda: lambda _: at.import_memory(at.fd(at.exporter.create_memory(MEMORY, SIZE))))
    ask("page-locked host buffer, made and freed", lambda: lambda _: host_buffer())
    ask("ordinary buffer, made", lambda: lambda _: api.make("clCreateBuffer", core.context, cl.MEM_READ_WRITE, SIZE,
                                                            None))
    ask("read to page-locked memory, same queue", read(True, True))
    ask("read to page-locked memory, other queue", read(True, False))
    ask("read to ordinary memory, same queue", read(False, True))
    ask("write from page-locked memory, same queue", write(True))
    ask("write from ordinary memory, same queue", write(False))
    ask("clGetEventInfo of a pending event", lambda: lambda queue: api.number(
        "clGetEventInfo", at.marker(queue), cl.EVENT_COMMAND_EXECUTION_STATUS) and None)
    return found


@question
def others_while_one_thread_is_in_finish(at: Rig) -> Any:
    """Do calls of another thread block while one thread waits in clFinish behind an unmet wait?"""
    import pyopencl

    there, here = at.semaphore()
    queue, other = at.queue(), at.queue()
    at.wait(queue, here)
    borrowed = pyopencl.CommandQueue.from_int_ptr(queue)
    finish = threading.Thread(target=borrowed.finish, daemon=True)
    finish.start()
    time.sleep(0.1)
    found = held(lambda: at.reached(at.marker(other), 0.5), lambda: at.signal(there))
    finish.join(20)
    return found | {"clFinish ended": not finish.is_alive()}


@question
def user_event_in_a_list(at: Rig) -> Any:
    """Does the caller block with an event that the host sets, in the wait list of each kind of command?"""
    import pyopencl

    context = pyopencl.Context.from_int_ptr(at.core.context)
    found: dict[str, Any] = {}

    def ask(name: str, call: Callable[[int, int], Any]) -> None:
        event = pyopencl.UserEvent(context)
        queue = at.queue()
        found[name] = held(lambda: bool(call(queue, event.int_ptr)) and None,
                           lambda: event.set_status(pyopencl.command_execution_status.COMPLETE))
        assert at.reached(at.marker(queue), 20)

    met_there, met = at.semaphore()
    at.signal(met_there)
    _, signalled = at.semaphore()
    ask("barrier", lambda queue, event: at.marker(queue, (event,)))
    ask("wait for a semaphore that is signalled", lambda queue, event: at.wait(queue, met, (event,)))
    ask("signal", lambda queue, event: at.note_signal(queue, signalled, (event,)))
    return found


@question
def event_of_a_held_queue_in_a_list(at: Rig) -> Any:
    """Does the caller block with an event of a command behind an unmet wait, in each kind of command's list?"""
    found: dict[str, Any] = {}

    def ask(name: str, call: Callable[[int, int], Any]) -> None:
        there, here = at.semaphore()
        waiting, queue = at.queue(), at.queue()
        at.wait(waiting, here)
        event = at.marker(waiting)
        found[name] = held(lambda: bool(call(queue, event)) and None, lambda: at.signal(there))
        assert at.reached(at.marker(queue), 20)

    met_there, met = at.semaphore()
    at.signal(met_there)
    _, signalled = at.semaphore()
    ask("barrier", lambda queue, event: at.marker(queue, (event,)))
    ask("wait for a semaphore that is signalled", lambda queue, event: at.wait(queue, met, (event,)))
    ask("signal", lambda queue, event: at.note_signal(queue, signalled, (event,)))
    return found


# ---- memory
@question
def mapping_of_imported_memory(at: Rig) -> Any:
    """Try sub-buffers of imported memory with an acquire, and images."""
    memory = at.import_memory(at.fd(at.exporter.create_memory(MEMORY, SIZE)))
    api, queue = at.api, at.queue()
    found: dict[str, Any] = {
        "alignment in bytes": api.number("clGetDeviceInfo", at.core.device, cl.DEVICE_MEM_BASE_ADDR_ALIGN) // 8}

    def sub(origin: int) -> int:
        region = cl.Region(origin, 4096)
        made: int = api.make("clCreateSubBuffer", memory, 0, cl.BUFFER_CREATE_TYPE_REGION, byref(region))
        return made

    for origin in (0, 256, 512, 4096, 12345):
        found[f"sub-buffer at {origin}"] = timed(lambda origin=origin: sub(origin) > 0)   # type: ignore[misc]
    part = sub(4096)
    for name, handle in (("memory", memory), ("sub-buffer", part)):
        for function in ("clEnqueueAcquireExternalMemObjectsKHR", "clEnqueueReleaseExternalMemObjectsKHR"):
            found[f"{function} of the {name}"] = timed(
                lambda function=function, handle=handle: api.do(  # type: ignore[misc]
                    function, queue, 1, array([handle]), 0, None, None))
    ordinary = api.make("clCreateBuffer", at.core.context, cl.MEM_READ_WRITE, SIZE, None)
    found["acquire of an ordinary buffer"] = timed(lambda: api.do(
        "clEnqueueAcquireExternalMemObjectsKHR", queue, 1, array([ordinary]), 0, None, None))
    for name, pitch in (("image, pitch 0", 0), ("image, its own pitch", 64 * 4)):
        format_, desc = cl.ImageFormat(0x10B5, 0x10DA), cl.ImageDesc(type=0x10F1, width=64, height=32, depth=1,
                                                                    array_size=1, row_pitch=pitch)
        fd = at.fd(at.exporter.create_memory(MEMORY, SIZE))
        found[name] = timed(lambda format_=format_, desc=desc, fd=fd: api.make(  # type: ignore[misc]
            cl.CREATE_IMAGE, at.core.context, properties(MEMORY.native["opencl"][1], fd), cl.MEM_READ_WRITE,
            byref(format_), byref(desc), None) > 0)
    return found


@question
def cost_of_calls(at: Rig) -> Any:
    """Return the microseconds for a signal and its wait, in pairs of a thousand, with and without clFlush."""
    _, here = at.semaphore()
    queue = at.queue()
    found = {}
    for name, flush in (("with clFlush", True), ("without", False)):
        began = time.perf_counter()
        for _ in range(1000):
            for function in ("clEnqueueSignalSemaphoresKHR", "clEnqueueWaitSemaphoresKHR"):
                at.api.do(function, queue, 1, array([here]), None, 0, None, None)
                if flush:
                    at.core.flush(queue)
        found[name] = round((time.perf_counter() - began) * 1e6 / 2000, 2)
        assert at.reached(at.marker(queue), 20)
    return found


# ---- run the questions
def answer(args: argparse.Namespace) -> int:
    at = Rig(args)
    print(json.dumps(QUESTIONS[args.ask](at)), flush=True)
    os._exit(0)   # pending work and the driver's threads do not matter


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--exporter", default="vulkan")
    parser.add_argument("--only", nargs="*", choices=sorted(QUESTIONS))
    parser.add_argument("--ask", choices=sorted(QUESTIONS), help="one question, in this process")
    args = parser.parse_args()
    if args.ask:
        return answer(args)
    found: dict[str, Any] = {}
    for name in args.only or QUESTIONS:
        command = [sys.executable, __file__, "--device", args.device, "--exporter", args.exporter, "--ask", name]
        try:
            ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
                                 check=False)
            last = ran.stdout.splitlines()[-1:] or [""]
            found[name] = json.loads(last[0]) if ran.returncode == 0 and last[0] else (
                f"ended with {ran.returncode}: {ran.stderr[-1500:]}")
        except subprocess.TimeoutExpired as late:
            found[name] = f"no end after {LIMIT_S:g} s: {str(late.stderr)[-500:]}"
        print(f"{name}: {json.dumps(found[name])[:300]}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
