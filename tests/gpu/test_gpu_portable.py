"""Test timelines and memory in host memory on a real GPU. Vulkan is needed for one test. Skipped without a GPU."""

from __future__ import annotations

import contextlib
import importlib
import mmap
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.gpu import needs_gpu
from support.importer import driver_of, list_of
from support.waiting import until

import xsem
from xsem.spi import compiled
from xsem.types import MemoryHandleType, SemaphoreHandleType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

TIMELINE, MEMORY = SemaphoreHandleType.HOST_TIMELINE_FD, MemoryHandleType.HOST_MEMORY_FD
BOUND_S = 30.0
BLOCKED_S = 5.0   # a call that has not returned by then is blocked
SIZE = 8 << 20


@pytest.fixture
def cuda() -> Iterator[xsem.Device]:
    needs_gpu()
    with xsem.open_device("cuda:0") as device:
        assert TIMELINE in device.capabilities.semaphore_export, device._device_state.driver.undeclared_causes
        yield device
    until(lambda: not device.releasing())


@pytest.fixture
def host() -> Iterator[xsem.Device]:
    with xsem.open_device("host") as device:
        yield device


@pytest.fixture
def torch(cuda: xsem.Device) -> Any:
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    return found


def imported(made: Any, device: xsem.Device) -> Any:
    with made.export(for_device=device) as desc:
        return (device.import_semaphore if isinstance(made, xsem.Semaphore) else device.import_memory)(desc)


@contextlib.contextmanager
def unmet(cuda: xsem.Device) -> Iterator[Callable[[], object]]:
    """Hold a list behind a wait for a timeline in this block. The given function meets the wait."""
    gate, commands = cuda.create_timeline(), cuda.create_command_list()
    commands.append_wait(gate, 1)

    def meet() -> None:
        if gate.value() == 0:
            gate.host_signal(1)

    try:
        yield meet
    finally:
        meet()
        commands.synchronize(timeout_s=BOUND_S)


def returns(call: Callable[[], object], meet: Callable[[], object]) -> bool:
    """Return whether the call returns while the wait is unmet. If not, meet the wait."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(BLOCKED_S)
    blocked = thread.is_alive()
    if blocked:
        meet()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    return not blocked


# ---- waits and signals
def test_host_and_gpu_answer_each_other(cuda: xsem.Device, host: xsem.Device) -> None:
    here = cuda.create_timeline()
    there, commands = imported(here, host), cuda.create_command_list()
    began = time.monotonic()
    for turn in range(1, 400, 2):
        commands.append_wait(here, turn)
        commands.append_signal(here, turn + 1)
        there.host_signal(turn)
        there.host_wait(turn + 1, timeout_s=BOUND_S)
    assert here.value() == 400
    assert time.monotonic() - began < 20   # without polls, each wait of the host would take up to a second


@pytest.mark.parametrize("count", [1, 8, 64, 300])
def test_batch_holds_and_signals_each_with_its_value(cuda: xsem.Device, count: int) -> None:
    made = [cuda.create_timeline() for _ in range(count)]
    answers = [cuda.create_timeline() for _ in range(count)]
    commands = cuda.create_command_list()
    for turn in (1000, 2000, 3000, 4000):
        commands.append_wait(made, [turn + n for n in range(count)])
        commands.append_signal(answers, [turn + n for n in range(count)])
        for number, each in enumerate(made[1:], 1):
            each.host_signal(turn + number)
        time.sleep(0.02)
        assert not commands.query()
        assert all(each.value() < turn for each in answers)
        made[0].host_signal(turn)
        commands.synchronize(timeout_s=BOUND_S)
        assert [each.value() for each in answers] == [turn + n for n in range(count)]
    prepared = commands._queue.prepared.waits[tuple(each._state for each in made)]
    assert (prepared.quick is not None) is (compiled() and count < 256)


@pytest.mark.parametrize("handle", [1, 2])
def test_default_streams(cuda: xsem.Device, handle: int) -> None:
    here, commands = cuda.create_timeline(), cuda.command_list(handle)
    for turn in (1, 2, 3):
        commands.append_signal(here, turn)
        commands.append_wait(here, turn)
    commands.synchronize(timeout_s=BOUND_S)
    assert here.value() == 3


@pytest.mark.parametrize("value", [1, 2**31, 2**32 + 1, 2**63 - 1])
def test_wait_stays_pending_below_its_value(cuda: xsem.Device, value: int) -> None:
    here, commands = cuda.create_timeline(), cuda.create_command_list()
    commands.append_wait(here, value)
    if value > 1:
        here.host_signal(value - 1)
    time.sleep(0.02)
    assert not commands.query()
    here.host_signal(value)
    commands.synchronize(timeout_s=BOUND_S)


def test_values_beyond_half_of_the_range(cuda: xsem.Device) -> None:
    here, commands = cuda.create_timeline(2**63 - 2), cuda.create_command_list()
    commands.append_wait(here, 2**63 + 5)
    time.sleep(0.02)
    assert not commands.query()
    here.host_signal(2**63 + 5)
    commands.append_signal(here, 2**64 - 1)
    commands.synchronize(timeout_s=BOUND_S)
    assert here.value() == 2**64 - 1


def test_mixed_batch_with_a_timeline_of_vulkan(cuda: xsem.Device, host: xsem.Device) -> None:
    try:
        exporter = cuda.companion_exporter()
    except xsem.XsemError as error:
        pytest.skip(f"needs Vulkan on the GPU: {error}")
    with exporter:
        there, here = exporter.create_timeline(), cuda.create_timeline()
        gate = imported(here, host)   # signals a value below that of the pending signal
        both, commands = [imported(there, cuda), here], cuda.create_command_list()
        for turn in (10, 20, 30):
            commands.append_wait(both, [turn, turn])
            commands.append_signal(both, [turn + 5, turn + 6])
            gate.host_signal(turn)
            time.sleep(0.02)
            assert not commands.query()
            there.host_signal(turn)
            commands.synchronize(timeout_s=BOUND_S)
            assert (there.value(), here.value()) == (turn + 5, turn + 6)
        for each in both:
            each.release()
        until(lambda: not cuda.releasing())


# ---- order of memory
def test_consumer_sees_all_bytes_of_a_held_back_producer(cuda: xsem.Device, host: xsem.Device) -> None:
    gate, filled, copied = (cuda.create_timeline() for _ in range(3))
    shared = cuda.create_memory(MEMORY, SIZE)
    seen = imported(shared, host).map_buffer(dtype="uint32").numpy()
    near, far = shared.map_buffer(), cuda.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).map_buffer(size=SIZE)
    producer, consumer = cuda.create_command_list(), cuda.create_command_list()
    for turn in range(1, 101):
        consumer.append_wait(filled, turn)
        consumer.append_copy(near, far)
        consumer.append_signal(copied, turn)
        producer.append_wait(gate, turn)
        producer.append_fill(far, turn.to_bytes(4, "little"))
        producer.append_signal(filled, turn)
        gate.host_signal(turn)
        copied.host_wait(turn, timeout_s=BOUND_S)
        assert (seen == turn).all(), turn
    producer.synchronize(timeout_s=BOUND_S)
    consumer.synchronize(timeout_s=BOUND_S)


def test_kernel_of_torch_and_a_word_are_in_order_for_the_host(
    cuda: xsem.Device, host: xsem.Device, torch: Any
) -> None:
    shared, done = cuda.create_memory(MEMORY, SIZE), cuda.create_timeline()
    seen = imported(shared, host).map_buffer(dtype="float32").numpy()
    place = torch.from_dlpack(shared.map_buffer(dtype="float32"))
    stream, far = torch.cuda.Stream(), torch.zeros(SIZE // 4, device="cuda")
    torch.cuda.synchronize()
    commands = cuda.command_list(stream)
    for turn in range(1, 201):
        with torch.cuda.stream(stream):
            far.add_(1.0)
            place.copy_(far, non_blocking=True)
        commands.append_signal(done, turn)
        done.host_wait(turn, timeout_s=BOUND_S)
        assert (seen == turn).all(), turn
    stream.synchronize()


@pytest.mark.parametrize("way", ["dlpack", "cuda_array_interface"])
def test_kernel_of_torch_writes_memory_of_the_host_in_place(
    cuda: xsem.Device, host: xsem.Device, torch: Any, way: str
) -> None:
    shared = cuda.create_memory(MEMORY, SIZE)
    seen = imported(shared, host).map_buffer(4096, shape=(1024,), dtype="int32").numpy()
    buffer = shared.map_buffer(4096, shape=(1024,), dtype="int32")
    tensor = torch.from_dlpack(buffer) if way == "dlpack" else torch.as_tensor(buffer, device="cuda")
    seen[:] = np.arange(1024)
    tensor.mul_(3)
    torch.cuda.synchronize()
    assert (seen == 3 * np.arange(1024)).all()
    assert tensor.data_ptr() == shared.native_handle + 4096


def test_application_writes_the_value_at_its_address(cuda: xsem.Device) -> None:
    made = cuda.create_timeline(5)
    driver: Any = importlib.import_module("cuda.bindings.driver")
    with driver_of(cuda)._context:
        code, stream = driver.cuStreamCreate(1)
        assert int(code) == 0
        assert int(driver.cuStreamWriteValue64(stream, driver.CUdeviceptr(made.native_handle), 9, 0)[0]) == 0
        assert int(driver.cuStreamSynchronize(stream)[0]) == 0
        driver.cuStreamDestroy(stream)
    assert made.value() == 9


def test_memory_is_copied_and_filled(cuda: xsem.Device) -> None:
    buffer = cuda.create_memory(MEMORY, SIZE).map_buffer(4096, 4096)
    buffer.copy_from_host(np.arange(4096, dtype=np.uint16).view(np.uint8)[:4096], timeout_s=BOUND_S)
    assert (buffer.copy_to_host(timeout_s=BOUND_S) == np.arange(4096, dtype=np.uint16).view(np.uint8)[:4096]).all()


# ---- recordings and captures
def test_recording_takes_new_values(cuda: xsem.Device) -> None:
    gate, done, commands = cuda.create_timeline(), cuda.create_timeline(), cuda.create_command_list()
    others = [cuda.create_timeline() for _ in range(3)]
    with commands.record() as recording:
        commands.append_wait(gate, 1)
        commands.append_signal([done, *others], [1, 1, 1, 1])
    for frame in range(1, 6):   # pending replays keep their values
        recording.replay({gate: frame, done: 10 * frame, **dict.fromkeys(others, frame)})
    for frame in range(1, 6):
        time.sleep(0.01)
        assert done.value() == 10 * (frame - 1)
        gate.host_signal(frame)
        done.host_wait(10 * frame, timeout_s=BOUND_S)
    commands.synchronize(timeout_s=BOUND_S)
    assert [each.value() for each in others] == [5, 5, 5]


def test_graph_of_torch_takes_words(cuda: xsem.Device, torch: Any) -> None:
    gate, done, stream = cuda.create_timeline(), cuda.create_timeline(), torch.cuda.Stream()
    tensor = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        commands = cuda.command_list(stream)
        commands.append_wait(gate, 5)
        tensor.add_(1)
        commands.append_signal(done, 7)
    with torch.cuda.stream(stream):
        graph.replay()
    time.sleep(0.02)
    assert done.value() == 0
    gate.host_signal(5)
    done.host_wait(7, timeout_s=BOUND_S)
    stream.synchronize()
    assert float(tensor.sum()) == 1024


# ---- processes and devices
def answer(desc: xsem.SemaphoreDesc, device: str, turns: int) -> None:
    """In another process: add 1 to each value, on the host or on a stream."""
    with xsem.open_device(device) as here, here.import_semaphore(desc) as there:
        if device == "host":
            for turn in range(turns):
                there.host_wait(2 * turn + 1, timeout_s=60)
                there.host_signal(2 * turn + 2)
            return
        commands = here.create_command_list()
        for turn in range(turns):
            commands.append_wait(there, 2 * turn + 1)
            commands.append_signal(there, 2 * turn + 2)
            if turn % 100 == 99:
                commands.synchronize(timeout_s=60)
        commands.synchronize(timeout_s=60)


def hand_over(cuda: xsem.Device, other: str) -> None:
    turns, here, commands = 300, cuda.create_timeline(), cuda.create_command_list()
    with here.export() as desc:
        process = multiprocessing.get_context("spawn").Process(target=answer, args=(desc, other, turns))
        process.start()
    for turn in range(turns):
        commands.append_signal(here, 2 * turn + 1)
        commands.append_wait(here, 2 * turn + 2)
        if turn % 100 == 99:
            commands.synchronize(timeout_s=60)
    commands.synchronize(timeout_s=60)
    process.join(60)
    assert process.exitcode == 0
    assert here.value() == 2 * turns


@pytest.mark.parametrize("other", ["host", "cuda:0"])
def test_another_process_answers(cuda: xsem.Device, other: str) -> None:
    hand_over(cuda, other)


@pytest.mark.parametrize("apart", [False, True], ids=["one process", "two processes"])
def test_two_gpus_hand_over(cuda: xsem.Device, apart: bool) -> None:
    if len(xsem.devices("cuda")) < 2:
        pytest.skip("the driver does not have two GPUs")
    if apart:
        hand_over(cuda, "cuda:1")
        return
    with xsem.open_device("cuda:1") as second:
        here = cuda.create_timeline()
        there, shared = imported(here, second), cuda.create_memory(MEMORY, SIZE)
        first, far = shared.map_buffer(), imported(shared, second).map_buffer()
        producer, consumer = cuda.create_command_list(), second.create_command_list()
        for turn in range(1, 100, 2):
            producer.append_fill(first, bytes([turn]))
            producer.append_signal(here, turn)
            consumer.append_wait(there, turn)
            consumer.synchronize(timeout_s=BOUND_S)
            assert (far.copy_to_host(timeout_s=BOUND_S) == turn).all()
            consumer.append_signal(there, turn + 1)
            producer.append_wait(here, turn + 1)
        producer.synchronize(timeout_s=BOUND_S)
        until(lambda: here.value() == 100)


def hold(desc: xsem.SemaphoreDesc, ready: Any) -> None:
    """In another process: hold the timeline until a kill, with an unmet wait of its own."""
    with xsem.open_device("cuda:0") as device, device.import_semaphore(desc) as there:
        device.create_command_list().append_wait(there, 5)
        ready.set()
        signal.pause()


def test_holder_releases_a_wait_whose_producer_was_killed(cuda: xsem.Device) -> None:
    here, commands = cuda.create_timeline(), cuda.create_command_list()
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    with here.export() as desc:
        process = spawn.Process(target=hold, args=(desc, ready))
        process.start()
    assert ready.wait(60)
    commands.append_wait(here, 3)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert not commands.query()
    here.host_signal(3)
    commands.synchronize(timeout_s=BOUND_S)
    commands.append_signal(here, 4)
    here.host_wait(4, timeout_s=BOUND_S)


# ---- behind an unmet wait
@pytest.mark.parametrize("what", ["list", "timeline", "import", "host memory", "device memory", "event"])
def test_creation_returns_behind_an_unmet_wait(cuda: xsem.Device, what: str) -> None:
    other, made = cuda.create_timeline(), []
    calls: dict[str, Callable[[], object]] = {
        "list": cuda.create_command_list, "timeline": cuda.create_timeline, "import": lambda: imported(other, cuda),
        "host memory": lambda: cuda.create_memory(MEMORY, SIZE), "event": cuda.create_event,
        "device memory": lambda: cuda.create_memory(MemoryHandleType.OPAQUE_FD, SIZE)}
    with unmet(cuda) as meet:
        assert returns(lambda: made.append(calls[what]()), meet)
    assert made


@pytest.mark.parametrize("count", [1, 8, 64])
def test_most_appends_return_behind_an_unmet_wait(cuda: xsem.Device, count: int) -> None:
    """`max_pending` counts a batch as one append. A batch that takes more places would block here."""
    made, gate = [cuda.create_timeline() for _ in range(count)], cuda.create_timeline()
    commands = cuda.create_command_list()
    commands.append_wait(gate, 1)
    appended = []

    def append() -> None:
        with contextlib.suppress(xsem.WouldBlockError):
            for value in range(1, 1100):
                commands.append_signal(made, [value] * count)
                appended.append(value)

    assert returns(append, lambda: gate.host_signal(1))
    assert len(appended) > 900
    if not gate.value():
        gate.host_signal(1)
    commands.synchronize(timeout_s=BOUND_S)
    assert [each.value() for each in made] == [len(appended)] * count


def test_release_behind_an_unmet_wait_ends_after_it(cuda: xsem.Device) -> None:
    here, memory = cuda.create_timeline(), cuda.create_memory(MEMORY, SIZE)
    with unmet(cuda) as meet:
        assert returns(here.release, meet)
        assert returns(memory.release, meet)
        commands = cuda.create_command_list()
        other = cuda.create_timeline()
        commands.append_signal(other, 1)   # xsem's releasing thread blocks no other one
        other.host_wait(1, timeout_s=BOUND_S)
        assert cuda.releasing()
        meet()
    until(lambda: not cuda.releasing())


def test_page_that_is_mapped_for_reading_waits(cuda: xsem.Device, host: xsem.Device) -> None:
    there = host.create_semaphore(TIMELINE)
    with there.export() as desc:
        page = mmap.mmap(desc.handle.fileno(), 4096, prot=mmap.PROT_READ)  # type: ignore[union-attr]
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        address = next(int(line.split("-")[0], 16) for line in maps if "memfd:xsem-timeline" in line
                       and " r--s " in line)
    device: Any = driver_of(cuda)
    word = device.import_host_timeline(SimpleNamespace(address=address, read_only=True))
    commands = cuda.create_command_list()
    fence = list_of(commands).append_wait([word], [xsem.WaitParams(value=1)], (), (), True)
    time.sleep(0.02)
    assert not device.query_fence(fence)
    there.host_signal(1)
    until(lambda: device.query_fence(fence))
    device.release_fence(fence)
    device.release_semaphore(word)
    page.close()
