"""Cost of an import and a release: a semaphore, and a memory with a mapping."""

# The driver takes the file descriptor, so each way first makes a duplicate. The `release` of xsem returns before the
# driver's object is gone; "until gone" means until the driver has destroyed all objects.

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Final, TypeAlias

from bench.rig import MEMORY, TIMELINE, Rig, check
from bench.timing import Series, figure, rounds
from bench.ways import C_LOOP, DOCUMENTED, XSEM
from xsem.types import MemoryDesc, SemaphoreDesc

__all__ = ["UNTIL_GONE", "fd_of", "import_documented", "measure"]

SIZE: Final = 1 << 20
UNTIL_GONE: Final = f"{XSEM}, until gone"

# One cycle: seconds for the import of all objects, for their release, and for their release until they are gone.
_Cycle: TypeAlias = Callable[[], tuple[float, float, float]]


def measure(rig: Rig) -> Iterator[Series]:
    """Measure import and release of semaphores, then of memory."""
    objects, repetitions = (4, 3) if rig.quick else (50, 21)
    semaphore = rig.exporter.create_semaphore(TIMELINE)
    memory = rig.exporter.create_memory(MEMORY, SIZE)
    with semaphore.export(for_device=rig.device) as desc:
        yield from _both("semaphore", _semaphores(rig, desc, objects), objects, repetitions)
    with memory.export(for_device=rig.device) as memory_desc:
        yield from _both("memory, mapped", _memories(rig, memory_desc, objects), objects, repetitions)
    semaphore.release()
    memory.release()


def _both(label: str, cycles: dict[str, _Cycle], objects: int, repetitions: int) -> Iterator[Series]:
    answers = rounds(cycles, repetitions)

    def phase(way: str, index: int) -> list[float]:
        return [answer[index] / objects * 1e6 for answer in answers[way]]

    yield Series("import", label, objects, "us", {way: figure(phase(way, 0)) for way in cycles}, repetitions)
    released = {way: figure(phase(way, 1)) for way in cycles}
    released[UNTIL_GONE] = figure(phase(XSEM, 2))
    yield Series("release", label, objects, "us", released, repetitions)


def fd_of(desc: SemaphoreDesc | MemoryDesc) -> int:
    """Return the file descriptor of the descriptor."""
    handle = desc.handle
    assert handle is not None
    return handle if isinstance(handle, int) else handle.fileno()


def _timeline(driver: Any) -> Any:
    return driver.CUexternalSemaphoreHandleType.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD


def import_documented(driver: Any, fd: int) -> Any:
    """Import a timeline as in the documentation of cuda.bindings. The caller keeps the file descriptor."""
    desc = driver.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    desc.type = _timeline(driver)
    desc.handle.fd = os.dup(fd)
    return check(driver.cuImportExternalSemaphore(desc))


def _semaphores(rig: Rig, desc: SemaphoreDesc, objects: int) -> dict[str, _Cycle]:
    driver, fd = rig.driver, fd_of(desc)

    def documented() -> tuple[float, float, float]:
        began = perf_counter()
        natives = [import_documented(driver, fd) for _ in range(objects)]
        imported = perf_counter()
        for native in natives:
            check(driver.cuDestroyExternalSemaphore(native))
        gone = perf_counter()
        return imported - began, gone - imported, gone - imported

    cycles: dict[str, _Cycle] = {DOCUMENTED: documented,
                                 XSEM: _xsem(rig, objects, lambda: [rig.device.import_semaphore(desc)])}
    loop = rig.c_loop
    if loop is not None:
        def in_c() -> tuple[float, float, float]:
            imported, natives = loop.import_semaphores(int(_timeline(driver)), fd, objects)
            destroyed = loop.destroy(natives)
            return imported, destroyed, destroyed

        cycles[C_LOOP] = in_c
    return dict(sorted(cycles.items()))


def _memories(rig: Rig, desc: MemoryDesc, objects: int) -> dict[str, _Cycle]:
    driver, fd = rig.driver, fd_of(desc)
    kind = driver.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD

    def documented() -> tuple[float, float, float]:
        began = perf_counter()
        natives = []
        for _ in range(objects):
            native_desc = driver.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
            native_desc.type = kind
            native_desc.handle.fd = os.dup(fd)
            native_desc.size = desc.allocation_size
            memory = check(driver.cuImportExternalMemory(native_desc))
            buffer_desc = driver.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
            buffer_desc.size = desc.allocation_size
            natives.append((memory, check(driver.cuExternalMemoryGetMappedBuffer(memory, buffer_desc))))
        imported = perf_counter()
        for memory, address in natives:
            check(driver.cuMemFree(address))
            check(driver.cuDestroyExternalMemory(memory))
        gone = perf_counter()
        return imported - began, gone - imported, gone - imported

    def imported() -> list[Any]:
        memory = rig.device.import_memory(desc)
        return [memory.map_buffer(), memory]

    return {DOCUMENTED: documented, XSEM: _xsem(rig, objects, imported)}


def _xsem(rig: Rig, objects: int, make: Callable[[], list[Any]]) -> _Cycle:
    def cycle() -> tuple[float, float, float]:
        began = perf_counter()
        made = [make() for _ in range(objects)]
        imported = perf_counter()
        for each in made:
            for resource in each:
                resource.release()
        released = perf_counter()
        rig.drain()
        return imported - began, released - imported, perf_counter() - imported

    return cycle
