"""Arrays of other libraries as exportable memory. The hooks of the backend allocate the arrays."""

from __future__ import annotations

import base64
import functools
import gc
from collections.abc import Callable
from typing import Final

import numpy as np

import xsem
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.spi import NativeArray
from xsem.types import MemoryHandleType
from xsem_conformance.case.context import CaseContext
from xsem_conformance.case.leaks import FILES, ROUNDS, THREADS, stays_level
from xsem_conformance.case.noise import noise
from xsem_conformance.case.participant import Participant
from xsem_conformance.case.polling import never, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BrokenError, Case, Symptom, expect

_SIZE: Final = 8192
"""Bytes of an array that the checks use."""


@check("XSEM-BUF-014", deadline_s=60)
def shared_array_is_the_array(context: CaseContext, case: Case) -> None:
    """Write through the array, its mapping and its imports, read all; drop the array, and release the shared memory."""
    _leaves_nothing(context, functools.partial(_shared, context, MemoryHandleType(case.handle_type)),
                    "memory that was shared, exported and released")


@check("XSEM-BUF-016", deadline_s=60)
def shared_array_over_several_allocations_is_the_array(context: CaseContext, case: Case) -> None:
    """Do the same as XSEM-BUF-014 with an array over the end of an allocation, which goes on in the next."""
    _leaves_nothing(context, functools.partial(_shared, context, MemoryHandleType.OPAQUE_FD, "spanning_array"),
                    "memory of several allocations that was shared, exported and released")


def _leaves_nothing(context: CaseContext, work: Callable[[], object], what: str) -> None:
    stays_level(work, ROUNDS, context.patience_s, f"{ROUNDS} times {what}", FILES, THREADS)


def _shared(context: CaseContext, type: MemoryHandleType, hook: str = "native_array") -> None:
    array, write, read, freed = _native(context, hook, type)
    data = noise(_SIZE, 1)
    write(data)
    with context.device.share(array, type=type) as shared:
        _same(_of_mapping(context, shared), data, "the mapping", "the array")
        sides: list[_Side] = [
            ("the array", write, functools.partial(read, _SIZE)),
            ("the mapping", functools.partial(_to_mapping, context, shared),
             functools.partial(_of_mapping, context, shared))]
        if type in context.device.capabilities.memory_import:
            sides += _imports(context, shared)
        else:
            shared.export().close()
        for number, (writer, put, _) in enumerate(sides, 2):
            data = noise(_SIZE, number)
            put(data)
            for reader, _, found in sides:
                _same(found(), data, reader, writer)
        del array
        gc.collect()
        never(freed, "the memory of a shared array is freed before the release of the shared memory")
        for reader, _, found in sides:
            _same(found(), data, reader, "the last writer")
    _nothing_keeps_it(context, freed, "the release of its shared memory")
    context.here.forget()
    context.second.forget()
    context.let_go()


_Side = tuple[str, Callable[[bytes], object], Callable[[], bytes]]


def _imports(context: CaseContext, shared: xsem.SharedArray) -> list[_Side]:
    """Import the memory in this process and in another one. Return how to write and read each import."""
    here, there = context.here, context.second
    with shared.export() as desc:
        imports: tuple[tuple[str, Participant, int], ...] = (
            ("an import of this process", here, here.import_memory(desc)),
            ("an import of another process", there, there.import_memory(desc)))
    return [_import(context, shared.offset, *each) for each in imports]


def _import(context: CaseContext, offset: int, name: str, side: Participant, memory: int) -> _Side:
    def put(data: bytes) -> None:
        commands = side.new_list()
        side.write(commands, memory, offset, base64.b64encode(data).decode())
        _finish(commands)

    def found() -> bytes:
        commands = side.new_list()
        reading = side.read(commands, memory, offset, _SIZE)
        _finish(commands)
        return base64.b64decode(side.fetch(reading))

    def _finish(commands: int) -> None:
        side.synchronize(commands, context.patience_s)
        side.release(commands)   # some devices have few queues

    return name, put, found


@check("XSEM-BUF-015")
def unshareable_array_is_refused(context: CaseContext, case: Case) -> None:
    """Share an array that the device cannot share; then read the array, and drop it."""
    _leaves_nothing(context, functools.partial(_refused, context, MemoryHandleType(case.handle_type)),
                    "a refused array")


def _refused(context: CaseContext, type: MemoryHandleType) -> None:
    array, write, read, freed = _native(context, "unshareable_array", type)
    data = noise(_SIZE, 3)
    write(data)
    try:
        context.device.share(array, type=type).release()
    except (UnsupportedError, BadArgumentError) as error:
        expect(error.reason not in ("", "unsupported"),
               f"an array that cannot be shared as {type.value} is refused with the reason {error.reason!r}")
    except Exception as error:
        raise BrokenError(f"an array that cannot be shared as {type.value} is refused with {error!r}, neither "
                          "UnsupportedError nor BadArgumentError") from error
    else:
        raise BrokenError(f"an array that cannot be shared as {type.value} is accepted")
    _same(read(_SIZE), data, "the array", "the array before its refusal")
    del array
    _nothing_keeps_it(context, freed, "its refusal")


def _native(context: CaseContext, hook: str, type: MemoryHandleType) -> tuple[
        object, Callable[[bytes], object], Callable[[int], bytes], Callable[[], bool]]:
    """Return the array of a hook, how to write and read it, and whether it is freed. Nothing else keeps the array."""
    native: NativeArray = context.hook(hook, type)
    return native.array, native.write, native.read, native.freed


def _nothing_keeps_it(context: CaseContext, freed: Callable[[], bool], after: str) -> None:
    context.let_go()
    gc.collect()   # a cycle of references to the array is permitted
    soon(freed, f"a reference to the array stays after {after}", context.patience_s, None)


def _to_mapping(context: CaseContext, shared: xsem.SharedArray, data: bytes) -> None:
    with shared.buffer() as buffer:
        part = buffer.view((_SIZE,), "uint8")
        part.copy_from_host(np.frombuffer(data, np.uint8), timeout_s=context.patience_s)


def _of_mapping(context: CaseContext, shared: xsem.SharedArray) -> bytes:
    with shared.buffer() as buffer:
        return bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes())[:_SIZE]


def _same(found: bytes, data: bytes, reader: str, writer: str) -> None:
    expect(found == data, f"{reader} shows {found[:4].hex()}…, not {data[:4].hex()}…, the bytes of {writer}",
           Symptom.OTHER_BYTES)
