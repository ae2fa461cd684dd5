"""Device UUIDs in the forms of drivers, tools and text; LUIDs of Windows."""

from __future__ import annotations

import uuid as _uuid
from typing import TypeAlias

from xsem.errors import BadArgumentError

__all__ = ["UUIDLike", "parse_luid", "parse_uuid"]

UUIDLike: TypeAlias = _uuid.UUID | bytes | str
"""A UUID: 16 bytes in the drivers' order, ``"GPU-…"`` as nvidia-smi prints it, or the usual text form."""


def parse_uuid(value: UUIDLike, what: str = "uuid") -> _uuid.UUID:
    """Convert a UUID in any accepted form to a `uuid.UUID`.

    Raises
    ------
    BadArgumentError
        ``bad_uuid``; the message begins with `what`.
    """
    if isinstance(value, _uuid.UUID):
        return value
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            return _uuid.UUID(bytes=bytes(value))
        if isinstance(value, str):
            return _uuid.UUID(value.removeprefix("GPU-"))
    except ValueError:
        pass
    raise BadArgumentError(
        f"{what} must be a uuid.UUID, 16 bytes, 'GPU-…' or the usual text form, not {value!r}", reason="bad_uuid"
    )


def parse_luid(value: object, what: str = "luid") -> bytes:
    """Check a LUID, and return its 8 bytes.

    Raises
    ------
    BadArgumentError
        ``bad_luid``; the message begins with `what`.
    """
    if not isinstance(value, bytes | bytearray) or len(value) != 8:
        raise BadArgumentError(f"{what} is 8 bytes, not {value!r}", reason="bad_luid")
    return bytes(value)
