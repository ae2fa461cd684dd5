"""Leaks: repeated calls of every ability of the driver leave no file descriptor and no thread."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from xsem.errors import UnsupportedError
from xsem.plugins import registry
from xsem.portable import new_memory, new_timeline
from xsem.spi import (
    BorrowedEvents,
    BorrowedQueues,
    CopyQueue,
    HostFences,
    HostMemory,
    HostMemoryImport,
    HostTimelines,
    ImageQueue,
    ImageRegion,
    RecordingQueue,
    Token,
)
from xsem.types import Feature, MemoryHandleType, SemaphoreHandleType, SemaphoreKind, SignalParams, WaitParams
from xsem_conformance.case.context import MEMORY_SIZE, CaseContext
from xsem_conformance.case.direct import close_host_objects, duplicate
from xsem_conformance.case.leaks import FILES, ROUNDS, THREADS, stays_level
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, NotDeclaredError, NotExaminedError, Symptom, expect
from xsem_conformance.suite.images import IMAGE_MEMORY, PITCHES, PLAIN, WHOLE

Round = Callable[[], object]


@check("XSEM-LIFE-012", deadline_s=60)
def rounds_of_calls_leave_nothing(context: CaseContext, case: Case) -> None:
    """Use and release the objects of one ability after the other, and count the files and threads after each."""
    # Every second round runs on another thread.
    queue = context.driver.create_queue()
    with contextlib.ExitStack() as at_end:
        at_end.callback(queue.close)
        for abilities in (_backend, _queues, _semaphores, _created, _memory, _images, _recordings, _host_objects,
                          _host_fences, _native):
            for name, work in abilities(context, queue, at_end):
                work()   # the first round can fill a cache of the driver
                stays_level(_on_two_threads(work, context.patience_s), ROUNDS, context.patience_s,
                            f"{ROUNDS} rounds of {name}", FILES, THREADS)


def _on_two_threads(work: Round, patience_s: float) -> Round:
    """Return a round that runs `work` on the calling thread and on a new thread, in turn."""
    turns = itertools.count()

    def run() -> None:
        if next(turns) % 2:
            on_another_thread(work, 2 * patience_s, "a round on another thread does not end")
        else:
            work()

    return run


def _backend(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    info = context.device.info
    backend = registry().get(info.backend)
    yield "the list of devices", backend.devices
    yield "the details of a device", lambda: backend.details(info.index)
    yield "checks", backend.checks


def _queues(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    driver = context.driver

    def fences() -> None:
        first = queue.append_barrier((), True)
        second = queue.append_barrier((first,), True)
        _done(context, second)
        expect(driver.query_fence(first), "a fence is not reached, and the fence of later work is", Symptom.NOT_DONE)
        for each in (first, second):
            driver.release_fence(each)

    def work() -> None:
        queue.append_work(lambda: None)
        queue.is_capturing()
        _finish(context, queue.append_barrier((), True))

    yield "queues", lambda: driver.create_queue().close()
    yield "fences", fences
    yield "work", work


def _semaphores(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    for kind in (SemaphoreKind.BINARY, SemaphoreKind.TIMELINE):
        with contextlib.suppress(BlockedError, NotDeclaredError):
            yield from _semaphore(context, queue, at_end, kind, context.driver_type(kind))


def _semaphore(
    context: CaseContext, queue: Any, at_end: contextlib.ExitStack, kind: SemaphoreKind, type: str
) -> Iterator[tuple[str, Round]]:
    driver = context.driver
    # xsem makes the calls of the host for a portable timeline itself.
    features = frozenset() if SemaphoreHandleType(type).portable else context.device.capabilities.features
    shared = context.semaphore(type)
    desc = at_end.enter_context(context.exporter.export_semaphore(shared.there, context.importer_uuid))
    values = itertools.count(1)

    def next_value() -> int | None:
        return next(values) if kind is SemaphoreKind.TIMELINE else None

    def imported() -> Token:
        with duplicate(desc) as given:
            return given.imported_by(driver, desc)

    def imports() -> None:
        made = imported()
        with contextlib.suppress(UnsupportedError):
            driver.native_handle(made)
        driver.release_semaphore(made)
        close_host_objects(made)

    token = imported()
    at_end.callback(driver.release_semaphore, token)

    def appends() -> None:
        value = next_value()
        signals = queue.append_signal([token], [SignalParams(value=value)], (), (), True)
        _finish(context, queue.append_wait([token], [WaitParams(value=value)], (signals,), (), True))
        driver.release_fence(signals)

    def prepared() -> None:
        signal, wait = queue.prepare_signal([token]), queue.prepare_wait([token])
        if signal is not None and wait is not None:
            value = next_value()
            signals = signal(value, (), True)
            _finish(context, wait(value, (signals,), True))
            driver.release_fence(signals)

    def host_calls() -> None:
        value = next_value()
        try:
            driver.host_signal(token, value)
        except UnsupportedError:
            if kind is SemaphoreKind.TIMELINE:
                raise
            return   # a device may refuse host calls with binary semaphores, as Vulkan does
        soon(lambda: driver.host_wait(token, value, 20_000_000), "a host wait is not met by a host signal",
             context.patience_s)

    yield f"imports of a {kind.value} semaphore", imports
    yield f"appends with a {kind.value} semaphore", appends
    yield f"prepared appends with a {kind.value} semaphore", prepared
    if features >= {Feature.HOST_SIGNAL, Feature.HOST_WAIT}:
        yield f"host calls with a {kind.value} semaphore", host_calls
    if kind is SemaphoreKind.TIMELINE and Feature.READ_VALUE in features:
        yield "queries of a value", functools.partial(driver.semaphore_value, token)


def _created(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    driver: Any = context.driver
    declared = context.device.capabilities

    def semaphore(type: Any) -> None:
        made = driver.create_semaphore(type, 0)
        driver.export_semaphore(made).close()
        driver.release_semaphore(made)

    def memory(type: Any) -> None:
        made, _ = driver.create_memory(type, MEMORY_SIZE, False)
        driver.export_memory(made).close()
        driver.release_memory(made)

    for each in declared.semaphore_export:
        if each.kind in (SemaphoreKind.BINARY, SemaphoreKind.TIMELINE) and not each.portable:
            yield f"created semaphores of type {each.value}", functools.partial(semaphore, each)
    if MemoryHandleType.OPAQUE_FD in declared.memory_export:
        yield "created memory", functools.partial(memory, MemoryHandleType.OPAQUE_FD)


def _memory(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    driver: Any = context.driver
    try:
        shared = context.memory()
    except BlockedError:
        return
    desc = at_end.enter_context(context.exporter.export_memory(shared.there, context.importer_uuid))

    def import_it() -> Token:
        with duplicate(desc) as given:
            return given.imported_by(driver, desc)

    memory = import_it()
    at_end.callback(driver.release_memory, memory)

    def mappings() -> None:
        buffer, _ = driver.map_buffer(memory, 0, 4096)
        driver.dlpack_device()
        driver.unmap_buffer(buffer)

    def copies() -> None:
        buffer, _ = driver.map_buffer(memory, 0, 4096)
        with _host_buffer(driver) as host:
            filled = queue.append_fill(buffer, 0, b"\x11", 4096, (), True)
            copied = queue.append_copy(host, 0, buffer, 0, 4096, (filled,), True)
            _finish(context, copied)
            driver.release_fence(filled)
        driver.unmap_buffer(buffer)

    def imports() -> None:
        made = import_it()
        driver.release_memory(made)
        close_host_objects(made)

    yield "imports of memory", imports
    yield "mappings", mappings
    if isinstance(driver, HostMemory):
        yield "host buffers", lambda: driver.release_host_buffer(driver.host_buffer(4096)[0])
    if isinstance(driver, HostMemory) and isinstance(queue, CopyQueue):
        yield "copies and fills", copies


@contextlib.contextmanager
def _host_buffer(driver: Any) -> Iterator[Token]:
    made, _ = driver.host_buffer(4096)
    try:
        yield made
    finally:
        driver.release_host_buffer(made)


def _images(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    driver: Any = context.driver
    if not isinstance(queue, ImageQueue):
        return
    try:
        shared = context.memory(IMAGE_MEMORY)
        memory = context.driver_memory(shared)
        at_end.callback(driver.release_memory, memory)
        driver.release_array(driver.map_mipmapped_array(memory, PLAIN))
    except Exception:   # the device maps no image in the exporter's memory; the checks of images say so
        return

    def images() -> None:
        array = driver.map_mipmapped_array(memory, PLAIN)
        level = driver.mipmap_level(array, 0)
        with _host_buffer(driver) as host:
            written = queue.append_region_copy(level, WHOLE, host, 0, *PITCHES, False, (), True)
            _finish(context, queue.append_region_copy(level, WHOLE, host, 2048, *PITCHES, True, (written,), True))
            driver.release_fence(written)
        driver.release_array(array)

    yield "images", images
    if Feature.IMAGE_COPY in context.device.capabilities.features:
        yield "copies of images", functools.partial(_image_copies, context, queue, memory)


def _image_copies(context: CaseContext, queue: Any, memory: Token) -> None:
    driver: Any = context.driver
    array = driver.map_mipmapped_array(memory, PLAIN)
    level = driver.mipmap_level(array, 0)
    left, right = (ImageRegion((x, 0, 0), (16, 16, 1), 0, 1) for x in (0, 16))
    with _host_buffer(driver) as host:
        written = queue.append_region_copy(level, left, host, 0, 64, 1024, False, (), True)
        moved = queue.append_image_copy(level, right, level, left, (written,), True)
        _finish(context, queue.append_region_copy(level, right, host, 2048, 64, 1024, True, (moved,), True))
        for fence in (written, moved):
            driver.release_fence(fence)
    driver.release_array(array)


def _recordings(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    if Feature.RECORDING not in context.device.capabilities.features or not isinstance(queue, RecordingQueue):
        return
    try:
        type = context.driver_type(SemaphoreKind.TIMELINE)
    except (BlockedError, NotDeclaredError):
        return
    token = context.driver_semaphore(context.semaphore(type))
    at_end.callback(context.driver.release_semaphore, token)
    last = [0]

    def recordings() -> None:
        own: Any = context.driver.create_queue()
        for _ in range(2):
            own.begin_recording()
            own.append_signal([token], [SignalParams(value=1)], (), (), False)
            recording = own.end_recording()
            last[0] += 1
            own.replay(recording, [(token, 0, last[0])])
            _finish(context, own.append_barrier((), True))
            own.release_recording(recording)
        own.close()

    yield "recordings", recordings


def _host_objects(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    driver: Any = context.driver

    def timelines() -> None:
        page = new_timeline(0)
        token = driver.import_host_timeline(page)
        signals = queue.append_signal([token], [SignalParams(value=1)], (), (), True)
        _finish(context, queue.append_wait([token], [WaitParams(value=1)], (signals,), (), True))
        driver.release_fence(signals)
        driver.release_semaphore(token)
        page.close()

    def memories() -> None:
        memory = new_memory(MEMORY_SIZE)
        token = driver.import_host_memory(memory)
        driver.unmap_buffer(driver.map_buffer(token, 0, MEMORY_SIZE)[0])
        driver.release_memory(token)
        memory.close()

    if isinstance(driver, HostTimelines):
        yield "portable timelines", timelines
    if isinstance(driver, HostMemoryImport):
        yield "portable memory", memories


def _host_fences(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    driver: Any = context.driver

    def fences() -> None:
        fence = driver.create_host_fence()
        behind = queue.append_barrier((fence,), True)
        driver.reach_host_fence(fence)
        _finish(context, behind)
        driver.release_fence(fence)

    if isinstance(driver, HostFences):
        yield "fences of the host", fences


def _native(context: CaseContext, queue: Any, at_end: contextlib.ExitStack) -> Iterator[tuple[str, Round]]:
    driver: Any = context.driver
    with contextlib.suppress(NotExaminedError):
        if isinstance(driver, BorrowedEvents):
            event = context.hook("native_event")
            at_end.callback(event.close)
            event.reach()
            yield "borrowed events", lambda: _finish(context, driver.borrow_event(event.event))
    with contextlib.suppress(NotExaminedError):
        if isinstance(driver, BorrowedQueues):
            native = context.hook("native_queue")
            at_end.callback(native.close)

            def borrowed() -> None:
                driver.queue_identity(native.stream)
                driver.borrow_queue(native.stream, True).close()

            yield "borrowed queues", borrowed


def _done(context: CaseContext, fence: Token) -> None:
    soon(lambda: context.driver.wait_fence(fence, 1_000_000), "a fence is not reached", context.patience_s)


def _finish(context: CaseContext, fence: Token) -> None:
    """Wait for a fence, and release it."""
    _done(context, fence)
    context.driver.release_fence(fence)
