"""Test recordings on a GPU, with NVIDIA's Vulkan driver as the exporter. Skipped, with the reason, without a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.cuda_calls import driver
from support.gpu import AT_ONCE_S, at_once, needs_gpu
from support.waiting import until

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
SIZE = 1 << 16
BOUND_S = 20.0


class Rig:
    """Vulkan exports, CUDA imports and records."""

    def __init__(self, vulkan: xsem.Device, cuda: xsem.Device) -> None:
        self.vulkan = vulkan
        self.cuda = cuda
        self.commands = cuda.create_command_list()

    def semaphore(self, kind: SemaphoreHandleType = TIMELINE) -> tuple[xsem.Semaphore, xsem.Semaphore]:
        there = self.vulkan.create_semaphore(kind)
        with there.export(for_device=self.cuda) as desc:
            return there, self.cuda.import_semaphore(desc)

    def buffer(self) -> xsem.Buffer:
        with self.vulkan.create_memory(MemoryHandleType.OPAQUE_FD, SIZE).export(for_device=self.cuda) as desc:
            return self.cuda.import_memory(desc).map_buffer(shape=(SIZE,), dtype="uint8")


@pytest.fixture
def at() -> Iterator[Rig]:
    needs_gpu("vulkan")
    with xsem.open_device("cuda:0") as cuda, xsem.open_device("vulkan", uuid=cuda.info.uuid) as vulkan:
        yield Rig(vulkan, cuda)


@pytest.fixture
def torch(at: Rig) -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def within(work: Callable[[], object], limit_s: float = BOUND_S) -> bool:
    """Run the work on a thread; return whether it ended in time. If not, the caller can unblock it."""
    failures: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(limit_s)
    if failures:
        raise failures[0]
    return not thread.is_alive()


# ---- values
def test_nothing_recorded_runs_before_its_replay(at: Rig) -> None:
    drawn_there, drawn = at.semaphore()
    filtered_there, filtered = at.semaphore()
    buffer = at.buffer()
    at.commands.append_fill(buffer, b"\x01")
    drawn_there.host_signal(1)
    with at.commands.record() as recording:
        at.commands.append_wait(drawn, 1)
        at.commands.append_fill(buffer, b"\x07")
        at.commands.append_signal(filtered, 1)
    at.commands.synchronize(timeout_s=BOUND_S)
    assert (buffer.copy_to_host() == 1).all()
    assert filtered_there.value() == 0
    recording.replay()
    filtered_there.host_wait(1, timeout_s=BOUND_S)
    assert (buffer.copy_to_host() == 7).all()


def test_each_replay_waits_for_and_signals_its_values(at: Rig) -> None:
    drawn_there, drawn = at.semaphore()
    filtered_there, filtered = at.semaphore()
    buffer, staging = at.buffer(), at.cuda.host_buffer(SIZE)
    with at.commands.record() as recording:
        at.commands.append_wait(drawn, 1)
        at.commands.append_copy(staging, buffer)
        at.commands.append_signal(filtered, 1)
    other = at.cuda.create_command_list()
    for frame in (2, 3, 2**32, 2**63, 2**64 - 1):
        recording.replay({drawn: frame, filtered: frame})
        assert not at.commands.query()
        other.append_fill(buffer, bytes([frame % 251]))
        other.synchronize(timeout_s=BOUND_S)
        assert not at.commands.query()
        drawn_there.host_signal(frame)
        filtered_there.host_wait(frame, timeout_s=BOUND_S)
        assert filtered_there.value() == frame
        assert (staging.numpy() == frame % 251).all()


def test_one_semaphore_takes_a_wait_value_and_a_signal_value(at: Rig) -> None:
    there, here = at.semaphore()
    with at.commands.record() as recording:
        at.commands.append_wait(here, 1)
        at.commands.append_signal(here, 2)
    for frame in (10, 20, 30):
        recording.replay({here: (frame + 1, frame + 2)})
        there.host_signal(frame)
        assert not at.commands.query()
        there.host_signal(frame + 1)
        there.host_wait(frame + 2, timeout_s=BOUND_S)
        at.commands.synchronize(timeout_s=BOUND_S)


def test_pending_replays_keep_values_and_later_replays_return(at: Rig) -> None:
    gate_there, gate = at.semaphore()
    there, here = at.semaphore()
    with at.commands.record() as recording:
        at.commands.append_wait(gate, 1)
        at.commands.append_signal(here, 1)

    def replay_all() -> None:
        for frame in range(1, 9):
            recording.replay({gate: 10 * frame, here: 10 * frame})

    held = not within(replay_all, AT_ONCE_S)
    for frame in range(1, 9):
        gate_there.host_signal(10 * frame - 1)
        assert not at.commands.query()
        gate_there.host_signal(10 * frame)
        there.host_wait(10 * frame, timeout_s=BOUND_S)
        assert there.value() == 10 * frame
    assert not held, "a replay with new values blocked its thread behind the pending ones"
    at.commands.synchronize(timeout_s=BOUND_S)


def test_batches_and_binary_semaphores(at: Rig) -> None:
    shared = [at.semaphore() for _ in range(8)]
    ready_there, ready = at.semaphore(BINARY)
    done_there, done = at.semaphore(BINARY)
    signaller = at.vulkan.create_command_list()
    with at.commands.record() as recording:
        at.commands.append_wait(ready)
        at.commands.append_signal([done, *(here for _, here in shared)], [None, *range(1, 9)])
    for add in (10, 20):
        recording.replay({here: add + n for n, (_, here) in enumerate(shared)})
        assert not at.commands.query()
        signaller.append_signal(ready_there)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert [there.value() for there, _ in shared] == [add + n for n in range(8)]
        signaller.append_wait(done_there)
        signaller.synchronize(timeout_s=BOUND_S)


def test_recordings_of_one_list_and_replays_of_many_frames(at: Rig) -> None:
    there, here = at.semaphore()
    recordings = []
    for value in (1, 2):
        with at.commands.record() as recording:
            at.commands.append_signal(here, value)
        recordings.append(recording)
    for value in range(3, 2003):
        recordings[value % 2].replay({here: value})
    at.commands.synchronize(timeout_s=BOUND_S)
    assert there.value() == 2002


# ---- blocking
def test_replay_is_refused_before_the_driver_blocks(at: Rig) -> None:
    gate_there, gate = at.semaphore()
    with at.commands.record() as recording:
        at.commands.append_wait(gate, 1)
    refused: list[int] = []

    def fill_up() -> None:
        for count in range(2000):
            try:
                recording.replay()
            except xsem.WouldBlockError:
                refused.append(count)
                return

    in_time = within(fill_up)
    gate_there.host_signal(1)
    at.commands.synchronize(timeout_s=BOUND_S)
    assert in_time, "the driver blocked the thread before max_pending was reached"
    assert 900 < refused[0] <= 1020


def test_releases_behind_a_waiting_replay_block_no_other_list(at: Rig) -> None:
    gate_there, gate = at.semaphore()
    there, here = at.semaphore()
    buffer = at.buffer()
    with at.commands.record() as recording:
        at.commands.append_wait(gate, 1)
        at.commands.append_signal(here, 1)
    recording.replay()
    _, idle = at.semaphore()
    other_there, other_sem = at.semaphore()
    at_once(*(each.release for each in (recording, buffer, idle, gate, here)))
    other = at.cuda.create_command_list()
    held = not within(lambda: other.append_signal(other_sem, 1), AT_ONCE_S)
    gate_there.host_signal(1)
    there.host_wait(1, timeout_s=BOUND_S)
    assert not held, "xsem freed an object while a replay waited"
    other_there.host_wait(1, timeout_s=BOUND_S)
    at.commands.synchronize(timeout_s=BOUND_S)


def test_recorded_semaphore_is_freed_after_its_recording(at: Rig) -> None:
    there, here = at.semaphore()
    with at.commands.record() as recording:
        at.commands.append_signal(here, 1)
    here.release()
    recording.replay()
    there.host_wait(1, timeout_s=BOUND_S)
    at.commands.synchronize(timeout_s=BOUND_S)
    recording.release()
    until(lambda: here._lifetime.freed)


# ---- failures
def test_broken_recording_is_reported_and_list_stays_usable(at: Rig) -> None:
    cu = driver()
    there, here = at.semaphore()
    stream = cu.CUstream(at.commands.native_handle)
    codes: list[int] = []
    with pytest.raises(xsem.BusyError) as caught, at.commands.record():
        at.commands.append_signal(here, 1)
        at.commands.append_work(lambda: codes.append(int(cu.cuStreamSynchronize(stream)[0])))
    assert codes == [900]
    assert caught.value.reason == "not_recordable"
    at.commands.append_signal(here, 1)
    there.host_wait(1, timeout_s=BOUND_S)
    with at.commands.record() as recording:
        at.commands.append_signal(here, 2)
    recording.replay()
    there.host_wait(2, timeout_s=BOUND_S)


# ---- torch
def test_torch_work_is_recorded_on_its_stream(at: Rig, torch: Any) -> None:
    drawn_there, drawn = at.semaphore()
    filtered_there, filtered = at.semaphore()
    frame = torch.from_dlpack(at.buffer())
    frame.zero_()
    frame.add_(1)   # loads the kernel: a load cannot be recorded
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    commands = at.cuda.command_list(stream)

    def work() -> None:
        with torch.cuda.stream(stream):
            frame.add_(1)

    with commands.record() as recording:
        commands.append_wait(drawn, 1)
        commands.append_work(work)
        commands.append_signal(filtered, 1)
    for value in range(2, 7):
        recording.replay({drawn: value, filtered: value})
        assert not commands.query()
        drawn_there.host_signal(value)
        filtered_there.host_wait(value, timeout_s=BOUND_S)
        assert int(frame[0]) == value
        assert int(frame[-1]) == value


def test_objects_used_in_torchs_graph_outlive_their_release(at: Rig, torch: Any) -> None:
    there, here = at.semaphore()
    x = torch.zeros(64, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        commands = at.cuda.command_list(torch.cuda.current_stream())
        x.add_(1)
        commands.append_signal(here, 5)
        with pytest.raises(xsem.BusyError):
            commands.record().__enter__()
    here.release()
    at.commands.synchronize(timeout_s=BOUND_S)
    graph.replay()
    there.host_wait(5, timeout_s=BOUND_S)
    torch.cuda.synchronize()
    assert float(x[0]) == 2


def test_recording_leaves_another_threads_capture_whole(at: Rig, torch: Any) -> None:
    there, here = at.semaphore()
    failures: list[BaseException] = []
    begun, ended = threading.Event(), threading.Event()

    def elsewhere() -> None:
        try:
            begun.wait(BOUND_S)
            with at.commands.record() as recording:
                at.commands.append_signal(here, 1)
            for value in range(2, 50):
                recording.replay({here: value})
            there.host_wait(49, timeout_s=BOUND_S)
            recording.release()
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    x = torch.zeros(64, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        begun.set()
        x.add_(1)
        assert ended.wait(2 * BOUND_S)
        x.add_(1)
    thread.join()
    assert not failures, failures
    graph.replay()
    torch.cuda.synchronize()
    assert float(x[0]) == 3
