"""Ask a CUDA driver about some hundred corner cases, and print the answers as JSON.

    python tests/drivers/probe.py             # all cases, each in a separate process
    python tests/drivers/probe.py NAME …      # the cases with this prefix

The output on a real GPU is the reference (``h200.json``). The output on the stand-in must be the same. The unmet waits
are cuStreamWaitValue32 on page-locked memory, so no exporter is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

cu: Any = importlib.import_module("cuda.bindings.driver")

CASES: dict[str, Callable[[], Any]] = {}
_SOON_S = float(os.environ.get("PROBE_SOON_S", "2"))  # a call that has not returned by then blocks
_PARALLEL = int(os.environ.get("PROBE_PARALLEL", "4"))
_DEADLINE_S = 60


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def ask(function: Any, *args: Any) -> Any:
    """Return the result. Any code but success is an error of the case itself."""
    code, *rest = function(*args)
    assert int(code) == 0, (function.__name__, code)
    return rest[0] if len(rest) == 1 else rest


def code(function: Any, *args: Any) -> int:
    """Return only the code."""
    return int(function(*args)[0])


def on_thread(work: Callable[[], Any]) -> Any:
    """Return the result, or "blocks" if the call does not return soon."""
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(work()), daemon=True)
    thread.start()
    thread.join(_SOON_S)
    return box[0] if box else "blocks"


def context() -> Any:
    """Return the primary context, current on this thread."""
    ask(cu.cuInit, 0)
    made = ask(cu.cuDevicePrimaryCtxRetain, ask(cu.cuDeviceGet, 0))
    ask(cu.cuCtxSetCurrent, made)
    return made


def stream(flags: int = 1) -> Any:
    return ask(cu.cuStreamCreate, flags)


class Gate:
    """An unmet wait on a stream."""

    def __init__(self, on: Any) -> None:
        self.address = int(ask(cu.cuMemHostAlloc, 4096, 0))
        ctypes.c_uint32.from_address(self.address).value = 0
        ask(cu.cuStreamWaitValue32, on, ask(cu.cuMemHostGetDevicePointer, self.address, 0), 1, 0)

    def open(self) -> None:
        ctypes.c_uint32.from_address(self.address).value = 1


def sem_desc(fd: int = -1, kind: int = 9, flags: int = 0) -> Any:
    desc = cu.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    desc.type = cu.CUexternalSemaphoreHandleType(kind)
    desc.handle.fd = fd
    desc.flags = flags
    return desc


def mem_desc(fd: int = -1, kind: int = 1, size: int = 4096, flags: int = 0) -> Any:
    desc = cu.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    desc.type = cu.CUexternalMemoryHandleType(kind)
    desc.handle.fd = fd
    desc.size = size
    desc.flags = flags
    return desc


_HOST_FUNCTION = int(ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value or 0)
GLOBAL, THREAD, RELAXED = (cu.CUstreamCaptureMode(each) for each in range(3))
PAGEABLE = ctypes.create_string_buffer(64 << 20)
PAGEABLE_AT = ctypes.addressof(PAGEABLE)


class World:
    """All objects for the calls below, created before a capture or a gate."""

    def __init__(self) -> None:
        self.context = context()
        self.device = ask(cu.cuCtxGetDevice)
        self.other = stream()
        self.blocking = stream(0)
        self.spare = stream()
        self.event = ask(cu.cuEventCreate, 2)
        self.recorded = ask(cu.cuEventCreate, 2)
        self.timed = ask(cu.cuEventCreate, 0)
        ask(cu.cuEventRecord, self.recorded, self.other)
        ask(cu.cuStreamSynchronize, self.other)
        self.memory = ask(cu.cuMemAlloc, 32 << 20)
        self.host = ask(cu.cuMemHostAlloc, 1 << 20, 0)
        self.null_sem = cu.CUexternalSemaphore(0)
        ask(cu.cuStreamBeginCapture, self.other, RELAXED)
        ask(cu.cuMemsetD8Async, self.memory, 0, 64, self.other)
        self.graph = ask(cu.cuStreamEndCapture, self.other)
        self.exec = ask(cu.cuGraphInstantiate, self.graph, 0)
        self.spare_exec = ask(cu.cuGraphInstantiate, self.graph, 0)


CALLS: dict[str, Callable[[World], int]] = {
    "cuEventQuery": lambda w: code(cu.cuEventQuery, w.recorded),
    "cuEventSynchronize": lambda w: code(cu.cuEventSynchronize, w.recorded),
    "cuEventCreate": lambda w: code(cu.cuEventCreate, 2),
    "cuEventDestroy": lambda w: code(cu.cuEventDestroy, w.timed),
    "cuEventRecord": lambda w: code(cu.cuEventRecord, w.event, w.other),
    "cuEventRecord_legacy": lambda w: code(cu.cuEventRecord, w.event, cu.CUstream(1)),
    "cuStreamWaitEvent": lambda w: code(cu.cuStreamWaitEvent, w.other, w.recorded, 0),
    "cuStreamQuery": lambda w: code(cu.cuStreamQuery, w.spare),
    "cuStreamQuery_legacy": lambda w: code(cu.cuStreamQuery, cu.CUstream(1)),
    "cuStreamSynchronize": lambda w: code(cu.cuStreamSynchronize, w.spare),
    "cuStreamSynchronize_legacy": lambda w: code(cu.cuStreamSynchronize, cu.CUstream(1)),
    "cuStreamCreate": lambda w: code(cu.cuStreamCreate, 1),
    "cuStreamCreateWithPriority": lambda w: code(cu.cuStreamCreateWithPriority, 1, 0),
    "cuStreamDestroy": lambda w: code(cu.cuStreamDestroy, w.spare),
    "cuStreamGetCtx": lambda w: code(cu.cuStreamGetCtx, w.other),
    "cuStreamGetCtx_legacy": lambda w: code(cu.cuStreamGetCtx, cu.CUstream(1)),
    "cuStreamGetFlags": lambda w: code(cu.cuStreamGetFlags, w.other),
    "cuStreamGetId": lambda w: code(cu.cuStreamGetId, w.other),
    "cuStreamIsCapturing": lambda w: code(cu.cuStreamIsCapturing, w.other),
    "cuStreamIsCapturing_legacy": lambda w: code(cu.cuStreamIsCapturing, cu.CUstream(1)),
    "cuStreamIsCapturing_per_thread": lambda w: code(cu.cuStreamIsCapturing, cu.CUstream(2)),
    "cuLaunchHostFunc": lambda w: code(cu.cuLaunchHostFunc, w.other, cu.CUhostFn(_HOST_FUNCTION), 0),
    "cuCtxSynchronize": lambda w: code(cu.cuCtxSynchronize),
    "cuCtxGetCurrent": lambda w: code(cu.cuCtxGetCurrent),
    "cuCtxGetDevice": lambda w: code(cu.cuCtxGetDevice),
    "cuCtxPushPop": lambda w: code(cu.cuCtxPushCurrent, w.context) or code(cu.cuCtxPopCurrent),
    "cuCtxGetId": lambda w: code(cu.cuCtxGetId, w.context),
    "cuDevicePrimaryCtxRetain": lambda w: code(cu.cuDevicePrimaryCtxRetain, w.device),
    "cuDevicePrimaryCtxGetState": lambda w: code(cu.cuDevicePrimaryCtxGetState, w.device),
    "cuMemAlloc": lambda w: code(cu.cuMemAlloc, 64),
    "cuMemFree": lambda w: code(cu.cuMemFree, w.memory),
    "cuMemFree_0": lambda w: code(cu.cuMemFree, 0),
    "cuMemHostAlloc": lambda w: code(cu.cuMemHostAlloc, 64, 0),
    "cuMemFreeHost": lambda w: code(cu.cuMemFreeHost, w.host),
    "cuMemHostGetDevicePointer": lambda w: code(cu.cuMemHostGetDevicePointer, w.host, 0),
    "cuMemGetInfo": lambda w: code(cu.cuMemGetInfo),
    "cuMemcpyAsync": lambda w: code(cu.cuMemcpyAsync, w.memory, int(w.memory) + 4096, 64, w.other),
    "cuMemcpyHtoDAsync_pinned": lambda w: code(cu.cuMemcpyHtoDAsync, w.memory, w.host, 64, w.other),
    "cuMemcpyHtoDAsync_pageable": lambda w: code(cu.cuMemcpyHtoDAsync, w.memory, PAGEABLE_AT, 64, w.other),
    "cuMemcpyDtoHAsync_pageable": lambda w: code(cu.cuMemcpyDtoHAsync, PAGEABLE_AT, w.memory, 64, w.other),
    "cuMemcpyHtoD": lambda w: code(cu.cuMemcpyHtoD, w.memory, PAGEABLE_AT, 64),
    "cuMemcpyDtoH": lambda w: code(cu.cuMemcpyDtoH, PAGEABLE_AT, w.memory, 64),
    "cuMemcpyDtoD": lambda w: code(cu.cuMemcpyDtoD, w.memory, int(w.memory) + 4096, 64),
    "cuMemsetD8": lambda w: code(cu.cuMemsetD8, w.memory, 1, 64),
    "cuMemsetD8Async": lambda w: code(cu.cuMemsetD8Async, w.memory, 1, 64, w.other),
    "cuMemsetD8Async_legacy": lambda w: code(cu.cuMemsetD8Async, w.memory, 1, 64, cu.CUstream(1)),
    "cuMemsetD8Async_blocking": lambda w: code(cu.cuMemsetD8Async, w.memory, 1, 64, w.blocking),
    "cuPointerGetAttribute": lambda w: code(cu.cuPointerGetAttribute, cu.CUpointer_attribute(2), w.memory),
    "cuImportExternalSemaphore": lambda w: code(cu.cuImportExternalSemaphore, sem_desc()),
    "cuImportExternalMemory": lambda w: code(cu.cuImportExternalMemory, mem_desc()),
    "cuDestroyExternalSemaphore_0": lambda w: code(cu.cuDestroyExternalSemaphore, w.null_sem),
    "cuDestroyExternalMemory_0": lambda w: code(cu.cuDestroyExternalMemory, cu.CUexternalMemory(0)),
    "cuGraphInstantiate": lambda w: code(cu.cuGraphInstantiate, w.graph, 0),
    "cuGraphLaunch": lambda w: code(cu.cuGraphLaunch, w.exec, w.other),
    "cuGraphExecDestroy": lambda w: code(cu.cuGraphExecDestroy, w.spare_exec),
    "cuGraphDestroy": lambda w: code(cu.cuGraphDestroy, w.graph),
    "cuStreamBeginCapture": lambda w: code(cu.cuStreamBeginCapture, w.spare, RELAXED),
}

def without_context(name: str) -> Any:
    w = World()
    ask(cu.cuCtxSetCurrent, cu.CUcontext(0))
    return CALLS[name](w)


def in_capture(name: str, mode: Any, here: bool, flags: int, relaxed: bool) -> Any:
    """Return the code of the call, the capture status after it, and the code of EndCapture."""
    w = World()
    capturing = stream(flags)
    ask(cu.cuStreamBeginCapture, capturing, mode)

    def work() -> int:
        ask(cu.cuCtxSetCurrent, w.context)
        before = ask(cu.cuThreadExchangeStreamCaptureMode, RELAXED) if relaxed else None
        try:
            return CALLS[name](w)
        finally:
            if before is not None:
                ask(cu.cuThreadExchangeStreamCaptureMode, before)

    got = work() if here else on_thread(work)
    status = cu.cuStreamIsCapturing(capturing)
    return [got, [int(status[0]), int(status[1])], code(cu.cuStreamEndCapture, capturing)]


def behind_wait(name: str, flags: int) -> Any:
    """Return the result of a call while a wait on another stream is unmet."""
    w = World()
    waiting = stream(flags)
    gate = Gate(waiting)

    def work() -> int:
        ask(cu.cuCtxSetCurrent, w.context)
        return CALLS[name](w)

    got = on_thread(work)
    gate.open()
    return got


for _name in CALLS:
    CASES[f"no_context/{_name}"] = partial(without_context, _name)
    CASES[f"global_capture_elsewhere/{_name}"] = partial(in_capture, _name, GLOBAL, False, 1, False)
    CASES[f"global_capture_here/{_name}"] = partial(in_capture, _name, GLOBAL, True, 1, False)
    CASES[f"thread_capture_elsewhere/{_name}"] = partial(in_capture, _name, THREAD, False, 1, False)
    CASES[f"thread_capture_here/{_name}"] = partial(in_capture, _name, THREAD, True, 1, False)
    CASES[f"relaxed_capture_here/{_name}"] = partial(in_capture, _name, RELAXED, True, 1, False)
    CASES[f"relaxed_mode_elsewhere/{_name}"] = partial(in_capture, _name, GLOBAL, False, 1, True)
    CASES[f"blocking_stream_captures/{_name}"] = partial(in_capture, _name, GLOBAL, False, 0, True)
    CASES[f"behind_wait/{_name}"] = partial(behind_wait, _name, 1)
    CASES[f"behind_wait_of_blocking_stream/{_name}"] = partial(behind_wait, _name, 0)


# ---- invalid handles, and second destroys
@case
def stream_destroyed_query() -> Any:
    w = World()
    ask(cu.cuStreamDestroy, w.spare)
    return code(cu.cuStreamQuery, w.spare)


@case
def stream_destroyed_twice() -> Any:
    w = World()
    ask(cu.cuStreamDestroy, w.spare)
    return code(cu.cuStreamDestroy, w.spare)


@case
def stream_destroyed_record() -> Any:
    w = World()
    ask(cu.cuStreamDestroy, w.spare)
    return code(cu.cuEventRecord, w.event, w.spare)


@case
def stream_garbage() -> Any:
    context()
    return code(cu.cuStreamQuery, cu.CUstream(0x700))


@case
def stream_garbage_get_ctx() -> Any:
    context()
    return code(cu.cuStreamGetCtx, cu.CUstream(0x700))


@case
def stream_create_bad_flags() -> Any:
    context()
    return code(cu.cuStreamCreate, 64)


@case
def event_destroyed_twice() -> Any:
    w = World()
    ask(cu.cuEventDestroy, w.event)
    return code(cu.cuEventDestroy, w.event)


@case
def event_destroyed_query() -> Any:
    w = World()
    ask(cu.cuEventDestroy, w.event)
    return code(cu.cuEventQuery, w.event)


@case
def event_null() -> Any:
    context()
    none = cu.CUevent(0)
    return [code(cu.cuEventQuery, none), code(cu.cuEventRecord, none, stream()),
            code(cu.cuStreamWaitEvent, stream(), none, 0)]


@case
def event_garbage() -> Any:
    context()
    return code(cu.cuEventQuery, cu.CUevent(0x700))


@case
def event_never_recorded() -> Any:
    w = World()
    return [code(cu.cuEventQuery, w.event), code(cu.cuEventSynchronize, w.event),
            code(cu.cuStreamWaitEvent, w.other, w.event, 0)]


@case
def event_elapsed() -> Any:
    w = World()
    end = ask(cu.cuEventCreate, 0)
    first = code(cu.cuEventElapsedTime, w.timed, end)
    ask(cu.cuEventRecord, w.timed, w.other)
    gate = Gate(w.other)
    ask(cu.cuEventRecord, end, w.other)
    pending = code(cu.cuEventElapsedTime, w.timed, end)
    gate.open()
    ask(cu.cuEventSynchronize, end)
    return [first, pending, code(cu.cuEventElapsedTime, w.timed, end),
            code(cu.cuEventElapsedTime, w.recorded, w.recorded)]


@case
def memory_freed_twice() -> Any:
    w = World()
    ask(cu.cuMemFree, w.memory)
    return code(cu.cuMemFree, w.memory)


@case
def memory_freed_inside() -> Any:
    w = World()
    return code(cu.cuMemFree, int(w.memory) + 4096)


@case
def memory_of_the_host_freed_twice() -> Any:
    w = World()
    ask(cu.cuMemFreeHost, w.host)
    return code(cu.cuMemFreeHost, w.host)


@case
def memory_of_the_host_freed_as_device_memory() -> Any:
    w = World()
    return code(cu.cuMemFree, int(w.host))


@case
def memory_alloc_limits() -> Any:
    World()
    return [code(cu.cuMemAlloc, 0), code(cu.cuMemAlloc, 1 << 50), code(cu.cuMemHostAlloc, 0, 0),
            code(cu.cuMemHostAlloc, 64, 64), code(cu.cuMemFree, 0x700), code(cu.cuMemFreeHost, PAGEABLE_AT)]


@case
def memory_copy_beyond_the_allocation() -> Any:
    w = World()
    end = int(w.memory) + (32 << 20)
    return [code(cu.cuMemsetD8Async, end - 32, 1, 64, w.other),
            code(cu.cuMemcpyAsync, end - 32, int(w.memory), 64, w.other),
            code(cu.cuMemcpyHtoD, end - 32, PAGEABLE_AT, 64), code(cu.cuMemcpyDtoH, PAGEABLE_AT, 0x700, 64)]


@case
def memory_copy_of_nothing() -> Any:
    w = World()
    return [code(cu.cuMemcpyAsync, w.memory, int(w.memory) + 64, 0, w.other),
            code(cu.cuMemsetD8Async, w.memory, 0, 0, w.other)]


@case
def memset_misaligned() -> Any:
    w = World()
    return [code(cu.cuMemsetD16Async, int(w.memory) + 1, 0, 8, w.other),
            code(cu.cuMemsetD32Async, int(w.memory) + 2, 0, 8, w.other)]


@case
def semaphore_null() -> Any:
    context()
    none, on = cu.CUexternalSemaphore(0), stream()
    return [code(cu.cuWaitExternalSemaphoresAsync, [none], [cu.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()], 1, on),
            code(cu.cuSignalExternalSemaphoresAsync, [none], [cu.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()], 1, on)]


@case
def semaphore_garbage_destroyed() -> Any:
    context()
    return code(cu.cuDestroyExternalSemaphore, cu.CUexternalSemaphore(0x700))


@case
def semaphore_batch_of_none() -> Any:
    context()
    on = stream()
    return [code(cu.cuWaitExternalSemaphoresAsync, [], [], 0, on),
            code(cu.cuSignalExternalSemaphoresAsync, [], [], 0, on)]


@case
def import_semaphore_codes() -> Any:
    context()
    return {f"{kind}/{fd}/{flags}": code(cu.cuImportExternalSemaphore, sem_desc(fd, kind, flags))
            for kind in range(1, 11) for fd in (-1, 0) for flags in (0, 1)}


@case
def import_memory_codes() -> Any:
    context()
    return {f"{kind}/{fd}/{size}/{flags}": code(cu.cuImportExternalMemory, mem_desc(fd, kind, size, flags))
            for kind in range(1, 10) for fd in (-1, 0) for size in (0, 4096) for flags in (0, 1, 2)}


@case
def memory_null() -> Any:
    context()
    buffer, arrays = cu.CUDA_EXTERNAL_MEMORY_BUFFER_DESC(), cu.CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
    buffer.size = 64
    return [code(cu.cuExternalMemoryGetMappedBuffer, cu.CUexternalMemory(0), buffer),
            code(cu.cuExternalMemoryGetMappedMipmappedArray, cu.CUexternalMemory(0), arrays)]


@case
def arrays_null() -> Any:
    context()
    return [code(cu.cuMipmappedArrayDestroy, cu.CUmipmappedArray(0)),
            code(cu.cuMipmappedArrayGetLevel, cu.CUmipmappedArray(0), 0)]


@case
def arrays_of_their_own() -> Any:
    w = World()
    desc = cu.CUDA_ARRAY3D_DESCRIPTOR()
    desc.Width, desc.Height, desc.Depth, desc.NumChannels = 64, 64, 0, 4
    desc.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
    array = ask(cu.cuMipmappedArrayCreate, desc, 3)
    got = [code(cu.cuMipmappedArrayGetLevel, array, each) for each in range(4)]
    level = ask(cu.cuArray3DGetDescriptor, ask(cu.cuMipmappedArrayGetLevel, array, 1))
    got += [level.Width, level.Height, level.Depth, level.NumChannels, int(level.Format), level.Flags]
    gate = Gate(w.other)

    def work() -> int:
        ask(cu.cuCtxSetCurrent, w.context)
        return code(cu.cuMipmappedArrayDestroy, array)

    got.append(on_thread(work))
    gate.open()
    return got


@case
def pointer_attributes() -> Any:
    w = World()
    pageable = cu.cuPointerGetAttribute(cu.CUpointer_attribute(2), PAGEABLE_AT)
    kinds = [int(ask(cu.cuPointerGetAttribute, cu.CUpointer_attribute(2), int(each))) for each in (w.memory, w.host)]
    ordinals = [int(ask(cu.cuPointerGetAttribute, cu.CUpointer_attribute(9), int(each))) for each in (w.memory, w.host)]
    wanted = [cu.CUpointer_attribute(2), cu.CUpointer_attribute(9)]
    return [kinds, ordinals, int(pageable[0]), code(cu.cuPointerGetAttributes, 2, wanted, PAGEABLE_AT)]


# ---- calls that block
def appends(append: Callable[[World, Any], int]) -> Any:
    w = World()
    waiting = stream()
    gate = Gate(waiting)
    count = 0

    def work() -> int:
        nonlocal count
        ask(cu.cuCtxSetCurrent, w.context)
        while count < 5000:
            assert append(w, waiting) == 0
            count += 1
        return count

    got = on_thread(work)
    gate.open()
    return [got, count]


@case
def appends_of_memsets() -> Any:
    return appends(lambda w, on: code(cu.cuMemsetD8Async, w.memory, 0, 64, on))


@case
def appends_of_records() -> Any:
    return appends(lambda w, on: code(cu.cuEventRecord, w.event, on))


@case
def appends_of_event_waits() -> Any:
    return appends(lambda w, on: code(cu.cuStreamWaitEvent, on, w.recorded, 0))


@case
def appends_of_host_functions() -> Any:
    return appends(lambda w, on: code(cu.cuLaunchHostFunc, on, cu.CUhostFn(_HOST_FUNCTION), 0))


@case
def appends_of_graphs() -> Any:
    return appends(lambda w, on: code(cu.cuGraphLaunch, w.exec, on))


def copy_behind_wait(to_device: bool, size: int, same: bool) -> Any:
    w = World()
    waiting = stream()
    gate = Gate(waiting)

    def work() -> int:
        ask(cu.cuCtxSetCurrent, w.context)
        on = waiting if same else w.other
        if to_device:
            return code(cu.cuMemcpyHtoDAsync, w.memory, PAGEABLE_AT, size, on)
        return code(cu.cuMemcpyDtoHAsync, PAGEABLE_AT, w.memory, size, on)

    got = on_thread(work)
    gate.open()
    return got


for _size in (64, 1 << 16, (1 << 16) + 1, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20):
    CASES[f"copy_to_device_behind_wait/{_size}"] = partial(copy_behind_wait, True, _size, True)
    CASES[f"copy_to_host_behind_wait/{_size}"] = partial(copy_behind_wait, False, _size, True)
    CASES[f"copy_to_host_elsewhere/{_size}"] = partial(copy_behind_wait, False, _size, False)


@case
def context_of_its_own_destroyed_behind_wait() -> Any:
    w = World()
    made = (cu.cuCtxCreate(None, 0, w.device) if cu.CUDA_VERSION >= 13000 else cu.cuCtxCreate(0, w.device))[1]
    gate = Gate(stream())
    ask(cu.cuCtxSetCurrent, w.context)
    got = on_thread(lambda: code(cu.cuCtxDestroy, made))
    with contextlib.suppress(Exception):
        gate.open() if got == "blocks" else None
    return got


@case
def host_function_calls_the_driver() -> Any:
    w = World()
    got: list[int] = []

    def function(_: Any) -> None:
        got.extend([code(cu.cuStreamQuery, w.other), code(cu.cuMemAlloc, 64), code(cu.cuCtxGetCurrent),
                    code(cu.cuEventRecord, w.event, w.other), code(cu.cuEventQuery, w.recorded)])

    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    at = ctypes.cast(call, ctypes.c_void_p).value
    ask(cu.cuLaunchHostFunc, w.other, cu.CUhostFn(at), 0)
    ask(cu.cuStreamSynchronize, w.other)
    return got


# ---- captures
@case
def capture_event_queried() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuEventRecord, w.event, w.other)
    got = [code(cu.cuEventQuery, w.event), code(cu.cuMemsetD8Async, w.memory, 0, 64, w.other)]
    got += [code(cu.cuStreamEndCapture, w.other), code(cu.cuEventQuery, w.event)]
    return got


@case
def capture_event_synchronized() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuEventRecord, w.event, w.other)
    return [code(cu.cuEventSynchronize, w.event), code(cu.cuStreamEndCapture, w.other)]


@case
def capture_event_after_the_capture() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuEventRecord, w.event, w.other)
    got = [code(cu.cuStreamEndCapture, w.other)]
    got += [code(cu.cuEventQuery, w.event), code(cu.cuEventSynchronize, w.event),
            code(cu.cuStreamWaitEvent, w.spare, w.event, 0), code(cu.cuEventRecord, w.event, w.spare),
            code(cu.cuStreamWaitEvent, w.other, w.event, 0)]
    return got


@case
def capture_event_destroyed() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuEventRecord, w.event, w.other)
    return [code(cu.cuEventDestroy, w.event), code(cu.cuStreamEndCapture, w.other)]


@case
def capture_joined() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuEventRecord, w.event, w.other)
    got = [code(cu.cuStreamWaitEvent, w.spare, w.event, 0), int(ask(cu.cuStreamIsCapturing, w.spare))]
    ask(cu.cuMemsetD8Async, w.memory, 0, 64, w.spare)
    ask(cu.cuEventRecord, w.recorded, w.spare)
    ask(cu.cuStreamWaitEvent, w.other, w.recorded, 0)
    got.append(code(cu.cuStreamEndCapture, w.other))
    return [*got, int(ask(cu.cuStreamIsCapturing, w.spare))]


@case
def capture_unjoined() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuEventRecord, w.event, w.other)
    ask(cu.cuStreamWaitEvent, w.spare, w.event, 0)
    ask(cu.cuMemsetD8Async, w.memory, 0, 64, w.spare)
    return [code(cu.cuStreamEndCapture, w.spare), code(cu.cuStreamEndCapture, w.other),
            int(ask(cu.cuStreamIsCapturing, w.spare))]


@case
def capture_waits_for_an_event_outside() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    got = [code(cu.cuStreamWaitEvent, w.other, w.recorded, 0)]
    return [*got, code(cu.cuStreamEndCapture, w.other)]


@case
def capture_waits_for_an_event_never_recorded() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    got = [code(cu.cuStreamWaitEvent, w.other, w.event, 0)]
    return [*got, code(cu.cuStreamEndCapture, w.other)]


@case
def capture_merged() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuStreamBeginCapture, w.spare, RELAXED)
    ask(cu.cuEventRecord, w.event, w.other)
    got = [code(cu.cuStreamWaitEvent, w.spare, w.event, 0)]
    return [*got, code(cu.cuStreamEndCapture, w.other), code(cu.cuStreamEndCapture, w.spare)]


@case
def capture_states() -> Any:
    w = World()
    got = [code(cu.cuStreamEndCapture, w.other), code(cu.cuStreamBeginCapture, cu.CUstream(1), RELAXED)]
    ask(cu.cuStreamBeginCapture, w.other, GLOBAL)
    got.append(code(cu.cuStreamBeginCapture, w.other, GLOBAL))
    got.append(code(cu.cuStreamEndCapture, w.other))
    return got


@case
def capture_ended_by_another_thread() -> Any:
    w = World()
    got: list[Any] = []

    def end(capturing: Any) -> int:
        ask(cu.cuCtxSetCurrent, w.context)
        return code(cu.cuStreamEndCapture, capturing)

    for mode in (GLOBAL, THREAD, RELAXED):
        on = stream()
        ask(cu.cuStreamBeginCapture, on, mode)
        got.append(on_thread(partial(end, on)))
        got.append(code(cu.cuStreamEndCapture, on))
    return got


@case
def capture_stream_itself() -> Any:
    got = {}
    for name in ("cuStreamQuery", "cuStreamSynchronize", "cuStreamDestroy", "cuStreamGetFlags", "cuStreamGetCtx"):
        w = World()
        ask(cu.cuStreamBeginCapture, w.other, RELAXED)
        first = code(getattr(cu, name), w.other)
        got[name] = [first, "destroyed" if name == "cuStreamDestroy" else code(cu.cuStreamEndCapture, w.other)]
    return got


@case
def capture_invalidated_stream() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    got = [code(cu.cuStreamQuery, w.other), code(cu.cuMemsetD8Async, w.memory, 0, 64, w.other),
           code(cu.cuEventRecord, w.event, w.other), code(cu.cuStreamWaitEvent, w.other, w.recorded, 0),
           code(cu.cuEventQuery, w.event)]
    info = cu.cuStreamGetCaptureInfo(w.other)
    return [*got, int(info[0]), int(info[1]), code(cu.cuStreamEndCapture, w.other),
            int(ask(cu.cuStreamIsCapturing, w.other))]


@case
def capture_nodes() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    ask(cu.cuMemsetD8Async, w.memory, 0, 64, w.other)
    ask(cu.cuMemcpyAsync, w.memory, int(w.memory) + 64, 64, w.other)
    ask(cu.cuLaunchHostFunc, w.other, cu.CUhostFn(_HOST_FUNCTION), 0)
    ask(cu.cuEventRecord, w.event, w.other)
    ask(cu.cuStreamWaitEvent, w.other, w.event, 0)
    graph = ask(cu.cuStreamEndCapture, w.other)
    nodes, count = ask(cu.cuGraphGetNodes, graph, 10)
    return [count, [int(ask(cu.cuGraphNodeGetType, each)) for each in nodes[:count]]]


@case
def capture_into_nothing() -> Any:
    w = World()
    ask(cu.cuStreamBeginCapture, w.other, RELAXED)
    graph = ask(cu.cuStreamEndCapture, w.other)
    made = ask(cu.cuGraphInstantiate, graph, 0)
    return [bool(int(graph)), code(cu.cuGraphLaunch, made, w.other), code(cu.cuStreamSynchronize, w.other)]


@case
def graph_destroyed_twice() -> Any:
    w = World()
    ask(cu.cuGraphExecDestroy, w.spare_exec)
    return code(cu.cuGraphExecDestroy, w.spare_exec)


@case
def graph_launched_after_its_graph_was_destroyed() -> Any:
    w = World()
    ask(cu.cuGraphDestroy, w.graph)
    return [code(cu.cuGraphLaunch, w.exec, w.other), code(cu.cuStreamSynchronize, w.other)]


@case
def exchanged_modes() -> Any:
    context()
    first = int(ask(cu.cuThreadExchangeStreamCaptureMode, RELAXED))
    second = int(ask(cu.cuThreadExchangeStreamCaptureMode, THREAD))
    return [first, second, int(ask(cu.cuThreadExchangeStreamCaptureMode, GLOBAL))]


# ---- devices, contexts, functions
@case
def devices() -> Any:
    before = code(cu.cuDeviceGetCount)
    context()
    none = ask(cu.cuDeviceGet, 0)
    luid = cu.cuDeviceGetLuid(none)
    return [before, code(cu.cuDeviceGet, 99), int(luid[0]), code(cu.cuDeviceGetNvSciSyncAttributes, 0, none, 3),
            code(cu.cuInit, 1), code(cu.cuDeviceGet, -1)]


@case
def attributes() -> Any:
    context()
    device = ask(cu.cuDeviceGet, 0)
    names = {each.value: each for each in cu.CUdevice_attribute}
    return {str(each): int(cu.cuDeviceGetAttribute(names[each], device)[1])
            for each in (19, 40, 41, 91, 103, 105, 114, 122, 124) if each in names}


@case
def contexts() -> Any:
    primary = context()
    device = ask(cu.cuCtxGetDevice)
    flags, active = ask(cu.cuDevicePrimaryCtxGetState, device)
    got: list[Any] = [int(flags), int(active)]
    got.append(int(ask(cu.cuDevicePrimaryCtxRetain, device)) == int(primary))
    ask(cu.cuDevicePrimaryCtxRelease, device)
    ask(cu.cuCtxPopCurrent)
    got += [int(ask(cu.cuCtxGetCurrent)), code(cu.cuCtxPopCurrent), code(cu.cuCtxGetDevice)]
    got += [code(cu.cuCtxDestroy, primary), code(cu.cuCtxSetCurrent, primary)]
    got += [code(cu.cuCtxPushCurrent, cu.CUcontext(0))]
    got += [code(cu.cuDevicePrimaryCtxRelease, device), code(cu.cuDevicePrimaryCtxRelease, device)]
    got += [int(ask(cu.cuDevicePrimaryCtxGetState, device)[1]), code(cu.cuMemAlloc, 64), code(cu.cuStreamCreate, 1)]
    return got


@case
def objects_after_their_primary_context() -> Any:
    w = World()
    ask(cu.cuDevicePrimaryCtxRelease, w.device)
    return code(cu.cuMemFree, w.memory)


@case
def stream_after_its_primary_context() -> Any:
    w = World()
    ask(cu.cuDevicePrimaryCtxRelease, w.device)
    return code(cu.cuStreamQuery, w.other)


@case
def stream_context() -> Any:
    w = World()
    own = ask(cu.cuStreamGetCtx, w.other)
    legacy = ask(cu.cuStreamGetCtx, cu.CUstream(1))
    firsts = [each[0] if isinstance(each, list) else each for each in (own, legacy)]
    return [*[int(each) == int(w.context) for each in firsts],
            int(ask(cu.cuStreamGetFlags, w.other)), int(ask(cu.cuStreamGetFlags, w.blocking)),
            int(ask(cu.cuStreamGetFlags, cu.CUstream(1))), int(ask(cu.cuStreamGetFlags, cu.CUstream(2)))]


@case
def stream_of_another_context() -> Any:
    w = World()
    second = (cu.cuCtxCreate(None, 0, w.device) if cu.CUDA_VERSION >= 13000 else cu.cuCtxCreate(0, w.device))[1]
    got = [code(cu.cuMemsetD8Async, w.memory, 0, 64, w.other), code(cu.cuEventRecord, w.event, w.other),
           code(cu.cuStreamQuery, w.other), code(cu.cuMemcpyAsync, w.memory, int(w.memory) + 64, 64, w.other)]
    mine = stream()
    got += [code(cu.cuEventRecord, w.event, mine), code(cu.cuStreamWaitEvent, mine, w.recorded, 0)]
    ask(cu.cuCtxDestroy, second)
    got += [int(ask(cu.cuCtxGetCurrent)) == int(w.context)]
    return got


def _library() -> Any:
    library = ctypes.CDLL("libcuda.so.1")
    assert library.cuInit(0) == 0
    return library


@case
def functions_by_name() -> Any:
    library = _library()
    got: dict[str, Any] = {}
    for name, version in (("cuNothing", 13000), ("cuInit", 13000), ("cuInit", 1000), ("cuDeviceGetUuid", 9020),
                          ("cuDeviceGetUuid", 11040), ("cuDeviceGetUuid_v2", 13000), ("cuMemAlloc", 3020),
                          ("cuMemAlloc_v2", 3020), ("cuStreamGetCaptureInfo", 9000), ("cuGetProcAddress", 12000)):
        found, status = ctypes.c_void_p(1), ctypes.c_int(9)
        result = library.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(0),
                                             ctypes.byref(status))
        got[f"{name}/{version}"] = [result, bool(found.value), status.value]
    return got


@case
def functions_are_the_symbols() -> Any:
    library = _library()
    got: dict[str, Any] = {}
    wanted = {"cuDeviceGetUuid/9020": "cuDeviceGetUuid", "cuDeviceGetUuid/11040": "cuDeviceGetUuid_v2",
              "cuStreamGetCaptureInfo/11030": "cuStreamGetCaptureInfo_v2", "cuMemFree/13000": "cuMemFree_v2",
              "cuGraphInstantiate/12000": "cuGraphInstantiateWithFlags",
              "cuGraphInstantiate/11000": "cuGraphInstantiate_v2",
              "cuGraphInstantiate/11040": "cuGraphInstantiateWithFlags",
              "cuStreamBeginCapture/10010": "cuStreamBeginCapture_v2", "cuEventDestroy/4000": "cuEventDestroy_v2"}
    for asked, symbol in wanted.items():
        name, version = asked.split("/")
        found = ctypes.c_void_p()
        library.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), int(version), ctypes.c_uint64(0), None)
        got[asked] = found.value == ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    return got


@case
def forked_child() -> Any:
    w = World()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps([code(cu.cuDeviceGetCount), code(cu.cuCtxGetCurrent),
                                    code(cu.cuStreamQuery, w.other), code(cu.cuMemAlloc, 64),
                                    code(cu.cuInit, 0)]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(read, 1000))


class _Child:
    """A case in a separate process, forked before the driver starts."""

    def __init__(self, name: str) -> None:
        self.name = name
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            signal.alarm(_DEADLINE_S)
            try:
                answer = json.dumps(CASES[name]())
            except BaseException as error:
                answer = json.dumps(f"error: {error!r}")
            os.write(write, answer.encode())
            os._exit(0)  # even if threads still wait
        os.close(write)
        self.read = read

    def answer(self) -> Any:
        text = b""
        while part := os.read(self.read, 1 << 16):
            text += part
        os.close(self.read)
        status = os.waitpid(self.pid, 0)[1]
        if os.WIFSIGNALED(status):
            return "hangs" if os.WTERMSIG(status) == signal.SIGALRM else "crashes"
        return json.loads(text)


def main(arguments: list[str]) -> int:
    """Run the cases whose names begin with one of the arguments; all without arguments."""
    names = [name for name in CASES if not arguments or any(name.startswith(each) for each in arguments)]
    answers: dict[str, Any] = {}
    running: list[_Child] = []
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)  # hides output before a crash
    for name in names:
        if len(running) == _PARALLEL:
            first = running.pop(0)
            answers[first.name] = first.answer()
        running.append(_Child(name))
    for each in running:
        answers[each.name] = each.answer()
    print("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(answers[name])}" for name in sorted(answers)) + "\n}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
