"""Imported memory: offsets, sizes, adjacent mappings."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

import xsem
from xsem.errors import BadArgumentError, OutOfMemoryError, UnsupportedError
from xsem.types import MemoryHandleType
from xsem_conformance.case import measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.case.noise import first_difference, noise
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, NotExaminedError, Symptom, expect

SIZE = 1 << 16
_CPU: Final = 1   # kDLCPU of DLPack
_ALIGNED: Final = 256
"""Alignment of every allocation, in bytes. DLPack requires this alignment of arrays, and all drivers provide it."""
_CELL: Final = 16
"""Size of each fill and copy of many, in bytes: a page has as many cells as a byte has values."""
_CREATED: Final = (1, 4096, 4097, 3 * SIZE)
_RANGES: Final = (
    (4096, 256), (3 * 4096, 256), (8192 + 256, 256), (SIZE - 4096, 256), (0, 1), (4096, 1), (3 * 4096, 4097), (1, 1),
    (4095, 1), (4095, 2), (8191, 4098), (SIZE - 4096 + 3, 1021), (6 * 4096 + 257, 255), (7 * 4096 + 2, 2),
    (SIZE - 4, 4), (SIZE - 1, 1), (SIZE - 8193, 8193))
"""Offset and size of each mapping: in and across pages, at odd bytes, and up to the last byte."""
_LARGE: Final = (1 << 26) + 16_384
"""Size of large memory: more than 64 MiB."""
_HUGE: Final = (1 << 32) + SIZE
"""Size of huge memory: more than 4 GiB."""
_LOW: Final = 8192
_HIGH: Final = (1 << 32) + _LOW
_LARGE_S: Final = 10.0
"""Minimum limit for large copies and fills: with a short patience, a busy machine makes them too late."""
_ODD_PARTS: Final = ((1, 7), (4095, 2), (4097, 12_289), ((1 << 24) - 5, 32_001), ((1 << 26) - 3, 11))
"""Offset and size of each copy in large memory."""
_PAGES: Final = [bytes([value]) * 256 for value in (1, 2, 3, 4)]
_FILLS: Final = (
    (256, 64, b"\x01"),
    (512, 64, b"\x02\x03"),
    (768, 64, b"\x04\x05\x06\x07"),
    (1024, 64, bytes(range(0x10, 0x20))),
    (1281, 61, b"\x08"),
    (1538, 62, b"\x09\x0a"),
    (1796, 60, b"\x0b\x0c\x0d\x0e"),
    (2304, 48, b"\x20\x21\x22"),
    (2432, 64, bytes(range(0x30, 0x38))),
    (2560, 60, bytes(range(0x40, 0x4c))),
    (2689, 60, bytes(range(0x50, 0x5c))),
    (2816, 128, bytes(range(0x60, 0x80))),
    (3008, 35, b"\x81\x82\x83\x84\x85"),
)
"""Offset, size and pattern of each fill."""
_FAR_FILLS: Final = (((1 << 24) - 4, 8), ((1 << 24) + 1, 3), ((1 << 25) + 64, 64), ((1 << 26) - 4, 8),
                     (_LARGE - 129, 1), (_LARGE - 64, 60), (_LARGE - 4, 4), (_LARGE - 1, 1))
"""Offset and size of each fill in large memory."""
_SURE_FILLS: Final = 3
"""Number of fills, from the first one, that no device may refuse."""


def _written(context: CaseContext, type: str, offsets: Sequence[int]) -> tuple[Shared, list[bytes]]:
    """Let the exporter write a page at each offset. Return the memory and the pages."""
    producer, _ = context.ends(IN)
    memory = context.memory(SIZE, type)
    commands = producer.new_list()
    for offset, page in zip(offsets, _PAGES, strict=False):
        producer.write(commands, memory, page, offset)
    producer.finish(commands, "copies")
    return memory, _PAGES[:len(offsets)]


@check("XSEM-BUF-001", deadline_s=60)
def consumer_reads_what_the_producer_wrote(context: CaseContext, case: Case) -> None:
    """Both sides see the same bytes, from the first to the last, of one page, of seven pages and of over 64 MiB."""
    # Then one side copies parts with odd offsets and sizes into the large memory.
    one, other = context.ends(case.direction, _LARGE_S)
    commands, reads = one.new_list(), other.new_list()
    memories = [(size, context.memory(size, case.handle_type)) for size in (4096, 7 * 4096)]
    large = _memory_of(context, _LARGE, case.handle_type)
    for size, memory in (*memories, (_LARGE, large)):
        one.write_noise(commands, memory, size, seed=size)
        one.finish(commands, "a copy")
        reading = other.read(reads, memory, size)
        other.finish(reads, "a copy")
        wrong = other.first_difference(reading, seed=size)
        expect(wrong is None, f"{other.name} reads another byte at {wrong} of {size} than {one.name} wrote",
               Symptom.OTHER_BYTES)
    for seed, (at, size) in enumerate(_ODD_PARTS):
        data = noise(size, seed)
        one.write(commands, large, data, at)
        one.finish(commands, "a copy")
        found = [(reads_at, other.read(reads, large, reads_size, reads_at))
                 for reads_at, reads_size in ((at, size), (at + 1, size - 1))]
        other.finish(reads, "a copy")
        for reads_at, reading in found:
            expect(other.fetch(reading) == data[reads_at - at:],
                   f"{other.name} reads other bytes at {reads_at} than {one.name} wrote", Symptom.OTHER_BYTES)


@check("XSEM-BUF-002")
def mapping_begins_at_its_offset(context: CaseContext, case: Case) -> None:
    """A mapping at an offset begins at this byte of the memory, for copies by its address and for appended work."""
    # A device may refuse an offset inside a page with `BadArgumentError`.
    producer, _ = context.ends(IN)
    shared, expected = context.memory(SIZE, case.handle_type), bytearray(noise(SIZE, seed=2))
    writes = producer.new_list()
    producer.write_noise(writes, shared, SIZE, seed=2)
    producer.finish(writes, "a copy")
    producer.release(writes)   # some devices have few queues
    memory: xsem.Memory = context.here.get(shared.here)
    commands = context.device.create_command_list()
    for offset, size in _RANGES:
        try:
            buffer = memory.map_buffer(offset, size, overlap=True)   # the one before may be freed later
        except BadArgumentError as error:
            expect(offset % 4096, f"a mapping at {offset}, a multiple of a page, is refused: {error}")
            continue
        with buffer:
            expect(buffer.size == size, f"a mapping of {size} bytes has {buffer.size}")
            page = bytes(expected[offset:offset + size])
            data = bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes())
            expect(data == page, f"the mapping at {offset} shows {data[:4].hex()}…, not {page[:4].hex()}…",
                   Symptom.OTHER_BYTES)
            _address_is_right(buffer, offset, page)
            _work_is_right(context, commands, buffer, shared, offset, expected)


def _address_is_right(buffer: xsem.Buffer, offset: int, page: bytes) -> None:
    # Copies use the token and an offset. The application's own work uses the address, so the address needs a test.
    try:
        address, device = buffer.address, buffer.__dlpack_device__()[0]
    except (UnsupportedError, BufferError):
        return   # the API has no addresses, or no arrays
    expect(address % _ALIGNED == offset % _ALIGNED, f"the address of the mapping at {offset} is {address:#x}")
    if device == _CPU:
        found = buffer.numpy().tobytes()
        expect(found == page, f"the address of the mapping at {offset} has {found[:4].hex()}…, not {page[:4].hex()}…",
               Symptom.OTHER_BYTES)


def _work_is_right(
    context: CaseContext, commands: xsem.CommandList, buffer: xsem.Buffer, shared: Shared, offset: int,
    expected: bytearray,
) -> None:
    """Copy from the mapping, and fill its middle. `expected` has the bytes of the memory, then also the fill."""
    # On a device whose memory the host accesses, the facade copies by the address. Appended work uses the token.
    size = buffer.size
    try:
        copied = context.device.host_buffer(size)
    except UnsupportedError:
        return   # the device does not support host buffers, so the application makes the copies
    start, length = (64, 64) if size >= 192 else (0, size)
    with copied:
        commands.append_copy(copied, buffer)
        try:
            commands.append_fill(buffer.view((length,), "uint8", offset=start), b"\xaa")
        except BadArgumentError as error:
            expect(error.reason == "bad_pattern" and ((offset + start) % 4 or length % 4),
                   f"a fill of {length} bytes at {start} of the mapping at {offset} is refused: {error}")
            length = 0
        commands.synchronize(timeout_s=context.patience_s)
        found = copied.numpy().tobytes()
    expect(found == expected[offset:offset + size],
           f"a copy from the mapping at {offset} has {found[:4].hex()}…, not {expected[offset:offset + 4].hex()}…",
           Symptom.OTHER_BYTES)
    expected[offset + start:offset + start + length] = b"\xaa" * length
    first, last = max(0, offset - 4096), min(SIZE, offset + size + 4096)
    expect(measures.read_there(context, shared, last - first, first) == expected[first:last],
           f"a fill of {length} bytes from byte {start} of the mapping at {offset} changed other bytes of the memory",
           Symptom.OTHER_BYTES)


@check("XSEM-BUF-004")
def several_mappings_side_by_side(context: CaseContext, case: Case) -> None:
    """Adjacent mappings write only to their parts, and work after the release of other mappings and other memory."""
    # A later mapping of the same bytes shows the earlier writes.
    shared = context.memory(SIZE, case.handle_type)
    memory = context.here.get(shared.here)
    buffers = {index: memory.map_buffer(4096 * index, 4096) for index in range(4)}
    for index, buffer in buffers.items():
        buffer.copy_from_host(np.full(4096, index + 1, np.uint8), timeout_s=context.patience_s)
    found = measures.read_there(context, shared, 4 * 4096)
    expect(found == b"".join(bytes([index + 1]) * 4096 for index in range(4)), "a mapping wrote elsewhere",
           Symptom.OTHER_BYTES)
    other = context.memory(SIZE, case.handle_type)
    context.here.get(other.here).map_buffer().release()
    context.here.release(other.here)
    for gone in (0, 3, 1):   # the first one, the last one, and one between
        buffers.pop(gone).release()
        context.let_go()
        _show_their_numbers(context, buffers, "after another one was unmapped")
        with memory.map_buffer(4096 * gone, 4096) as again:
            _show_their_numbers(context, {gone: again}, "in a new mapping of the same bytes")
            again.copy_from_host(np.full(4096, gone + 1, np.uint8), timeout_s=context.patience_s)
        _show_their_numbers(context, buffers, "after a later one was unmapped")
    buffers.popitem()[1].release()
    _overlapping(context, case.handle_type)


def _show_their_numbers(context: CaseContext, buffers: Mapping[int, xsem.Buffer], when: str) -> None:
    for index, buffer in buffers.items():
        found = buffer.copy_to_host(timeout_s=context.patience_s)
        expect((found == index + 1).all(), f"mapping {index} shows other bytes {when}", Symptom.OTHER_BYTES)


def _overlapping(context: CaseContext, type: str) -> None:
    shared, pages = _written(context, type, [4096])
    memory = context.here.get(shared.here)
    with memory.map_buffer(0, SIZE) as whole, memory.map_buffer(4096, 256, overlap=True) as part:
        found = bytes(part.copy_to_host(timeout_s=context.patience_s).tobytes())
        expect(found == pages[0], "the overlapping mapping shows other bytes", Symptom.OTHER_BYTES)
        expect(whole.size == SIZE, "the mapping of the whole memory has another size")


@check("XSEM-BUF-003")
def fill_changes_exactly_its_bytes(context: CaseContext, case: Case) -> None:
    """Fills with patterns of several lengths change exactly their bytes. The bytes before and after are unchanged."""
    # A device may refuse any pattern other than of 1, 2 or 4 bytes with ``bad_pattern``, and also an offset or a size
    # that is not a multiple of four bytes. Then no byte changes.
    producer, _ = context.ends(IN)
    shared = context.memory(SIZE, case.handle_type)
    commands = producer.new_list()
    producer.write(commands, shared, b"\x99" * 4096, 0)
    producer.finish(commands, "a copy")
    fills = context.device.create_command_list()
    with context.here.get(shared.here).map_buffer(0, 4096) as whole:
        for number, (at, size, pattern) in enumerate(_FILLS):
            expected = pattern * (size // len(pattern))
            try:
                fills.append_fill(whole.view((size,), "uint8", offset=at), pattern)
            except BadArgumentError as error:
                expect(error.reason == "bad_pattern" and number >= _SURE_FILLS,
                       f"a fill of {size} bytes at {at} with {pattern.hex()} is refused: {error}")
                expected = b"\x99" * size
            fills.synchronize(timeout_s=context.patience_s)
            expected = b"\x99" * 32 + expected + b"\x99" * 32
            found = measures.read_there(context, shared, size + 64, at - 32)
            expect(found == expected, f"a fill of {size} bytes at {at} with {pattern.hex()} left other bytes",
                   Symptom.OTHER_BYTES)
    expect(measures.read_there(context, shared, 896, 3200) == b"\x99" * 896,
           "the fills changed bytes far behind the last fill", Symptom.OTHER_BYTES)
    _large_fill(context, case.handle_type, fills)


def _large_fill(context: CaseContext, type: str, fills: xsem.CommandList) -> None:
    """Fill more than 64 MiB. The pages at the ends, around 16 MiB, and around 64 MiB are as the fill leaves them."""
    shared = _memory_of(context, _LARGE, type)
    whole = context.here.mapping(shared.here)
    fills.append_fill(whole.view((_LARGE - 8192,), "uint8", offset=4096), b"\x0b\x0c\x0d\x0e")
    fills.synchronize(timeout_s=max(context.patience_s, _LARGE_S))
    filled = b"\x0b\x0c\x0d\x0e" * 1024
    for at in (4096, (1 << 24) - 2048, 1 << 25, (1 << 26) - 2048, _LARGE - 8192):
        expect(measures.read_there(context, shared, 4096, at) == filled,
               f"a fill of {_LARGE - 8192} bytes left other bytes at {at}", Symptom.OTHER_BYTES)
    expect(measures.read_there(context, shared, 4096) == bytes(4096), "a large fill changed the bytes before it",
           Symptom.OTHER_BYTES)
    _fills_far_in_large_memory(context, shared, whole, fills)


def _fills_far_in_large_memory(
    context: CaseContext, shared: Shared, whole: xsem.Buffer, fills: xsem.CommandList
) -> None:
    """Fill few bytes at large offsets. The bytes beside them are unchanged, also at the end of the memory."""
    producer, _ = context.ends(IN)
    for at, size in _FAR_FILLS:
        writes, around = producer.new_list(), min(at + size + 64, _LARGE)
        producer.write(writes, shared, b"\x99" * (around - at + 64), at - 64)
        producer.finish(writes, "a copy")
        producer.release(writes)   # some devices have few queues
        filled = b"\x77" * size
        try:
            fills.append_fill(whole.view((size,), "uint8", offset=at), b"\x77")
        except BadArgumentError as error:
            expect(error.reason == "bad_pattern" and (at % 4 or size % 4),
                   f"a fill of {size} bytes at {at} is refused: {error}")
            filled = b"\x99" * size
        fills.synchronize(timeout_s=context.patience_s)
        expect(measures.read_there(context, shared, around - at + 64, at - 64)
               == b"\x99" * 64 + filled + b"\x99" * (around - at - size),
               f"a fill of {size} bytes at {at} left other bytes", Symptom.OTHER_BYTES)


def _memory_of(context: CaseContext, size: int, type: str) -> Shared:
    """Create memory of many bytes in the exporter, and import it; the case ends if such memory is missing."""
    try:
        return context.memory(size, type)
    except (OutOfMemoryError, ParticipantFailedError) as error:
        if error.reason != "out_of_memory":
            raise
        raise NotExaminedError(f"needs {size} bytes of memory: {error}") from error


@check("XSEM-BUF-005")
def overlapping_mappings_and_each_other(context: CaseContext, case: Case) -> str:
    """Fill through one of two overlapping mappings, copy through the other; return a text on the copied bytes."""
    old, new, seen = measures.overlap(context, case.handle_type)
    expect(seen in (old, new), f"the other mapping shows {seen[:4].hex()}…, neither the old nor the new bytes",
           Symptom.OTHER_BYTES)
    verb = "is" if seen == new else "is not"
    return f"a write through one of two overlapping mappings {verb} read through the other"


@check("XSEM-BUF-010")
def created_memory_has_its_size_and_its_own_bytes(context: CaseContext, case: Case) -> None:
    """Create memory of several sizes, write all its bytes, export it, and read all bytes of an import of the export."""
    # All memory exists at the same time. A device may support only dedicated memory, or only other memory.
    type = MemoryHandleType(case.handle_type)
    made: list[xsem.Memory] = []
    for size in _CREATED:
        for dedicated in (True, False):
            if (type.dedicated and not dedicated) or (dedicated and type is MemoryHandleType.DMABUF_FD):
                continue   # the descriptor of such memory is refused
            with contextlib.suppress(UnsupportedError):
                memory = context.device.create_memory(type, size, dedicated=dedicated)
                found = memory.allocation_size
                expect(found >= size, f"created memory has {found} bytes, fewer than {size}")
                made.append(memory)
    expect(made, f"the device creates no memory of type {type.value}")
    for seed, memory in enumerate(made):
        data = np.frombuffer(noise(memory.allocation_size, seed), np.uint8)
        with memory.map_buffer() as buffer:
            buffer.copy_from_host(data, timeout_s=context.patience_s)
    exports = [memory.export() for memory in made]
    for seed, (memory, desc) in enumerate(zip(made, exports, strict=True)):
        what = f"export {seed + 1} of {len(made)}"
        _shows_its_bytes(context, memory, seed, f"the memory of {what}")
        # A device may export this type and not import it.
        with desc, contextlib.suppress(UnsupportedError), context.device.import_memory(desc) as imported:
            _shows_its_bytes(context, imported, seed, f"an import of {what}")


def _shows_its_bytes(context: CaseContext, memory: xsem.Memory, seed: int, what: str) -> None:
    with memory.map_buffer() as buffer:
        found = bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes())
    wrong = first_difference(found, seed)
    expect(wrong is None, f"{what} shows another byte at {wrong} of {memory.allocation_size}", Symptom.OTHER_BYTES)


@check("XSEM-KILL-003")
def memory_of_a_killed_process_stays(context: CaseContext, case: Case) -> None:
    """After the kill of the exporter, the memory has its bytes, and old and new mappings read and write the bytes."""
    producer, _ = context.ends(IN)
    shared = context.memory(SIZE, case.handle_type)
    memory = context.here.get(shared.here)
    writes = producer.new_list()
    producer.write_noise(writes, shared, SIZE, seed=3)
    producer.finish(writes, "a copy")
    buffer = memory.map_buffer(0, SIZE // 2)
    context.kill_exporter()
    with memory.map_buffer(SIZE // 2, SIZE // 2) as later:
        found = b"".join(bytes(each.copy_to_host(timeout_s=context.patience_s).tobytes()) for each in (buffer, later))
        expect(found == noise(SIZE, seed=3), "the memory lost its bytes", Symptom.OTHER_BYTES)
        for value, each in ((9, buffer), (10, later)):
            each.copy_from_host(np.full(SIZE // 2, value, np.uint8), timeout_s=context.patience_s)
        for value, each in ((9, buffer), (10, later)):
            found = bytes(each.copy_to_host(timeout_s=context.patience_s).tobytes())
            expect(found == bytes([value]) * (SIZE // 2), "bytes written after the kill are not read",
                   Symptom.OTHER_BYTES)
    buffer.release()


@check("XSEM-ORD-006")
def copies_and_fills_of_a_list_are_in_order(context: CaseContext, case: Case) -> None:
    """Fills and copies alternate on one list: each copy has the bytes of the fill before it."""
    shared = context.memory(SIZE, case.handle_type)
    buffer = context.here.mapping(shared.here).view((4096,), "uint8")
    commands, readings = context.here.new_list(), []
    for value in (1, 2, 3):
        context.here.get(commands).append_fill(buffer, bytes([value]))
        context.here.get(commands).append_barrier()
        readings.append(context.here.read(commands, shared.here, 0, 4096))
    context.here.synchronize(commands, context.patience_s)
    for value, reading in zip((1, 2, 3), readings, strict=True):
        expect(base64.b64decode(context.here.fetch(reading)) == bytes([value]) * 4096, f"copy {value} is out of order",
               Symptom.OTHER_BYTES)
    _each_of_many_rounds_takes_effect(context, context.memory(SIZE, case.handle_type), commands)


def _each_of_many_rounds_takes_effect(context: CaseContext, shared: Shared, commands: int) -> None:
    """Fill a cell and copy it to its next place, many times on one list. A driver may fail at one call of many."""
    mapping, appends = context.here.mapping(shared.here), context.here.get(commands)
    cells = [mapping.view((_CELL,), "uint8", offset=at) for at in range(0, 4096, _CELL)]
    for value, place in enumerate(cells[1:], 1):
        appends.append_fill(cells[0], bytes([value]))
        appends.append_copy(place, cells[0])
    reading = context.here.read(commands, shared.here, 0, 4096)
    context.here.synchronize(commands, context.patience_s)
    found = base64.b64decode(context.here.fetch(reading))
    for value in range(1, len(cells)):
        expect(found[value * _CELL:(value + 1) * _CELL] == bytes([value]) * _CELL,
               f"fill or copy {value} of {len(cells) - 1} is lost or out of order", Symptom.OTHER_BYTES)


@check("XSEM-BUF-018")
def offsets_above_four_gib_are_their_own(context: CaseContext, case: Case) -> None:
    """Write different bytes at offsets above 2^32 and 2^32 below, by copies, fills and mappings, on both sides."""
    # Memory of the host would become resident as a whole where a driver locks its pages. Other memory is touched only
    # at a few pages.
    producer, device = context.ends(IN)
    shared = _huge_memory(context, case.handle_type)
    puts, number = producer.new_list(), device.new_list()
    for at, data in ((_LOW, b"\x11" * 4096), (_HIGH, b"\x22" * 4096)):
        producer.write(puts, shared, data, at)
    producer.finish(puts, "a copy")
    producer.release(puts)   # some devices have few queues
    try:
        whole = context.here.mapping(shared.here)
    except OutOfMemoryError as error:
        raise NotExaminedError(f"a mapping of {_HUGE} bytes is refused: {error}") from error
    expect(whole.size >= _HUGE, f"the mapping of {_HUGE} bytes has {whole.size}")
    commands = context.here.get(number)
    # A copy between both, in each direction, and a fill, beside each other.
    commands.append_copy(_cell(whole, _LOW + 64), _cell(whole, _HIGH))
    commands.append_copy(_cell(whole, _HIGH + 128), _cell(whole, _LOW + 1024))
    commands.append_fill(_cell(whole, _HIGH + 192), b"\x33")
    device.write(number, shared, b"\x44" * 64, _HIGH + 256)
    reading = device.read(number, shared, 64, _HIGH + 512)
    device.finish(number, "copies and a fill")
    expect(device.fetch(reading) == b"\x22" * 64, "a copy from an offset above 4 GiB copied other bytes",
           Symptom.OTHER_BYTES)
    with context.here.get(shared.here).map_buffer(_HIGH, 4096, overlap=True) as part:
        found = bytes(part.copy_to_host(timeout_s=context.patience_s).tobytes())
        commands.append_fill(part.view((64,), "uint8", offset=320), b"\x55")
        device.finish(number, "a fill")
    low = b"\x11" * 64 + b"\x22" * 64 + b"\x11" * 3968
    high = b"\x22" * 128 + b"\x11" * 64 + b"\x33" * 64 + b"\x44" * 64 + b"\x22" * 3776
    expect(found == high, "a mapping at an offset above 4 GiB shows other bytes", Symptom.OTHER_BYTES)
    high = high[:320] + b"\x55" * 64 + high[384:]
    for at, data in ((_LOW, low), (_HIGH, high)):
        expect(measures.read_there(context, shared, 4096, at) == data,
               f"copies and fills above 4 GiB left other bytes at {at}", Symptom.OTHER_BYTES)


def _cell(whole: xsem.Buffer, at: int) -> xsem.Buffer:
    return whole.view((64,), "uint8", offset=at)


def _huge_memory(context: CaseContext, type: str) -> Shared:
    """Create and import memory of more than 4 GiB; the case ends if either side refuses it."""
    try:
        return _memory_of(context, _HUGE, type)
    except (xsem.XsemError, ParticipantFailedError) as error:
        if not error.reason:   # the exporter's process does not answer
            raise
        raise NotExaminedError(f"memory of {_HUGE} bytes is refused: {error}") from error
