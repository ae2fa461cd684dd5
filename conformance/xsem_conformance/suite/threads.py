"""Threads beside a waiting thread or list, and the use of objects by other threads than their creator."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from xsem.errors import UnsupportedError, WaitTimeoutError
from xsem.spi import Token
from xsem.types import Feature, MemoryHandleType, MipmapDesc, OwnedHandle, SemaphoreKind, SignalParams, WaitParams
from xsem_conformance.case import measures
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.direct import AbleDriver, duplicate
from xsem_conformance.case.holding import held
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import SETTLE_S, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, expect

_IMAGE: Final = MipmapDesc(extent=(32, 16, 0), format="uint8", channels=4)
_IMAGE_MEMORY: Final = 1 << 20


@check("XSEM-THR-003")
def other_threads_run_while_one_waits(context: CaseContext, case: Case) -> None:
    """While one thread is inside the driver's wait, another queries fences, appends and makes the awaited signal."""
    type = context.some_type()
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
        context.peer.host_signal(gate.there, value)
    else:
        last.append(works.append_signal([held], [SignalParams(value=value)], (), (), True))
    thread.join(context.patience_s)
    expect(met and met[0] >= before, "other threads did not run while one was inside the driver's wait")
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
    type = context.some_type()
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
    commands.close()
    context.arrives(shared, value)
    expect(measures.read_there(context, memory, 256) == b"\x5a" * 256, "the fill of another thread is not visible")
    expect(measures.read_there(context, memory, 256, 1024) == b"\x5a" * 256,
           "the copy of another thread is not visible")


@check("XSEM-ORD-007")
def other_calls_return_while_a_list_waits(context: CaseContext, case: Case) -> None:
    """Beside a pending wait, import, creation, export, mapping, a new list, and queries return in time."""
    type = context.some_type()
    driver, value = context.driver, value_of(type)
    gate, shared, memory = context.semaphore(type), context.semaphore(type), context.memory()
    for_image = _memory_for_images(context)
    held = context.driver_semaphore(gate)
    waits = driver.create_queue()
    fence = waits.append_wait([held], [WaitParams(value=value)], (), (), True)
    made: dict[str, Token] = {}
    created: list[tuple[Callable[[Token], None], Token]] = []
    with (context.peer.export_semaphore(shared.there, context.importer) as desc, duplicate(desc) as own,
          context.peer.export_memory(memory.there, context.importer) as memory_desc, duplicate(memory_desc) as other):

        def calls() -> None:
            made["semaphore"] = own.imported_by(driver, desc)
            made["memory"] = other.imported_by(driver, memory_desc)
            made["buffer"], _ = driver.map_buffer(made["memory"], 0, 4096)
            made["list"] = driver.create_queue()
            made["done"] = driver.query_fence(fence)
            if Feature.READ_VALUE in driver.capabilities.features and value is not None:
                driver.semaphore_value(made["semaphore"])
            created.extend(_created_and_exported(driver))
            if for_image is not None:
                made["image"] = driver.map_mipmapped_array(for_image, _IMAGE)
                driver.mipmap_level(made["image"], 0)

        returned = not measures.is_held(calls, lambda: context.peer.host_signal(gate.there, value), context.patience_s,
                                        context.patience_s)
    soon(lambda: driver.query_fence(fence), "a wait was not met by its signal", context.patience_s)
    made["list"].close()
    waits.close()
    driver.release_fence(fence)
    driver.unmap_buffer(made["buffer"])
    driver.release_memory(made["memory"])
    if for_image is not None:
        driver.release_array(made["image"])
        driver.release_memory(for_image)
    for each in (made["semaphore"], held):
        driver.release_semaphore(each)
    for release, token in created:
        release(token)
    expect(returned, "import, mapping, a new list or a query did not return before another list's wait was met")
    expect(not made["done"], "the fence of a held wait is reached")


def _memory_for_images(context: CaseContext) -> Token | None:
    """Import memory in which the device maps an image. Return None if such memory does not exist."""
    declared = context.device.capabilities
    if declared.features.isdisjoint({Feature.IMAGE, Feature.MIPMAPPED_ARRAY}):
        return None
    # xsem refuses images in dma-bufs.
    for type in sorted(each.value for each in declared.memory_import - {MemoryHandleType.DMABUF_FD}):
        with contextlib.suppress(BlockedError):   # the exporter lacks this type
            memory = context.driver_memory(context.memory(_IMAGE_MEMORY, type))
            try:
                context.driver.release_array(context.driver.map_mipmapped_array(memory, _IMAGE))
            except UnsupportedError:
                context.driver.release_memory(memory)
            else:
                return memory
    return None


def _created_and_exported(driver: AbleDriver) -> Iterator[tuple[Callable[[Token], None], Token]]:
    """Create and export an object of each type that the device exports. Yield each object with its release."""
    declared = driver.capabilities
    for type in declared.semaphore_export:
        if type.kind in (SemaphoreKind.BINARY, SemaphoreKind.TIMELINE):
            semaphore = driver.create_semaphore(type, 0)
            yield driver.release_semaphore, semaphore
            _close(driver.export_semaphore(semaphore))
    for each in declared.memory_export:
        with contextlib.suppress(UnsupportedError):   # the device exports only dedicated memory of this type
            memory, _ = driver.create_memory(each, 4096, each.dedicated)
            yield driver.release_memory, memory
            _close(driver.export_memory(memory))


def _close(handle: OwnedHandle | None) -> None:
    if handle is not None:
        handle.close()


@check("XSEM-INT-002")
def wait_of_the_device_outlives_an_interrupt(context: CaseContext, case: Case) -> None:
    """After Ctrl-C in a host wait the device's wait is still pending, its signal meets it, and the list continues."""
    if threading.current_thread() is not threading.main_thread():
        raise BlockedError("Python handles an interrupt only in the main thread, and this is another thread")
    type = context.some_type()
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
