"""Test timelines in pages of the host on CUDA: waits and writes of a word by streams. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import json
import mmap
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest
from support.cuda_recording import ask, driver
from support.cuda_sim import on_stand_in
from support.importer import driver_of, list_of
from support.waiting import until

import xsem
from xsem.spi import compiled
from xsem.types import SemaphoreHandleType

HOST_TIMELINE = SemaphoreHandleType.HOST_TIMELINE_FD
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
BOUND_S = 20.0
LARGEST = 2**63 - 1


class Rig:
    """The host device, the CUDA device, and a list of it."""

    def __init__(self, host: xsem.Device, cuda: xsem.Device) -> None:
        self.host = host
        self.cuda = cuda
        self.commands = cuda.create_command_list()

    def timeline(self, initial_value: int = 0) -> tuple[xsem.Semaphore, xsem.Semaphore]:
        """Return a timeline of the CUDA device on the host, and on the CUDA device."""
        here = self.cuda.create_timeline(initial_value)
        return imported(here, self.host), here

    def timelines(self, count: int) -> tuple[list[xsem.Semaphore], list[xsem.Semaphore]]:
        pairs = [self.timeline() for _ in range(count)]
        return [there for there, _ in pairs], [here for _, here in pairs]

    def external(self, kind: SemaphoreHandleType = TIMELINE) -> tuple[xsem.Semaphore, xsem.Semaphore]:
        there = self.host.create_semaphore(kind)
        return there, imported(there, self.cuda)


def imported(semaphore: xsem.Semaphore, device: xsem.Device) -> xsem.Semaphore:
    with semaphore.export(for_device=device) as desc:
        return device.import_semaphore(desc)


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Rig(host, cuda)


def fail(before: bytes | None) -> None:
    """Have the stand-in's functions fail from now on, in the form of SIMCUDA_FAIL."""
    ctypes.CDLL("libcuda.so.1").simcuda_fail(before, None)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(xsem.BadArgumentError) as caught:
        call()
    return caught.value.reason


def mappings(name: str) -> list[str]:
    """Return the lines of the mappings of such a memfd in this process."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        return [line for line in maps if f"/memfd:{name}" in line]


def mapped(name: str) -> int:
    return len(mappings(name))


# ---- creation, export, import
@on_stand_in
def test_timeline_of_the_device_is_portable_and_needs_no_other_device() -> None:
    with xsem.open_device("cuda:0") as cuda:
        made = cuda.create_timeline(7, label="frames")
        assert made.type is HOST_TIMELINE
        assert made.value() == 7
        with made.export() as desc:
            assert desc.type is HOST_TIMELINE
            again = cuda.import_semaphore(desc)
        made.host_signal(9)
        again.host_wait(9, timeout_s=BOUND_S)
        assert again.native_handle != made.native_handle


@on_stand_in
def test_page_of_a_created_or_imported_timeline_tells_waiters_to_poll() -> None:
    with rig() as at:
        there = at.host.create_semaphore(HOST_TIMELINE)
        for made in (at.cuda.create_timeline(), there):
            with made.export() as desc, mmap.mmap(desc.handle.fileno(), 4096) as page:  # type: ignore[union-attr]
                silent = made is not there
                assert page[28:32] == silent.to_bytes(4, sys.byteorder)
        imported(there, at.cuda)
        with there.export() as desc, mmap.mmap(desc.handle.fileno(), 4096) as page:  # type: ignore[union-attr]
            assert page[28] == 1


# ---- waits and signals
@on_stand_in
@pytest.mark.parametrize("value", [1, 2**31, 2**32 + 1, LARGEST])
def test_wait_stays_pending_until_the_host_signals(value: int) -> None:
    with rig() as at:
        there, here = at.timeline()
        done = at.cuda.create_event()
        at.commands.append_wait(here, value, signal_event=done)
        if value > 1:
            there.host_signal(value - 1)
        assert not done.query()
        there.host_signal(value)
        done.wait(timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("count", [1, 2, 8, 300])   # one call takes 255 at most
def test_batch_signals_each_with_its_value_after_earlier_work(count: int) -> None:
    with rig() as at:
        there, here = at.timelines(count)
        gate_there, gate = at.timeline()
        for turn in (1000, 2000, 3000, 4000):
            at.commands.append_wait(gate, turn)
            at.commands.append_signal(here, [turn + n for n in range(count)])
            assert there[-1].value() < turn
            gate_there.host_signal(turn)
            there[-1].host_wait(turn + count - 1, timeout_s=BOUND_S)
            assert [each.value() for each in there] == [turn + n for n in range(count)]


@on_stand_in
@pytest.mark.parametrize("count", [2, 300])
def test_batch_of_waits_holds_until_the_last_value(count: int) -> None:
    with rig() as at:
        there, here = at.timelines(count)
        for turn in (100, 200, 300, 400):
            at.commands.append_wait(here, [turn] * count)
            for each in there[1:]:
                each.host_signal(turn)
            assert not at.commands.query()
            there[0].host_signal(turn)
            at.commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("wanting", [0, 1, 2])
def test_mixed_batch_waits_for_external_semaphores_and_pages(wanting: int) -> None:
    with rig() as at:
        pairs = [at.timeline(), at.external(), at.timeline()]
        for turn in (10, 20, 30):
            at.commands.append_wait([here for _, here in pairs], [turn + n for n in range(3)])
            for number, (there, _) in enumerate(pairs):
                if number != wanting:
                    there.host_signal(turn + number)
            assert not at.commands.query()
            pairs[wanting][0].host_signal(turn + wanting)
            at.commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_mixed_batch_signals_pages_external_timelines_and_binary_semaphores() -> None:
    with rig() as at:
        pairs = [at.external(BINARY), at.timeline(), at.external(), at.timeline()]
        for turn in (10, 20, 30):
            at.commands.append_signal([here for _, here in pairs], [None, turn, turn + 1, turn + 2])
            pairs[0][0].host_wait(timeout_s=BOUND_S)
            at.commands.synchronize(timeout_s=BOUND_S)
            assert [there.value() for there, _ in pairs[1:]] == [turn, turn + 1, turn + 2]


@on_stand_in
def test_driver_tells_when_a_wait_ended_and_when_no_more(tmp_path: Path) -> None:
    with rig() as at:
        there, here = at.timeline()
        at.commands.append_barrier(signal_event=at.cuda.create_event())   # its event has no time, and is used again
        at.commands.synchronize()
        with xsem.trace(tmp_path / "run.json", device_times=True):
            at.commands.append_wait(here, 1)
            before = perf_counter()
            there.host_signal(1)
            at.commands.synchronize()
            after = perf_counter()
        at.commands.append_barrier()
        at.commands.synchronize()
    ended, = (each for each in json.loads((tmp_path / "run.json").read_text())[:-1] if each.get("cat") == "device")
    assert ended["args"]["end"] == "device"
    assert before - 0.001 <= (ended["ts"] + ended["dur"]) / 1e6 <= after + 0.001   # the clocks are compared


@on_stand_in
def test_events_order_words_of_two_lists() -> None:
    with rig() as at:
        there, here = at.timeline()
        gate_there, gate = at.timeline()
        other = at.cuda.create_command_list()
        for turn in range(1, 5):
            opened = at.cuda.create_event()
            other.append_wait(gate, turn, signal_event=opened)
            last = at.cuda.create_event()
            at.commands.append_signal(here, turn, wait_events=[opened], signal_event=last)
            assert not last.query()
            assert there.value() == turn - 1
            gate_there.host_signal(turn)
            last.wait(timeout_s=BOUND_S)
            assert there.value() == turn


@on_stand_in
@pytest.mark.parametrize("handle", [1, 2])
def test_default_streams_take_words(handle: int) -> None:
    with rig() as at:
        there, here = at.timelines(2)
        commands = at.cuda.command_list(handle)
        for turn in (1, 2, 3):
            commands.append_signal(here, [turn, turn + 1])
            commands.append_wait(here[0], turn)
        commands.synchronize(timeout_s=BOUND_S)
        assert [each.value() for each in there] == [3, 4]


@on_stand_in
def test_value_goes_back_only_on_request() -> None:
    with rig() as at:
        there, here = at.timeline(9)
        assert refusal(lambda: at.commands.append_signal(here, 9)) == "value_not_above_last"
        at.commands.append_signal(here, xsem.SignalParams(value=4, allow_rewind=True))
        at.commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 4


@on_stand_in(SIMCUDA_DEVICES="2")
def test_two_devices_hand_a_value_over() -> None:
    with xsem.open_device("cuda:0") as first, xsem.open_device("cuda:1") as second:
        here = first.create_timeline()
        there = imported(here, second)
        producer, consumer = first.create_command_list(), second.create_command_list()
        for turn in range(1, 20, 2):
            consumer.append_wait(there, turn)
            consumer.append_signal(there, turn + 1)
            producer.append_signal(here, turn)
            producer.append_wait(here, turn + 1)
        producer.synchronize(timeout_s=BOUND_S)
        assert here.value() == 20


def answer(desc: xsem.SemaphoreDesc, turns: int) -> None:
    """In another process: add 1 to each value."""
    with xsem.open_device("host") as host, host.import_semaphore(desc) as there:
        for turn in range(turns):
            there.host_wait(2 * turn + 1, timeout_s=40)
            there.host_signal(2 * turn + 2)


@on_stand_in
def test_list_and_another_process_answer_each_other() -> None:
    turns = 20
    with rig() as at:
        here = at.cuda.create_timeline()
        spawn = multiprocessing.get_context("spawn")
        with here.export() as desc:
            process = spawn.Process(target=answer, args=(desc, turns))
            process.start()
        for turn in range(turns):
            at.commands.append_signal(here, 2 * turn + 1)
            at.commands.append_wait(here, 2 * turn + 2)
        at.commands.synchronize(timeout_s=40)
        assert here.value() == 2 * turns
        process.join(timeout=40)
        assert process.exitcode == 0
        process.close()


# ---- prepared appends
@on_stand_in
def test_repeated_appends_are_prepared_and_quick_where_compiled() -> None:
    with rig() as at:
        there, here = at.timelines(3)
        for turn in range(1, 50):
            at.commands.append_signal(here[0], turn)
            at.commands.append_wait(here[0], turn)
            at.commands.append_signal(here[1:], [turn, turn + 1])
        at.commands.synchronize(timeout_s=BOUND_S)
        assert [each.value() for each in there] == [49, 49, 50]
        prepared = at.commands._queue.prepared
        for entries, states in ((prepared.signals, here[0]._state), (prepared.waits, here[0]._state),
                                (prepared.signals, (here[1]._state, here[2]._state))):
            assert entries[states]._repeat is not None
            assert (entries[states].quick is not None) is compiled()


@on_stand_in
@pytest.mark.parametrize("count", [1, 2])
def test_codes_of_the_driver_are_errors_of_the_append(count: int) -> None:
    with rig() as at:
        there, here = at.timelines(count)

        def signal(value: int) -> None:
            at.commands.append_signal(here, [value] * count)

        for value in (1, 2, 3):
            fail(b"cuStreamBatchMemOp:1")
            try:
                with pytest.raises(xsem.DriverError) as caught:
                    signal(value)
            finally:
                fail(None)
            error = caught.value
            assert (error.reason, error.call, error.code) == ("invalid_value", "cuStreamBatchMemOp", 1)
            assert any("registered" in cause for cause in error.likely_causes)
            signal(value)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert [each.value() for each in there] == [3] * count


@on_stand_in
def test_word_takes_one_place_of_max_pending() -> None:
    with rig() as at:
        there, here = at.timeline()
        at.commands.append_wait(here, 1)
        most = at.cuda.capabilities.max_pending or 0
        with pytest.raises(xsem.WouldBlockError):
            for value in range(2, 2 * most):
                at.commands.append_signal(here, value)
        assert at.commands._queue.last_seq > most // 2
        there.host_signal(1)
        at.commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_timeout_names_the_timeline_and_its_value() -> None:
    with rig() as at:
        here = at.cuda.create_timeline(2, label="frames")
        at.commands.append_wait(here, 5)
        with pytest.raises(xsem.WaitTimeoutError) as caught:
            at.commands.synchronize(timeout_s=0.05)
        text = str(caught.value)
        assert "'frames'" in text
        assert "5" in text
        assert "2" in text
        here.host_signal(5)
        at.commands.synchronize(timeout_s=BOUND_S)


# ---- values far apart: the driver compares by the signed difference
@on_stand_in
@pytest.mark.parametrize("owner", ["cuda", "host"])
def test_wait_far_above_the_present_value_is_refused(owner: str) -> None:
    with rig() as at:
        if owner == "cuda":
            there, here = at.timeline()
        else:
            there = at.host.create_semaphore(HOST_TIMELINE)
            here = imported(there, at.cuda)
        for _ in range(4):   # also where the append is prepared, and quick
            at.commands.append_wait(here, 0)
        at.commands.synchronize(timeout_s=BOUND_S)   # a value too far above these waits would not meet them
        for value in (LARGEST + 1, 2**64 - 1):
            assert refusal(partial(at.commands.append_wait, here, value)) == "value_difference"
        at.commands.append_wait(here, LARGEST)
        assert not at.commands.query()
        there.host_signal(10)
        at.commands.append_wait(here, LARGEST + 10)
        assert refusal(lambda: at.commands.append_wait(here, LARGEST + 11)) == "value_difference"
        there.host_signal(LARGEST)
        assert not at.commands.query()
        there.host_signal(LARGEST + 10)
        at.commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("count", [1, 2])
def test_signals_beyond_half_of_the_range_are_checked_and_arrive(count: int) -> None:
    with rig() as at:
        there, here = at.timelines(count)

        def signal(value: int) -> None:
            at.commands.append_signal(here, [value] * count)

        for value in (1, 2, 3, LARGEST + 3):
            signal(value)
        assert refusal(lambda: signal(LARGEST + 3)) == "value_not_above_last"
        signal(2**64 - 1)
        at.commands.synchronize(timeout_s=BOUND_S)
        assert [each.value() for each in there] == [2**64 - 1] * count
        assert refusal(lambda: at.timeline()[1].host_signal(LARGEST + 1)) == "value_difference"


@on_stand_in
def test_signal_far_above_the_last_one_is_refused() -> None:
    with rig() as at:
        _, here = at.timeline()
        for value in (1, 2, 3, 4):
            at.commands.append_signal(here, value)
        assert refusal(lambda: at.commands.append_signal(here, LARGEST + 5)) == "value_difference"
        fresh = imported(at.host.create_semaphore(HOST_TIMELINE), at.cuda)
        assert refusal(lambda: at.commands.append_signal(fresh, LARGEST + 1)) == "value_difference"
        at.commands.append_signal(fresh, LARGEST)
        at.commands.synchronize(timeout_s=BOUND_S)


# ---- recordings and captures
@on_stand_in
def test_recording_takes_new_values_of_words_and_semaphores() -> None:
    with rig() as at:
        (drawn_there, drawn), (done_there, done) = at.timeline(), at.timeline()
        mark_there, mark = at.external()
        with at.commands.record() as recording:
            at.commands.append_wait(drawn, 1)
            at.commands.append_signal([done, mark], [1, 1])
        for frame in (1, 2, 3):   # replays without new values of `drawn`: the recorded one
            recording.replay({done: frame, mark: frame})
        assert done_there.value() == 0
        drawn_there.host_signal(1)
        done_there.host_wait(3, timeout_s=BOUND_S)
        for frame in (10, 20, 30):
            recording.replay({drawn: frame, done: frame + 1, mark: frame + 2})
            assert not at.commands.query()
            drawn_there.host_signal(frame)
            at.commands.synchronize(timeout_s=BOUND_S)
            assert (done_there.value(), mark_there.value()) == (frame + 1, frame + 2)
        recording.replay({drawn: (30, 30), done: (0, 40), mark: 40})
        at.commands.synchronize(timeout_s=BOUND_S)
        assert done_there.value() == 40
        assert refusal(lambda: recording.replay({drawn: LARGEST + 40, done: 50, mark: 50})) == "value_difference"
        recording.replay({drawn: 30, done: 50, mark: 50})
        done_there.host_wait(50, timeout_s=BOUND_S)


@on_stand_in
def test_pending_replays_keep_their_values() -> None:
    with rig() as at:
        (gate_there, gate), (there, here) = at.timeline(), at.timeline()
        with at.commands.record() as recording:
            at.commands.append_wait(gate, 1)
            at.commands.append_signal(here, 1)
        for frame in range(1, 6):
            recording.replay({gate: frame, here: 10 * frame})
        for frame in range(1, 6):
            gate_there.host_signal(frame)
            there.host_wait(10 * frame, timeout_s=BOUND_S)
            assert there.value() == 10 * frame


@on_stand_in
def test_capture_of_the_application_takes_words() -> None:
    with rig() as at:
        cu = driver()
        (gate_there, gate), (there, here) = at.timeline(), at.timeline()
        stream = cu.CUstream(at.commands.native_handle)
        for _ in range(3):   # the later appends outside of captures are prepared
            at.commands.append_wait(gate, 0)
        ask(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        at.commands.append_wait(gate, 5)
        at.commands.append_signal(here, 7)
        graph = ask(cu.cuStreamEndCapture, stream)
        native = cu.CUcontext(at.cuda.native_handle)
        ask(cu.cuCtxPushCurrent, native)
        try:
            instance = ask(cu.cuGraphInstantiate, graph, 0)
            assert there.value() == 0
            ask(cu.cuGraphLaunch, instance, stream)
            assert ask(cu.cuStreamIsCapturing, stream) == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
            assert there.value() == 0
            gate_there.host_signal(5)
            there.host_wait(7, timeout_s=BOUND_S)
            ask(cu.cuStreamSynchronize, stream)
        finally:
            ask(cu.cuCtxPopCurrent)


@on_stand_in
def test_import_and_release_leave_captures_of_other_threads_whole() -> None:
    with rig() as at:
        cu = driver()
        there = at.host.create_semaphore(HOST_TIMELINE)
        native = cu.CUcontext(at.cuda.native_handle)
        ask(cu.cuCtxPushCurrent, native)
        try:
            stream = ask(cu.cuStreamCreate, 1)
            ask(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
            imported(there, at.cuda).release()
            at.cuda.create_memory(xsem.MemoryHandleType.HOST_MEMORY_FD, 4096).release()
            assert int(ask(cu.cuStreamEndCapture, stream))
        finally:
            ask(cu.cuCtxPopCurrent)


# ---- release
@on_stand_in
def test_release_behind_an_unmet_wait_ends_after_the_signal() -> None:
    with rig() as at:
        there, here = at.timeline()
        before = mapped("xsem-timeline")
        at.commands.append_wait(here, 1)
        here.release()
        assert at.cuda.releasing()
        assert mapped("xsem-timeline") == before   # the stream reads the page
        there.host_signal(1)
        at.commands.synchronize(timeout_s=BOUND_S)
        until(lambda: not at.cuda.releasing())
        assert mapped("xsem-timeline") == before - 1


@on_stand_in
def test_wait_for_an_ended_producer_is_released_by_another_holder() -> None:
    with rig() as at:
        here = at.cuda.create_timeline()
        rescuer = imported(here, at.cuda)
        done = at.cuda.create_event()
        at.commands.append_wait(here, 3, signal_event=done)
        here.release()
        assert not done.query()
        rescuer.host_signal(3)
        done.wait(timeout_s=BOUND_S)


# ---- refused registration
@on_stand_in
@pytest.mark.parametrize(("function", "code", "reason"), [
    (b"cuMemHostRegister", 2, "out_of_memory"), (b"cuMemHostRegister", 712, "driver_error"),
    (b"cuMemHostRegister", 801, "not_supported"), (b"cuMemHostGetDevicePointer", 1, "invalid_value")])
def test_refused_page_or_memory_leaves_nothing(function: bytes, code: int, reason: str) -> None:
    memory = xsem.MemoryHandleType.HOST_MEMORY_FD
    with rig() as at:
        there, kept = at.host.create_semaphore(HOST_TIMELINE), at.host.create_memory(memory, 4096)
        with there.export() as semaphore, kept.export() as of_memory:
            before = len(os.listdir("/proc/self/fd")), mapped("xsem-timeline"), mapped("xsem-memory")
            for call in (at.cuda.create_timeline, lambda: at.cuda.create_memory(memory, 4096),
                         lambda: at.cuda.import_semaphore(semaphore), lambda: at.cuda.import_memory(of_memory)):
                fail(b"%s:%d" % (function, code))
                try:
                    with pytest.raises(xsem.XsemError) as caught:
                        call()
                finally:
                    fail(None)
                assert (caught.value.reason, caught.value.code) == (reason, code)
                assert (len(os.listdir("/proc/self/fd")), mapped("xsem-timeline"), mapped("xsem-memory")) == before
            # The addresses are free again: the next mapping often gets one of them.
            imported(there, at.cuda).release()
            at.cuda.import_memory(of_memory).release()


@on_stand_in
def test_page_that_is_mapped_for_reading_waits_and_never_signals() -> None:
    with rig() as at:
        there = at.host.create_semaphore(HOST_TIMELINE)
        with there.export() as desc:
            page = mmap.mmap(desc.handle.fileno(), 4096, prot=mmap.PROT_READ)  # type: ignore[union-attr]
        address = next(int(line.split("-")[0], 16) for line in mappings("xsem-timeline") if " r--s " in line)
        cuda: Any = driver_of(at.cuda)
        with pytest.raises(xsem.DriverError):
            cuda.import_host_timeline(SimpleNamespace(address=address, read_only=False))
        word = cuda.import_host_timeline(SimpleNamespace(address=address, read_only=True))
        list_: Any = list_of(at.commands)
        fence = list_.append_wait([word], [xsem.WaitParams(value=1)], (), (), True)
        assert not cuda.query_fence(fence)
        there.host_signal(1)
        until(lambda: cuda.query_fence(fence))
        cuda.release_fence(fence)
        cuda.release_semaphore(word)
        page.close()


@on_stand_in(SIMCUDA_ATTRIBUTES="122:0")
def test_device_without_the_operations_takes_memory_and_no_timelines() -> None:
    with xsem.open_device("cuda:0") as cuda:
        assert not cuda.capabilities.semaphore_export
        with pytest.raises(xsem.UnsupportedError) as caught:
            cuda.create_semaphore(HOST_TIMELINE)
        assert "CAN_USE_64_BIT_STREAM_MEM_OPS" in caught.value.likely_causes[0]
        with pytest.raises(xsem.UnsupportedError) as caught:
            cuda.create_timeline()
        assert "companion_exporter()" in str(caught.value.likely_causes)
        cuda.create_memory(xsem.MemoryHandleType.HOST_MEMORY_FD, 4096).release()


@on_stand_in(SIMCUDA_MISSING="cuStreamBatchMemOp")
def test_driver_without_the_function_declares_no_timelines() -> None:
    with xsem.open_device("cuda:0") as cuda:
        assert HOST_TIMELINE not in cuda.capabilities.semaphore_import
