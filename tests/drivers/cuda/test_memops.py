"""The stand-in's registered memory and its operations on words are as an H200's (driver 580.159.04)."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cuda_calls import ask, code, driver
from support.cuda_sim import on_stand_in

PAGE = 4096
INVALID_VALUE, ALREADY_REGISTERED, NOT_REGISTERED = 1, 712, 713
WAIT, WRITE = 4, 5
BOUND_S = 20.0


class Page:
    """A mapped page, not registered yet, with its first word."""

    def __init__(self, pages: int = 1) -> None:
        self.map = mmap.mmap(-1, pages * PAGE)
        self.word = ctypes.c_uint64.from_buffer(self.map)
        self.address = ctypes.addressof(self.word)

    def register(self, flags: int = 3, offset: int = 0, size: int = PAGE) -> int:
        return code("cuMemHostRegister", self.address + offset, size, flags)


def operation(kind: int, address: int, value: int) -> Any:
    made = driver().CUstreamBatchMemOpParams()
    made.waitValue.operation = driver().CUstreamBatchMemOpType(kind)
    made.waitValue.address, made.waitValue.value64 = driver().CUdeviceptr(address), value
    return made


@contextmanager
def stream() -> Iterator[Any]:
    ask("cuInit", 0)
    ask("cuCtxSetCurrent", ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", 0)))
    made = ask("cuStreamCreate", 1)
    yield made
    ask("cuStreamSynchronize", made)
    ask("cuStreamDestroy", made)


# ---- registered memory
@on_stand_in
def test_each_range_is_registered_once() -> None:
    with stream():
        page = Page(2)
        assert page.register() == 0
        assert page.register() == page.register(offset=64, size=64) == ALREADY_REGISTERED
        assert page.register(offset=PAGE + 64, size=64) == 0
        assert int(ask("cuMemHostGetDevicePointer", page.address + 16, 0)) == page.address + 16
        assert code("cuMemHostUnregister", page.address + 64) == NOT_REGISTERED
        assert code("cuMemFreeHost", page.address) == INVALID_VALUE
        for address in (page.address, page.address + PAGE + 64):
            assert code("cuMemHostUnregister", address) == 0
            assert code("cuMemHostUnregister", address) == NOT_REGISTERED
        assert page.register() == 0
        ask("cuMemHostUnregister", page.address)


@on_stand_in
def test_unregister_blocks_behind_any_unmet_wait() -> None:
    with stream() as held:
        page, other = Page(), Page()
        assert page.register() == other.register() == 0
        ask("cuStreamBatchMemOp", held, 1, [operation(WAIT, page.address, 1)], 0)
        context = ask("cuCtxGetCurrent")

        def unregister() -> None:
            ask("cuCtxSetCurrent", context)
            ask("cuMemHostUnregister", other.address)

        thread = threading.Thread(target=unregister, daemon=True)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        page.word.value = 1
        thread.join(BOUND_S)
        assert not thread.is_alive()
        ask("cuMemHostUnregister", page.address)


# ---- words
@on_stand_in
@pytest.mark.parametrize(("now", "wanted", "met"), [
    (0, 0, True), (0, 1, False), (5, 5, True), (6, 5, True), (0, 2**63 - 1, False), (0, 2**63, False),
    (0, 2**63 + 5, True), (2**63 - 1, 10, True), (2**64 - 1, 10, False), (2**32 + 1, 2, True)])
def test_wait_compares_the_signed_difference(now: int, wanted: int, met: bool) -> None:
    with stream() as commands:
        page = Page()
        page.register()
        page.word.value = now
        ask("cuStreamBatchMemOp", commands, 1, [operation(WAIT, page.address, wanted)], 0)
        event = ask("cuEventCreate", 2)
        ask("cuEventRecord", event, commands)
        if met:
            ask("cuEventSynchronize", event)
        else:
            assert code("cuEventQuery", event) == 600
            page.word.value = wanted
        ask("cuStreamSynchronize", commands)
        ask("cuMemHostUnregister", page.address)


@on_stand_in
def test_operations_of_a_batch_follow_each_other() -> None:
    with stream() as commands:
        page = Page()
        page.register()
        words = (ctypes.c_uint64 * 4).from_address(page.address)
        ask("cuStreamBatchMemOp", commands, 3, [
            operation(WRITE, page.address + 8, 7), operation(WAIT, page.address, 1),
            operation(WRITE, page.address + 16, 8)], 0)
        while words[1] != 7:
            pass
        assert words[2] == 0
        words[0] = 1
        ask("cuStreamSynchronize", commands)
        assert words[2] == 8
        ask("cuMemHostUnregister", page.address)


@on_stand_in
def test_words_outside_of_memory_and_odd_batches_are_refused() -> None:
    with stream() as commands:
        page = Page()
        page.register(size=64)
        wrong = [(page.address + 4, WRITE), (page.address + 64, WRITE), (page.address, 6)]
        for address, kind in wrong:
            made = operation(kind, address, 1)
            assert code("cuStreamBatchMemOp", commands, 1, [made], 0) == INVALID_VALUE
        good = operation(WRITE, page.address, 1)
        assert code("cuStreamBatchMemOp", commands, 0, [], 0) == INVALID_VALUE
        assert code("cuStreamBatchMemOp", commands, 256, [good] * 256, 0) == INVALID_VALUE
        assert code("cuStreamBatchMemOp", commands, 255, [good] * 255, 0) == 0
        ask("cuStreamSynchronize", commands)
        ask("cuMemHostUnregister", page.address)


@on_stand_in(SIMCUDA_LATE_US="300000")
def test_late_word_is_seen_before_its_stream_is_done() -> None:
    with stream() as commands:
        page = Page()
        page.register()
        ask("cuStreamBatchMemOp", commands, 1, [operation(WRITE, page.address, 1)], 0)
        while page.word.value != 1:
            pass
        assert code("cuStreamQuery", commands) == 600
        ask("cuStreamSynchronize", commands)
        ask("cuMemHostUnregister", page.address)


# ---- nodes of graphs
@on_stand_in
def test_instance_takes_new_values_and_no_other_operations() -> None:
    with stream() as commands:
        page = Page()
        page.register()
        mode = driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        ask("cuStreamBeginCapture", commands, mode)
        ask("cuStreamBatchMemOp", commands, 1, [operation(WRITE, page.address, 1)], 0)
        graph = ask("cuStreamEndCapture", commands)
        node = ask("cuGraphGetNodes", graph, 1)[0][0]
        assert ask("cuGraphNodeGetType", node) == driver().CUgraphNodeType.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
        given = ask("cuGraphBatchMemOpNodeGetParams", node)
        assert given.count == 1
        instance = ask("cuGraphInstantiate", graph, 0)
        for kind, count, expected in ((WRITE, 1, 0), (WAIT, 1, INVALID_VALUE), (WRITE, 2, INVALID_VALUE)):
            params = driver().CUDA_BATCH_MEM_OP_NODE_PARAMS()
            params.paramArray = [operation(kind, page.address, 9)] * count
            params.count, params.ctx = count, given.ctx
            assert code("cuGraphExecBatchMemOpNodeSetParams", instance, node, params) == expected
        ask("cuGraphLaunch", instance, commands)
        ask("cuStreamSynchronize", commands)
        assert page.word.value == 9
        ask("cuGraphExecDestroy", instance)
        ask("cuGraphDestroy", graph)
        ask("cuMemHostUnregister", page.address)
