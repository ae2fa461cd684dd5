"""Test CUDA on a real GPU, with NVIDIA's Vulkan driver as the exporter. Skipped, with the reason, without a GPU."""

from __future__ import annotations

import gc
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.at_once import in_thread
from support.gpu import at_once, needs_gpu
from support.waiting import until

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
SIZE = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _gpu() -> None:
    needs_gpu("vulkan")


@pytest.fixture
def cuda(_gpu: None) -> Iterator[xsem.Device]:
    with xsem.open_device("cuda:0") as device:
        yield device


@pytest.fixture
def vulkan(cuda: xsem.Device) -> Iterator[xsem.Device]:
    with xsem.open_device("vulkan", uuid=cuda.info.uuid) as device:
        yield device


class Shared:
    """A semaphore that Vulkan exports and CUDA imports."""

    def __init__(self, vulkan: xsem.Device, cuda: xsem.Device, kind: SemaphoreHandleType) -> None:
        self.there = vulkan.create_semaphore(kind)
        with self.there.export(for_device=cuda) as desc:
            self.here = cuda.import_semaphore(desc)


@pytest.fixture
def timeline(vulkan: xsem.Device, cuda: xsem.Device) -> Shared:
    return Shared(vulkan, cuda, TIMELINE)


@pytest.fixture
def binary(vulkan: xsem.Device, cuda: xsem.Device) -> Shared:
    return Shared(vulkan, cuda, BINARY)


def current_context() -> int:
    driver = importlib.import_module("cuda.bindings.driver")
    return int(driver.cuCtxGetCurrent()[1])


# ---- semaphores
def test_cuda_signal_reaches_vulkan(cuda: xsem.Device, timeline: Shared) -> None:
    commands = cuda.create_command_list()
    commands.append_signal(timeline.here, 7)
    timeline.there.host_wait(7, timeout_s=10)
    assert timeline.there.value() == 7


def test_cuda_wait_stays_pending_until_vulkan_signals(cuda: xsem.Device, timeline: Shared) -> None:
    commands = cuda.create_command_list()
    done = cuda.create_event()
    commands.append_wait(timeline.here, 2**63, signal_event=done)
    timeline.there.host_signal(1)
    assert not done.query()
    timeline.there.host_signal(2**63)
    done.wait(timeout_s=10)


def test_wait_runs_out_with_the_stuck_operation_first(cuda: xsem.Device, timeline: Shared) -> None:
    commands = cuda.create_command_list()
    commands.append_wait(timeline.here, 3)
    with pytest.raises(xsem.WaitTimeoutError) as caught:
        commands.synchronize(timeout_s=0.2)
    assert caught.value.pending[0].value == 3
    timeline.there.host_signal(3)
    commands.synchronize(timeout_s=10)


def test_binary_signal_and_wait_on_two_lists(cuda: xsem.Device, binary: Shared) -> None:
    waiter, signaller = cuda.create_command_list(), cuda.create_command_list()
    done = cuda.create_event()
    waiter.append_wait(binary.here, signal_event=done)
    assert not done.query()
    signaller.append_signal(binary.here)
    done.wait(timeout_s=10)


def test_event_of_one_list_orders_another(cuda: xsem.Device, timeline: Shared) -> None:
    first, second = cuda.create_command_list(), cuda.create_command_list()
    between = cuda.create_event()
    first.append_wait(timeline.here, 1, signal_event=between)
    second.append_signal(timeline.here, 5, wait_events=[between])
    timeline.there.host_signal(1)
    timeline.there.host_wait(5, timeout_s=10)


# ---- release
def test_release_twice_with_a_pending_wait_returns_at_once(
    cuda: xsem.Device, timeline: Shared
) -> None:
    commands = cuda.create_command_list()
    commands.append_wait(timeline.here, 1)
    at_once(timeline.here.release, timeline.here.release, commands.release)
    timeline.there.host_signal(1)


def test_memory_release_behind_an_unmet_wait_returns_at_once(
    cuda: xsem.Device, vulkan: xsem.Device, timeline: Shared
) -> None:
    with vulkan.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).export(for_device=cuda) as desc:
        memory = cuda.import_memory(desc)
    buffer = memory.map_buffer()
    commands = cuda.create_command_list()
    commands.append_wait(timeline.here, 1)
    at_once(buffer.release, memory.release)
    assert cuda.releasing() == ("buffer", "opaque_fd memory")
    timeline.there.host_signal(1)
    commands.synchronize(timeout_s=10)
    until(lambda: not cuda.releasing())   # a thread of xsem frees it


def test_append_raises_before_the_driver_would_block(cuda: xsem.Device, timeline: Shared) -> None:
    commands = cuda.create_command_list()
    commands.append_wait(timeline.here, 1)
    appended = 1

    def fill_up() -> None:
        nonlocal appended
        while appended < 5000:
            commands.append_signal(timeline.here, 1 + appended)
            appended += 1

    with pytest.raises(xsem.WouldBlockError):
        fill_up()
    assert 900 < appended <= 1020
    timeline.there.host_signal(1)
    commands.synchronize(timeout_s=10)


def test_fds_and_threads_are_as_before(vulkan: xsem.Device) -> None:
    def cycle() -> None:
        with xsem.open_device("cuda:0") as cuda:
            shared = Shared(vulkan, cuda, TIMELINE)
            commands = cuda.create_command_list()
            commands.append_wait(shared.here, 1)
            shared.here.release()
            shared.there.host_signal(1)
            commands.synchronize(timeout_s=10)
            shared.there.release()

    def counts() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(list(Path("/proc/self/task").iterdir()))

    def settled() -> tuple[int, int]:
        # A device closes on a thread of xsem, soon after release() returns.
        found: list[tuple[int, int]] = []
        deadline = time.monotonic() + 10
        while len(found) < 20 or len(set(found[-20:])) > 1:
            assert time.monotonic() < deadline
            gc.collect()
            time.sleep(0.02)
            found.append(counts())
        return found[-1]

    cycle()  # resources that the drivers keep
    before = settled()
    for _ in range(20):
        cycle()
    assert settled() == before


# ---- contexts and threads
def test_thread_without_a_context_has_none_afterwards(cuda: xsem.Device, timeline: Shared) -> None:
    def work() -> None:
        assert current_context() == 0
        commands = cuda.create_command_list()
        between = cuda.create_event()
        commands.append_signal(timeline.here, 1, signal_event=between)
        other = cuda.create_command_list()
        other.append_signal(timeline.here, 2, wait_events=[between])
        other.append_barrier()
        other.synchronize(timeout_s=10)
        host = cuda.host_buffer(64)
        host.release()
        assert current_context() == 0

    in_thread(work)
    assert timeline.there.value() == 2


def test_legacy_stream_works_on_a_thread_without_a_context(cuda: xsem.Device, timeline: Shared) -> None:
    def work() -> None:
        commands = cuda.command_list(1)
        commands.append_signal(timeline.here, 1)
        commands.synchronize(timeout_s=10)
        assert current_context() == 0

    in_thread(work)


# ---- bad handles
@pytest.mark.parametrize("make", [lambda: os.memfd_create("none"), lambda: os.eventfd(0)])
def test_wrong_fd_is_refused_and_left_open(cuda: xsem.Device, make: Callable[[], int]) -> None:
    fd = make()
    try:
        with pytest.raises(xsem.XsemError) as caught:
            cuda.import_semaphore(xsem.SemaphoreDesc.timeline_fd(fd, device_uuid=cuda.info.uuid))
        assert isinstance(caught.value, xsem.BadHandleError), caught.value
        os.fstat(fd)
    finally:
        os.close(fd)


# ---- memory and frameworks
def test_copies_go_both_ways(cuda: xsem.Device, vulkan: xsem.Device) -> None:
    with vulkan.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).export(for_device=cuda) as desc:
        memory = cuda.import_memory(desc)
    import numpy as np

    buffer = memory.map_buffer(shape=(SIZE // 4,), dtype="uint32")
    data = np.arange(SIZE // 4, dtype="uint32")
    buffer.copy_from_host(data)
    assert (buffer.copy_to_host() == data).all()
    commands = cuda.create_command_list()
    for pattern in (b"\x07", b"\x01\x02", b"\x01\x02\x03\x04"):
        commands.append_fill(buffer, pattern)
        commands.synchronize(timeout_s=10)
        assert bytes(buffer.copy_to_host().tobytes()) == pattern * (SIZE // len(pattern))


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def test_torch_reads_vulkan_memory_without_a_copy(
    cuda: xsem.Device, vulkan: xsem.Device, timeline: Shared, torch: Any
) -> None:
    exported = vulkan.create_memory(MemoryHandleType.OPAQUE_FD, SIZE)
    with exported.export(for_device=cuda) as desc:
        memory = cuda.import_memory(desc)
    buffer = memory.map_buffer()
    tensor = torch.from_dlpack(buffer)
    assert tensor.data_ptr() == buffer.address
    assert int(tensor.long().sum()) >= 0   # loads the kernels: behind an unmet wait the load would block this thread
    there = exported.map_buffer()
    commands = cuda.command_list(torch.cuda.current_stream())
    commands.append_wait(timeline.here, 1)
    total = tensor.long().sum()
    renderer = vulkan.create_command_list()
    renderer.append_fill(there, b"\x03\x03\x03\x03")
    renderer.append_signal(timeline.there, 1)
    assert int(total) == 3 * SIZE


def test_torch_event_orders_a_list(cuda: xsem.Device, timeline: Shared, torch: Any) -> None:
    stream = torch.cuda.Stream()
    borrowed = cuda.command_list(stream)
    borrowed.append_wait(timeline.here, 1)
    event = torch.cuda.Event()
    event.record(stream)
    commands = cuda.create_command_list()
    commands.append_signal(timeline.here, 2, wait_events=[cuda.event(event)])
    assert timeline.there.value() == 0
    timeline.there.host_signal(1)
    timeline.there.host_wait(2, timeout_s=10)


def test_capture_survives_releases_and_queries_of_another_thread(
    cuda: xsem.Device, vulkan: xsem.Device, timeline: Shared, torch: Any
) -> None:
    ready, stop = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def disturb() -> None:
        try:
            while not stop.is_set():
                shared = Shared(vulkan, cuda, TIMELINE)
                with vulkan.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).export(for_device=cuda) as desc:
                    memory = cuda.import_memory(desc)
                buffer = memory.map_buffer()
                commands = cuda.create_command_list()
                done = cuda.create_event()
                commands.append_signal(shared.here, 1, signal_event=done)
                while not done.query():
                    pass
                commands.query()
                for each in (buffer, memory, shared.here, commands):
                    each.release()
                ready.set()
        except BaseException as error:
            failures.append(error)
            ready.set()

    x = torch.zeros(1 << 16, device="cuda")
    y = x * 2 + 1  # loads the kernels before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        assert ready.wait(30)
        with torch.cuda.graph(graph):
            commands = cuda.command_list(torch.cuda.current_stream())
            y = x * 2
            for _ in range(200):
                y = y + 1
                time.sleep(0.001)  # gives the other thread turns; the test does not depend on their number
            commands.append_signal(timeline.here, 9)
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
    graph.replay()
    timeline.there.host_wait(9, timeout_s=10)
    torch.cuda.synchronize()
    assert float(y[0]) == 200
