"""Native queues and events of the application, and failing work. The hooks of the backend create these objects."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import cast

from xsem.errors import DriverError, WrongDeviceError
from xsem.spi import BorrowedQueues, NativeEvent, NativeQueue, QueueDriver
from xsem.types import SignalParams, WaitParams
from xsem_conformance.case import driver_use
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.direct import AbleQueue
from xsem_conformance.case.holding import held
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import none_of, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, BrokenError, Case, NotDeclaredError, expect

_RELEASE_S = 0.02


def _borrows(context: CaseContext) -> BorrowedQueues:
    driver: object = context.driver
    if not isinstance(driver, BorrowedQueues):
        raise NotDeclaredError("not declared: the driver borrows no queues")
    return driver


@check("XSEM-LIST-005")
def borrowed_queue_is_in_order_and_stays_open(context: CaseContext, case: Case) -> None:
    """Borrow a native queue, use its driver, and close the driver: the queue still works, and can be borrowed again."""
    driver, borrowing = context.driver, _borrows(context)
    type = context.driver_type()
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
    """Three functions of this thread and one of another thread: the queue calls each once, in the order of appends."""
    driver, queue = context.driver, context.driver.create_queue()
    called: list[int] = []
    for number in range(3):
        queue.append_work(functools.partial(called.append, number))
    on_another_thread(lambda: queue.append_work(functools.partial(called.append, 3)), context.patience_s,
                      "append_work on another thread does not return")
    driver_use.finish(driver, queue, queue.append_barrier((), True), "a barrier behind work", context.patience_s)
    expect(called == [0, 1, 2, 3], f"the queue called the functions {called}, not 0, 1, 2 and 3, each once")


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
    with contextlib.suppress(BlockedError), _pending_wait(context):   # the borrow returns
        driver.release_fence(driver.borrow_event(native.event))


@contextlib.contextmanager
def _pending_wait(context: CaseContext) -> Iterator[None]:
    """Keep a wait pending on a queue of the device during the block."""
    type, driver = context.driver_type(), context.driver
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


@check("XSEM-ORD-013", spoils=True)
def failed_work_stops_its_queue(context: CaseContext, case: Case) -> None:
    """Work fails on a queue: the fences behind this work are not reached, and later appends raise DriverError."""
    driver = context.driver
    fail: Callable[[QueueDriver], None] = context.hook("failing_work")
    queue, fences = driver.create_queue(), []
    before = queue.append_barrier((), True)
    soon(lambda: driver.query_fence(before), "a barrier before the failing work is not done", context.patience_s)
    fail(queue)
    failure: DriverError | None = None
    deadline = time.monotonic() + context.patience_s
    while failure is None:
        expect(time.monotonic() < deadline, "neither a fence behind failed work nor an append raises DriverError")
        try:
            fence = queue.append_barrier((), True)
            fences.append(fence)
            for _ in range(5):
                expect(not driver.query_fence(fence), "a fence behind failed work is reached")
                time.sleep(_RELEASE_S / 5)
        except DriverError as error:
            failure = error
    expect(failure.from_earlier_work, f"failed work is reported as {failure!r}, without from_earlier_work")
    try:
        queue.append_barrier((), True)   # without a fence, a barrier can be no operation
    except DriverError as error:
        expect(error.from_earlier_work, f"an append behind failed work raises {error!r}, without from_earlier_work")
    else:
        raise BrokenError("an append behind failed work raises no error")
    for fence in fences:
        expect(not _despite_failure(functools.partial(driver.query_fence, fence)),
               "a fence behind failed work is reached")
        expect(not _despite_failure(functools.partial(driver.wait_fence, fence, 1_000_000)),
               "a wait for a fence behind failed work is met")
    for fence in (before, *fences):
        _despite_failure(functools.partial(driver.release_fence, fence))
    _despite_failure(queue.close)   # CUDA reports a lost context in each call


def _despite_failure(call: Callable[[], object]) -> object:
    """Make a call that may report the failed work. Return its result, or False if it reports the failure."""
    try:
        return call()
    except DriverError as error:
        expect(error.from_earlier_work, f"failed work is reported as {error!r}, without from_earlier_work")
    return False
