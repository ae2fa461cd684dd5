"""Test the driver calls for streams, events and contexts: their order and their thread. Needs no driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from support.cuda_recorder import Recorder

import xsem
from xsem.errors import BadArgumentError, BusyError, DriverError, WrongDeviceError
from xsem.types import SemaphoreKind
from xsem_cuda.context import Context
from xsem_cuda.default_streams import DefaultStreamQueue, PerThreadQueue
from xsem_cuda.fences import BorrowedFence, Fence, Fences, native_event
from xsem_cuda.queue import StreamQueue
from xsem_cuda.semaphores import SemaphoreToken
from xsem_cuda.streams import LEGACY, check_ordinal, check_stream_device, parse_stream
from xsem_cuda.tokens import DriverObject

cuda: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
T = TypeVar("T")
OURS, OTHER = 0xC0, 0xD0
STREAM = 0x5000


def on_thread(work: Callable[[], T]) -> T:
    results: list[T] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


class Rig:
    def __init__(self) -> None:
        self.driver = Recorder(cuda)
        self.context = Context(self.driver, cuda.CUcontext(OURS))
        self.fences = Fences(self.driver, self.context)

    def stream(self, handle: int = STREAM, lent: object | None = None) -> StreamQueue:
        kind = DefaultStreamQueue if handle == LEGACY else StreamQueue
        return kind(self.driver, self.context, self.fences, handle, lent=lent)

    def note_context(self, function: str, seen: list[int]) -> None:
        """Have `function` append the current context to `seen` at each call."""

        def note(*_args: object) -> tuple[Any, ...]:
            seen.append(int(self.driver.stack[-1]))
            return ()

        self.driver.answers[function] = note

    def per_thread(self) -> PerThreadQueue:
        return PerThreadQueue(self.driver, self.context, self.fences, lent=object())

    def new_calls(self, work: Callable[[], object]) -> list[str]:
        before = len(self.driver.calls)
        work()
        return self.driver.names[before:]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def token(kind: SemaphoreKind = SemaphoreKind.TIMELINE) -> SemaphoreToken:
    return SemaphoreToken(cuda.CUexternalSemaphore(0x77), kind)


def buffer(address: int) -> DriverObject:
    return DriverObject(cuda.CUdeviceptr(address))


def recorded(fence: object) -> Fence:
    assert isinstance(fence, Fence)
    return fence


# ---- contexts
def test_context_is_pushed_and_popped_when_none_is_current(rig: Rig) -> None:
    def work() -> None:
        with rig.context:
            assert [int(each) for each in rig.driver.stack] == [OURS]
        assert rig.driver.stack == []

    assert rig.new_calls(lambda: on_thread(work)) == [
        "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent"]


def test_context_that_is_current_is_not_pushed(rig: Rig) -> None:
    def work() -> None:
        rig.driver.stack.append(cuda.CUcontext(OURS))
        with rig.context, rig.context:
            pass

    assert rig.new_calls(lambda: on_thread(work)) == ["cuCtxGetCurrent", "cuCtxGetCurrent"]


def test_another_context_is_current_again_after_an_error(rig: Rig) -> None:
    def work() -> list[int]:
        rig.driver.stack.append(cuda.CUcontext(OTHER))
        with pytest.raises(KeyError), rig.context:
            raise KeyError
        with rig.context:
            assert int(rig.driver.stack[-1]) == OURS
        return [int(each) for each in rig.driver.stack]

    assert on_thread(work) == [OTHER]


def test_nested_context_is_pushed_once(rig: Rig) -> None:
    def work() -> None:
        with rig.context:
            with rig.context:
                pass
            assert [int(each) for each in rig.driver.stack] == [OURS]
        assert rig.driver.stack == []

    names = rig.new_calls(lambda: on_thread(work))
    assert names.count("cuCtxPushCurrent") == names.count("cuCtxPopCurrent") == 1


def test_failed_push_leaves_nothing_to_pop(rig: Rig) -> None:
    rig.driver.codes["cuCtxPushCurrent"] = 201
    with pytest.raises(DriverError), rig.context:
        pass
    assert "cuCtxPopCurrent" not in rig.driver.names


# ---- capture mode
def test_quiet_is_relaxed_inside_and_as_before_afterwards(rig: Rig) -> None:
    quiet = rig.context.quiet
    local = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    rig.driver._cuThreadExchangeStreamCaptureMode(local)
    with quiet:
        assert rig.driver.mode == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with quiet:
            pass
        assert rig.driver.mode == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert rig.driver.mode == local
    assert len(rig.driver.calls) == 2


def test_quiet_is_restored_after_an_error(rig: Rig) -> None:
    before = rig.driver.mode
    with pytest.raises(KeyError), rig.context.quiet:
        raise KeyError
    assert rig.driver.mode == before


def test_quiet_of_one_thread_is_not_anothers(rig: Rig) -> None:
    quiet = rig.context.quiet

    def work() -> Any:
        with quiet:
            return rig.driver.mode

    with quiet:
        assert on_thread(work) == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert len(rig.driver.calls) == 4


def test_quiet_takes_the_context_where_the_driver_asks_for_one(rig: Rig) -> None:
    exchange = rig.driver.cuThreadExchangeStreamCaptureMode

    def needs_context(mode: Any) -> tuple[Any, ...]:
        if not rig.driver.stack:
            return (cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT, None)
        return tuple(exchange(mode))

    needs_context.__name__ = "cuThreadExchangeStreamCaptureMode"
    quiet = rig.context.quiet
    quiet._exchange = needs_context
    with quiet:
        assert rig.driver.mode == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        assert rig.driver.stack == []
    assert rig.driver.mode == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


def test_quiet_passes_other_errors_on_and_is_usable_afterwards(rig: Rig) -> None:
    quiet = rig.context.quiet
    rig.driver.codes["cuThreadExchangeStreamCaptureMode"] = 3
    with pytest.raises(DriverError), quiet:
        pass
    rig.driver.codes.clear()
    with quiet:
        assert rig.driver.mode == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


# ---- appends
def test_append_without_points_is_one_driver_call(rig: Rig) -> None:
    commands = rig.stream()
    assert rig.new_calls(lambda: commands.append_signal([token()], [xsem.SignalParams(value=1)], (), (), False)) == [
        "cuSignalExternalSemaphoresAsync"]
    assert rig.new_calls(lambda: commands.append_wait([token()], [xsem.WaitParams(value=1)], (), (), False)) == [
        "cuWaitExternalSemaphoresAsync"]
    _, _, (natives, structs, count, stream) = rig.driver.calls[-1]
    assert ([int(each) for each in natives], len(structs), count, int(stream)) == ([0x77], 1, 1, STREAM)


def test_points_are_waited_for_first_and_recorded_last(rig: Rig) -> None:
    commands = rig.stream()
    before = recorded(commands.append_barrier((), True))
    names = rig.new_calls(lambda: commands.append_signal([token()], [xsem.SignalParams(value=1)], [before], (), True))
    assert [name for name in names if "Ctx" not in name and "CaptureMode" not in name] == [
        "cuEventCreate", "cuStreamWaitEvent", "cuSignalExternalSemaphoresAsync", "cuEventRecord"]


def test_append_with_a_recycled_event_makes_no_other_calls(rig: Rig) -> None:
    commands = rig.stream()
    before = recorded(commands.append_barrier((), True))
    rig.fences.release(recorded(commands.append_barrier((), True)))
    signal, wait = [xsem.SignalParams(value=1)], [xsem.WaitParams(value=1)]
    assert rig.new_calls(lambda: commands.append_signal([token()], signal, [before], (), True)) == [
        "cuStreamWaitEvent", "cuSignalExternalSemaphoresAsync", "cuEventRecord"]
    assert rig.new_calls(lambda: commands.append_wait([token()], wait, [before], (), False)) == [
        "cuStreamWaitEvent", "cuWaitExternalSemaphoresAsync"]
    assert rig.new_calls(lambda: commands.append_barrier([before], False)) == ["cuStreamWaitEvent"]


def test_legacy_stream_is_used_in_the_devices_context(rig: Rig) -> None:
    commands = rig.stream(LEGACY, lent=object())
    seen: list[int] = []
    rig.note_context("cuSignalExternalSemaphoresAsync", seen)
    commands.append_signal([token()], [xsem.SignalParams(value=1)], (), (), False)
    assert seen == [OURS]
    assert rig.driver.stack == []


def test_failed_append_gives_its_event_back(rig: Rig) -> None:
    commands = rig.stream()
    rig.driver.codes["cuSignalExternalSemaphoresAsync"] = 400
    for _ in range(3):
        with pytest.raises(DriverError):
            commands.append_signal([token()], [xsem.SignalParams(value=1)], (), (), True)
    assert rig.driver.names.count("cuEventCreate") == 1
    assert "cuEventRecord" not in rig.driver.names


def test_events_are_recycled_and_destroyed_at_the_end(rig: Rig) -> None:
    commands = rig.stream()
    for _ in range(5):
        rig.fences.release(recorded(commands.append_barrier((), True)))
    assert rig.driver.names.count("cuEventCreate") == 1
    rig.fences.close()
    assert rig.driver.names.count("cuEventDestroy") == 1


def test_barrier_without_points_calls_nothing(rig: Rig) -> None:
    assert rig.new_calls(lambda: rig.stream().append_barrier((), False)) == []


def test_done_asks_the_event(rig: Rig) -> None:
    fence = recorded(rig.stream().append_barrier((), True))
    rig.driver.codes["cuEventQuery"] = 600
    assert not rig.fences.done(fence)
    rig.driver.codes.clear()
    assert rig.fences.done(fence)


def test_copy_and_fill_are_one_call_each_in_the_context(rig: Rig) -> None:
    commands = rig.stream()
    contexts: list[int] = []
    for name in ("cuMemcpyAsync", "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"):
        rig.note_context(name, contexts)
    commands.append_copy(buffer(0xF0), 0x10, buffer(0x1C0), 0x40, 64, (), False)
    commands.append_fill(buffer(0x100), 1, b"\x07", 24, (), False)
    commands.append_fill(buffer(0x102), 0, b"\x01\x02", 24, (), False)
    commands.append_fill(buffer(0x100), 4, b"\x01\x02\x03\x04", 24, (), False)
    work = [(name, args[:3]) for _, name, args in rig.driver.calls if name.startswith("cuMem")]
    assert work == [
        ("cuMemcpyAsync", (0x100, 0x200, 64)), ("cuMemsetD8Async", (0x101, 7, 24)),
        ("cuMemsetD16Async", (0x102, 0x0201, 12)), ("cuMemsetD32Async", (0x104, 0x04030201, 6)),
    ]
    assert contexts == [OURS] * 4


@pytest.mark.parametrize(("dst", "offset", "pattern"), [
    (0x100, 0, b"\x01\x02\x03"), (0x100, 0, b"\x01\x02\x03\x04\x05\x06\x07\x08"), (0x101, 0, b"\x01\x02"),
    (0x100, 2, b"\x01\x02\x03\x04")])
def test_fill_refuses_what_one_call_cannot_do(rig: Rig, dst: int, offset: int, pattern: bytes) -> None:
    with pytest.raises(BadArgumentError) as caught:
        rig.stream().append_fill(buffer(dst), offset, pattern, 24, (), False)
    assert caught.value.reason == "bad_pattern"
    assert rig.driver.calls == []


def test_own_stream_is_destroyed_and_a_borrowed_one_is_not(rig: Rig) -> None:
    own, borrowed = rig.stream(), rig.stream(0x6000, lent=object())
    for commands in (own, borrowed):
        commands.close()
    assert [(name, int(args[0])) for _, name, args in rig.driver.calls if name == "cuStreamDestroy"] == [
        ("cuStreamDestroy", STREAM)]


# ---- captures
def capturing(rig: Rig, status: str = "ACTIVE") -> None:
    value = getattr(cuda.CUstreamCaptureStatus, f"CU_STREAM_CAPTURE_STATUS_{status}")
    rig.driver.answers["cuStreamIsCapturing"] = lambda *_: (value,)


@pytest.mark.parametrize(("status", "answer"), [("NONE", False), ("ACTIVE", True), ("INVALIDATED", True)])
def test_capturing_is_what_the_driver_says(rig: Rig, status: str, answer: bool) -> None:
    capturing(rig, status)
    assert rig.stream(lent=object()).is_capturing() is answer


def test_legacy_stream_is_never_asked_whether_it_captures(rig: Rig) -> None:
    assert rig.stream(LEGACY, lent=object()).is_capturing() is False
    assert rig.driver.calls == []


def test_point_of_a_capture_is_never_queried(rig: Rig) -> None:
    commands = rig.stream(lent=object())
    capturing(rig)
    assert commands.is_capturing()
    fence = recorded(commands.append_barrier((), True))
    with pytest.raises(BusyError) as caught:
        rig.fences.done(fence)
    assert caught.value.reason == "captured_event"
    assert "cuEventQuery" not in rig.driver.names


def test_points_do_not_cross_the_border_of_a_capture(rig: Rig) -> None:
    commands, other = rig.stream(lent=object()), rig.stream(0x6000)
    outside = recorded(other.append_barrier((), True))
    capturing(rig)
    commands.is_capturing()
    inside = recorded(commands.append_barrier((), True))
    before = len(rig.driver.calls)
    for where, fence in ((commands, outside), (other, inside)):
        with pytest.raises(BusyError) as caught:
            where.append_barrier([fence], True)
        assert caught.value.reason == "capture_isolation"
    assert len(rig.driver.calls) == before
    commands.append_barrier([inside], False)


def test_event_of_a_capture_is_not_recycled(rig: Rig) -> None:
    commands = rig.stream(lent=object())
    capturing(rig)
    commands.is_capturing()
    rig.fences.release(recorded(commands.append_barrier((), True)))
    assert rig.driver.names.count("cuEventDestroy") == 1
    commands.append_barrier((), True)
    assert rig.driver.names.count("cuEventCreate") == 2


# ---- the per-thread default stream
def test_per_thread_lists_of_two_threads_have_different_keys(rig: Rig) -> None:
    here, again, there = rig.per_thread().identity, rig.per_thread().identity, on_thread(rig.per_thread).identity
    assert here == again
    assert hash(here) == hash(again)
    assert here != there
    assert here != 2
    assert rig.per_thread().native_handle == 2


def test_per_thread_list_refuses_appends_of_another_thread(rig: Rig) -> None:
    commands = rig.per_thread()
    with pytest.raises(BadArgumentError) as caught:
        on_thread(lambda: commands.append_signal([token()], [xsem.SignalParams(value=1)], (), (), False))
    assert caught.value.reason == "per_thread_stream"
    assert "cuSignalExternalSemaphoresAsync" not in rig.driver.names


def test_marker_from_another_thread_is_the_newest_append(rig: Rig) -> None:
    commands = rig.per_thread()
    commands.append_signal([token()], [xsem.SignalParams(value=1)], (), (), False)
    newest = recorded(on_thread(lambda: commands.append_barrier((), True)))
    last_recorded = [args[0] for _, name, args in rig.driver.calls if name == "cuEventRecord"][-1]
    assert int(newest.event) == int(last_recorded)
    rig.fences.release(newest)
    assert int(newest.event) not in rig.fences.unused   # the list still owns it


def test_marker_from_another_thread_includes_application_work(rig: Rig) -> None:
    commands = rig.per_thread()
    done: list[str] = []
    commands.append_work(lambda: done.append("work"))
    assert done == ["work"]
    assert rig.driver.names[-2:] == ["cuEventRecord", "cuCtxPopCurrent"]


def test_events_of_a_per_thread_queue_are_recycled(rig: Rig) -> None:
    commands = rig.per_thread()
    for _ in range(10):
        fence = recorded(commands.append_signal([token()], [xsem.SignalParams(value=1)], (), (), True))
        commands.append_signal([token()], [xsem.SignalParams(value=1)], (), (), False)
        marker = recorded(on_thread(lambda: commands.append_barrier((), True)))
        rig.fences.release(fence)
        rig.fences.release(marker)
    commands.close()
    rig.fences.close()
    created = rig.driver.names.count("cuEventCreate")
    assert created <= 3
    assert rig.driver.names.count("cuEventDestroy") == created


def test_event_of_a_per_thread_queue_is_not_recycled_while_a_fence_uses_it(rig: Rig) -> None:
    commands = rig.per_thread()
    fence = recorded(commands.append_barrier((), True))
    rig.fences.release(fence)
    # The released fence was the newest one. Its event still tells when the work of the queue is done.
    marker = recorded(on_thread(lambda: commands.append_barrier((), True)))
    commands.append_barrier((), False)
    other = recorded(rig.stream(0x6000).append_barrier((), True))
    assert int(other.event) != int(marker.event)


def test_marker_of_an_unused_per_thread_list_is_not_recorded(rig: Rig) -> None:
    commands = rig.per_thread()
    fence = recorded(on_thread(lambda: commands.append_barrier((), True)))
    assert rig.fences.done(fence)
    assert "cuEventRecord" not in rig.driver.names


# ---- streams and events of other libraries
class Protocol:
    def __init__(self, handle: int, version: int = 0) -> None:
        self.answer = (version, handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.answer


class Torch:
    device_index = 1
    cuda_stream = 0


class CuPy:
    device_id = -1
    ptr = 0x600


@pytest.mark.parametrize(("stream", "handle"), [
    (0x500, 0x500), (Protocol(0x500), 0x500), (Protocol(0), LEGACY), (Protocol(2), 2), (Torch(), LEGACY),
    (CuPy(), 0x600)])
def test_stream_objects_give_their_handle(stream: object, handle: int) -> None:
    assert parse_stream(stream) == handle


@pytest.mark.parametrize(("stream", "reason"), [(0, "null_stream"), (Protocol(5, version=1), "stream_protocol")])
def test_stream_that_cannot_be_right_is_refused(stream: object, reason: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        parse_stream(stream)
    assert caught.value.reason == reason


class PyOpenCL:
    int_ptr = 0x700


class Malformed:
    """An object whose ``__cuda_stream__`` does not return a version and a handle."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> object:
        return self.answer


@pytest.mark.parametrize("stream", [
    PyOpenCL(), True, "1", None, Malformed(None), Malformed((0,)), Malformed((0, None)), Malformed("stream")])
def test_other_frameworks_stream_is_refused(stream: object) -> None:
    with pytest.raises(BadArgumentError) as caught:
        parse_stream(stream)
    assert caught.value.reason == "not_a_stream"


def test_stream_of_another_device_is_refused() -> None:
    with pytest.raises(WrongDeviceError) as caught:
        check_ordinal(0, Torch())
    assert (caught.value.expected, caught.value.actual) == ("cuda:0", "cuda:1")


@pytest.mark.parametrize(("device", "reason"), [(0, "wrong_context"), (3, "wrong_device")])
def test_stream_of_another_context_is_refused(rig: Rig, device: int, reason: str) -> None:
    rig.driver.answers["cuStreamGetCtx"] = lambda _stream: (cuda.CUcontext(OTHER),)
    rig.driver.answers["cuCtxGetDevice"] = lambda: (cuda.CUdevice(device),)
    with pytest.raises(WrongDeviceError) as caught:
        check_stream_device(rig.driver, rig.context, 0, STREAM)
    assert caught.value.reason == reason
    assert rig.driver.stack == []


def test_stream_of_this_context_is_taken(rig: Rig) -> None:
    rig.driver.answers["cuStreamGetCtx"] = lambda _stream: (cuda.CUcontext(OURS),)
    check_ordinal(1, Torch())
    check_ordinal(0, CuPy())
    check_stream_device(rig.driver, rig.context, 0, STREAM)


class Attr:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


@pytest.mark.parametrize(
    "event", [0x900, Attr(cuda_event=0x900), Attr(ptr=0x900), Attr(handle=cuda.CUevent(0x900)), cuda.CUevent(0x900),
              Attr(handle=Attr(value=0x900))],
)
def test_events_of_other_libraries(event: object) -> None:
    assert int(native_event(cuda, event)) == 0x900


@pytest.mark.parametrize("event", [True, "x", None, Attr(int_ptr=0x900)])
def test_other_frameworks_event_is_refused(event: object) -> None:
    with pytest.raises(BadArgumentError) as caught:
        native_event(cuda, event)
    assert caught.value.reason == "not_an_event"


def test_event_that_was_not_recorded_is_refused() -> None:
    with pytest.raises(BadArgumentError) as caught:
        native_event(cuda, Attr(cuda_event=0))
    assert caught.value.reason == "event_not_recorded"


def test_borrowed_event_is_kept_alive_and_never_destroyed(rig: Rig) -> None:
    native = Attr(cuda_event=0x900)
    fence = BorrowedFence(native_event(cuda, native), native)
    assert fence.source is native
    rig.fences.release(fence)
    rig.fences.close()
    assert fence.source is None
    assert rig.driver.calls == []
