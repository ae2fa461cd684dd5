"""Threads beside a waiting thread or list, and the use of objects by other threads than their creator."""

from __future__ import annotations

import _thread
import contextlib
import functools
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from xsem.errors import WaitTimeoutError
from xsem.spi import Callers, Token
from xsem.types import SemaphoreHandleType, SignalParams, WaitParams
from xsem_conformance.case import measures
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.direct import AbleQueue
from xsem_conformance.case.holding import held
from xsem_conformance.case.other_thread import all_at_once, on_another_thread
from xsem_conformance.case.polling import SETTLE_S, never, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, NotDeclaredError, Symptom, expect

_CELL: Final = 16
_HALF: Final = 2048
_TURNS: Final = 100
"""Appends of each of two threads: their cell and their places fit a half of a page."""


@check("XSEM-THR-003")
def other_threads_run_while_one_waits(context: CaseContext, case: Case) -> None:
    """While one thread is inside the driver's wait, another queries fences, appends and makes the awaited signal."""
    type = case.handle_type
    driver, value = context.driver, value_of(type)
    gate, free = context.semaphore(type), context.semaphore(type)
    held, other = context.driver_semaphore(gate), context.driver_semaphore(free)
    waits, works = driver.create_queue(), driver.create_queue()
    fence = waits.append_wait([held], [WaitParams(value=value)], (), (), True)
    inside = threading.Event()
    met: list[float] = []

    def wait() -> None:
        deadline = time.monotonic() + context.patience_s
        inside.set()
        # Far longer than the wait slices of the facade: a blocked thread stays blocked until the end.
        while not met and time.monotonic() < deadline:
            if driver.wait_fence(fence, int((deadline - time.monotonic()) * 1e9)):
                met.append(time.monotonic())

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    inside.wait()
    time.sleep(SETTLE_S)   # so that the thread is inside the driver
    expect(not driver.query_fence(fence), "the fence of a held wait is reached")
    alone = context.device.capabilities.independent_lists < 2
    if not alone:
        beside = works.append_signal([other], [SignalParams(value=value)], (), (), True)
        soon(lambda: driver.query_fence(beside), "another list's signal is not done while a thread waits",
             context.patience_s)
        driver.release_fence(beside)
    marker = waits.append_barrier((), True)   # the waiting list itself also accepts appends
    expect(not driver.query_fence(marker), "a barrier behind a held wait is done")
    before = time.monotonic()
    last = [marker]
    if alone:
        context.exporter.host_signal(gate.there, value)
    else:
        last.append(works.append_signal([held], [SignalParams(value=value)], (), (), True))
    thread.join(context.patience_s)
    expect(met and met[0] >= before, "other threads did not run while one was inside the driver's wait",
           Symptom.NOT_DONE)
    expect(met[0] - before < context.patience_s / 2, "a wait for a fence returns long after its fence is reached",
           Symptom.NOT_DONE)
    # The wait may be met before the signalling list is idle. The list must be idle before its close.
    soon(lambda: all(driver.query_fence(each) for each in last),
         "a barrier behind a met wait or the signal that met it is not done", context.patience_s)
    for each in (fence, *last):
        driver.release_fence(each)
    for commands in (waits, works):
        commands.close()
    for semaphore in (held, other):
        driver.release_semaphore(semaphore)


@check("XSEM-THR-004")
def objects_belong_to_no_thread(context: CaseContext, case: Case) -> None:
    """A new thread appends to, queries, maps and releases the objects that this thread imported and used before."""
    type = case.handle_type
    driver, value = context.driver, value_of(type)
    shared, memory = context.semaphore(type), context.memory()
    semaphore, mine = context.driver_semaphore(shared), context.driver_memory(memory)
    commands = driver.create_queue()
    used, _ = driver.map_buffer(mine, 0, 4096)
    commands.append_fill(used, 2048, b"\x11", 256, (), False)
    first = commands.append_copy(used, 2560, used, 2048, 256, (), True)
    soon(lambda: driver.query_fence(first), "the appends of the first thread are not done", context.patience_s)
    driver.release_fence(first)
    driver.unmap_buffer(used)

    def work() -> None:
        buffer, _ = driver.map_buffer(mine, 0, 4096)
        commands.append_fill(buffer, 0, b"\x5a", 256, (), False)
        commands.append_copy(buffer, 1024, buffer, 0, 256, (), False)
        fence = commands.append_signal([semaphore], [SignalParams(value=value)], (), (), True)
        soon(lambda: driver.query_fence(fence), "the appends of another thread are not done", context.patience_s)
        driver.release_fence(fence)
        driver.unmap_buffer(buffer)
        driver.release_memory(mine)
        driver.release_semaphore(semaphore)

    on_another_thread(work, 2 * context.patience_s, "a thread without an earlier driver call hangs in a driver call")
    if SemaphoreHandleType(type) in driver.capabilities.wait_before_signal:
        for prepared in (False, True):
            _wait_of_another_thread(context, commands, type, prepared=prepared)
    commands.close()
    context.arrives(shared, value)
    expect(measures.read_there(context, memory, 256) == b"\x5a" * 256, "the fill of another thread is not visible",
           Symptom.OTHER_BYTES)
    expect(measures.read_there(context, memory, 256, 1024) == b"\x5a" * 256,
           "the copy of another thread is not visible", Symptom.OTHER_BYTES)


def _wait_of_another_thread(context: CaseContext, queue: AbleQueue, type: str, *, prepared: bool) -> None:
    """Append a wait on this thread, and then one on a new thread. The second one is pending until its signal."""
    # Without a prepared call of the driver, do nothing.
    driver, value = context.driver, value_of(type)
    met, gate = context.semaphore(type), context.semaphore(type)
    tokens = [context.driver_semaphore(each) for each in (met, gate)]
    waits = [_wait(queue, each, value, prepared=prepared) for each in tokens]
    context.exporter.host_signal(met.there, value)
    if waits[0] is not None and waits[1] is not None:
        fences = [waits[0]()]
        soon(lambda: driver.query_fence(fences[0]), "a wait is not met by its signal", context.patience_s)
        append = waits[1]
        on_another_thread(lambda: fences.append(append()), context.patience_s,
                          "the append of a wait on another thread does not return")
        never(lambda: driver.query_fence(fences[1]), "a wait of another thread is done before its signal")
        context.exporter.host_signal(gate.there, value)
        soon(lambda: driver.query_fence(fences[1]), "a wait of another thread is not met by its signal",
             context.patience_s)
        for fence in fences:
            driver.release_fence(fence)
    for token in tokens:
        driver.release_semaphore(token)


def _wait(queue: AbleQueue, token: Token, value: int | None, *, prepared: bool) -> Callable[[], Token] | None:
    """Return a function that appends a wait with a fence. Return None if the driver prepares no call."""
    if not prepared:
        return lambda: queue.append_wait([token], [WaitParams(value=value)], (), (), True)
    call = queue.prepare_wait([token])
    return None if call is None else lambda: call(value, (), True)


@check("XSEM-THR-008")
def two_threads_drive_one_queue(context: CaseContext, case: Case) -> None:
    """Two threads fill a cell of their own and copy it to their next place, at the same time on one queue."""
    driver, queue = context.driver, context.driver.create_queue()
    if queue.callers is not Callers.ANY:
        queue.close()
        raise NotDeclaredError("not declared: the calls of two threads on one queue do not overlap (Callers.ANY)")
    memory = context.memory()
    mine = context.driver_memory(memory)
    buffer, _ = driver.map_buffer(mine, 0, 4096)
    start = threading.Barrier(2)
    fences: tuple[list[Token], list[Token]] = ([], [])

    def work(cell: int, made: list[Token]) -> None:
        start.wait()
        for turn in range(1, _TURNS + 1):
            queue.append_fill(buffer, cell, bytes([turn]) * 4, _CELL, (), False)
            made.append(queue.append_copy(buffer, cell + turn * _CELL, buffer, cell, _CELL, (), True))

    with _many_switches():
        all_at_once(functools.partial(work, half * _HALF, made) for half, made in enumerate(fences))
    for made in fences:
        for earlier, later in itertools.pairwise(made):
            expect(not driver.query_fence(later) or driver.query_fence(earlier),
                   "a fence of a thread is reached before its earlier fence")
        soon(functools.partial(driver.query_fence, made[-1]), "the appends of two threads are not done",
             context.patience_s)
        for fence in made:
            driver.release_fence(fence)
    found = measures.read_there(context, memory, 4096)
    for half in range(2):
        for turn in range(1, _TURNS + 1):
            at = half * _HALF + turn * _CELL
            expect(found[at:at + _CELL] == bytes([turn]) * _CELL,
                   f"append {turn} of thread {half + 1} is lost, or not in the order of the thread",
                   Symptom.OTHER_BYTES)
    driver.unmap_buffer(buffer)
    queue.close()
    driver.release_memory(mine)


@contextlib.contextmanager
def _many_switches() -> Iterator[None]:
    """Let the threads take turns often, so that their calls overlap."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@check("XSEM-INT-002")
def wait_of_the_device_outlives_an_interrupt(context: CaseContext, case: Case) -> None:
    """After Ctrl-C in a host wait the device's wait is still pending, its signal meets it, and the list continues."""
    if threading.current_thread() is not threading.main_thread():
        raise BlockedError("Python handles an interrupt only in the main thread, and this is another thread")
    type = case.handle_type
    producer, device = context.ends(IN)
    shared, after, value = context.semaphore(type), context.semaphore(type), value_of(type)
    waits, signals = device.new_list(), producer.new_list()
    with held(producer, device, signals, type, lambda: producer.signal(signals, shared, value)) as hold:
        device.wait(waits, shared, value)
        expect(_interrupted(lambda: context.here.synchronize(waits, context.patience_s)),
               "an interrupt does not end a host wait")
        hold.pending(lambda: device.done(waits), "a wait beside an interrupted host wait")
    device.finish(waits, "a wait beside an interrupted host wait")
    device.signal(waits, after, value)
    producer.wait(signals, after, value)
    producer.finish(signals, "a wait for the next signal of the list")


def _interrupted(wait: Callable[[], object]) -> bool:
    """Call `wait` and interrupt it like Ctrl-C; return whether KeyboardInterrupt is raised."""
    begun, main = threading.Event(), threading.get_ident()

    def interrupt() -> None:
        begun.wait()
        time.sleep(SETTLE_S)   # so that the main thread is inside the wait
        if sys.platform != "win32":
            signal.pthread_kill(main, signal.SIGINT)
        else:
            _thread.interrupt_main()

    # A shell that starts the suite in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        begun.set()
        with contextlib.suppress(WaitTimeoutError):
            wait()
        thread.join()
        time.sleep(SETTLE_S)   # if the wait returned before, the interrupt arrives here
    except KeyboardInterrupt:
        return True
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    return False
