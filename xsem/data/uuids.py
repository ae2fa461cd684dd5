"""Device UUIDs in the forms of drivers, tools and text; LUIDs of Windows."""

from __future__ import annotations

import uuid as _uuid
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

from xsem.errors import BadArgumentError

__all__ = ["UUIDLike", "parse_luid", "parse_uuid"]


_SIZE: Final = 16


class _HasBytes(Protocol):
    @property
    def bytes(self) -> Sequence[int]: ...


UUIDLike: TypeAlias = _uuid.UUID | Sequence[int] | str | _HasBytes
"""A UUID: 16 bytes in the drivers' order, text with or without ``GPU-`` or ``MIG-`` as nvidia-smi prints it, or an
object with one of the two as its ``bytes`` or its ``str()``, such as the UUID of a device of torch."""


def parse_uuid(value: UUIDLike, what: str = "uuid") -> _uuid.UUID:
    """Convert a UUID in any accepted form. The message of the error begins with `what`."""
    if isinstance(value, _uuid.UUID):
        return value
    try:
        return _parsed(value)
    except Exception:   # also of the attributes of another library's object
        raise BadArgumentError(
            f"{what} must be a uuid.UUID, 16 bytes, 'GPU-…', 'MIG-…', the usual text form, or an object with such "
            f"bytes or text; not {value!r}", reason="bad_uuid") from None


def _parsed(value: Any) -> _uuid.UUID:
    if isinstance(value, int | float):   # the digits of a long number would pass as text
        raise ValueError(value)
    if isinstance(value, list | tuple | memoryview | bytearray):
        value = bytes(value)
    if isinstance(value, bytes):
        # NVML gives the text as bytes.
        return _uuid.UUID(bytes=value) if len(value) == _SIZE else _parsed(value.decode("ascii"))
    if isinstance(value, str):
        text = "".join(value.split())   # vulkaninfo separates the bytes
        return _uuid.UUID(text[4:] if text[:4].upper() in ("GPU-", "MIG-") else text)
    raw = getattr(value, "bytes", None)
    return _parsed(str(value) if raw is None else raw)


def parse_luid(value: object, what: str = "luid") -> bytes:
    """Check a LUID, and return its 8 bytes. The message of the error begins with `what`."""
    if not isinstance(value, bytes | bytearray) or len(value) != 8:
        raise BadArgumentError(f"{what} is 8 bytes, not {value!r}", reason="bad_luid")
    return bytes(value)
