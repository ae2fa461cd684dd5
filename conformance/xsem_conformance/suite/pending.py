"""Effects of an unmet wait on appends behind it, and on releases and other calls beside it."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from xsem.errors import UnsupportedError
from xsem.portable import new_memory, new_timeline
from xsem.spi import HostMemoryImport, HostTimelines, RecordingQueue, Token
from xsem.types import (
    Feature,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreHandleType,
    SemaphoreKind,
    SignalParams,
    WaitParams,
)
from xsem_conformance.case import driver_use, measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.direct import duplicate
from xsem_conformance.case.leaks import FILES, THREADS, stays_level
from xsem_conformance.case.polling import soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, Symptom, expect
from xsem_conformance.suite.images import IMAGE_MEMORY, PLAIN

_FEW: Final = 10


@check("XSEM-CAP-005", deadline_s=60)
def as_many_appends_as_declared_return_behind_a_wait(context: CaseContext, case: Case) -> None:
    """The declared number of appends to the driver behind a held wait return, all complete, and nothing is left."""
    declared = context.driver.capabilities
    most = measures.MOST_APPENDS if declared.append_never_blocks else min(declared.max_pending or 0, 1 << 16)
    made = context.exported_semaphores()
    timeline = any(each.kind is SemaphoreKind.TIMELINE and each.value in made
                   for each in declared.semaphore_import - declared.bridged)
    type = context.driver_type(SemaphoreKind.TIMELINE if timeline else None)

    def appends() -> None:
        found = measures.pending_appends(context, type, most, context.patience_s)
        expect(found >= most, f"{found} appends behind an unmet wait returned, but {most} are declared")

    measures.pending_appends(context, type, min(most, _FEW), context.patience_s)   # this can fill a cache of the driver
    stays_level(appends, 1, context.patience_s, f"{most} appends behind an unmet wait", FILES, THREADS)


@check("XSEM-LIFE-005")
def memory_is_freed_while_a_wait_is_pending(context: CaseContext, case: Case) -> None:
    """The driver's unmapping and release of memory, or release of a semaphore, return before another list's wait."""
    # Another list waits for a semaphore of each type in turn.
    what, is_held = (("unmapping and releasing memory", measures.free_is_held) if case.kind == "memory" else
                     ("releasing a semaphore", measures.release_is_held))
    for early in context.early_types():
        if case.kind == "memory" or SemaphoreHandleType(early) not in context.device.capabilities.bridged:
            expect(not is_held(context, case.handle_type, context.patience_s, early),
                   f"{what} did not return before the {early} wait of another list was met")


@check("XSEM-LIFE-006")
def release_while_a_wait_is_pending(context: CaseContext, case: Case) -> str:
    """Report whether the driver's release of a semaphore, or unmapping of memory, returns while a wait is pending."""
    if case.kind == "memory":
        what, held = "unmapping and releasing memory", measures.free_is_held(context, case.handle_type)
    else:
        what, held = "releasing a semaphore", measures.release_is_held(context, case.handle_type)
    return f"{what} {'blocks until the wait is met' if held else 'returns at once'}"


@check("XSEM-ORD-007", deadline_s=60)
def other_calls_return_while_a_list_waits(context: CaseContext, case: Case) -> None:
    """Beside a pending wait, imports, exports, mappings, use of another list, host calls and queries return in time."""
    # The list waits for a semaphore of the case's type. The other calls use every type.
    beside = functools.partial(_calls_return_beside_a_wait, context, case.handle_type)
    types = context.driver_types()
    beside(functools.partial(_imports, context, [context.semaphore(each) for each in types],
                             [context.memory(type=each) for each in context.shared_memories()]))
    beside(functools.partial(_creations, context))
    beside(functools.partial(_host_objects, context))
    beside(functools.partial(_images, context, _memory_for_images(context)))
    for type in types:
        beside(functools.partial(_uses, context, context.driver_semaphore(context.semaphore(type)), type))


_Steps = Iterator[str]
"""The names of the steps of a function that makes calls. Each name precedes its calls."""


def _calls_return_beside_a_wait(
    context: CaseContext, type: str, calls: Callable[[contextlib.ExitStack], _Steps]
) -> None:
    """Make the calls while a list waits. Afterwards, release the objects that the calls left on the stack."""
    driver, value = context.driver, value_of(type)
    gate = context.semaphore(type)
    held = context.driver_semaphore(gate)
    waits = driver.create_queue()
    fence = waits.append_wait([held], [WaitParams(value=value)], (), (), True)
    current: str | None = None
    stuck: str | None = None
    open_ = threading.Event()
    with contextlib.ExitStack() as after:

        def make() -> None:
            nonlocal current
            for step in calls(after):
                current = step
            expect(open_.is_set() or not driver.query_fence(fence), "the fence of a held wait is reached")

        def meet() -> None:
            nonlocal stuck
            open_.set()
            stuck = current
            context.exporter.host_signal(gate.there, value)

        returned = not measures.is_held(make, meet, context.patience_s, context.patience_s)
        driver_use.finish(driver, waits, fence, "a wait with its signal", context.patience_s)
        driver.release_semaphore(held)
    expect(returned, f"{stuck}: a call did not return before another list's wait was met")


def _imports(
    context: CaseContext, semaphores: Sequence[Shared], memories: Sequence[Shared], after: contextlib.ExitStack
) -> _Steps:
    driver = context.driver
    for shared in semaphores:
        with context.exporter.export_semaphore(shared.there, context.importer_uuid) as desc, duplicate(desc) as own:
            yield f"the import of a {desc.type.value} semaphore"
            after.callback(driver.release_semaphore, own.imported_by(driver, desc))
    for memory in memories:
        with context.exporter.export_memory(memory.there, context.importer_uuid) as described, \
                duplicate(described) as other:
            yield f"the import of {described.type.value} memory"
            imported = other.imported_by(driver, described)
            after.callback(driver.release_memory, imported)
            yield f"a mapping of {described.type.value} memory"
            buffer, _ = driver.map_buffer(imported, 0, 4096)
            after.callback(driver.unmap_buffer, buffer)


def _creations(context: CaseContext, after: contextlib.ExitStack) -> _Steps:
    """Create and export an object of each type that the device exports."""
    driver: Any = context.driver
    for exported in driver.capabilities.semaphore_export:
        if exported.kind in (SemaphoreKind.BINARY, SemaphoreKind.TIMELINE) and not exported.portable:
            yield f"the creation of a {exported.value} semaphore"
            semaphore = driver.create_semaphore(exported, 0)
            after.callback(driver.release_semaphore, semaphore)
            yield f"the export of a {exported.value} semaphore"
            _close(driver.export_semaphore(semaphore))
    for type in (each for each in driver.capabilities.memory_export if not each.portable):
        yield f"the creation of {type.value} memory"
        with contextlib.suppress(UnsupportedError):   # the device exports only dedicated memory of this type
            memory, _ = driver.create_memory(type, 4096, type.dedicated)
            after.callback(driver.release_memory, memory)
            yield f"the export of {type.value} memory"
            _close(driver.export_memory(memory))


def _host_objects(context: CaseContext, after: contextlib.ExitStack) -> _Steps:
    driver: Any = context.driver
    if isinstance(driver, HostTimelines):
        yield "taking a portable timeline into use"
        page = new_timeline(0)
        after.callback(page.close)
        after.callback(driver.release_semaphore, driver.import_host_timeline(page))
    if isinstance(driver, HostMemoryImport):
        yield "taking portable memory into use"
        memory = new_memory(4096)
        after.callback(memory.close)
        after.callback(driver.release_memory, driver.import_host_memory(memory))


def _close(handle: OwnedHandle | None) -> None:
    if handle is not None:   # a KMT handle has no owner
        handle.close()


def _images(context: CaseContext, for_image: Token | None, after: contextlib.ExitStack) -> _Steps:
    driver: Any = context.driver
    if for_image is not None:
        after.callback(driver.release_memory, for_image)
        yield "the mapping of an image"
        image = driver.map_mipmapped_array(for_image, PLAIN)
        after.callback(driver.release_array, image)
        yield "the query of a level"
        driver.mipmap_level(image, 0)


def _memory_for_images(context: CaseContext) -> Token | None:
    """Import memory in which the device maps an image. Return None if such memory does not exist."""
    declared = context.device.capabilities
    if declared.features.isdisjoint({Feature.IMAGE, Feature.MIPMAPPED_ARRAY}):
        return None
    # xsem refuses images in dma-bufs.
    for type in sorted(each.value for each in declared.memory_import - {MemoryHandleType.DMABUF_FD}):
        with contextlib.suppress(BlockedError):   # the exporter lacks this type
            memory = context.driver_memory(context.memory(IMAGE_MEMORY, type))
            try:
                context.driver.release_array(context.driver.map_mipmapped_array(memory, PLAIN))
            except UnsupportedError:
                context.driver.release_memory(memory)
            else:
                return memory
    return None


def _uses(context: CaseContext, token: Token, type: str, after: contextlib.ExitStack) -> _Steps:
    driver, value = context.driver, value_of(type)
    # xsem makes the calls of the host for a portable timeline itself.
    features = frozenset() if SemaphoreHandleType(type).portable else driver.capabilities.features
    after.callback(driver.release_semaphore, token)
    yield "the native handle of a semaphore"
    with contextlib.suppress(UnsupportedError):
        driver.native_handle(token)
    if Feature.HOST_SIGNAL in features:
        yield "a host signal"
        with contextlib.suppress(UnsupportedError):   # the host of Vulkan signals and waits only for timelines
            driver.host_signal(token, value)
            if Feature.HOST_WAIT in features:
                yield "a host wait with its signal"
                expect(driver.host_wait(token, value, 20_000_000), "a host wait is not met by a host signal",
                       Symptom.NOT_DONE)
    if Feature.READ_VALUE in features and value is not None:
        yield "the query of a value"
        driver.semaphore_value(token)
    yield from _queue_calls(context, token if value is not None else None)


def _queue_calls(context: CaseContext, timeline: Token | None) -> _Steps:
    """Use and close a new list. With a timeline, also record and replay a signal."""
    driver = context.driver
    yield "the creation of a list"
    queue: Any = driver.create_queue()
    yield "the query for a capture"
    expect(not queue.is_capturing(), "a list counts as captured without a capture")
    if driver.capabilities.independent_lists > 1:
        yield "work"
        queue.append_work(lambda: None)
        if Feature.RECORDING in driver.capabilities.features and isinstance(queue, RecordingQueue) \
                and timeline is not None:
            yield from _recording_calls(context, queue, timeline)
        yield "a barrier"
        fence = queue.append_barrier((), True)
        soon(lambda: driver.query_fence(fence), "a barrier beside another list's wait is not done",
             context.patience_s)
        driver.release_fence(fence)
    yield "the close of a list"
    queue.close()


def _recording_calls(context: CaseContext, queue: Any, timeline: Token) -> _Steps:
    yield "the begin of a recording"
    queue.begin_recording()
    queue.append_signal([timeline], [SignalParams(value=1)], (), (), False)
    yield "the end of a recording"
    recording = queue.end_recording()
    yield "a replay"
    queue.replay(recording, [(timeline, 0, 2)])
    fence = queue.append_barrier((), True)
    soon(lambda: context.driver.query_fence(fence), "a replay beside another list's wait is not done",
         context.patience_s)
    context.driver.release_fence(fence)
    yield "the release of a recording"
    queue.release_recording(recording)
