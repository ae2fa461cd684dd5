"""Layouts of dma-bufs in messages: their record, messages without it, and malformed records."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from support.fixtures import refused

from xsem import ipc
from xsem.ipc import wire
from xsem.types import DrmLayout, DrmPlane, MemoryDesc, OwnedHandle, SemaphoreDesc

SIZE = 1 << 20
LAYOUT = DrmLayout(modifier=3 << 56 | 0x14, fourcc="NV12", planes=(
    DrmPlane(offset=0, pitch=2048), DrmPlane(offset=1 << 19, pitch=2**32 - 1)))

pytestmark = pytest.mark.usefixtures("no_leak")


def sent(*descs: MemoryDesc | SemaphoreDesc) -> bytes:
    return wire.encode(descs, [True] * len(descs), b"payload")


def memory(fd: int, layout: DrmLayout | None = LAYOUT) -> MemoryDesc:
    return MemoryDesc.dmabuf_fd(fd, allocation_size=SIZE, drm_layout=layout)


def test_layouts_arrive_with_their_memory(fd: int) -> None:
    a, b = socket.socketpair()
    four = DrmLayout(modifier=0, planes=tuple(DrmPlane(offset=at, pitch=at + 1) for at in range(4)))
    with a, b:
        ipc.send(a, memory(fd), SemaphoreDesc.opaque_fd(fd, device_uuid=None), memory(fd, None), memory(fd, four))
        received = ipc.receive(b)
        with received:
            assert [each.drm_layout for each in received.memories] == [LAYOUT, None, four]
            assert len(received.semaphores) == 1


def test_record_is_that_of_the_format(fd: int) -> None:
    data = sent(memory(fd))
    assert struct.unpack("<HHI", data[12:20]) == (2, 1, 7)
    assert data[96:160] == struct.pack("<BBHIQQIQI24x", 3, 2, 0, int.from_bytes(b"NV12", "little"), 3 << 56 | 0x14,
                                       0, 2048, 1 << 19, 2**32 - 1)


def test_message_without_a_layout_is_as_before(fd: int) -> None:
    record = struct.pack("<BBHIQ48x", 2, 9, 8, 0, SIZE)
    assert sent(memory(fd, None)) == struct.pack("<4sHHIHHI12x", b"XSEM", 1, 32, 103, 1, 1, 7) + record + b"payload"


def malformed(fd: int, at: int, new: bytes) -> None:
    data = bytearray(sent(memory(fd)))
    data[at:at + len(new)] = new
    header = wire.decode_header(bytes(data[:32]))
    with OwnedHandle(os.dup(fd)) as handle:
        wire.decode_body(header, bytes(data[32:]), [handle])


@pytest.mark.parametrize(("at", "new"), [
    (97, b"\0"), (97, b"\5"), (97, b"\1"),                         # number of planes
    (98, b"\1"), (99, b"\x80"),                                    # flags
    (104, b"\xff" * 7 + b"\0"),                                    # DRM_FORMAT_MOD_INVALID
    (120, b"\0\0\0\0"),                                            # pitch 0
    (112, struct.pack("<Q", SIZE)),                                # a plane beyond the dma-buf
    (140, b"\1"), (159, b"\1"),                                    # bytes behind the planes
    (33, b"\1"),                                                   # the layout of an opaque fd
    (96, b"\4"),                                                   # another kind
])
def test_malformed_layout_is_refused(fd: int, at: int, new: bytes) -> None:
    refused(lambda: malformed(fd, at, new), "bad_message")


def test_unchanged_layout_is_accepted(fd: int) -> None:
    malformed(fd, 96, b"\3")


def test_layout_without_its_memory_is_refused(fd: int) -> None:
    data = sent(memory(fd))
    layout = data[96:160]
    for records in ([layout], [data[32:96], layout, layout],
                    [sent(SemaphoreDesc.opaque_fd(fd, device_uuid=None))[32:96], layout]):
        header = wire.Header(64 * len(records), len(records), 1, 0)
        with OwnedHandle(os.dup(fd)) as handle:
            given = [handle] * (len(records) > 1)
            refused(lambda: wire.decode_body(header, b"".join(records), given), "bad_message")  # noqa: B023


def test_layouts_count_as_descriptors(fd: int) -> None:
    a, b = socket.socketpair()
    with a, b:
        refused(lambda: ipc.send(a, *[memory(fd)] * 65), "too_many_descriptors")
        ipc.send(a, *[memory(fd)] * 64)
        with ipc.receive(b) as received:
            assert len(received.memories) == 64
