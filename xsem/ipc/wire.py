"""Encoding of one message as fixed little-endian records. ``docs/ipc.md`` specifies the format."""

from __future__ import annotations

import struct
import uuid as _uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, Final

from xsem.data.handles import check_nt
from xsem.errors import BadArgumentError, XsemError
from xsem.types import (
    DrmLayout,
    DrmPlane,
    MemoryChunk,
    MemoryDesc,
    MemoryHandleType,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)

__all__ = [
    "FDS",
    "HEADER_BYTES",
    "MAX_DESCRIPTORS",
    "MAX_FDS",
    "MAX_MESSAGE_BYTES",
    "MAX_NAME_BYTES",
    "MAX_NT_MESSAGE_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MEMORY_NUMBERS",
    "NT_HANDLES",
    "NT_MEMORY_NUMBERS",
    "NT_SEMAPHORE_NUMBERS",
    "SEMAPHORE_NUMBERS",
    "Header",
    "decode_body",
    "decode_header",
    "encode",
    "encode_nt",
    "handle_numbers",
]

_HEADER: Final = struct.Struct("<4sHHIHHIH2xQ")
_RECORD: Final = struct.Struct("<BBHIQ16s16sQ8s")
_MAGIC: Final = b"XSEM"
_VERSION: Final = 1
_SEMAPHORE, _MEMORY, _LAYOUT, _CHUNKS = 1, 2, 3, 4
_PLANE: Final = struct.Struct("<QI")
_UINT64: Final = 2**64 - 1
_DEVICE_UUID, _DRIVER_UUID, _DEDICATED, _CARRIES_HANDLE, _DEVICE_LUID = 1, 2, 4, 8, 16
_KNOWN_FLAGS: Final = _DEVICE_UUID | _DRIVER_UUID | _DEDICATED | _CARRIES_HANDLE | _DEVICE_LUID

FDS, NT_HANDLES = 0, 1
"""Kinds of handles: file descriptors beside the bytes, or numbers of NT handles of the sender in the bytes."""

HEADER_BYTES: Final = _HEADER.size
MAX_DESCRIPTORS: Final = 128
MAX_FDS: Final = 253
"""SCM_MAX_FD: the maximum number of file descriptors that the kernel passes in one packet."""
MAX_PAYLOAD_BYTES: Final = 65536
MAX_MESSAGE_BYTES: Final = HEADER_BYTES + MAX_DESCRIPTORS * _RECORD.size + MAX_PAYLOAD_BYTES
MAX_NAME_BYTES: Final = 1024
MAX_NT_MESSAGE_BYTES: Final = MAX_MESSAGE_BYTES + MAX_DESCRIPTORS * MAX_NAME_BYTES

# The numbers of the format never change. If CUDA has a number for the type, the format uses it. xsem's own types begin
# at 128, where CUDA is not going to number.
SEMAPHORE_NUMBERS: Final = {
    SemaphoreHandleType.OPAQUE_FD: 1,
    SemaphoreHandleType.TIMELINE_SEMAPHORE_FD: 9,
    SemaphoreHandleType.SYNC_FD: 11,
    SemaphoreHandleType.HOST_TIMELINE_FD: 128,
}
MEMORY_NUMBERS: Final = {
    MemoryHandleType.OPAQUE_FD: 1,
    MemoryHandleType.DMABUF_FD: 9,
    MemoryHandleType.HOST_MEMORY_FD: 128,
}
NT_SEMAPHORE_NUMBERS: Final = {
    SemaphoreHandleType.OPAQUE_WIN32: 2,
    SemaphoreHandleType.OPAQUE_WIN32_KMT: 3,
    SemaphoreHandleType.D3D12_FENCE: 4,
    SemaphoreHandleType.D3D11_FENCE: 5,
    SemaphoreHandleType.D3D11_KEYED_MUTEX: 7,
    SemaphoreHandleType.D3D11_KEYED_MUTEX_KMT: 8,
    SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32: 10,
    SemaphoreHandleType.HOST_TIMELINE_WIN32: 129,
}
NT_MEMORY_NUMBERS: Final = {
    MemoryHandleType.OPAQUE_WIN32: 2,
    MemoryHandleType.OPAQUE_WIN32_KMT: 3,
    MemoryHandleType.D3D12_HEAP: 4,
    MemoryHandleType.D3D12_RESOURCE: 5,
    MemoryHandleType.D3D11_RESOURCE: 6,
    MemoryHandleType.D3D11_RESOURCE_KMT: 7,
    MemoryHandleType.HOST_MEMORY_WIN32: 129,
}
# For each kind of handles: the types by their numbers.
_SEMAPHORE_TYPES: Final = {FDS: {number: each for each, number in SEMAPHORE_NUMBERS.items()},
                           NT_HANDLES: {number: each for each, number in NT_SEMAPHORE_NUMBERS.items()}}
_MEMORY_TYPES: Final = {FDS: {number: each for each, number in MEMORY_NUMBERS.items()},
                        NT_HANDLES: {number: each for each, number in NT_MEMORY_NUMBERS.items()}}


@dataclass(frozen=True, slots=True)
class Header:
    """Fields of the header: the sizes and counts of the rest of the message."""

    body_bytes: int
    descriptors: int
    handles: int   # the records that carry a file descriptor or an NT handle
    payload_bytes: int
    handle_kind: int = FDS
    receipt: int = 0   # NT_HANDLES: number of the sender's semaphore for receipts; 0: none


def encode(descs: Sequence[SemaphoreDesc | MemoryDesc], fds: Sequence[int], payload: bytes) -> bytes:
    """Return the bytes of one message with file descriptors. The caller has checked the types and sizes."""
    # `fds` is the count of file descriptors for each descriptor.
    records = [record for desc, count in zip(descs, fds, strict=True) for record in _records(desc, count > 0)]
    if len(records) > MAX_DESCRIPTORS:
        raise BadArgumentError(
            f"a message takes at most {MAX_DESCRIPTORS} descriptors, and each DRM layout and each run of chunks of one "
            f"size counts as one; not {len(records)}", reason="too_many_descriptors")
    if sum(fds) > MAX_FDS:
        raise BadArgumentError(
            f"a message takes at most {MAX_FDS} file descriptors, not {sum(fds)}: memory of several allocations has "
            "one for each; share parts of the array in several messages, or copy it into memory of create_memory()",
            reason="too_many_fds")
    return _message(FDS, 0, records, sum(fds), b"", payload)


def encode_nt(
    descs: Sequence[SemaphoreDesc | MemoryDesc], numbers: Sequence[int | None], payload: bytes, receipt: int
) -> bytes:
    """Return the bytes of one message with NT handles. The caller has checked the types and sizes."""
    # A descriptor with a name or a KMT handle has no number. `receipt` is 0 in a message without a handle.
    names = [b"" if each.name is None else each.name.encode() for each in descs]
    records = [_nt_record(desc, number, len(name)) for desc, number, name in zip(descs, numbers, names, strict=True)]
    return _message(NT_HANDLES, receipt, records, sum(number is not None for number in numbers), b"".join(names),
                    payload)


def _message(
    handle_kind: int, receipt: int, records: Sequence[bytes], handles: int, names: bytes, payload: bytes
) -> bytes:
    body = b"".join(records) + names + payload
    return _HEADER.pack(_MAGIC, _VERSION, HEADER_BYTES, HEADER_BYTES + len(body), len(records), handles,
                        len(payload), handle_kind, receipt) + body


def _records(desc: SemaphoreDesc | MemoryDesc, has_fd: bool) -> Iterator[bytes]:
    chunks = desc.chunks if isinstance(desc, MemoryDesc) else ()
    yield _record(desc, has_fd and not chunks, SEMAPHORE_NUMBERS, MEMORY_NUMBERS)
    for size, run in groupby(chunk.size for chunk in chunks):
        yield _RECORD.pack(_CHUNKS, 0, 0, sum(1 for _ in run), size, bytes(16), bytes(16), 0, bytes(8))
    if isinstance(desc, MemoryDesc) and desc.drm_layout is not None:
        layout = desc.drm_layout
        planes = b"".join(_PLANE.pack(plane.offset, plane.pitch) for plane in layout.planes).ljust(48, b"\0")
        code = layout.fourcc
        yield _RECORD.pack(_LAYOUT, len(layout.planes), 0, code if isinstance(code, int) else 0, layout.modifier,
                           planes[:16], planes[16:32], int.from_bytes(planes[32:40], "little"), planes[40:])


def _nt_record(desc: SemaphoreDesc | MemoryDesc, number: int | None, name_bytes: int) -> bytes:
    kmt = desc.handle if isinstance(desc.handle, int) else 0
    value = kmt if number is None else number
    return _record(desc, number is not None, NT_SEMAPHORE_NUMBERS, NT_MEMORY_NUMBERS, name_bytes, value & _UINT64)


def _record(
    desc: SemaphoreDesc | MemoryDesc, has_handle: bool, semaphores: Mapping[SemaphoreHandleType, int],
    memories: Mapping[MemoryHandleType, int], name_bytes: int = 0, value: int = 0,
) -> bytes:
    flags = _CARRIES_HANDLE if has_handle else 0
    flags |= _DEVICE_UUID if desc.device_uuid is not None else 0
    flags |= _DRIVER_UUID if desc.driver_uuid is not None else 0
    flags |= _DEVICE_LUID if desc.device_luid is not None else 0
    if isinstance(desc, SemaphoreDesc):
        sort, number, size = _SEMAPHORE, semaphores[desc.type], 0
    else:
        sort, number, size = _MEMORY, memories[desc.type], desc.allocation_size
        flags |= _DEDICATED if desc.dedicated else 0
    return _RECORD.pack(sort, number, flags, name_bytes, size, _bytes(desc.device_uuid), _bytes(desc.driver_uuid),
                        value, desc.device_luid or bytes(8))


def decode_header(data: bytes, handle_kind: int = FDS) -> Header:
    """Check the first `HEADER_BYTES` bytes. The caller allocates memory for the rest only after this check."""
    magic, version, header_bytes, total, descriptors, handles, payload_bytes, found, receipt = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise BadArgumentError("the data is not an xsem message: it does not begin with XSEM; use receive_fds for "
                               "another format", reason="bad_magic")
    if version != _VERSION:
        raise BadArgumentError(f"the message has version {version} of the format; this xsem supports {_VERSION}",
                               reason="bad_version")
    if found != handle_kind or any(data[22:24]):
        raise bad_message(f"its handles have the kind {found}, and this channel passes the kind {handle_kind}")
    least = descriptors * _RECORD.size + payload_bytes
    names = descriptors * MAX_NAME_BYTES if handle_kind == NT_HANDLES else 0
    # Chunks have a file descriptor each, and at least two records.
    most = MAX_FDS if handle_kind == FDS and descriptors > 1 else descriptors
    if (header_bytes != HEADER_BYTES or descriptors > MAX_DESCRIPTORS or handles > most
            or payload_bytes > MAX_PAYLOAD_BYTES or not HEADER_BYTES + least <= total <= HEADER_BYTES + least + names
            or (receipt != 0) != (handle_kind == NT_HANDLES and handles > 0)):
        raise bad_message("its lengths contradict each other or the limits")
    return Header(total - HEADER_BYTES, descriptors, handles, payload_bytes, handle_kind, receipt)


def handle_numbers(header: Header, body: bytes) -> list[int]:
    """Return the numbers of the sender's NT handles, in the order of their records."""
    numbers = [record[7] for record in _RECORD.iter_unpack(body[:header.descriptors * _RECORD.size])
               if record[2] & _CARRIES_HANDLE]
    if len(numbers) != header.handles:
        raise bad_message("its lengths contradict each other or the limits")
    try:
        for number in (*numbers, *((header.receipt,) if header.receipt else ())):
            check_nt(number)
    except XsemError as error:
        raise bad_message(str(error)) from error
    return numbers


def decode_body(
    header: Header, body: bytes, handles: Sequence[OwnedHandle]
) -> tuple[list[SemaphoreDesc], list[MemoryDesc], bytes]:
    """Return the semaphores, the memories and the payload. After an error, the caller still owns the handles."""
    semaphores: list[SemaphoreDesc] = []
    memories: list[MemoryDesc] = []
    rest = iter(handles)
    end = header.descriptors * _RECORD.size
    names = _Names(body[end:len(body) - header.payload_bytes])
    semaphore_types, memory_types = _SEMAPHORE_TYPES[header.handle_kind], _MEMORY_TYPES[header.handle_kind]
    before = 0
    records = deque(_RECORD.iter_unpack(body[:end]))
    while records:
        sort, number, flags, length, size, device, driver, value, tail = records.popleft()
        if sort == _LAYOUT and before == _MEMORY and not flags and header.handle_kind == FDS:
            _add_layout(memories, number, length, size, device + driver + value.to_bytes(8, "little") + tail)
            before = sort
            continue
        luid, tail = (tail, b"") if flags & _DEVICE_LUID else (None, tail)
        before = sort
        if any(tail) or flags & ~_KNOWN_FLAGS or (header.handle_kind == FDS and (length or value)):
            raise bad_message("a record has reserved bits set")
        uuids: dict[str, Any] = {"device_uuid": _uuid_of(device, flags & _DEVICE_UUID),
                                 "driver_uuid": _uuid_of(driver, flags & _DRIVER_UUID),
                                 "device_luid": luid}
        carried = bool(flags & _CARRIES_HANDLE)
        handle: OwnedHandle | int | None = next(rest, None) if carried else value or None
        if not carried and header.handle_kind == FDS:
            handle = -1
        name = names.take(length) if length else None
        semaphore, memory = semaphore_types.get(number), memory_types.get(number)
        try:
            if sort == _SEMAPHORE and semaphore is not None and not size and not flags & _DEDICATED:
                _check_carried(semaphore, carried, value)
                semaphores.append(SemaphoreDesc(type=semaphore, handle=handle, name=name, **uuids))
            elif sort == _MEMORY and memory is not None:
                _check_carried(memory, carried, value)
                chunks = _take_chunks(records, rest) if handle == -1 else ()
                memories.append(MemoryDesc(type=memory, allocation_size=size, handle=None if chunks else handle,
                                           name=name, dedicated=bool(flags & _DEDICATED), chunks=chunks, **uuids))
            else:
                raise bad_message(f"a record has kind {sort} and type {number}, which this xsem does not support")
        except XsemError as error:
            raise bad_message(str(error)) from error
    if next(rest, None) is not None:
        raise bad_message("more handles came than its records carry")
    if names.left:
        raise bad_message("its names are longer than its records say")
    return semaphores, memories, body[len(body) - header.payload_bytes:]


def _take_chunks(records: deque[tuple[Any, ...]], handles: Iterator[OwnedHandle]) -> Sequence[MemoryChunk]:
    """Return the chunks of the records that follow the record of their memory. Each takes one of the handles."""
    chunks: list[MemoryChunk] = []
    while records and records[0][0] == _CHUNKS:
        _, number, flags, count, size, *reserved = records.popleft()
        if number or flags or any(map(any, reserved[:2])) or reserved[2] or any(reserved[3]) or not count:
            raise bad_message("a record of chunks has reserved bits set, or no chunk")
        run = [MemoryChunk(size=size, handle=handle) for handle in islice(handles, count)]
        if len(run) != count:
            raise bad_message(f"a record has {count} chunks, and {len(run)} file descriptors are left for them")
        chunks += run
    return chunks


def _check_carried(type: SemaphoreHandleType | MemoryHandleType, carried: bool, value: int) -> None:
    """Refuse an NT handle that travels as a plain number, and a KMT handle that does not."""
    if ((type.os_handle_kind is OsHandleKind.NT and not carried and value)
            or (type.os_handle_kind is OsHandleKind.KMT and carried)):
        raise bad_message("a record has a handle of another kind than its type")


class _Names:
    """The names of a message, in the order of their records."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, length: int) -> str:
        """Return the next name of `length` bytes."""
        data, self.left = self.left[:length], self.left[length:]
        if len(data) != length or length > MAX_NAME_BYTES:
            raise bad_message("a name is longer than the limit or than the message")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise bad_message("a name is not UTF-8") from error


def _add_layout(memories: list[MemoryDesc], count: int, fourcc: int, modifier: int, data: bytes) -> None:
    """Add a layout to the last memory."""
    places = list(_PLANE.iter_unpack(data))
    if not 1 <= count <= len(places) or any(map(any, places[count:])):
        raise bad_message("a DRM layout has 1 to 4 planes, and zeros behind them")
    try:
        planes = tuple(DrmPlane(offset=offset, pitch=pitch) for offset, pitch in places[:count])
        layout = DrmLayout(modifier=modifier, planes=planes, fourcc=fourcc or None)
        memories[-1] = replace(memories[-1], drm_layout=layout)
    except XsemError as error:
        raise bad_message(str(error)) from error


def bad_message(why: str) -> BadArgumentError:
    """Return the error for a message that violates the format."""
    return BadArgumentError(f"the message is not well formed: {why}", reason="bad_message")


def _bytes(uuid: _uuid.UUID | None) -> bytes:
    return bytes(16) if uuid is None else uuid.bytes


def _uuid_of(data: bytes, present: int) -> _uuid.UUID | None:
    if not present and any(data):
        raise bad_message("a UUID is present but its flag is not set")
    return _uuid.UUID(bytes=data) if present else None
