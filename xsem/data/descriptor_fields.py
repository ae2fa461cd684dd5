"""Fields that the descriptors of semaphores and of memory share: handle, name and identity. Also their pickling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from xsem.data.handle_types import MemoryHandleType, OsHandleKind, SemaphoreHandleType
from xsem.data.handles import Handle, OwnedHandle, check_nt
from xsem.data.params import UINT64_MAX
from xsem.data.pickling import carry_by_multiprocessing, uncarry
from xsem.data.uuids import UUIDLike, parse_luid, parse_uuid
from xsem.errors import BadArgumentError, BadHandleError

__all__ = ["check_handle", "check_identity", "close", "identity", "rebuild", "reduce_by_multiprocessing"]

_Desc = TypeVar("_Desc")


class _Described(Protocol):
    @property
    def type(self) -> SemaphoreHandleType | MemoryHandleType: ...

    @property
    def device_luid(self) -> bytes | None: ...


def identity(device_uuid: UUIDLike | None, driver_uuid: UUIDLike | None) -> dict[str, Any]:
    """Return the UUIDs as arguments of a constructor."""
    return {"device_uuid": device_uuid, "driver_uuid": driver_uuid}


def check_identity(desc: _Described) -> None:
    """Check and convert the UUIDs and the LUID of a descriptor."""
    for field in ("device_uuid", "driver_uuid"):
        value = getattr(desc, field)
        if value is not None:
            object.__setattr__(desc, field, parse_uuid(value, field))
    if desc.device_luid is not None:
        if desc.type.portable or desc.type.os_handle_kind not in (OsHandleKind.NT, OsHandleKind.KMT):
            spelled = f"{type(desc.type).__name__}.{desc.type.name}"
            why = "the object belongs to no device" if desc.type.portable else "only Windows has LUIDs"
            raise BadArgumentError(f"{spelled} takes no device_luid: {why}", reason="luid_not_allowed",
                                   handle_type=desc.type)
        object.__setattr__(desc, "device_luid", parse_luid(desc.device_luid, "device_luid"))


def check_handle(
    handle_type: SemaphoreHandleType | MemoryHandleType, os_handle_kind: OsHandleKind, handle: Handle | None,
    name: str | None,
) -> None:
    """Check the handle and the name for a handle type."""
    spelled = f"{type(handle_type).__name__}.{handle_type.name}"
    if name is not None and os_handle_kind is not OsHandleKind.NT:
        raise BadArgumentError(f"{spelled} takes no name", reason="name_not_allowed", handle_type=handle_type)
    if os_handle_kind is OsHandleKind.NT and (handle is None) == (name is None):
        raise BadArgumentError(
            f"{spelled} takes a handle or a name, exactly one of the two", reason="handle_xor_name",
            handle_type=handle_type,
        )
    if name is not None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise BadArgumentError(f"name must be a non-empty str without NUL, not {name!r}", reason="bad_name",
                                   handle_type=handle_type)
        # Level Zero takes a semaphore's name in UTF-8, which cannot encode a lone surrogate.
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise BadArgumentError(f"the name {name!r} has a surrogate that is not part of a pair", reason="bad_name",
                                   handle_type=handle_type)
        return
    if handle is None:
        raise BadHandleError(f"{spelled} needs a handle", reason="no_handle", handle_type=handle_type)
    if isinstance(handle, bool):
        raise BadArgumentError("a handle is an int, not bool", reason="not_an_int", handle_type=handle_type)
    if not isinstance(handle, int):
        # A KMT handle and the address of an NvSci object cannot be closed. An OwnedHandle therefore cannot own them.
        owned_nt = os_handle_kind is OsHandleKind.NT and isinstance(handle, OwnedHandle)
        if os_handle_kind is not OsHandleKind.FD and not owned_nt:
            raise BadArgumentError(
                f"{spelled} takes an int, not {type(handle).__name__}", reason="not_an_int", handle_type=handle_type
            )
        if not callable(getattr(handle, "fileno", None)):
            raise BadArgumentError(
                f"a handle is an int or has fileno(), not {type(handle).__name__}", reason="not_a_handle",
                handle_type=handle_type,
            )
        return
    if os_handle_kind is OsHandleKind.FD:
        if handle < 0 and not (handle == -1 and handle_type is SemaphoreHandleType.SYNC_FD):
            raise BadHandleError(f"{handle} is not a file descriptor", reason="negative_fd", handle_type=handle_type)
    # A Windows handle can be a signed int. ctypes truncates an int that does not fit in a pointer, without an error.
    elif not (0 if os_handle_kind is OsHandleKind.NVSCI else -(2**63)) <= handle <= UINT64_MAX:
        raise BadHandleError(f"{spelled}: {handle:#x} is not a pointer", reason="handle_out_of_range",
                             handle_type=handle_type)
    # D3DKMT_HANDLE is a UINT. Windows extends a 32-bit handle to a pointer by its sign.
    elif os_handle_kind is OsHandleKind.KMT and (handle < -(2**31) or 2**32 <= handle < 2**64 - 2**31):
        raise BadHandleError(f"{spelled}: {handle:#x} has more than the 32 bits of a KMT handle",
                             reason="handle_out_of_range", handle_type=handle_type)
    elif handle == 0 or (os_handle_kind is OsHandleKind.KMT and handle in (-1, UINT64_MAX)):
        raise BadHandleError(f"{spelled}: the handle is {'INVALID_HANDLE_VALUE' if handle else 'null'}",
                             reason="null_handle", handle_type=handle_type)
    elif os_handle_kind is OsHandleKind.NT:
        try:
            check_nt(handle, f"{spelled}: the handle")
        except BadHandleError as error:
            error.handle_type = handle_type
            raise


def close(handle: Handle | None) -> None:
    """Close the handle if it is an `OwnedHandle`."""
    if isinstance(handle, OwnedHandle):
        handle.close()


def rebuild(cls: Callable[..., _Desc], fields: dict[str, Any]) -> _Desc:
    """Return the descriptor of a pickle."""
    return cls(**uncarry(fields))


def reduce_by_multiprocessing(desc: _Described) -> tuple[Any, ...]:
    """Return the pickle of a descriptor that multiprocessing sends, with its handle."""
    return rebuild, (type(desc), carry_by_multiprocessing(desc.__dict__, desc.type.os_handle_kind))
