"""Imported memory: offsets, sizes, adjacent mappings."""

from __future__ import annotations

import base64
from typing import Final

import numpy as np

import xsem
from xsem.errors import UnsupportedError
from xsem_conformance.case import measures
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect

SIZE = 1 << 16
_CPU: Final = 1   # kDLCPU of DLPack
_ALIGNED: Final = 256
"""Alignment of every allocation, in bytes. DLPack requires this alignment of arrays, and all drivers provide it."""
_PAGES = [bytes([value]) * 256 for value in (1, 2, 3, 4)]


def _written(context: CaseContext, offsets: list[int]) -> tuple[int, list[bytes]]:
    """Let the exporter write a page at each offset; return the memory's number on the device, and the pages."""
    producer, _ = context.ends(IN)
    memory = context.memory(SIZE)
    commands = producer.new_list()
    for offset, page in zip(offsets, _PAGES, strict=False):
        producer.write(commands, memory, page, offset)
    producer.finish(commands, "copies")
    return memory.here, _PAGES[:len(offsets)]


@check("XSEM-BUF-001")
def consumer_reads_what_the_producer_wrote(context: CaseContext, case: Case) -> None:
    """Both sides see the same bytes at both ends and in the middle of one page, of seven pages and of 16 MiB."""
    one, other = context.ends(case.direction)
    commands, reads = one.new_list(), other.new_list()
    for size in (4096, 7 * 4096, 1 << 24):
        memory = context.memory(size)
        for offset in (0, size // 2 - 100, size - 256):
            data = bytes((offset + index * 7 + size) & 0xFF for index in range(256))
            one.write(commands, memory, data, offset)
            one.finish(commands, "a copy")
            reading = other.read(reads, memory, 256, offset)
            other.finish(reads, "a copy")
            expect(other.fetch(reading) == data,
                   f"{other.name} reads other bytes at {offset} of {size} than {one.name} wrote")


@check("XSEM-BUF-002")
def mapping_begins_at_its_offset(context: CaseContext, case: Case) -> None:
    """A mapping at an offset, and its address, begin at that byte of the memory, also at an offset inside a page."""
    offsets = [0, 4096, 8192 + 256]
    number, pages = _written(context, offsets)
    memory = context.here.get(number)
    for offset, page in zip(offsets, pages, strict=True):
        with memory.map_buffer(offset, 256) as buffer:
            expect(buffer.size == 256, f"a mapping of 256 bytes has {buffer.size}")
            data = bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes())
            expect(data == page, f"the mapping at {offset} shows {data[:4].hex()}…, not {page[:4].hex()}…")
            _address_is_right(buffer, offset, page)


def _address_is_right(buffer: xsem.Buffer, offset: int, page: bytes) -> None:
    # Copies use the token and an offset. The application's own work uses the address, so the address needs a test.
    try:
        address, device = buffer.address, buffer.__dlpack_device__()[0]
    except (UnsupportedError, BufferError):
        return   # the API has no addresses, or no arrays
    expect(address % _ALIGNED == offset % _ALIGNED, f"the address of the mapping at {offset} is {address:#x}")
    if device == _CPU:
        found = buffer.numpy().tobytes()
        expect(found == page, f"the address of the mapping at {offset} has {found[:4].hex()}…, not {page[:4].hex()}…")


@check("XSEM-BUF-004")
def several_mappings_side_by_side(context: CaseContext, case: Case) -> None:
    """Adjacent mappings write only to their parts, and work after another mapping and other memory are released."""
    producer, _ = context.ends(IN)
    shared = context.memory(SIZE)
    memory = context.here.get(shared.here)
    buffers = [memory.map_buffer(4096 * index, 4096) for index in range(4)]
    for index, buffer in enumerate(buffers):
        buffer.copy_from_host(np.full(4096, index + 1, np.uint8), timeout_s=context.patience_s)
    reads = producer.new_list()
    readings = [producer.read(reads, shared, 256, 4096 * index + 1024) for index in range(4)]
    producer.finish(reads, "copies")
    for index, reading in enumerate(readings):
        expect(producer.fetch(reading) == bytes([index + 1]) * 256, f"mapping {index} wrote elsewhere")
    other = context.memory(SIZE)
    context.here.get(other.here).map_buffer().release()
    context.here.release(other.here)
    buffers.pop(0).release()
    context.let_go()
    for index, buffer in enumerate(buffers, 1):
        found = buffer.copy_to_host(timeout_s=context.patience_s)
        expect((found == index + 1).all(), f"mapping {index} shows other bytes after another one was unmapped")
    for buffer in buffers:
        buffer.release()
    _overlapping(context)


def _overlapping(context: CaseContext) -> None:
    number, pages = _written(context, [4096])
    memory = context.here.get(number)
    with memory.map_buffer(0, SIZE) as whole, memory.map_buffer(4096, 256, overlap=True) as part:
        found = bytes(part.copy_to_host(timeout_s=context.patience_s).tobytes())
        expect(found == pages[0], "the overlapping mapping shows other bytes")
        expect(whole.size == SIZE, "the mapping of the whole memory has another size")


@check("XSEM-BUF-003")
def fill_changes_exactly_its_bytes(context: CaseContext, case: Case) -> None:
    """Fills with patterns of 1, 2 and 4 bytes leave the bytes before and after them unchanged."""
    producer, _ = context.ends(IN)
    shared = context.memory(SIZE)
    commands = producer.new_list()
    producer.write(commands, shared, b"\x99" * 2048, 0)
    producer.finish(commands, "a copy")
    reads = producer.new_list()
    fills = context.device.create_command_list()
    with context.here.get(shared.here).map_buffer(0, 2048) as whole:
        for at, pattern in ((256, b"\x01"), (512, b"\x02\x03"), (768, b"\x04\x05\x06\x07")):
            fills.append_fill(whole.view((64,), "uint8", offset=at), pattern)
            fills.synchronize(timeout_s=context.patience_s)
            reading = producer.read(reads, shared, 128, at - 32)
            producer.finish(reads, "a copy")
            expected = b"\x99" * 32 + pattern * (64 // len(pattern)) + b"\x99" * 32
            expect(producer.fetch(reading) == expected, f"a fill of 64 bytes with {pattern.hex()} left other bytes")


@check("XSEM-BUF-005")
def overlapping_mappings_and_each_other(context: CaseContext, case: Case) -> str:
    """Fill through one of two overlapping mappings, copy through the other; return a text on the copied bytes."""
    old, new, seen = measures.overlap(context, case.handle_type)
    expect(seen in (old, new), f"the other mapping shows {seen[:4].hex()}…, neither the old nor the new bytes")
    verb = "is" if seen == new else "is not"
    return f"a write through one of two overlapping mappings {verb} read through the other"


@check("XSEM-BUF-006")
def dlpack_device_is_one_that_dlpack_knows(context: CaseContext, case: Case) -> None:
    """DLPack defines the type and the id, or the result is None. Each call returns the same result."""
    found = context.driver.dlpack_device()
    expect(found == context.driver.dlpack_device(), "dlpack_device differs from call to call")
    expect(found is None or (1 <= found[0] <= 17 and found[1] >= 0), f"{found} is not a DLPack device")


@check("XSEM-KILL-003")
def memory_of_a_killed_process_stays(context: CaseContext, case: Case) -> None:
    """Memory of a killed process stays mapped, readable and writable, and keeps its bytes."""
    number, pages = _written(context, [0])
    buffer = context.here.get(number).map_buffer(0, 256)
    context.kill_peer()
    expect(bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes()) == pages[0], "the bytes are gone")
    buffer.copy_from_host(np.full(256, 9, np.uint8), timeout_s=context.patience_s)
    found = bytes(buffer.copy_to_host(timeout_s=context.patience_s).tobytes())
    expect(found == b"\x09" * 256, "bytes written after the kill are not read")
    buffer.release()


@check("XSEM-ORD-006")
def copies_and_fills_of_a_list_are_in_order(context: CaseContext, case: Case) -> None:
    """Fills and copies alternate on one list: each copy has the bytes of the fill before it."""
    shared = context.memory(SIZE)
    buffer = context.here.mapping(shared.here).view((4096,), "uint8")
    commands, readings = context.here.new_list(), []
    for value in (1, 2, 3):
        context.here.get(commands).append_fill(buffer, bytes([value]))
        context.here.get(commands).append_barrier()
        readings.append(context.here.read(commands, shared.here, 0, 4096))
    context.here.synchronize(commands, context.patience_s)
    for value, reading in zip((1, 2, 3), readings, strict=True):
        expect(base64.b64decode(context.here.fetch(reading)) == bytes([value]) * 4096, f"copy {value} is out of order")
