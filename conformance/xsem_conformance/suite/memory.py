"""Imported memory: offsets, sizes, mappings side by side, images with levels."""

from __future__ import annotations

import base64
import gc

import numpy as np

from xsem.types import MipmapDesc
from xsem_conformance.bench import IN, Bench
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Blocked, Case, expect

SIZE = 1 << 16
_PAGES = [bytes([value]) * 256 for value in (1, 2, 3, 4)]


def _written(bench: Bench, offsets: list[int]) -> tuple[int, list[bytes]]:
    """Memory with a page of its own at each offset, by the exporter; its number on the device's side."""
    producer, _ = bench.ends(IN)
    memory = bench.memory(SIZE)
    commands = producer.new_list()
    for offset, page in zip(offsets, _PAGES, strict=False):
        producer.write(commands, memory, page, offset)
    producer.finish(commands, "copies")
    return memory.here, _PAGES[:len(offsets)]


@check("BUF-SHARED")
def device_reads_what_the_exporter_wrote_and_the_reverse(bench: Bench, case: Case) -> None:
    """Both see the same bytes, at the start and at the end."""
    producer, device = bench.ends(IN)
    memory = bench.memory(SIZE)
    for one, other in ((producer, device), (device, producer)):
        for offset in (0, 4096, SIZE - 256):
            data = bytes((offset + index * 7 + len(one.name)) & 0xFF for index in range(256))
            commands = one.new_list()
            one.write(commands, memory, data, offset)
            one.finish(commands, "a copy")
            reads = other.new_list()
            reading = other.read(reads, memory, 256, offset)
            other.finish(reads, "a copy")
            expect(other.fetch(reading) == data, f"{other.name} reads other bytes at {offset} than {one.name} wrote")


@check("BUF-OFFSET")
def mapping_begins_at_its_offset(bench: Bench, case: Case) -> None:
    """A mapping at an offset shows the memory from there, also where the offset is not a page's."""
    offsets = [0, 4096, 8192 + 256]
    number, pages = _written(bench, offsets)
    memory = bench.here.get(number)
    for offset, page in zip(offsets, pages, strict=True):
        with memory.map_buffer(offset, 256) as buffer:
            expect(buffer.size == 256, f"a mapping of 256 bytes has {buffer.size}")
            data = bytes(buffer.copy_to_host(timeout_s=bench.patience_s).tobytes())
            expect(data == page, f"the mapping at {offset} shows {data[:4].hex()}…, not {page[:4].hex()}…")


@check("BUF-SIDE")
def several_mappings_side_by_side(bench: Bench, case: Case) -> None:
    """Mappings that do not overlap are used at once, and each writes to its own part alone."""
    producer, _ = bench.ends(IN)
    shared = bench.memory(SIZE)
    memory = bench.here.get(shared.here)
    buffers = [memory.map_buffer(4096 * index, 4096) for index in range(4)]
    for index, buffer in enumerate(buffers):
        buffer.copy_from_host(np.full(4096, index + 1, np.uint8), timeout_s=bench.patience_s)
    reads = producer.new_list()
    readings = [producer.read(reads, shared, 256, 4096 * index + 1024) for index in range(4)]
    producer.finish(reads, "copies")
    for index, reading in enumerate(readings):
        expect(producer.fetch(reading) == bytes([index + 1]) * 256, f"mapping {index} wrote elsewhere")
    for buffer in buffers:
        buffer.release()


@check("BUF-OVERLAP")
def overlapping_mappings_where_asked_for(bench: Bench, case: Case) -> None:
    """With ``overlap=True`` a second mapping of the same part shows what was written before it was made."""
    number, pages = _written(bench, [4096])
    memory = bench.here.get(number)
    with memory.map_buffer(0, SIZE) as whole, memory.map_buffer(4096, 256, overlap=True) as part:
        expect(bytes(part.copy_to_host(timeout_s=bench.patience_s).tobytes()) == pages[0], "the overlapping mapping shows other bytes")
        expect(whole.size == SIZE, "the mapping of all is not all")


@check("BUF-OUTLIVES")
def mapping_outlives_its_memory_object(bench: Bench, case: Case) -> None:
    """Releasing the memory leaves a mapping in use as it is."""
    number, pages = _written(bench, [0])
    buffer = bench.here.get(number).map_buffer(0, 256)
    bench.here.release(number)
    gc.collect()
    expect(bytes(buffer.copy_to_host(timeout_s=bench.patience_s).tobytes()) == pages[0], "the mapping shows other bytes")
    buffer.release()


@check("BUF-AGAIN")
def memory_is_imported_again_and_again(bench: Bench, case: Case) -> None:
    """A handle may be imported several times; every import shows the same bytes; none costs a file descriptor."""
    producer, _ = bench.ends(IN)
    shared = bench.memory(SIZE)
    commands = producer.new_list()
    producer.write(commands, shared, _PAGES[0], 512)
    producer.finish(commands, "a copy")
    for _ in range(8):
        with bench.peer.export_memory(shared.there, bench.importer) as desc:
            again = bench.here.import_memory(desc)
        reads = bench.here.new_list()
        reading = bench.here.read(reads, again, 512, 256)
        bench.here.synchronize(reads, bench.patience_s)
        expect(base64.b64decode(bench.here.fetch(reading)) == _PAGES[0], "a later import shows other bytes")
        bench.here.release(again)


@check("MIP-LEVELS")
def levels_of_an_image_keep_what_is_written(bench: Bench, case: Case) -> None:
    """Every level of a mapped image has its own extent and its own contents."""
    memory = bench.here.get(bench.memory(SIZE).here)
    try:
        array = memory.map_mipmapped_array(MipmapDesc(extent=(32, 16, 0), format="uint8", channels=4, levels=3))
    except Exception as error:
        raise Blocked(f"the exporter's memory holds no image that this device maps: {error}") from error
    with array:
        rng = np.random.default_rng(5)
        written = []
        for index in range(3):
            level = array.level(index)
            width, height = max(1, 32 >> index), max(1, 16 >> index)
            expect(tuple(level.extent)[:2] == (width, height), f"level {index} is {level.extent}")
            data = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
            level.write(data)
            written.append(data)
        for index, data in enumerate(written):
            expect(np.array_equal(array.level(index).read(), data), f"level {index} holds something else")
