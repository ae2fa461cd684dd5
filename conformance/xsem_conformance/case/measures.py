"""Measure a driver beside a pending unmet wait, and with handles that do not fit; checks and quirks report the results.

The functions call the driver directly. Each call that a pending wait may block runs on a separate thread, and the
exporter's process meets the wait before the function returns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from xsem.errors import XsemError
from xsem.spi import ImportFailure
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.direct import AbleQueue, close_host_objects, duplicate
from xsem_conformance.case.leaks import FILES, MAPPINGS, THREADS, stays_level
from xsem_conformance.case.other_thread import OtherThread
from xsem_conformance.case.polling import SETTLE_S, never, soon
from xsem_conformance.outcomes import expect
from xsem_conformance.system import handles

__all__ = [
    "MOST_APPENDS", "WAKE_UP_S", "free_is_held", "is_held", "misfits", "other_sorts", "other_sorts_taken",
    "overlap", "pending_appends", "read_there", "refusals_leave_nothing", "refuses", "release_is_held",
    "size_is_checked", "value_after_going_back", "wake_up_s",
]

MOST_APPENDS: Final = 4096
_REFUSALS: Final = 20
_OF_PROCESSES: Final = (OsHandleKind.FD, OsHandleKind.NT)
"""Handles that belong to a process."""
BLOCKS_S: Final = 0.5
"""A call that has not returned after this time counts as blocked: a thousand times the cost of such a call.

Checks of a MUST wait longer.
"""
WAKE_UP_S: Final = 1.0
"""Longest time from a signal to the end of its wait, in the best of several tries. A busy machine needs far less."""


def is_held(call: Callable[[], object], meet: Callable[[], object], patience_s: float, hold_s: float) -> bool:
    """Run `call` on a separate thread, then call `meet`; return whether `call` was blocked for `hold_s`."""
    thread = OtherThread(call)
    held = not thread.ends_within(hold_s)
    meet()
    thread.finish(patience_s, "a call that was held behind a wait did not return when the wait was met")
    return held


@contextlib.contextmanager
def _list_idle_at_end(context: CaseContext) -> Iterator[AbleQueue]:
    commands = context.driver.create_queue()
    try:
        yield commands
        fence = commands.append_barrier((), True)
        try:
            soon(lambda: context.driver.query_fence(fence), "operations are not done once the wait before them is met",
                 context.patience_s)
        finally:
            context.driver.release_fence(fence)
    finally:
        commands.close()


def pending_appends(context: CaseContext, type: str, most: int, hold_s: float = BLOCKS_S) -> int:
    """Append signals behind an unmet wait; return the number of appends that return, at most `most`."""
    # For a binary type, signals and waits alternate.
    value = value_of(type)
    gate, other = context.semaphore(type), context.semaphore(type)
    held, after = context.driver_semaphore(gate), context.driver_semaphore(other)
    count, stop, failures = [0], threading.Event(), []
    with _list_idle_at_end(context) as commands:
        commands.append_wait([held], [WaitParams(value=value)], (), (), False)

        def append() -> None:
            try:
                while count[0] < most and not stop.is_set():
                    if value is None and count[0] % 2:
                        commands.append_wait([after], [WaitParams()], (), (), False)
                    else:
                        up = None if value is None else value + count[0]
                        commands.append_signal([after], [SignalParams(value=up)], (), (), False)
                    count[0] += 1
            except XsemError as error:
                failures.append(error)

        thread = threading.Thread(target=append, daemon=True)
        thread.start()
        last = -1
        while thread.is_alive() and count[0] != last:
            last = count[0]
            thread.join(hold_s)
        at_once = count[0]
        stop.set()
        context.exporter.host_signal(gate.there, value)
        thread.join(context.patience_s)
        expect(not thread.is_alive(), "an append that was held did not return when the wait was met")
    for each in (held, after):
        context.driver.release_semaphore(each)
        close_host_objects(each)
    for shared in (gate, other):
        context.here.release(shared.here)
    context.let_go()
    return at_once


def release_is_held(
    context: CaseContext, type: str, hold_s: float = BLOCKS_S, early: str | None = None
) -> bool:
    """Return whether a pending wait for another semaphore holds the driver's release of an idle one."""
    # The released semaphore is never the awaited one: xsem releases no object that appended work uses, and drivers
    # crash on it. The rule is VUID-vkDestroySemaphore-semaphore-05149.
    early = early or context.driver_type()
    shared, value = context.semaphore(early), value_of(early)
    token, idle = context.driver_semaphore(shared), context.driver_semaphore(context.semaphore(type))
    with _list_idle_at_end(context) as commands:
        commands.append_wait([token], [WaitParams(value=value)], (), (), False)
        time.sleep(SETTLE_S)
        held = is_held(lambda: context.driver.release_semaphore(idle),
                       lambda: context.exporter.host_signal(shared.there, value), context.patience_s, hold_s)
    context.driver.release_semaphore(token)
    return held


def free_is_held(
    context: CaseContext, memory_type: str | None = None, hold_s: float = BLOCKS_S, early: str | None = None
) -> bool:
    """Return whether a pending wait of a list holds the driver's unmapping and release of memory."""
    type = early or context.some_type()
    shared, value = context.semaphore(type), value_of(type)
    memory = context.driver_memory(context.memory(type=memory_type))
    buffer, _ = context.driver.map_buffer(memory, 0, 4096)
    waits = context.here.new_list()
    context.here.wait(waits, [shared.here], [value])

    def free() -> None:
        context.driver.unmap_buffer(buffer)
        context.driver.release_memory(memory)

    held = is_held(free, lambda: context.exporter.host_signal(shared.there, value), context.patience_s, hold_s)
    context.here.synchronize(waits, context.patience_s)
    return held


def wake_up_s(context: CaseContext, type: str, tries: int = 5) -> float:
    """Return the shortest time from a signal of the exporter's host to the end of a pending wait of the device."""
    commands, least = context.device.create_command_list(), float("inf")
    for turn in range(tries):
        shared, value = context.semaphore(type), value_of(type, turn + 1)
        commands.append_wait(context.here.get(shared.here), value)
        never(commands.query, "a wait was done before its signal")
        began = time.monotonic()
        context.exporter.host_signal(shared.there, value)
        soon(commands.query, "a wait was not met by its signal", context.patience_s + WAKE_UP_S)
        least = min(least, time.monotonic() - began)
        if least < WAKE_UP_S / 10:
            break   # only a busy machine needs five tries
    return least


def value_after_going_back(context: CaseContext, type: str) -> int:
    """Signal 5 and then 3 on the device; return the value that the exporter reads."""
    shared, here = context.semaphore(type), context.here
    commands = here.new_list()
    here.signal(commands, [shared.here], [5])
    here.synchronize(commands, context.patience_s)
    here.get(commands).append_signal(here.get(shared.here), SignalParams(value=3, allow_rewind=True))
    here.synchronize(commands, context.patience_s)
    return context.exporter.value(shared.there)


# ---- handles that do not fit
def other_sorts_taken(context: CaseContext, kind: str, type: str) -> list[str]:
    """Return the handles of other kinds that the driver imports as a handle of that type."""
    return sorted({what for what, desc in other_sorts(context, kind, type) if not refuses(context, desc)})


def other_sorts(context: CaseContext, kind: str, type: str) -> Iterator[tuple[str, SemaphoreDesc | MemoryDesc]]:
    """Yield descriptors of the exporter's objects of other kinds."""
    uuid = context.device.info.uuid
    for made in context.exported_semaphores():
        other = SemaphoreHandleType(made)
        # Two types of timelines can be one object, as on `host`.
        if other.os_handle_kind in _OF_PROCESSES and (
                kind == "memory" or other.kind is not SemaphoreHandleType(type).kind):
            _, given = context.exporter.create_semaphore(made, context.importer_uuid)
            with given:
                if given.handle != -1:   # a signalled sync file has no descriptor
                    yield f"a {other.kind.value} semaphore", _as(kind, type, given.handle, uuid)
    for made in context.exported_memories():
        if MemoryHandleType(made).os_handle_kind in _OF_PROCESSES and kind == "semaphore":
            _, memory = context.exporter.create_memory(made, 4096, context.importer_uuid)
            with memory:
                yield "memory", _as(kind, type, memory.handle, uuid)


def _as(kind: str, type: str, handle: Any, uuid: Any) -> SemaphoreDesc | MemoryDesc:
    if kind == "memory":
        memory = MemoryHandleType(type)
        return MemoryDesc(type=memory, handle=handle, allocation_size=4096,
                          device_uuid=uuid if memory.device_bound else None)
    semaphore = SemaphoreHandleType(type)
    return SemaphoreDesc(type=semaphore, handle=handle, device_uuid=uuid if semaphore.device_bound else None)


def misfits(context: CaseContext, kind: str, type: str) -> Iterator[tuple[str, SemaphoreDesc | MemoryDesc]]:
    """Yield descriptors of other things, and of memory that is smaller than its descriptor says."""
    for what, number in handles.others():
        with _as(kind, type, OwnedHandle(number), context.device.info.uuid) as thing:
            yield what, thing
    if kind == "memory":
        _, desc = context.exporter.create_memory(type, 1 << 16, context.importer_uuid)
        with desc:
            yield "memory that is too small", dataclasses.replace(desc, allocation_size=16 * desc.allocation_size)


def refusals_leave_nothing(context: CaseContext, what: str, desc: SemaphoreDesc | MemoryDesc) -> None:
    """Check that twenty imports of a descriptor leave as many descriptors, threads and mappings as before."""
    # A driver may take a descriptor of the exporter. Its release leaves nothing, either.
    refuse = functools.partial(refuses, context, desc)
    refuse()   # the first one can fill a cache of the driver
    stays_level(refuse, _REFUSALS, context.patience_s, f"{_REFUSALS} imports of {what}", FILES, THREADS, MAPPINGS)


def size_is_checked(context: CaseContext, type: str) -> bool:
    """Return whether the driver refuses the exporter's memory with sixteen times its size in the descriptor."""
    _, desc = context.exporter.create_memory(type, 1 << 16, context.importer_uuid)
    with desc:
        return refuses(context, dataclasses.replace(desc, allocation_size=16 * desc.allocation_size))


def refuses(context: CaseContext, desc: SemaphoreDesc | MemoryDesc) -> bool:
    """Return whether the driver refuses to import the descriptor; an imported object is released."""
    driver = context.driver
    with duplicate(desc) as given:
        try:
            token = given.imported_by(driver, desc)
        except ImportFailure:
            return True
    (driver.release_memory if isinstance(desc, MemoryDesc) else driver.release_semaphore)(token)
    close_host_objects(token)
    return False


# ---- mappings
def overlap(context: CaseContext, type: str) -> tuple[bytes, bytes, bytes]:
    """Write through one of two overlapping mappings; return the old, the new and the observed bytes."""
    # The observed bytes are a copy through the other mapping.
    old, new, size = b"\x11" * 256, b"\xee" * 256, 1 << 16
    producer, _ = context.ends("in")
    shared, copied = context.memory(size, type), context.memory(size, type)
    writes = producer.new_list()
    producer.write(writes, shared, old, 4096)
    producer.finish(writes, "a copy")
    memory, target = context.here.get(shared.here), context.here.mapping(copied.here)
    commands = context.device.create_command_list()
    with memory.map_buffer(0, size) as whole, memory.map_buffer(4096, 256, overlap=True) as part:
        commands.append_fill(whole.view((256,), "uint8", offset=4096), new[:1])
        commands.append_copy(target.view((256,), "uint8"), part)
        commands.synchronize(timeout_s=context.patience_s)
    return old, new, read_there(context, copied, 256)


def read_there(context: CaseContext, memory: Shared, size: int, offset: int = 0) -> bytes:
    """Return the bytes that the exporter now reads in the memory."""
    producer, _ = context.ends("in")
    reads = producer.new_list()
    reading = producer.read(reads, memory, size, offset)
    producer.finish(reads, "a copy")
    found = producer.fetch(reading)
    for each in (reading, reads):
        producer.release(each)
    return found
