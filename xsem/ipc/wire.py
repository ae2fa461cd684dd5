"""Encoding of one message as fixed little-endian records. ``docs/ipc.md`` specifies the format."""

from __future__ import annotations

import struct
import uuid as _uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from xsem.errors import BadArgumentError, XsemError
from xsem.types import (
    DrmLayout,
    DrmPlane,
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)

__all__ = [
    "HEADER_BYTES",
    "MAX_DESCRIPTORS",
    "MAX_MESSAGE_BYTES",
    "MAX_PAYLOAD_BYTES",
    "MEMORY_NUMBERS",
    "SEMAPHORE_NUMBERS",
    "Header",
    "decode_body",
    "decode_header",
    "encode",
]

_HEADER: Final = struct.Struct("<4sHHIHHI12x")
_RECORD: Final = struct.Struct("<BBHIQ16s16s16s")
_MAGIC: Final = b"XSEM"
_VERSION: Final = 1
_SEMAPHORE, _MEMORY, _LAYOUT = 1, 2, 3
_PLANE: Final = struct.Struct("<QI")
_DEVICE_UUID, _DRIVER_UUID, _DEDICATED, _CARRIES_FD = 1, 2, 4, 8
_KNOWN_FLAGS: Final = _DEVICE_UUID | _DRIVER_UUID | _DEDICATED | _CARRIES_FD

HEADER_BYTES: Final = _HEADER.size
MAX_DESCRIPTORS: Final = 64
MAX_PAYLOAD_BYTES: Final = 65536
MAX_MESSAGE_BYTES: Final = HEADER_BYTES + MAX_DESCRIPTORS * _RECORD.size + MAX_PAYLOAD_BYTES

# The numbers of the format never change. If CUDA has a number for the type, the format uses it.
SEMAPHORE_NUMBERS: Final = {
    SemaphoreHandleType.OPAQUE_FD: 1,
    SemaphoreHandleType.TIMELINE_SEMAPHORE_FD: 9,
    SemaphoreHandleType.SYNC_FD: 11,
}
MEMORY_NUMBERS: Final = {MemoryHandleType.OPAQUE_FD: 1, MemoryHandleType.DMABUF_FD: 9}
_SEMAPHORE_TYPES: Final = {number: each for each, number in SEMAPHORE_NUMBERS.items()}
_MEMORY_TYPES: Final = {number: each for each, number in MEMORY_NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Header:
    """Fields of the header: the sizes and counts of the rest of the message."""

    body_bytes: int
    descriptors: int
    fds: int
    payload_bytes: int


def encode(descs: Sequence[SemaphoreDesc | MemoryDesc], carries_fd: Sequence[bool], payload: bytes) -> bytes:
    """Return the bytes of one message. The caller has checked the types and sizes.

    Raises
    ------
    BadArgumentError
        ``too_many_descriptors``: with the records of layouts, there are more than `MAX_DESCRIPTORS`.
    """
    records = [record for desc, has_fd in zip(descs, carries_fd, strict=True) for record in _records(desc, has_fd)]
    if len(records) > MAX_DESCRIPTORS:
        raise BadArgumentError(f"a message takes at most {MAX_DESCRIPTORS} descriptors, and each DRM layout counts as "
                               f"one; not {len(records)}", reason="too_many_descriptors")
    body = b"".join(records) + payload
    return _HEADER.pack(_MAGIC, _VERSION, HEADER_BYTES, HEADER_BYTES + len(body), len(records), sum(carries_fd),
                        len(payload)) + body


def _records(desc: SemaphoreDesc | MemoryDesc, has_fd: bool) -> Iterator[bytes]:
    yield _record(desc, has_fd)
    if isinstance(desc, MemoryDesc) and desc.drm_layout is not None:
        layout = desc.drm_layout
        planes = b"".join(_PLANE.pack(plane.offset, plane.pitch) for plane in layout.planes)
        code = layout.fourcc
        yield _RECORD.pack(_LAYOUT, len(layout.planes), 0, code if isinstance(code, int) else 0, layout.modifier,
                           *(planes.ljust(48, b"\0")[at:at + 16] for at in (0, 16, 32)))


def _record(desc: SemaphoreDesc | MemoryDesc, has_fd: bool) -> bytes:
    flags = _CARRIES_FD if has_fd else 0
    flags |= _DEVICE_UUID if desc.device_uuid is not None else 0
    flags |= _DRIVER_UUID if desc.driver_uuid is not None else 0
    if isinstance(desc, SemaphoreDesc):
        sort, number, size = _SEMAPHORE, SEMAPHORE_NUMBERS[desc.type], 0
    else:
        sort, number, size = _MEMORY, MEMORY_NUMBERS[desc.type], desc.allocation_size
        flags |= _DEDICATED if desc.dedicated else 0
    return _RECORD.pack(sort, number, flags, 0, size, _bytes(desc.device_uuid), _bytes(desc.driver_uuid),
                        bytes(16))


def decode_header(data: bytes) -> Header:
    """Check the first `HEADER_BYTES` bytes. The caller allocates memory for the rest only after this check.

    Raises
    ------
    BadArgumentError
        ``bad_magic``, ``bad_version``, ``bad_message``.
    """
    magic, version, header_bytes, total, descriptors, fds, payload_bytes = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise BadArgumentError("the data is not an xsem message: it does not begin with XSEM; use receive_fds for "
                               "another format", reason="bad_magic")
    if version != _VERSION:
        raise BadArgumentError(f"the message has version {version} of the format; this xsem supports {_VERSION}",
                               reason="bad_version")
    body_bytes = descriptors * _RECORD.size + payload_bytes
    if (header_bytes != HEADER_BYTES or descriptors > MAX_DESCRIPTORS or fds > descriptors
            or payload_bytes > MAX_PAYLOAD_BYTES or total != HEADER_BYTES + body_bytes or any(data[20:])):
        raise bad_message("its lengths contradict each other or the limits")
    return Header(body_bytes, descriptors, fds, payload_bytes)


def decode_body(
    header: Header, body: bytes, handles: Sequence[OwnedHandle]
) -> tuple[list[SemaphoreDesc], list[MemoryDesc], bytes]:
    """Return the descriptors of semaphores, the descriptors of memory and the payload.

    The records with a file descriptor get `handles` in order.

    Raises
    ------
    BadArgumentError
        ``bad_message``. The caller still owns the handles.
    """
    semaphores: list[SemaphoreDesc] = []
    memories: list[MemoryDesc] = []
    rest = iter(handles)
    end = header.descriptors * _RECORD.size
    before = 0
    for sort, number, flags, zero, size, device, driver, tail in _RECORD.iter_unpack(body[:end]):
        if sort == _LAYOUT and before == _MEMORY and not flags:
            _add_layout(memories, number, zero, size, device + driver + tail)
            before = sort
            continue
        before = sort
        if zero or any(tail) or flags & ~_KNOWN_FLAGS:
            raise bad_message("a record has reserved bits set")
        device_uuid, driver_uuid = _uuid_of(device, flags & _DEVICE_UUID), _uuid_of(driver, flags & _DRIVER_UUID)
        handle: OwnedHandle | int | None = next(rest, None) if flags & _CARRIES_FD else -1
        try:
            if sort == _SEMAPHORE and number in _SEMAPHORE_TYPES and not size and not flags & _DEDICATED:
                semaphores.append(SemaphoreDesc(type=_SEMAPHORE_TYPES[number], handle=handle,
                                                device_uuid=device_uuid, driver_uuid=driver_uuid))
            elif sort == _MEMORY and number in _MEMORY_TYPES:
                memories.append(MemoryDesc(type=_MEMORY_TYPES[number], allocation_size=size, handle=handle,
                                           dedicated=bool(flags & _DEDICATED), device_uuid=device_uuid,
                                           driver_uuid=driver_uuid))
            else:
                raise bad_message(f"a record has kind {sort} and type {number}, which this xsem does not support")
        except XsemError as error:
            raise bad_message(str(error)) from error
    if next(rest, None) is not None:
        raise bad_message("more file descriptors came than its records carry")
    return semaphores, memories, body[end:]


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
