"""Import and release: what a handle becomes, what release waits for, what is left behind."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

import xsem
from xsem.handles import OwnedHandle
from xsem.spi import ImportFailure
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType
from xsem_conformance.bench import IN, SETTLE_S, Bench, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect

AT_ONCE_S: Final = 5.0
"""Far above what a call costs, far below a wait that nobody meets."""


# ---- import
@check("IMP-SEMAPHORE")
def declared_semaphore_type_imports(bench: Bench, case: Case) -> None:
    """A semaphore of a declared type imports, and gets through one signal."""
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    _, device = bench.ends(IN)
    commands = device.new_list()
    device.signal(commands, semaphore, value)
    device.finish(commands, "a signal of a semaphore just imported")


@check("IMP-MEMORY")
def declared_memory_type_imports(bench: Bench, case: Case) -> None:
    """Memory of a declared type imports and maps, and has the size that its descriptor says."""
    there, desc = bench.peer.create_memory(case.handle_type, 1 << 16, bench.importer)
    with desc:
        expect(desc.allocation_size >= 1 << 16, f"the exporter's descriptor says {desc.allocation_size} bytes")
        number = bench.here.import_memory(desc)
    with bench.here.get(number).map_buffer() as buffer:
        expect(buffer.size >= 1 << 16, f"the mapping of all has {buffer.size} bytes")
    bench.peer.release(there)


@check("IMP-TWICE")
def two_imports_are_one_payload(bench: Bench, case: Case) -> None:
    """A handle imported twice gives two semaphores with one state."""
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    with bench.peer.export_semaphore(semaphore.there, bench.importer) as desc:
        again = bench.here.get(bench.here.import_semaphore(desc))
    waits, signals = bench.device.create_command_list(), bench.device.create_command_list()
    waits.append_wait(again, value)
    signals.append_signal(bench.here.get(semaphore.here), value)
    waits.synchronize(timeout_s=bench.patience_s)


@check("IMP-OUTLIVES")
def import_outlives_the_exporters_object(bench: Bench, case: Case) -> None:
    """The exporter releases its own semaphore; the import goes on working."""
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    bench.peer.release(semaphore.there)
    waits, signals = bench.device.create_command_list(), bench.device.create_command_list()
    waits.append_wait(bench.here.get(semaphore.here), value)
    signals.append_signal(bench.here.get(semaphore.here), value)
    waits.synchronize(timeout_s=bench.patience_s)


@check("IMP-NO-LEAK", deadline_s=60)
def imports_and_releases_leave_nothing(bench: Bench, case: Case) -> None:
    """Fifty imports, used and released: as many file descriptors as before, within what a driver keeps in store."""
    def once() -> None:
        semaphore, value = bench.semaphore(case.handle_type), _one(case)
        imported = bench.here.get(semaphore.here)
        commands = bench.device.create_command_list()
        commands.append_signal(imported, value)
        commands.synchronize(timeout_s=bench.patience_s)
        commands.release()
        bench.here.release(semaphore.here)
        bench.peer.release(semaphore.there)

    for _ in range(5):
        once()
    before = _fds()
    for _ in range(50):
        once()
    soon(lambda: _fds() <= before + 5, f"50 imports and releases left {_fds() - before} file descriptors open",
         bench.patience_s)


# ---- ownership, asked of the driver itself
@check("OWN-SUCCESS")
def driver_says_what_became_of_an_imported_handle(bench: Bench, case: Case) -> None:
    """After an import the duplicate is the driver's or the caller's, and the driver says which."""
    semaphore = bench.semaphore(case.handle_type)
    with bench.peer.export_semaphore(semaphore.there, bench.importer) as desc:
        assert isinstance(desc.handle, OwnedHandle)
        own = OwnedHandle(os.dup(desc.handle.fileno()))
        number = own.fileno()
        token = bench.driver.import_semaphore(desc, own)
        taken = own.closed
        alive = _is_open(number)
        own.close()
        bench.driver.release_semaphore(token)
        expect(taken or alive, "the driver closed the handle and did not say so: the caller would close another's")
        expect(_is_open(desc.handle.fileno()), "the caller's own handle was closed")


@check("OWN-FAILURE")
def driver_says_what_became_of_a_refused_handle(bench: Bench, case: Case) -> None:
    """A handle of the wrong sort is refused with `ImportFailure`, and what that says of the handle is true."""
    number = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    with OwnedHandle(number) as own:
        type = SemaphoreHandleType(case.handle_type)
        desc = SemaphoreDesc(type=type, handle=own, device_uuid=bench.device.info.uuid if type.device_bound else None)
        _refused(own, lambda: bench.driver.import_semaphore(desc, own))


@check("OWN-MEMORY")
def driver_says_what_became_of_refused_memory(bench: Bench, case: Case) -> None:
    """The same for memory."""
    number = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    with OwnedHandle(number) as own:
        type = MemoryHandleType(case.handle_type)
        desc = MemoryDesc(type=type, handle=own, allocation_size=4096,
                          device_uuid=bench.device.info.uuid if type.device_bound else None)
        _refused(own, lambda: bench.driver.import_memory(desc, own))


def _refused(own: OwnedHandle, act: object) -> None:
    number = own.fileno()
    try:
        act()  # type: ignore[operator]
    except ImportFailure as failure:
        expect(isinstance(failure.error, xsem.XsemError), f"the error is {failure.error!r}, none of xsem's")
        alive = _is_open(number)
        if failure.fate == "left":
            expect(alive, "the driver says that the handle is the caller's, and has closed it")
        elif failure.fate == "taken" and not own.closed:
            expect(not alive, "the driver says that it took the handle, and has left it open: it leaks")
        if not alive and not own.closed:
            own.detach()
        return
    except Exception as error:
        raise AssertionError(f"raised {error!r}, not ImportFailure") from error
    raise AssertionError("the driver imported /dev/null")


# ---- release
@check("LIFE-PENDING")
def release_with_a_pending_wait_returns_at_once(bench: Bench, case: Case) -> None:
    """Release returns at once, twice is harmless, and the wait goes on and is met."""
    producer, _ = bench.ends(IN)
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    imported = bench.here.get(semaphore.here)
    commands = bench.device.create_command_list()
    commands.append_wait(imported, value)
    began = time.monotonic()
    imported.release()
    imported.release()
    expect(time.monotonic() - began < AT_ONCE_S, "release waited for the pending wait")
    threading.Event().wait(SETTLE_S)
    expect(not commands.query(), "the release met the wait")
    signals = producer.new_list()
    producer.signal(signals, semaphore, value)
    commands.synchronize(timeout_s=bench.patience_s)


@check("LIFE-SIGNAL")
def release_behind_a_held_signal_keeps_it(bench: Bench, case: Case) -> None:
    """A semaphore released while its signal is held behind a wait is still signalled."""
    producer, _ = bench.ends(IN)
    gate, semaphore, value = bench.semaphore(case.handle_type), bench.semaphore(case.handle_type), _one(case)
    commands = bench.device.create_command_list()
    commands.append_wait(bench.here.get(gate.here), value)
    commands.append_signal(bench.here.get(semaphore.here), value)
    bench.here.get(semaphore.here).release()
    signals = producer.new_list()
    producer.signal(signals, gate, value)
    commands.synchronize(timeout_s=bench.patience_s)
    waits = producer.new_list()
    producer.wait(waits, semaphore, value)
    producer.finish(waits, "the exporter's wait for a signal whose semaphore was released")


@check("LIFE-MEMORY")
def memory_released_behind_a_wait_is_still_read(bench: Bench, case: Case) -> None:
    """Memory released while a copy from it is held behind a wait is copied all the same."""
    producer, device = bench.ends(IN)
    semaphore, memory, value = bench.semaphore(case.handle_type), bench.memory(), _one(case)
    waits, writes = device.new_list(), producer.new_list()
    device.wait(waits, semaphore, value, memory)
    reading = device.read(waits, memory, 64)
    began = time.monotonic()
    bench.here.release(memory.here)
    expect(time.monotonic() - began < AT_ONCE_S, "release waited for the pending wait")
    producer.write(writes, memory, b"\x77" * 64)
    producer.signal(writes, semaphore, value, memory)
    device.finish(waits, "the copy behind the wait")
    expect(device.fetch(reading) == b"\x77" * 64, "the copy read something else")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _fds() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def _one(case: Case, value: int = 1) -> int | None:
    return value if "timeline" in case.handle_type or "fence" in case.handle_type else None
