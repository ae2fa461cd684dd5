"""A descriptor of memory in several allocations: its rules, its handles, its pickles."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.open_files import numbers
from support.waiting import until

import xsem
from xsem.data import transfers
from xsem.types import MemoryChunk, MemoryDesc, OwnedHandle

MIB = 1 << 20


def chunks(*sizes: int, handle: Any = 7) -> list[MemoryChunk]:
    return [MemoryChunk(size=size, handle=handle) for size in sizes]


def desc(*sizes: int, **changes: Any) -> MemoryDesc:
    fields: dict[str, Any] = {"type": "opaque_fd", "allocation_size": sum(sizes), "chunks": chunks(*sizes)} | changes
    return MemoryDesc(**fields)


def test_chunks_take_the_place_of_the_handle() -> None:
    made = desc(20 * MIB, 2 * MIB)
    assert (made.handle, made.allocation_size) == (None, 22 * MIB)
    assert made.chunks == (MemoryChunk(size=20 * MIB, handle=7), MemoryChunk(size=2 * MIB, handle=7))
    assert made == desc(20 * MIB, 2 * MIB)
    assert made != desc(2 * MIB, 20 * MIB)
    assert desc(chunks=[], allocation_size=1, handle=7) == MemoryDesc.opaque_fd(7, allocation_size=1, device_uuid=None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: desc(1, 2, allocation_size=4), "add up to the allocation_size of 4 bytes, not to 3"),
        (lambda: desc(1, 2, allocation_size=2), "not to 3"),
        (lambda: desc(2**64 - 1, 2, allocation_size=1), "not to"),   # equal in 64 bits
        (lambda: desc(4), "of one allocation"),
        (lambda: desc(1, 2, handle=7), "no other handle"),
        (lambda: desc(1, 2, dedicated=True), "not a dedicated"),
        (lambda: desc(1, 2, type="dmabuf_fd"), "DMABUF_FD takes no chunks"),
        (lambda: desc(1, 2, type="opaque_win32", name="n"), "OPAQUE_WIN32 takes no chunks"),
        (lambda: desc(1, chunks=[7, 8]), "sequence of MemoryChunk"),
        (lambda: desc(1, chunks=None), "sequence of MemoryChunk"),
        (lambda: desc(1, chunks=7), "sequence of MemoryChunk"),
    ],
)
def test_chunks_that_contradict_the_descriptor_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(xsem.BadArgumentError, match=words) as caught:
        make()
    assert caught.value.reason == "bad_chunks"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"size": 0}, "bad_size"), ({"size": 2**64}, "bad_size"), ({"size": True}, "not_an_int"),
     ({"handle": -1}, "negative_fd"), ({"handle": None}, "no_handle"), ({"handle": True}, "not_an_int"),
     ({"handle": object()}, "not_a_handle")],
)
def test_a_chunk_has_a_size_and_a_handle(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(xsem.XsemError) as caught:
        MemoryChunk(**{"size": 1, "handle": 7} | fields)
    assert caught.value.reason == reason


@pytest.mark.skipif(sys.platform == "win32", reason="chunks have file descriptors")
def test_close_closes_the_handles_of_all_chunks() -> None:
    owned = [OwnedHandle(os.open(os.devnull, os.O_RDONLY)) for _ in range(2)]
    with desc(2, chunks=[MemoryChunk(size=1, handle=each) for each in owned]):
        assert not any(each.closed for each in owned)
    assert all(each.closed for each in owned)


@pytest.mark.skipif(sys.platform == "win32", reason="chunks have file descriptors")
@pytest.mark.parametrize("count", [1, 2])
def test_chunks_need_a_device_that_joins_them(count: int) -> None:
    with xsem.open_device("host") as host:
        memories = [host.create_memory("opaque_fd", 4096 * count) for _ in range(3)]
        exported = [each.export() for each in memories]
        parts = [MemoryChunk(size=4096 * count, handle=each.handle) for each in exported]   # type: ignore[arg-type]
        joined = desc(3 * 4096 * count, chunks=parts)
        before = numbers()
        with pytest.raises(xsem.UnsupportedError, match="3 allocations, and host:0 imports only one:") as caught:
            host.import_memory(joined)
        assert (caught.value.reason, caught.value.capability) == ("several_allocations", "memory_chunks")
        assert numbers() == before
        for each in exported:
            each.close()


# ---- pickles
@pytest.mark.skipif(sys.platform == "win32", reason="chunks have file descriptors")
def test_multiprocessing_carries_the_chunks() -> None:
    from multiprocessing import resource_sharer
    from multiprocessing.reduction import ForkingPickler

    before = numbers()
    made = [MemoryChunk(size=size, handle=OwnedHandle(os.memfd_create("chunk"))) for size in (3, 4, 5)]
    with desc(12, chunks=made) as sent, pickle.loads(bytes(ForkingPickler.dumps(sent))) as received:
        assert [each.size for each in received.chunks] == [3, 4, 5]
        for one, other in zip(made, received.chunks, strict=True):
            assert os.path.sameopenfile(one.handle.fileno(), other.handle.fileno())   # type: ignore[union-attr]
            assert one.handle.fileno() != other.handle.fileno()   # type: ignore[union-attr]
            assert not os.get_inheritable(other.handle.fileno())
    resource_sharer.stop(timeout=40)
    assert numbers() == before


@pytest.mark.skipif(sys.platform == "win32", reason="chunks have file descriptors")
def test_transfer_of_chunks_has_its_lifetime_and_can_be_taken_back() -> None:
    from multiprocessing import resource_sharer
    from multiprocessing.reduction import ForkingPickler

    before = numbers()
    made = [MemoryChunk(size=size, handle=OwnedHandle(os.memfd_create("chunk"))) for size in (3, 4)]
    with desc(7, chunks=made) as sent:
        transfer = xsem.ipc.Transfer(sent)
        received, back = (bytes(ForkingPickler.dumps(transfer)) for _ in range(2))
        with pickle.loads(received) as arrived:
            assert [each.size for each in arrived.chunks] == [3, 4]
        assert transfer.take_back()
        late = bytes(ForkingPickler.dumps(xsem.ipc.Transfer(sent, lifetime_s=0.05)))
        until(lambda: not transfers._Process.deadlines.open)
        for data, reason in ((back, "transfer_taken_back"), (late, "transfer_expired")):
            with pytest.raises(xsem.BadArgumentError) as caught:
                pickle.loads(data)
            assert caught.value.reason == reason
    resource_sharer.stop(timeout=40)
    assert numbers() == before


def test_any_other_pickler_is_refused() -> None:
    for each in (desc(1, 2), *chunks(1)):
        with pytest.raises(xsem.BadArgumentError) as caught:
            pickle.dumps(each)
        assert caught.value.reason == "pickled_outside_multiprocessing"
