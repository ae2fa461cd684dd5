"""Memory that the device creates: its handles, its importers, its release."""

from __future__ import annotations

import base64
import contextlib
import functools
from typing import Final

import numpy as np

import xsem
from xsem.errors import UnsupportedError
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.case.leaks import FILES, ROUNDS, stays_level
from xsem_conformance.case.noise import noise
from xsem_conformance.case.participant import Participant
from xsem_conformance.case.polling import soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, Symptom, expect
from xsem_conformance.system import handles

_SIZE: Final = 1 << 16
_PLACES: Final = (0, 4096 - 32, _SIZE - 64)
"""Offsets of 64 bytes: at the start, over the end of a page, and at the end."""


@check("XSEM-BUF-011")
def exports_are_handles_of_the_caller(context: CaseContext, case: Case) -> None:
    """Import an export. In each of two rounds, export twice, close the first handle and import the second."""
    # Only the second round must leave no descriptor open: a driver may keep descriptors of its own after the first.
    with _create(context, case) as memory:
        _imported(context, memory, memory.export())
        _exported_twice(context, memory)
        before = handles.count()
        _exported_twice(context, memory)
        soon(lambda: handles.count() <= before, "exports and imports leave descriptors open", symptom=None)


def _exported_twice(context: CaseContext, memory: xsem.Memory) -> None:
    first, second = memory.export(), memory.export()
    numbers = [_number(each) for each in (first, second)]
    owned = [number for number in numbers if number is not None]
    expect(len(set(owned)) == len(owned), f"two exports give the handle {owned[:1]}")
    first.close()
    if owned:
        expect(not handles.is_open(owned[0]), f"the closed handle {owned[0]} is open")
        expect(handles.is_open(owned[1]), "the close of one handle closes the handle of another export")
    _imported(context, memory, second)
    context.let_go()


def _imported(context: CaseContext, memory: xsem.Memory, exported: MemoryDesc) -> None:
    """Import the exported memory, compare its bytes, and close the handle. Ignore an unsupported import."""
    with exported, contextlib.suppress(UnsupportedError), context.device.import_memory(exported) as imported:
        _shows(context, imported, 0, "an import of a handle", _written(context, memory, 0))


@check("XSEM-BUF-012", deadline_s=60)
def importers_and_the_creator_see_each_others_bytes(context: CaseContext, case: Case) -> None:
    """Write through the memory, through an import in this process, and through one of another process."""
    here, there = context.here, context.second
    created = here.keep(_create(context, case))
    with here.export_memory(created, None) as desc:
        near = here.import_memory(desc)
        far = there.import_memory(desc)
    sides: tuple[tuple[Participant, int, str], ...] = (
        (here, created, "the created memory"), (here, near, "an import of this process"),
        (there, far, "an import of another process"))
    for number, (writer, memory, name) in enumerate(sides):
        data = [noise(64, 3 * number + each) for each in range(len(_PLACES))]
        commands = writer.new_list()
        for place, each in zip(_PLACES, data, strict=True):
            writer.write(commands, memory, place, base64.b64encode(each).decode())
        writer.synchronize(commands, context.patience_s)
        writer.release(commands)   # some devices have few queues
        for reader, other, what in sides:
            found = _read(context, reader, other)
            expect(found == data, f"{what} does not show the bytes that were written through {name}",
                   Symptom.OTHER_BYTES)


@check("XSEM-BUF-013")
def imports_and_handles_outlive_the_memory(context: CaseContext, case: Case) -> None:
    """Release the memory with an import and an unimported handle, read both, release all; release behind a wait."""
    stays_level(functools.partial(_outlived, context, case), ROUNDS, context.patience_s,
                f"{ROUNDS} times memory that was created, exported and released", FILES)
    _released_behind_a_wait(context, case)


def _outlived(context: CaseContext, case: Case) -> None:
    memory = _create(context, case)
    written = [_written(context, memory, place) for place in _PLACES]
    kept = memory.export()
    with memory.export() as desc:
        imported = context.device.import_memory(desc)
    memory.release()
    context.let_go()
    for place, data in zip(_PLACES, written, strict=True):
        _shows(context, imported, place, "an import of released memory", data)
    imported.release()
    context.let_go()
    with kept, context.device.import_memory(kept) as again:
        for place, data in zip(_PLACES, written, strict=True):
            _shows(context, again, place, "a handle of released memory", data)
    context.let_go()


def _released_behind_a_wait(context: CaseContext, case: Case) -> None:
    """Release created memory with a fill behind a wait: its import has the old bytes before and the new ones after."""
    # A copy within the import keeps the bytes of before. Beside the wait, nothing is allocated or mapped: it may block.
    here, (_, device) = context.here, context.ends(IN)
    try:
        gate, opening = context.gate(device)
    except BlockedError:
        return   # nothing holds the fill back
    memory = _create(context, case)
    written = _written(context, memory, 0)
    with memory.export() as desc:
        imported = context.device.import_memory(desc)
    buffer, seen, waits = memory.map_buffer(0, 64), imported.map_buffer(0, 2048), device.new_list()
    copies = device.new_list() if device.independent_lists > 1 else None   # else a copy would be behind the wait
    device.wait(waits, gate, opening)
    here.get(waits).append_fill(buffer, b"\x5a")
    buffer.release()
    memory.release()
    device.stays_pending(waits, "a fill of created memory behind a wait")
    if copies is not None:
        here.get(copies).append_copy(seen.view((64,), "uint8", offset=1024), seen.view((64,), "uint8"))
        device.finish(copies, "a copy beside a wait")
    context.exporter.host_signal(gate.there, opening)
    device.finish(waits, "a fill of created and released memory")
    _shows(context, imported, 0, "after a fill, an import of released memory", b"\x5a" * 64)
    if copies is not None:
        _shows(context, imported, 1024, "a copy of the bytes from before a fill", written)
    for each in (seen, imported):
        each.release()


def _create(context: CaseContext, case: Case) -> xsem.Memory:
    """Create memory, dedicated if the device creates no other."""
    type = MemoryHandleType(case.handle_type)
    try:
        return context.device.create_memory(type, _SIZE, dedicated=type.dedicated)
    except UnsupportedError:
        return context.device.create_memory(type, _SIZE, dedicated=True)


def _number(desc: MemoryDesc) -> int | None:
    return desc.handle.fileno() if isinstance(desc.handle, OwnedHandle) else None


def _written(context: CaseContext, memory: xsem.Memory, place: int) -> bytes:
    """Write 64 bytes to the memory; return them."""
    data = noise(64, place)
    with memory.map_buffer(place, 64, overlap=True) as buffer:
        buffer.copy_from_host(np.frombuffer(data, np.uint8), timeout_s=context.patience_s)
    return data


def _shows(context: CaseContext, memory: xsem.Memory, place: int, what: str, data: bytes) -> None:
    with memory.map_buffer(place, 64, overlap=True) as buffer:
        found = bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes())
    expect(found == data, f"{what} shows {found[:4].hex()}… at {place}, not {data[:4].hex()}…", Symptom.OTHER_BYTES)


def _read(context: CaseContext, reader: Participant, memory: int) -> list[bytes]:
    commands = reader.new_list()
    readings = [reader.read(commands, memory, place, 64) for place in _PLACES]
    reader.synchronize(commands, context.patience_s)
    reader.release(commands)
    return [base64.b64decode(reader.fetch(each)) for each in readings]
