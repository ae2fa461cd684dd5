"""Test prepared signals and waits of CUDA, which make their arrays once. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from support.cuda_sim import on_stand_in

import xsem
from xsem.types import SemaphoreHandleType

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
BOUND_S = 20.0


class Rig:
    def __init__(self, host: xsem.Device, cuda: xsem.Device) -> None:
        self.host = host
        self.cuda = cuda
        self.commands = cuda.create_command_list()

    def semaphores(
        self, count: int, kind: SemaphoreHandleType = TIMELINE
    ) -> tuple[list[xsem.Semaphore], list[xsem.Semaphore]]:
        there = [self.host.create_semaphore(kind) for _ in range(count)]
        here = []
        for each in there:
            with each.export(for_device=self.cuda) as desc:
                here.append(self.cuda.import_semaphore(desc))
        return there, here


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Rig(host, cuda)


@contextmanager
def failures(before: bytes | None, after: bytes | None = None) -> Iterator[None]:
    """Have the stand-in's functions fail in this block, in the form of SIMCUDA_FAIL and SIMCUDA_FAIL_AFTER."""
    library = ctypes.CDLL("libcuda.so.1")
    library.simcuda_fail(before, after)
    try:
        yield
    finally:
        library.simcuda_fail(None, None)


def values(there: list[xsem.Semaphore]) -> list[int]:
    return [each.value() for each in there]


@on_stand_in
@pytest.mark.parametrize("count", [1, 2, 64])
def test_values_reach_their_semaphores(count: int) -> None:
    with rig() as at:
        there, here = at.semaphores(count)
        prepared = partial(at.commands.append_signal, here)
        for start in (1, 100, 2**32, 2**63, 2**64 - 1 - count):
            prepared([start + n for n in range(count)])
            at.commands.synchronize(timeout_s=BOUND_S)
            assert values(there) == [start + n for n in range(count)]
            gc.collect()   # the driver's arguments live as long as the prepared append


@on_stand_in
def test_one_semaphore_and_other_kinds() -> None:
    with rig() as at:
        there, here = at.semaphores(1)
        marks_there, marks = at.semaphores(1, BINARY)
        one, both, mark = (
            partial(at.commands.append_signal, each) for each in (here[0], [here[0], marks[0]], marks[0]))
        for value in (3, 4):
            one(value)
            there[0].host_wait(value, timeout_s=BOUND_S)
        both([5, None])
        there[0].host_wait(5, timeout_s=BOUND_S)
        marks_there[0].host_wait(timeout_s=BOUND_S)
        mark()
        marks_there[0].host_wait(timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("code", "kind", "reason"), [
    (400, xsem.DriverError, "invalid_handle"), (719, xsem.DeviceLostError, "device_lost"),
    (12345, xsem.DriverError, "unknown_code")])
def test_codes_of_the_driver_are_those_of_an_append(
    count: int, code: int, kind: type[xsem.DriverError], reason: str
) -> None:
    with rig() as at:
        there, here = at.semaphores(count)
        prepared = partial(at.commands.append_signal, here if count > 1 else here[0])
        for value in (1, 2):
            prepared([value] * count if count > 1 else value)
        with failures(f"cuSignalExternalSemaphoresAsync:{code}".encode()), pytest.raises(xsem.XsemError) as caught:
            prepared([5] * count if count > 1 else 5)
        error = caught.value
        assert type(error) is kind
        assert (error.reason, error.call, error.code, error.backend) == (
            reason, "cuSignalExternalSemaphoresAsync", code, "cuda")
        at.commands.synchronize(timeout_s=BOUND_S)
        assert values(there) == [2] * count
        prepared([3] * count if count > 1 else 3)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert values(there) == [3] * count


@on_stand_in
@pytest.mark.parametrize("handle", [1, 2])
def test_default_streams_take_prepared_calls(handle: int) -> None:
    with rig() as at:
        there, here = at.semaphores(3)
        commands = at.cuda.command_list(handle)
        signal, one = partial(commands.append_signal, here), partial(commands.append_signal, here[0])
        for value in (1, 2, 3):
            signal([2 * value] * 3)
            one(2 * value + 1)
        commands.synchronize(timeout_s=BOUND_S)
        assert values(there) == [7, 6, 6]


@on_stand_in(SIMCUDA_MISSING="cuSignalExternalSemaphoresAsync")
def test_driver_without_the_function_says_so_at_the_call() -> None:
    with rig() as at:
        _, here = at.semaphores(2)
        for semaphores, value in ((here, [1, 1]), (here[0], 1)):
            prepared = partial(at.commands.append_signal, semaphores)
            with pytest.raises(xsem.UnsupportedError) as caught:
                prepared(value)
            assert caught.value.reason == "driver_too_old"


@on_stand_in
def test_prepared_calls_are_recorded() -> None:
    with rig() as at:
        there, here = at.semaphores(3)
        prepared = partial(at.commands.append_signal, here)
        prepared([1, 1, 1])
        with at.commands.record() as recording:
            prepared([2, 2, 2])
        at.commands.synchronize(timeout_s=BOUND_S)
        assert values(there) == [1, 1, 1]
        recording.replay({here[1]: 7})
        at.commands.synchronize(timeout_s=BOUND_S)
        assert values(there) == [2, 7, 2]
        with pytest.raises(xsem.BadArgumentError) as caught:
            prepared([8, 7, 8])
        assert caught.value.reason == "value_not_above_last"


def test_nothing_is_prepared_without_a_function_address() -> None:
    from support.cuda_recorder import Recorder

    from xsem.types import SemaphoreKind
    from xsem_cuda.context import Context
    from xsem_cuda.fences import Fences
    from xsem_cuda.queue import StreamQueue
    from xsem_cuda.semaphores import SemaphoreToken

    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    cuda = importlib.import_module("cuda.bindings.driver")
    recorder = Recorder(cuda)
    context = Context(recorder, cuda.CUcontext(0xC0))
    commands = StreamQueue(recorder, context, Fences(recorder, context), 0x5000)
    tokens = [SemaphoreToken(cuda.CUexternalSemaphore(address), SemaphoreKind.TIMELINE) for address in (0x70, 0x80)]

    def lacking(*_: object) -> tuple[Any, ...]:
        raise RuntimeError("cuGetProcAddress is not found")

    for answer in (lambda *_: (0, 0), lacking):
        recorder.answers["cuGetProcAddress"] = answer
        for of in (tokens, tokens[:1]):
            assert commands.prepare_wait(of) is None
            assert commands.prepare_signal(of) is None
