"""The allocations of memory that consists of several of them, each with a handle of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from xsem.data.descriptor_fields import check_handle, close, rebuild
from xsem.data.handle_types import MemoryHandleType
from xsem.data.handles import Handle
from xsem.data.params import UINT64_MAX, check_int
from xsem.data.pickling import carry, carry_by_multiprocessing
from xsem.errors import BadArgumentError

__all__ = ["MemoryChunk", "check_chunks"]

_TYPE = MemoryHandleType.OPAQUE_FD


@dataclass(frozen=True, kw_only=True)
class MemoryChunk:
    """One allocation of memory that consists of several: an entry of `MemoryDesc.chunks`.

    A library can map several allocations to one range of addresses, such as torch with expandable segments. An array
    in that range has no single handle. Each chunk has one, of the type OPAQUE_FD.

    Attributes
    ----------
    size : int
        Size of the whole allocation in bytes.
    handle : OwnedHandle, object with ``fileno()`` or int
        The file descriptor of the allocation.

    Raises
    ------
    BadArgumentError
        ``bad_size``, ``not_an_int``, ``not_a_handle``.
    BadHandleError
        ``no_handle``, ``negative_fd``.

    Notes
    -----
    Ownership: as in `SemaphoreDesc`. `MemoryDesc.close` closes the handles of all its chunks.

    Examples
    --------
    >>> MemoryChunk(size=20 << 20, handle=7).size  # 7 stands for the exported fd
    20971520
    """

    size: int
    handle: Handle

    def __post_init__(self) -> None:
        check_int("size", self.size, 1, UINT64_MAX, reason="bad_size")
        check_handle(_TYPE, _TYPE.os_handle_kind, self.handle, None)

    def close(self) -> None:
        """Close the handle if it is an `OwnedHandle`. A borrowed handle stays open."""
        close(self.handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), carry(self.__dict__, _TYPE.os_handle_kind))


def check_chunks(
    type: MemoryHandleType, chunks: Sequence[MemoryChunk], size: int, *, dedicated: bool, other_handle: bool
) -> tuple[MemoryChunk, ...]:
    """Return the chunks of a descriptor, or raise `BadArgumentError`: ``bad_chunks``."""
    found = tuple(chunks) if isinstance(chunks, Sequence) else ()
    why = ""
    if not isinstance(chunks, Sequence) or not all(isinstance(each, MemoryChunk) for each in found):
        why = "chunks must be a sequence of MemoryChunk"
    elif found and type is not _TYPE:
        why = f"MemoryHandleType.{type.name} takes no chunks: only OPAQUE_FD does"
    elif found and other_handle:
        why = "memory of several chunks has no other handle and no name: each chunk has a handle of its own"
    elif found and dedicated:
        why = "memory of several chunks is not a dedicated allocation"
    elif len(found) == 1:
        why = "memory of one allocation takes no chunks: pass its handle as handle="
    elif found and (total := sum(each.size for each in found)) != size:
        why = f"the sizes of the chunks must add up to the allocation_size of {size} bytes, not to {total}"
    if why:
        raise BadArgumentError(why, reason="bad_chunks", handle_type=type)
    return found


def _reduce_by_multiprocessing(chunk: MemoryChunk) -> tuple[Any, ...]:
    return rebuild, (type(chunk), carry_by_multiprocessing(chunk.__dict__, _TYPE.os_handle_kind))


# As for `MemoryDesc`.
ForkingPickler.register(MemoryChunk, _reduce_by_multiprocessing)
