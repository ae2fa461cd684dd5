"""Native queues and events of the application, and failing work. The hooks of the backend create these objects."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

from xsem.errors import DeviceLostError, DriverError, WrongDeviceError
from xsem.plugins import registry
from xsem.spi import BorrowedQueues, NativeEvent, NativeQueue, QueueDriver, Token
from xsem.types import SignalParams, WaitParams
from xsem_conformance.case import driver_use
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, NOWHERE, CaseContext, value_of
from xsem_conformance.case.direct import AbleQueue
from xsem_conformance.case.holding import Hold, held
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import none_of, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, BrokenError, Case, NotDeclaredError, Symptom, expect

_FUNCTIONS = 101


def _borrows(context: CaseContext) -> BorrowedQueues:
    driver: object = context.driver
    if not isinstance(driver, BorrowedQueues):
        raise NotDeclaredError("not declared: the driver borrows no queues")
    return driver


@check("XSEM-LIST-005")
def borrowed_queue_is_in_order_and_stays_open(context: CaseContext, case: Case) -> None:
    """Borrow a native queue, use its driver, and close the driver: the queue still works, and can be borrowed again."""
    driver, borrowing, type = context.driver, _borrows(context), case.handle_type
    native: NativeQueue = context.hook("native_queue")
    another: NativeQueue = context.hook("native_queue")   # the same queue on a device with one
    producer, device = context.ends(IN)
    signals, value = producer.new_list(), value_of(type)
    with contextlib.ExitStack() as at_end:
        for each in (native, another):
            at_end.callback(each.close)
        for _ in range(2):
            # New semaphores: a wait does not reset a binary semaphore on every device.
            shared, after = context.semaphore(type), context.semaphore(type)
            token, other = context.driver_semaphore(shared), context.driver_semaphore(after)
            queue, second = (cast("AbleQueue", borrowing.borrow_queue(native.stream, True)) for _ in range(2))
            _check_identity(borrowing, native, queue, second)
            if another.handle != native.handle:
                expect(borrowing.queue_identity(another.stream) != queue.identity,
                       "two native queues have one identity")
            second.close()   # as xsem does with a second driver of a known queue
            with held(producer, device, signals, type,
                      functools.partial(producer.signal, signals, shared, value)) as hold:
                fences = [queue.append_wait([token], [WaitParams(value=value)], (), (), True),
                          queue.append_signal([other], [SignalParams(value=value)], (), (), True)]
                # These calls return beside a pending wait.
                cast("AbleQueue", borrowing.borrow_queue(native.stream, True)).close()
                borrowing.queue_identity(native.stream)
                for fence in fences:
                    hold.pending(functools.partial(driver.query_fence, fence), "work behind a wait of a borrowed queue")
            for fence in fences:
                soon(functools.partial(driver.query_fence, fence), "the work of a borrowed queue is not done",
                     context.patience_s)
            context.arrives(after, value)
            expect(native.works(), "the native queue does not work while it is borrowed")
            _reports_captures(native, queue)
            queue.close()
            expect(native.works(), "the native queue does not work after the close of the driver that borrowed it")
            for fence in fences:
                driver.release_fence(fence)
            for semaphore in (token, other):
                driver.release_semaphore(semaphore)


def _check_identity(borrowing: BorrowedQueues, native: NativeQueue, queue: QueueDriver, second: QueueDriver) -> None:
    expect(queue.identity == second.identity, "two drivers of one native queue have two identities")
    known = borrowing.queue_identity(native.stream)
    expect(known in (None, queue.identity), "queue_identity and the driver of a native queue give two identities")
    if native.handle is not None:
        expect(queue.native_handle == native.handle,
               f"the native queue {native.handle:#x} has the native_handle {queue.native_handle!r}")


def _reports_captures(native: NativeQueue, queue: QueueDriver) -> None:
    """Capture the native queue as the application: its driver reports the capture from its begin to its end."""
    expect(not queue.is_capturing(), "a native queue counts as captured without a capture")
    if native.capture is None:
        return
    with native.capture():
        for _ in range(2):   # the first query does not end the capture
            expect(queue.is_capturing(), "the driver of a native queue does not report the application's capture")
    expect(not queue.is_capturing(), "a native queue counts as captured after the end of the capture")
    expect(native.works(), "the native queue does not work after a capture")


@check("XSEM-LIST-006")
def each_work_is_called_once_in_order(context: CaseContext, case: Case) -> None:
    """A hundred functions of this thread and one of another thread are called once, in the order of their appends."""
    # If a thread of the queue calls the functions, the first one waits there until all are appended.
    driver, queue = context.driver, context.driver.create_queue()
    called: list[int] = []
    gate, inside, appender = threading.Event(), threading.Event(), threading.get_ident()

    def first() -> None:
        if threading.get_ident() != appender:
            inside.set()
            gate.wait(context.patience_s)
        called.append(0)

    queue.append_work(first)
    for number in range(1, _FUNCTIONS - 1):
        queue.append_work(functools.partial(called.append, number))
    on_another_thread(lambda: queue.append_work(functools.partial(called.append, _FUNCTIONS - 1)), context.patience_s,
                      "append_work on another thread does not return")
    fence = queue.append_barrier((), True)
    soon(lambda: inside.is_set() or called, "no function is called", context.patience_s)
    if inside.is_set():
        none_of((lambda: called, "a function is called while an earlier one runs"),
                (lambda: driver.query_fence(fence), "a barrier is done before a function before it"))
    gate.set()
    driver_use.finish(driver, queue, fence, "a barrier behind work", context.patience_s)
    wrong = next((turn for turn, number in enumerate(called) if turn != number), len(called))
    expect(called == list(range(_FUNCTIONS)),
           f"of {_FUNCTIONS} functions the queue made {len(called)} calls, and call {wrong + 1} is not that of "
           f"function {wrong + 1}")


@check("XSEM-DEV-007")
def queue_of_another_device_is_refused(context: CaseContext, case: Case) -> None:
    """The driver refuses a native queue of another device or context, and the queue still works."""
    borrowing = _borrows(context)
    native: NativeQueue = context.hook("foreign_queue")
    with contextlib.ExitStack() as at_end:
        at_end.callback(native.close)
        try:
            borrowing.borrow_queue(native.stream, True).close()
        except WrongDeviceError as error:
            expect(error.reason in ("wrong_device", "wrong_context"),
                   f"a queue of another device is refused with the reason {error.reason}")
        except Exception as error:
            raise BrokenError(f"a queue of another device is refused with {error!r}, not WrongDeviceError") from error
        else:
            raise BrokenError("a queue of another device is accepted")
        expect(native.works(), "a queue of another device does not work after its refusal")


@check("XSEM-EVT-009")
def native_event_is_reached_with_its_operation(context: CaseContext, case: Case) -> None:
    """Work behind a native event is pending until the event is reached. A release leaves the event unchanged."""
    # The fence of the second event is released before the event is reached.
    queue = context.driver.create_queue()
    for release_early in (False, True):
        native: NativeEvent = context.hook("native_event")
        with contextlib.ExitStack() as at_end:
            at_end.callback(native.close)
            _event_holds_back(context, native, queue, release_early=release_early)
    queue.close()


def _event_holds_back(context: CaseContext, native: NativeEvent, queue: QueueDriver, *, release_early: bool) -> None:
    driver = context.driver
    fence = driver.borrow_event(native.event)
    behind = queue.append_barrier((fence,), True)
    none_of((lambda: driver.query_fence(fence), "a native event counts as reached before its operation is done"),
            (lambda: driver.query_fence(behind), "work that waits for a native event is done before the event"))
    _times_out(lambda: driver.wait_fence(fence, 20_000_000), context.patience_s)
    if release_early:
        driver.release_fence(fence)
    native.reach()
    soon(lambda: driver.query_fence(behind), "work that waits for a reached native event is not done",
         context.patience_s)
    if not release_early:
        soon(lambda: driver.query_fence(fence), "a native event never counts as reached", context.patience_s)
        driver.release_fence(fence)
    driver.release_fence(behind)
    soon(native.works, "the native event does not work after the release of its fence", context.patience_s, None)
    again = driver.borrow_event(native.event)
    soon(lambda: driver.query_fence(again), "a reached native event, borrowed again, is not reached",
         context.patience_s)
    driver.release_fence(again)
    with contextlib.suppress(BlockedError):
        for type in context.driver_types():
            with _pending_wait(context, type):   # the borrow returns
                driver.release_fence(driver.borrow_event(native.event))


@contextlib.contextmanager
def _pending_wait(context: CaseContext, type: str) -> Iterator[None]:
    """Keep a wait pending on a queue of the device during the block."""
    driver = context.driver
    producer, device = context.ends(IN)
    signals, shared, queue = producer.new_list(), context.semaphore(type), driver.create_queue()
    token, value = context.driver_semaphore(shared), value_of(type)
    with held(producer, device, signals, type, functools.partial(producer.signal, signals, shared, value)):
        fence = queue.append_wait([token], [WaitParams(value=value)], (), (), True)
        yield
    driver_use.finish(driver, queue, fence, "a wait with a signal", context.patience_s)
    driver.release_semaphore(token)


def _times_out(wait: Callable[[], bool], patience_s: float) -> None:
    began = time.monotonic()
    expect(not wait(), "a wait for a native event is met before its operation is done")
    expect(time.monotonic() - began < patience_s, "a wait for a native event takes longer than its timeout")


@contextlib.contextmanager
def _held_back(context: CaseContext, queue: AbleQueue) -> Iterator[tuple[Hold, Token]]:
    """Append a wait for a new semaphore, which the exporter signals at the end. Yield the hold and the semaphore."""
    # Only the driver imports the semaphore, because failed work can end the device of the context as well.
    type = context.driver_type()
    there, desc = context.exporter.create_semaphore(type, context.importer_uuid)
    desc.close()
    shared, value = Shared(NOWHERE, there), value_of(type)
    token = context.driver_semaphore(shared)
    producer, device = context.ends(IN)
    signals = producer.new_list()
    with held(producer, device, signals, type, functools.partial(producer.signal, signals, shared, value)) as hold:
        queue.append_wait([token], [WaitParams(value=value)], (), (), False)
        yield hold, token


@check("XSEM-ORD-013", spoils=True)
def failed_work_stops_its_queue(context: CaseContext, case: Case) -> None:
    """Hold work back that will fail: no fence behind this work is reached, and each later append raises DriverError."""
    driver = context.driver
    fail: Callable[[QueueDriver], None] = context.hook("failing_work")
    queue = driver.create_queue()
    before = queue.append_barrier((), True)
    soon(lambda: driver.query_fence(before), "a barrier before the failing work is not done", context.patience_s)
    with _held_back(context, queue) as (hold, token):
        fail(queue)
        fences = [queue.append_barrier((), True) for _ in range(3)]
        hold.pending(lambda: any(driver.query_fence(each) for each in fences), "a barrier behind held work")
    failures = [_failure(context, functools.partial(driver.query_fence, fence)) for fence in fences]
    failures += [_failure(context, functools.partial(driver.wait_fence, fence, 1_000_000)) for fence in fences]
    if not any(isinstance(each, DeviceLostError) for each in failures):
        expect(driver.query_fence(before), "a reached fence does not stay reached after later work failed")
    value = value_of(context.driver_type(), 2)
    _is_refused("a barrier", lambda: queue.append_barrier((), True))   # without a fence, it can be no operation
    _is_refused("a signal", lambda: queue.append_signal([token], [SignalParams(value=value)], (), (), True))
    _is_refused("a wait", lambda: queue.append_wait([token], [WaitParams(value=value)], (), (), True))
    for fence in (before, *fences):
        _despite_failure(functools.partial(driver.release_fence, fence))
    _despite_failure(queue.close)   # CUDA reports a lost context in each call
    _despite_failure(functools.partial(driver.release_semaphore, token))


def _failure(context: CaseContext, reached: Callable[[], bool]) -> DriverError:
    """Query a fence behind failed work until the query raises DriverError. Return this error."""
    deadline = time.monotonic() + context.patience_s
    while True:
        try:
            expect(not reached(), "a fence behind failed work is reached")
        except DriverError as error:
            _is_of_earlier_work(error)
            return error
        expect(time.monotonic() < deadline, "the query of a fence behind failed work raises no DriverError",
               Symptom.NOT_DONE)
        time.sleep(0.001)


def _is_refused(what: str, append: Callable[[], object]) -> None:
    """Check that an append behind failed work raises DriverError."""
    try:
        append()
    except DriverError as error:
        _is_of_earlier_work(error)
    except Exception as error:
        raise BrokenError(f"{what} behind failed work raises {error!r}, not DriverError") from error
    else:
        raise BrokenError(f"{what} behind failed work raises no error")


def _is_of_earlier_work(error: DriverError) -> None:
    expect(error.from_earlier_work, f"failed work is reported as {error!r}, without from_earlier_work")


def _despite_failure(call: Callable[[], object]) -> None:
    """Make a call that may report the failed work."""
    try:
        call()
    except DriverError as error:
        _is_of_earlier_work(error)


@check("XSEM-ORD-014", spoils=True)
def failed_work_leaves_other_queues(context: CaseContext, case: Case) -> str:
    """Work fails on a queue while another queue waits: the wait is met, and this and a new driver's queue work."""
    driver = context.driver
    fail: Callable[[QueueDriver], None] = context.hook("failing_work")
    failing, other = driver.create_queue(), driver.create_queue()
    type, device = context.driver_type(), context.ends(IN)[1]
    with _held_back(context, other) as (hold, token):
        tokens, behind = [token], other.append_barrier((), True)
        with contextlib.ExitStack() as gate:
            if device.waits_early(type):   # without this gate, the work can fail before the barrier
                tokens.append(gate.enter_context(_held_back(context, failing))[1])
            fail(failing)
            fence, refused = _fence_behind(failing)
        failure = refused or _failure(context, functools.partial(driver.query_fence, fence))
        if not isinstance(failure, DeviceLostError):
            hold.pending(functools.partial(driver.query_fence, behind), "a barrier beside failed work")
    if isinstance(failure, DeviceLostError):
        return f"the failure ends the device: {failure}"
    soon(lambda: driver.query_fence(behind), "a queue beside failed work is not done", context.patience_s)
    shared, value = context.semaphore(type), value_of(type)   # new: not every device resets a binary semaphore
    tokens.append(context.driver_semaphore(shared))
    last = other.append_signal([tokens[-1]], [SignalParams(value=value)], (behind,), (), True)
    driver_use.finish(driver, other, last, "a signal beside failed work", context.patience_s)
    context.arrives(shared, value)
    for each in (behind, fence):
        if each is not None:
            driver.release_fence(each)
    failing.close()
    for semaphore in tokens:
        driver.release_semaphore(semaphore)
    again = registry().get(context.device.info.backend).open(context.device.info.index)
    for each in (driver, again):
        queue = each.create_queue()
        driver_use.finish(each, queue, queue.append_barrier((), True), "a barrier of a new queue after failed work",
                          context.patience_s)
    again.close()
    return "the failure ends its queue"


def _fence_behind(queue: QueueDriver) -> tuple[Token | None, DriverError | None]:
    """Append a barrier behind failing work. Return its fence, or the failure if the append raises it."""
    try:
        return queue.append_barrier((), True), None
    except DriverError as error:
        _is_of_earlier_work(error)
        return None, error
