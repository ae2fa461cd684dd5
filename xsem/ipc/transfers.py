"""`Transfer`: a descriptor in a channel of multiprocessing, with a lifetime."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from xsem.data.descriptor_fields import rebuild
from xsem.data.pickling import carry, carry_by_multiprocessing
from xsem.data.transfers import LIFETIME_S, Kept
from xsem.errors import BadArgumentError
from xsem.ipc.tickets import check_lifetime
from xsem.types import MemoryChunk, MemoryDesc, SemaphoreDesc

__all__ = ["Transfer"]


class Transfer:
    """A descriptor for a channel of multiprocessing, with a lifetime, which its sender can take back.

    Put the transfer into a Queue, a Pipe, a Pool or a ProcessPoolExecutor in place of the descriptor. The receiver gets
    the descriptor. A descriptor without a `Transfer` has the default lifetime, as a ticket.

    Parameters
    ----------
    desc : SemaphoreDesc or MemoryDesc
        The descriptor. The caller keeps its handle, and must keep it open until the channel has pickled the transfer. A
        Queue pickles in a thread.
    lifetime_s : float
        Seconds for which this process keeps a duplicate of the handle after the pickling, unless a process receives it
        before; more than 0 and at most ten years. A late receiver gets the error ``transfer_expired``.

    Attributes
    ----------
    desc : SemaphoreDesc or MemoryDesc
        The descriptor.
    lifetime_s : float
        The lifetime.

    Raises
    ------
    BadArgumentError
        ``not_a_descriptor``, ``bad_timeout``.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device, device.create_timeline().export() as desc:
    ...     transfer = xsem.ipc.Transfer(desc, lifetime_s=600)   # for queue.put(transfer)
    ...     transfer.take_back()                                 # it was not put
    False
    """

    def __init__(self, desc: SemaphoreDesc | MemoryDesc, *, lifetime_s: float = LIFETIME_S) -> None:
        if not isinstance(desc, SemaphoreDesc | MemoryDesc):
            raise BadArgumentError(f"a SemaphoreDesc or MemoryDesc of export() is needed, not {type(desc).__name__}",
                                   reason="not_a_descriptor")
        check_lifetime(lifetime_s)
        self.desc = desc
        self.lifetime_s = lifetime_s
        self._kept: list[Kept] = []
        self._taken_back = False

    def take_back(self) -> bool:
        """Take the descriptor back from every channel, and close the duplicates of its handle.

        A process that has not received the descriptor then gets the error ``transfer_taken_back``, also if the channel
        pickles the transfer after this call. The handle of the caller stays open.

        Returns
        -------
        bool
            True if a channel held the descriptor. False if it was received, if its lifetime is over, or if it was not
            pickled yet.
        """
        self._taken_back = True
        return sum(kept.take_back() for kept in self._kept.copy()) > 0   # `any` would stop at the first

    def _keep(self, kept: Kept) -> None:
        self._kept = [*[each for each in self._kept if each.open], kept]
        if self._taken_back:
            kept.take_back()

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self.desc), carry(self.desc.__dict__, self.desc.type.os_handle_kind))

    def __repr__(self) -> str:
        return f"<Transfer of {self.desc.type.value} for {self.lifetime_s:g} s>"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk of a descriptor, with the lifetime of its transfer."""

    transfer: Transfer
    chunk: MemoryChunk


def _reduce(transfer: Transfer) -> tuple[Any, ...]:
    """Return the pickle of the descriptor, with its handle or with the handles of its chunks."""
    desc = transfer.desc
    fields = _carry(transfer, desc)
    if isinstance(desc, MemoryDesc):
        fields["chunks"] = tuple(_Chunk(transfer, each) for each in desc.chunks)
    return rebuild, (type(desc), fields)


def _reduce_chunk(part: _Chunk) -> tuple[Any, ...]:
    """Return the pickle of a chunk, with its handle."""
    return rebuild, (MemoryChunk, _carry(part.transfer, part.chunk))


def _carry(transfer: Transfer, of: SemaphoreDesc | MemoryDesc | MemoryChunk) -> dict[str, Any]:
    return carry_by_multiprocessing(of.__dict__, transfer.desc.type.os_handle_kind, lifetime_s=transfer.lifetime_s,
                                    keep=transfer._keep)


# As the descriptors.
ForkingPickler.register(Transfer, _reduce)
ForkingPickler.register(_Chunk, _reduce_chunk)
