"""Messages of the wire format by hand, and messages that every receiver refuses."""

from __future__ import annotations

import array
import socket
import struct

__all__ = ["BAD", "dmabuf", "header", "layout", "one", "raw", "record", "several"]


def raw(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def header(**changes: object) -> bytes:
    fields = {"magic": b"XSEM", "version": 1, "header": 32, "total": 32, "descs": 0, "fds": 0, "payload": 0,
              "reserved": bytes(12)} | changes
    return struct.pack("<4sHHIHHI12s", *fields.values())


def record(sort: int = 1, number: int = 1, flags: int = 8, reserved: int = 0, size: int = 0, device: bytes = bytes(16),
           driver: bytes = bytes(16), tail: bytes = bytes(16)) -> bytes:
    return struct.pack("<BBHIQ16s16s16s", sort, number, flags, reserved, size, device, driver, tail)


def one(body: bytes, fds: int = 1) -> bytes:
    return header(total=32 + len(body), descs=1, fds=fds) + body


def layout(planes: int = 1, flags: int = 0, fourcc: int = 0, modifier: int = 0,
           data: bytes = struct.pack("<QI", 0, 64)) -> bytes:
    return struct.pack("<BBHIQ48s", 3, planes, flags, fourcc, modifier, data)


def dmabuf(size: int = 4096, number: int = 9) -> bytes:
    return record(sort=2, number=number, size=size)


def chunks(count: int = 2, size: int = 4096, number: int = 0, flags: int = 0, reserved: bytes = bytes(48)) -> bytes:
    return struct.pack("<BBHIQ48s", 4, number, flags, count, size, reserved)


def joined(size: int = 8192, flags: int = 0, number: int = 1) -> bytes:
    """Return the record of memory whose handles are those of its chunks."""
    return record(sort=2, number=number, flags=flags, size=size)


def several(*records: bytes, fds: int = 1) -> bytes:
    body = b"".join(records)
    return header(total=32 + len(body), descs=len(records), fds=fds) + body


BAD = {
    "magic": (header(magic=b"xsem"), 0, "bad_magic"),
    "version": (header(version=2), 0, "bad_version"),
    "header size": (header(header=36), 0, "bad_message"),
    "total too small": (header(total=31), 0, "bad_message"),
    "length bomb": (header(total=2**32 - 1, payload=2**32 - 33), 0, "bad_message"),
    "descriptor bomb": (header(total=32 + 64 * 65535, descs=65535), 0, "bad_message"),
    "reserved": (header(reserved=b"\1" + bytes(11)), 0, "bad_message"),
    "more fds than descriptors": (header(fds=1), 1, "bad_message"),
    "sort": (one(record(sort=3)), 1, "bad_message"),
    "type": (one(record(number=2)), 1, "bad_message"),
    "flags": (one(record(flags=8 | 16)), 1, "bad_message"),
    "record reserved": (one(record(reserved=1)), 1, "bad_message"),
    "record tail": (one(record(tail=b"\1" * 16)), 1, "bad_message"),
    "semaphore with a size": (one(record(size=1)), 1, "bad_message"),
    "dedicated semaphore": (one(record(flags=8 | 4)), 1, "bad_message"),
    "memory without a size": (one(record(sort=2)), 1, "bad_message"),
    "dedicated dma-buf": (one(record(sort=2, number=9, size=1, flags=8 | 4)), 1, "bad_message"),
    "uuid without its flag": (one(record(device=b"u" * 16)), 1, "bad_message"),
    "no fd where one is needed": (one(record(flags=0), fds=0), 0, "bad_message"),
    "announced fd missing": (one(record()), 0, "fd_count"),
    "fd too many": (one(record(), fds=1), 2, "fd_count"),
    "fd unannounced": (header(), 1, "fd_count"),
    "fd that no record has": (one(record(number=11, flags=0), fds=1), 1, "bad_message"),
    "layout first": (several(layout(), dmabuf()), 1, "bad_message"),
    "layout of a semaphore": (several(record(), layout()), 1, "bad_message"),
    "layout of a semaphore with the number of a dma-buf": (several(record(number=9), layout()), 1, "bad_message"),
    "layout of an opaque fd": (several(dmabuf(number=1), layout()), 1, "bad_message"),
    "second layout": (several(dmabuf(), layout(), layout()), 1, "bad_message"),
    "layout with flags": (several(dmabuf(), layout(flags=8)), 1, "bad_message"),
    "layout without planes": (several(dmabuf(), layout(0)), 1, "bad_message"),
    "layout with five planes": (several(dmabuf(), layout(5, data=struct.pack("<QI", 0, 64) * 4)), 1, "bad_message"),
    "layout with more planes than data": (several(dmabuf(), layout(2)), 1, "bad_message"),
    "layout with less planes than data": (
        several(dmabuf(), layout(1, data=struct.pack("<QIQI", 0, 64, 0, 64))), 1, "bad_message"),
    "layout with bytes behind its planes": (
        several(dmabuf(), layout(3, data=struct.pack("<QI", 0, 64) * 3 + bytes(11) + b"\1")), 1, "bad_message"),
    "layout without a pitch": (several(dmabuf(), layout(data=struct.pack("<QI", 0, 0))), 1, "bad_message"),
    "plane behind the dma-buf": (several(dmabuf(), layout(data=struct.pack("<QI", 4096, 64))), 1, "bad_message"),
    "chunks first": (several(chunks(), joined(), fds=2), 2, "bad_message"),
    "chunks of a semaphore": (several(record(flags=0, number=11), chunks(), fds=2), 2, "bad_message"),
    "chunks of memory with an fd": (several(joined(flags=8), chunks(), fds=3), 3, "bad_message"),
    "chunks of a dma-buf": (several(joined(number=9), chunks(), fds=2), 2, "bad_message"),
    "chunks of dedicated memory": (several(joined(flags=4), chunks(), fds=2), 2, "bad_message"),
    "chunks behind a layout": (several(dmabuf(), layout(), chunks(), fds=3), 3, "bad_message"),
    "memory without its chunks": (several(joined(), record(), fds=1), 1, "bad_message"),
    "one chunk": (several(joined(4096), chunks(1), fds=1), 1, "bad_message"),
    "no chunk": (several(joined(), chunks(), chunks(0), fds=2), 2, "bad_message"),
    "chunks of no bytes": (several(joined(4096), chunks(1), chunks(1, size=0), fds=2), 2, "bad_message"),
    "chunks that are less than the memory": (several(joined(8193), chunks(), fds=2), 2, "bad_message"),
    "chunks that are more than the memory": (several(joined(8191), chunks(), fds=2), 2, "bad_message"),
    "chunks that overflow to the size of the memory": (
        several(joined(4096), chunks(2, size=2**63 + 2048), fds=2), 2, "bad_message"),
    "more chunks than fds": (several(joined(3 * 4096), chunks(3), fds=2), 2, "bad_message"),
    "a count of chunks beyond the fds": (several(joined(2 * 4096), chunks(3), fds=2), 2, "bad_message"),
    "a bomb of chunks": (several(joined(2**64 - 4096), chunks(2**32 - 1), fds=2), 2, "bad_message"),
    "more fds than chunks": (several(joined(), chunks(), fds=3), 3, "bad_message"),
    "chunks with a number": (several(joined(), chunks(number=1), fds=2), 2, "bad_message"),
    "chunks with flags": (several(joined(), chunks(flags=8), fds=2), 2, "bad_message"),
    "chunks with reserved bytes": (several(joined(), chunks(reserved=bytes(47) + b"\1"), fds=2), 2, "bad_message"),
    "chunks with a reserved UUID": (several(joined(), chunks(reserved=b"\1" + bytes(47)), fds=2), 2, "bad_message"),
    "chunks with a reserved value": (
        several(joined(), chunks(reserved=bytes(32) + b"\1" + bytes(15)), fds=2), 2, "bad_message"),
    "more fds than the kernel passes": (several(joined(), chunks(), fds=254), 2, "bad_message"),
    "invalid modifier": (several(dmabuf(), layout(modifier=2**56 - 1)), 1, "bad_message"),
}
