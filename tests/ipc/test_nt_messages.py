"""The message format with NT handles, as bytes. The pipes that carry it exist only on Windows (`tests/windows`)."""

from __future__ import annotations

import contextlib
import os
import struct
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import refused

from xsem import ipc
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.ipc import wire
from xsem.ipc.message import split
from xsem.spi import own
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

DEVICE = uuid.UUID(bytes=bytes(range(1, 17)))
EVENT, RECEIPTS = 0x1C4, 0x88
DESCS = (
    SemaphoreDesc.opaque_win32(EVENT, device_uuid=DEVICE),
    MemoryDesc.d3d12_resource(name="Local\\größe", allocation_size=0x1122),
    SemaphoreDesc.d3d11_keyed_mutex_kmt(0x4000_0040),
)
MESSAGE = wire.encode_nt(DESCS, [EVENT, None, None], b"pay", RECEIPTS)


@pytest.fixture
def handle() -> Iterator[OwnedHandle]:
    """Stands for the duplicate of an NT handle: on Linux, a file descriptor."""
    with own(os.open, os.devnull, os.O_RDONLY) as made:
        yield made


def changed(at: int, form: str, value: int) -> bytes:
    data = bytearray(MESSAGE)
    struct.pack_into(form, data, at, value)
    return bytes(data)


def decoded(data: bytes, handles: list[OwnedHandle]) -> tuple[list[SemaphoreDesc], list[MemoryDesc], bytes]:
    header, body = split(data, wire.NT_HANDLES)
    wire.handle_numbers(header, body)
    return wire.decode_body(header, body, handles)


def test_descriptors_come_back(handle: OwnedHandle) -> None:
    header, body = split(MESSAGE, wire.NT_HANDLES)
    assert (header.handles, header.receipt, wire.handle_numbers(header, body)) == (1, RECEIPTS, [EVENT])
    (first, mutex), (memory,), payload = wire.decode_body(header, body, [handle])
    assert first == SemaphoreDesc.opaque_win32(handle, device_uuid=DEVICE)
    assert (mutex, memory, payload) == (DESCS[2], DESCS[1], b"pay")


def test_luid_of_the_adapter_comes_back(handle: OwnedHandle) -> None:
    fence = SemaphoreDesc.d3d12_fence(EVENT, device_luid=b"\xf4\3\1\0\0\0\0\0")
    heap = MemoryDesc.d3d12_heap(name="heap", allocation_size=1, device_luid=bytes(8))
    data = bytearray(wire.encode_nt([fence, heap], [EVENT, None], b"", RECEIPTS))
    (first,), (second,), _ = decoded(bytes(data), [handle])
    assert (first.device_luid, second.device_luid) == (fence.device_luid, heap.device_luid)
    struct.pack_into("<H", data, wire.HEADER_BYTES + 2, 8)   # without the flag of the LUID
    refused(lambda: decoded(bytes(data), [handle]), "bad_message")


def test_message_has_these_bytes_on_the_wire() -> None:
    name = "Local\\größe".encode()
    assert (
        b"XSEM\1\0\x20\0" + (32 + 3 * 64 + len(name) + 3).to_bytes(4, "little") + b"\3\0\1\0\3\0\0\0\1\0\0\0"
        + RECEIPTS.to_bytes(8, "little")
        + b"\1\2\x09\0" + bytes(12) + bytes(range(1, 17)) + bytes(16) + EVENT.to_bytes(8, "little") + bytes(8)
        + b"\2\5\4\0" + bytes([len(name), 0, 0, 0]) + b"\x22\x11" + bytes(54)
        + b"\1\x08\0\0" + bytes(44) + 0x4000_0040.to_bytes(8, "little") + bytes(8) + name + b"pay"
    ) == MESSAGE


def test_wire_numbers_never_change() -> None:
    s, m = SemaphoreHandleType, MemoryHandleType
    assert wire.NT_SEMAPHORE_NUMBERS == {
        s.OPAQUE_WIN32: 2, s.OPAQUE_WIN32_KMT: 3, s.D3D12_FENCE: 4, s.D3D11_FENCE: 5, s.D3D11_KEYED_MUTEX: 7,
        s.D3D11_KEYED_MUTEX_KMT: 8, s.TIMELINE_SEMAPHORE_WIN32: 10,
        s.HOST_TIMELINE_WIN32: 129}
    assert wire.NT_MEMORY_NUMBERS == {
        m.OPAQUE_WIN32: 2, m.OPAQUE_WIN32_KMT: 3, m.D3D12_HEAP: 4, m.D3D12_RESOURCE: 5, m.D3D11_RESOURCE: 6,
        m.D3D11_RESOURCE_KMT: 7, m.HOST_MEMORY_WIN32: 129}


RECORD, SECOND, THIRD = 32, 96, 160


@pytest.mark.parametrize("data", [
    changed(20, "<H", 0), changed(20, "<H", 2), changed(22, "<H", 1), changed(24, "<Q", 0),
    changed(24, "<Q", 2**64 - 1),
    changed(14, "<H", 0), changed(14, "<H", 2),
    changed(RECORD + 48, "<Q", 0), changed(RECORD + 48, "<Q", 2**64 - 1), changed(RECORD + 48, "<Q", 2**64 - 2),
    changed(RECORD + 4, "<I", 1), changed(RECORD + 56, "<Q", 1), changed(RECORD + 2, "<H", 1),
    changed(SECOND + 4, "<I", 12), changed(SECOND + 4, "<I", 14), changed(SECOND + 4, "<I", 1025),
    changed(SECOND + 48, "<Q", EVENT), changed(32 + 3 * 64, "<B", 0xFF), changed(32 + 3 * 64, "<B", 0),
    changed(THIRD + 48, "<Q", 0), changed(THIRD + 2, "<H", 8), changed(THIRD, "<B", 3), changed(THIRD + 1, "<B", 6),
    MESSAGE[:-1], MESSAGE + b"x", MESSAGE[:20],
])
def test_bad_message_is_refused(data: bytes, handle: OwnedHandle) -> None:
    refused(lambda: decoded(data, [handle]), "bad_message")
    assert not handle.closed


@pytest.mark.parametrize(("desc", "number"), [
    (SemaphoreDesc.d3d12_fence(EVENT), None), (MemoryDesc.d3d12_heap(EVENT, allocation_size=1), None),
    (DESCS[2], EVENT), (MemoryDesc.d3d11_resource_kmt(EVENT, allocation_size=1), EVENT),
], ids=["semaphore", "memory", "kmt semaphore", "kmt memory"])
def test_number_of_another_kind_than_its_type_is_refused(
    desc: SemaphoreDesc | MemoryDesc, number: int | None, handle: OwnedHandle
) -> None:
    data = wire.encode_nt([desc], [number], b"", 0 if number is None else RECEIPTS)
    error = refused(lambda: decoded(data, [] if number is None else [handle]), "bad_message")
    assert "a handle of another kind" in str(error)


def test_socket_and_pipe_refuse_the_messages_of_each_other() -> None:
    refused(lambda: wire.decode_header(MESSAGE[:32]), "bad_message")
    plain = wire.encode([], [], b"")
    refused(lambda: wire.decode_header(plain, wire.NT_HANDLES), "bad_message")


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_changed_messages_are_decoded_or_refused(data: st.DataObject) -> None:
    message = bytearray(MESSAGE)
    for _ in range(data.draw(st.integers(1, 5))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    with own(os.open, os.devnull, os.O_RDONLY) as handle, contextlib.suppress(BadArgumentError):
        decoded(bytes(message[:len(message) - data.draw(st.sampled_from([0, 0, 1, 50]))]), [handle])


def test_pipes_need_windows() -> None:
    for act in (ipc.listen, lambda: ipc.connect("\\\\.\\pipe\\x")):
        with pytest.raises(UnsupportedError, match="Unix socket"):
            act()
    refused(lambda: ipc.listen("x"), "bad_name")
