"""Filters of the demo's picture: the same result with each array library, in the order of the list."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import xsem
from xsem.cli.demo import arrays
from xsem.cli.demo.picture import draw, filter_in_place
from xsem.types import MemoryHandleType, SemaphoreHandleType

SHAPE = (16, 24, 4)


def shared(device: xsem.Device) -> xsem.Buffer:
    return device.create_memory(MemoryHandleType.OPAQUE_FD, 16 * 24 * 4).map_buffer(shape=SHAPE)


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_appended_work_runs_between_wait_and_signal(device: xsem.Device, staged: bool) -> None:
    buffer = shared(device)
    found = arrays._Staged(device, buffer, 10) if staged else arrays.arrays_for(device, buffer, 10)
    found.warm_up(filter_in_place)
    assert not buffer.numpy().any()   # on a copy
    drawn, filtered = (device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD) for _ in "12")
    expected = draw(3, SHAPE)

    def compute() -> None:
        found.commands.append_wait(drawn, 1)
        found.append(filter_in_place)
        found.commands.append_signal(filtered, 1)

    if not staged:
        compute()
    buffer.numpy()[...] = expected
    drawn.host_signal(1)
    if staged:   # this filter waits for the earlier work
        compute()
    filtered.host_wait(1, timeout_s=10)
    filter_in_place(expected)
    assert np.array_equal(buffer.numpy(), expected)


def test_staged_work_raises_when_the_wait_is_never_met(device: xsem.Device) -> None:
    found = arrays._Staged(device, shared(device), 0.05)
    semaphore = device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
    found.commands.append_wait(semaphore, 1)
    with pytest.raises(xsem.WaitTimeoutError):
        found.append(filter_in_place)
    semaphore.host_signal(1)
    found.commands.synchronize(timeout_s=10)


def library(*, usable: bool) -> Any:
    return SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: usable))


def test_library_is_not_used_when_its_driver_fails(device: xsem.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> bool:
        raise RuntimeError("CUDARuntimeError: cudaErrorInsufficientDriver")

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(is_available=fails)))
    assert arrays._usable("cupy") is None


def test_cuda_memory_is_filtered_by_an_installed_library(device: xsem.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = shared(device)
    on_gpu: Any = SimpleNamespace(__dlpack_device__=lambda: (2, 1), size=buffer.size, shape=buffer.shape)
    made: list[tuple[str, int]] = []
    for name in ("cupy", "torch"):
        monkeypatch.setitem(sys.modules, name, library(usable=True))
        monkeypatch.setattr(arrays, f"_{name}", lambda device, module, ordinal, buffer, name=name:
                            made.append((name, ordinal)))
    arrays.arrays_for(device, on_gpu, 10)
    monkeypatch.setitem(sys.modules, "cupy", None)
    arrays.arrays_for(device, on_gpu, 10)
    assert made == [("cupy", 1), ("torch", 1)]
    monkeypatch.setitem(sys.modules, "torch", library(usable=False))   # the CPU build of torch
    assert arrays.arrays_for(device, on_gpu, 10).name == "numpy, with copies"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert arrays.arrays_for(device, on_gpu, 10).name == "numpy, with copies"


def test_cupy_works_on_the_device_of_the_picture() -> None:
    current = [0]

    @contextlib.contextmanager
    def on(ordinal: int) -> Iterator[None]:
        current.append(ordinal)
        yield
        current.pop()

    cupy = SimpleNamespace(
        cuda=SimpleNamespace(Device=on, Stream=lambda *, non_blocking: contextlib.nullcontext(("stream", current[-1]))),
        from_dlpack=lambda buffer: 0)
    streams: list[Any] = []

    def command_list(stream: Any) -> Any:
        streams.append(stream.enter_result)
        return SimpleNamespace(append_work=lambda work: work())

    there: Any = SimpleNamespace(command_list=command_list)
    found = arrays._cupy(there, cupy, 1, None)  # type: ignore[arg-type]
    seen: list[int] = []
    found.warm_up(lambda _: seen.append(current[-1]))
    found.append(lambda _: seen.append(current[-1]))
    assert seen == [1, 1]
    assert streams == [("stream", 1)]
    assert current == [0]
