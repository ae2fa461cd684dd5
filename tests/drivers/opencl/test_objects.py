"""The simulated OpenCL device: results of imports, ownership of fds, queries, memory, several devices."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p

import pytest
from support import opencl_raw as cl
from support.open_files import is_open
from support.opencl_rig import PAGE, TIMELINE, Rig, rig
from support.opencl_sim import on_opencl

from xsem.types import SemaphoreHandleType


def u64(value: bytes) -> int:
    return int.from_bytes(value, "little")


def pipe_of(at: Rig) -> int:
    read, write = os.pipe()
    at.fds += [read, write]
    return read


# ---- semaphores: results of their creation
@on_opencl
@pytest.mark.parametrize(("properties", "code"), [
    ((), cl.INVALID_VALUE),
    ((cl.TYPE, 2), cl.INVALID_PROPERTY),
    ((cl.TYPE, cl.BINARY, cl.TYPE, cl.BINARY), cl.INVALID_PROPERTY),
    ((cl.TYPE, cl.BINARY, 0x9999, 1), cl.INVALID_PROPERTY),
    ((cl.TYPE, cl.BINARY, cl.EXPORT_TYPES, cl.OPAQUE_FD, 0), cl.INVALID_PROPERTY),
    ((cl.TYPE, cl.BINARY, cl.SYNC_FD, 3), cl.INVALID_VALUE),
    ((cl.TYPE, cl.BINARY, cl.OPAQUE_FD, 2**64 - 1), cl.INVALID_VALUE),
    ((cl.TYPE, cl.BINARY, cl.DEVICE_LIST, 4096, 0), cl.INVALID_DEVICE),
    ((cl.TYPE, cl.BINARY, cl.DEVICE_LIST, 0), cl.INVALID_DEVICE),
])
def test_wrong_properties_are_refused(properties: tuple[int, ...], code: int) -> None:
    with rig() as at:
        assert at.create(*properties) == (code, 0)


@on_opencl
def test_null_context_and_null_properties_are_refused() -> None:
    with rig() as at:
        assert at.create(cl.TYPE, cl.BINARY, context=0) == (cl.INVALID_CONTEXT, 0)
        code = ctypes.c_int32()
        create = at.functions["clCreateSemaphoreWithPropertiesKHR"]
        assert create(c_void_p(at.context), None, ctypes.byref(code)) is None
        assert code.value == cl.INVALID_VALUE


@on_opencl
def test_wrong_fd_gives_999_with_a_pointer_and_stays_open() -> None:
    with rig() as at:
        fd = pipe_of(at)
        code, pointer = at.import_code(fd)
        assert (code, pointer != 0, is_open(fd)) == (cl.UNKNOWN_FD, True, True)
        _, memory = at.memory_fd()
        assert at.import_code(memory)[0] == cl.UNKNOWN_FD
        assert at.import_code(99999)[0] == cl.UNKNOWN_FD   # closed


@on_opencl
@pytest.mark.parametrize("kind", [SemaphoreHandleType.OPAQUE_FD, TIMELINE])
def test_fd_of_an_import_stays_open_and_may_be_closed(kind: SemaphoreHandleType) -> None:
    with rig() as at:
        there, fd = at.exported(kind)
        at.semaphores.append(at.import_fd(fd))
        assert is_open(fd)
        os.close(fd)
        at.fds.remove(fd)
        queue = at.stream()
        assert at.signal(queue, [at.semaphores[0]], values=[1], event=False)[0] == 0
        at.flush(queue)
        there.host_wait(1 if kind is TIMELINE else None, timeout_s=20)


@on_opencl(SIMCL_FD="taken")
def test_imported_fds_are_closed_on_success_when_configured() -> None:
    with rig() as at:
        _, fd = at.exported()
        at.semaphores.append(at.import_fd(fd))
        _, memory = at.memory_fd()
        at.buffers.append(at.buffer(PAGE, memory))
        assert not is_open(fd)
        assert not is_open(memory)
        at.fds.remove(fd)
        at.fds.remove(memory)
        other = pipe_of(at)
        assert at.import_code(other)[0] == at.buffer_code(PAGE, cl.MEMORY_OPAQUE_FD, other)[0] == cl.UNKNOWN_FD
        assert is_open(other)


@on_opencl(SIMCL_FD="kept")
def test_imported_fds_are_closed_on_release_when_configured() -> None:
    with rig() as at:
        _, fd = at.exported()
        here = at.import_fd(fd)
        _, other = at.memory_fd()
        memory = at.buffer(PAGE, other)
        assert is_open(fd)
        assert is_open(other)
        assert at.release(here) == 0
        at.release_buffer(memory)
        assert not is_open(fd)
        assert not is_open(other)
        at.fds.clear()


@on_opencl
def test_native_semaphore_orders_work_across_queues() -> None:
    with rig() as at:
        code, here = at.create(cl.TYPE, cl.BINARY)
        assert code == 0
        at.semaphores.append(here)
        one, other = at.stream(), at.stream()
        waited = at.waits(other, here)
        at.flush(other)
        assert at.held(waited)
        at.signals(one, here)
        at.flush(one)
        assert at.reached(waited)
        assert not at.signalled(here)


@on_opencl
def test_queries_of_a_semaphore() -> None:
    with rig() as at:
        there, fd = at.exported()
        here = at.import_fd(fd, cl.DEVICE_LIST, at.device, 0)
        at.semaphores.append(here)
        assert u64(at.of_semaphore(here, 0x2039)) == at.context
        assert at.of_semaphore(here, 0x203A) == b"\1\0\0\0"
        assert list(memoryview(at.of_semaphore(here, 0x203B)).cast("Q")) == [
            cl.TYPE, cl.BINARY, cl.OPAQUE_FD, fd, cl.DEVICE_LIST, at.device, 0, 0]
        assert at.of_semaphore(here, cl.TYPE) == b"\1\0\0\0"
        assert u64(at.of_semaphore(here, cl.DEVICE_LIST)) == at.device
        assert at.of_semaphore(here, 0x2054) == bytes(4)
        assert not at.signalled(here)
        there.host_signal()
        assert at.signalled(here)
        with pytest.raises(cl.CodeError, match="-30"):
            at.of_semaphore(here, 0x9999)
        code = at.extension("clGetSemaphoreHandleForTypeKHR", c_void_p(here), c_void_p(at.device),
                            c_uint32(cl.OPAQUE_FD), c_size_t(4), ctypes.byref(c_uint32()), None)
        assert code == cl.INVALID_VALUE


@on_opencl
def test_retained_semaphore_lives_until_its_last_release() -> None:
    with rig() as at:
        _, here = at.semaphore()
        assert at.extension("clRetainSemaphoreKHR", c_void_p(here)) == 0
        assert at.of_semaphore(here, 0x203A) == b"\2\0\0\0"
        assert at.release(here) == 0
        assert at.of_semaphore(here, 0x203A) == b"\1\0\0\0"


# ---- waits and signals: results of their enqueue
@on_opencl
@pytest.mark.parametrize("name", ["wait", "signal"])
def test_wrong_arguments_are_refused_and_enqueue_nothing(name: str) -> None:
    with rig() as at:
        _, here = at.semaphore()
        queue = at.stream()
        call = {"wait": at.wait, "signal": at.signal}[name]
        assert call(0, [here])[0] == cl.INVALID_QUEUE
        assert call(queue, [])[0] == cl.INVALID_VALUE
        assert call(queue, [queue])[0] == cl.INVALID_SEMAPHORE
        assert call(queue, [here, queue])[0] == cl.INVALID_SEMAPHORE
        function = {"wait": "clEnqueueWaitSemaphoresKHR", "signal": "clEnqueueSignalSemaphoresKHR"}[name]
        assert at.extension(function, c_void_p(queue), c_uint32(1), cl.handles([here]), None, c_uint32(1), None,
                            None) == cl.INVALID_WAIT_LIST
        at.finish(queue)
        assert not at.signalled(here)


@on_opencl
def test_semaphore_of_another_context_is_refused() -> None:
    with rig() as at, rig() as other:
        _, here = at.semaphore()
        assert other.wait(other.stream(), [here])[0] == cl.INVALID_CONTEXT


@on_opencl(SIMCL_DEVICES="2")
def test_semaphore_in_a_context_of_two_devices_needs_a_list() -> None:
    with rig(0, 1) as at:
        there, fd = at.exported()
        assert at.import_code(fd)[0] == cl.INVALID_PROPERTY
        assert at.import_code(fd, cl.DEVICE_LIST, *at.devices, 0)[0] == cl.INVALID_DEVICE
        here = at.import_fd(fd, cl.DEVICE_LIST, at.devices[1], 0)
        at.semaphores.append(here)
        first, second = (at.stream(device) for device in at.devices)
        assert at.wait(first, [here])[0] == at.signal(first, [here])[0] == cl.INVALID_QUEUE
        at.signals(second, here)
        at.flush(second)
        there.host_wait(timeout_s=20)


@on_opencl(SIMCL_DEVICES="2")
def test_devices_work_side_by_side() -> None:
    with rig(0, 1) as at:
        (one_there, one), (other_there, other) = (
            at.semaphore(SemaphoreHandleType.OPAQUE_FD, cl.DEVICE_LIST, device, 0) for device in at.devices)
        first, second = (at.stream(device) for device in at.devices)
        waited = at.waits(first, one)
        at.flush(first)
        at.signals(second, other)
        at.flush(second)
        other_there.host_wait(timeout_s=20)
        assert at.status(waited) > cl.COMPLETE
        one_there.host_signal()


# ---- memory
@on_opencl
def test_memory_is_the_exporters_in_both_directions() -> None:
    with rig() as at:
        view, memory = at.memory(3 * PAGE)
        queue = at.stream()
        view[2 * PAGE:2 * PAGE + 4] = b"abcd"
        assert at.acquire(queue, [memory]) == 0
        assert at.read(queue, memory, 4, offset=2 * PAGE) == b"abcd"
        at.events.append(at.fill(queue, memory, ord("z"), 5, offset=PAGE - 2))
        assert at.give_back(queue, [memory]) == 0
        at.finish(queue)
        assert view[PAGE - 3:PAGE + 4] == b"\0zzzzz\0"
        view[:2] = b"hi"
        assert at.acquire(queue, [memory]) == 0
        assert at.read(queue, memory, 2) == b"hi"
        assert at.counter(b"unacquired") == 0


@on_opencl
@pytest.mark.parametrize(("size", "code"), [
    (0, cl.INVALID_BUFFER_SIZE), (16 * PAGE, cl.TOO_BIG), (PAGE // 2, cl.SUCCESS), (PAGE + 1, cl.TOO_BIG),
])
def test_size_of_memory_is_checked(size: int, code: int) -> None:
    with rig() as at:
        _, fd = at.memory_fd()
        found, pointer = at.buffer_code(size, cl.MEMORY_OPAQUE_FD, fd)
        assert (found, pointer != 0) == (code, code >= 0)
        if code == cl.SUCCESS:
            at.buffers.append(pointer)
        assert is_open(fd)


@on_opencl
def test_fd_that_is_not_memory_is_refused() -> None:
    with rig() as at:
        _, timeline = at.exported(TIMELINE)
        _, binary = at.exported()
        for fd in (timeline, binary, pipe_of(at), 99999):
            code, pointer = at.buffer_code(PAGE, cl.MEMORY_OPAQUE_FD, fd)
            assert (code, pointer != 0) == (cl.UNKNOWN_FD, True)
        _, fd = at.memory_fd()
        assert at.buffer_code(PAGE, cl.MEMORY_DMA_BUF, fd) == (cl.INVALID_PROPERTY, 0)
        assert at.buffer_code(PAGE, cl.MEMORY_OPAQUE_FD, fd, cl.MEMORY_DEVICE_LIST, 4096, 0) == (cl.INVALID_DEVICE, 0)
        code, made = at.buffer_code(PAGE, cl.MEMORY_OPAQUE_FD, fd, cl.MEMORY_DEVICE_LIST, at.device, 0)
        assert code == 0
        at.buffers.append(made)


@on_opencl
def test_queries_of_imported_memory_show_no_host_pointer() -> None:
    with rig() as at:
        _, fd = at.memory_fd()
        made = at.buffer(PAGE, fd)
        at.buffers.append(made)
        assert u64(at.info("clGetMemObjectInfo", made, 0x1101)) == 1
        assert u64(at.info("clGetMemObjectInfo", made, 0x1102)) == PAGE
        assert u64(at.info("clGetMemObjectInfo", made, 0x1103)) == 0
        assert list(memoryview(at.info("clGetMemObjectInfo", made, 0x110A)).cast("Q")) == [cl.MEMORY_OPAQUE_FD, fd, 0]


@on_opencl
def test_use_without_an_acquire_works_and_is_counted() -> None:
    with rig() as at:
        view, memory = at.memory()
        queue = at.stream()
        before = at.counter(b"unacquired")
        view[:1] = b"a"
        assert at.read(queue, memory, 1) == b"a"
        assert at.acquire(queue, [memory]) == 0
        at.read(queue, memory, 1)
        assert at.give_back(queue, [memory]) == 0
        at.events.append(at.fill(queue, memory, 1, 1))
        assert at.counter(b"unacquired") == before + 2


@on_opencl
def test_acquire_takes_only_imported_memory() -> None:
    with rig() as at:
        queue = at.stream()
        own = at.make("clCreateBuffer", c_void_p(at.context), c_uint64(1), c_size_t(PAGE), None)
        at.buffers.append(own)
        _, memory = at.memory()
        assert at.acquire(queue, [own]) == at.give_back(queue, [own]) == at.acquire(queue, [0]) == cl.INVALID_MEM_OBJECT
        assert at.acquire(0, [memory]) == cl.INVALID_QUEUE
        assert at.acquire(queue, [memory]) == 0


@on_opencl
def test_acquire_waits_for_its_events() -> None:
    with rig() as at:
        view, memory = at.memory()
        queue, gate = at.stream(), at.user_event()
        at.events.append(gate)
        assert at.acquire(queue, [memory], after=[gate]) == 0
        filled = at.fill(queue, memory, 7, 1)
        at.events.append(filled)
        assert at.held(filled)
        assert view[0] == 0
        at.set_event(gate)
        assert at.reached(filled)
        assert view[0] == 7


def mappings() -> int:
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return sum("memfd:xsem-memory" in line for line in lines)


@on_opencl
def test_released_memory_is_unmapped_when_its_work_is_done() -> None:
    with rig() as at:
        there, here = at.semaphore()
        _, fd = at.memory_fd()
        before = mappings()
        memory = at.buffer(PAGE, fd)
        queue = at.stream()
        at.waits(queue, here)
        assert at.acquire(queue, [memory]) == 0
        at.events.append(at.fill(queue, memory, 1, PAGE))
        at.flush(queue)
        at.release_buffer(memory)
        assert mappings() == before + 1
        there.host_signal()
        at.finish(queue)
        at.release_event(at.events.pop())
        # PoCL releases the memory of a command shortly after the command is done.
        for _ in range(2000):
            if mappings() == before:
                break
        assert mappings() == before
