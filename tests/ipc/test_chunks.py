"""Memory of several allocations in a message: one descriptor, with a file descriptor for each."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import uuid
from collections.abc import Callable

import pytest
from support.open_files import closed_number, numbers
from support.waiting import until
from support.wire_messages import several

import xsem
from xsem import ipc
from xsem.ipc import wire
from xsem.spi import same_open_file
from xsem.types import MemoryChunk, MemoryDesc, OwnedHandle, SemaphoreDesc

MIB = 1 << 20
DEVICE = uuid.UUID(int=7)


def memory(sizes: list[int], fds: list[int]) -> MemoryDesc:
    return MemoryDesc(type="opaque_fd", allocation_size=sum(sizes), device_uuid=DEVICE,
                      chunks=[MemoryChunk(size=size, handle=fd) for size, fd in zip(sizes, fds, strict=True)])


def check(message: ipc.Message, sizes: list[int], fds: list[int]) -> None:
    (received,) = message.memories
    assert (received.allocation_size, received.device_uuid, received.handle) == (sum(sizes), DEVICE, None)
    assert [chunk.size for chunk in received.chunks] == sizes
    for chunk, fd in zip(received.chunks, fds, strict=True):
        assert isinstance(chunk.handle, OwnedHandle)
        assert same_open_file(chunk.handle.fileno(), fd)
        assert not os.get_inheritable(chunk.handle.fileno())


def pack(sock: socket.socket, peer: socket.socket, sent: list[SemaphoreDesc | MemoryDesc]) -> ipc.Message:
    data, fds = ipc.pack(ipc.Message(semaphores=(), memories=tuple(sent), payload=b"p"))  # type: ignore[arg-type]
    return ipc.unpack(data, [os.dup(fd) for fd in fds])


def send(sock: socket.socket, peer: socket.socket, sent: list[SemaphoreDesc | MemoryDesc]) -> ipc.Message:
    ipc.send(sock, *sent, payload=b"p")
    return ipc.receive(peer)


def asend(sock: socket.socket, peer: socket.socket, sent: list[SemaphoreDesc | MemoryDesc]) -> ipc.Message:
    async def both() -> ipc.Message:
        await ipc.asend(sock, *sent, payload=b"p")
        return await ipc.areceive(peer)

    return asyncio.run(both())


def offer(sock: socket.socket, peer: socket.socket, sent: list[SemaphoreDesc | MemoryDesc]) -> ipc.Message:
    return ipc.claim(ipc.offer(*sent, payload=b"p"))


@pytest.mark.parametrize("way", [send, asend, pack, offer])
def test_each_way_carries_one_descriptor_with_all_chunks(
    way: Callable[..., ipc.Message], pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    before = numbers()
    for sizes in ([20 * MIB] * 5, [2 * MIB, 20 * MIB, 20 * MIB, 2 * MIB, 4 * MIB]):
        with way(*pair, [memory(sizes, fds)]) as message:
            check(message, sizes, fds)
            assert message.payload == b"p"
    until(lambda: numbers() == before)   # a thread closes the sockets of an offer


def test_chunks_stand_between_other_descriptors(pair: tuple[socket.socket, socket.socket], fds: list[int]) -> None:
    first = SemaphoreDesc.opaque_fd(fds[4], device_uuid=None)
    last = MemoryDesc.opaque_fd(fds[3], allocation_size=9, device_uuid=None)
    ipc.send(pair[0], first, memory([1, 2], fds[:2]), memory([3, 3], fds[1:3]), last)
    with ipc.receive(pair[1]) as message:
        one, other, plain = message.memories
        parts = [*one.chunks, *other.chunks]
        handles = [message.semaphores[0].handle, *[chunk.handle for chunk in parts], plain.handle]
        for handle, fd in zip(handles, [fds[4], *fds[:2], *fds[1:3], fds[3]], strict=True):
            assert same_open_file(handle.fileno(), fd)   # type: ignore[union-attr]
        assert [chunk.size for chunk in parts] == [1, 2, 3, 3]


@pytest.mark.parametrize("way", [send, asend, pack, offer])
def test_as_many_as_the_kernel_passes_go_through_and_no_more(
    way: Callable[..., ipc.Message], pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    sizes = [20 * MIB] * wire.MAX_FDS
    before = numbers()
    with way(*pair, [memory(sizes, fds[:1] * wire.MAX_FDS)]) as message:
        check(message, sizes, fds[:1] * wire.MAX_FDS)
    for sent in ([memory([*sizes, 1], fds[:1] * 254)],
                 [memory(sizes, fds[:1] * 253), MemoryDesc.opaque_fd(fds[0], allocation_size=1, device_uuid=None)]):
        with pytest.raises(xsem.BadArgumentError, match="at most 253 file descriptors, not 254") as caught:
            way(*pair, sent)
        assert caught.value.reason == "too_many_fds"
    with pytest.raises(xsem.BadArgumentError) as caught:
        way(*pair, [memory(list(range(1, 129)), fds[:1] * 128)])   # 128 sizes: 129 records
    assert caught.value.reason == "too_many_descriptors"
    until(lambda: numbers() == before)   # a thread closes the sockets of an offer


def test_a_chunk_that_is_closed_is_refused_before_sending(
    pair: tuple[socket.socket, socket.socket], fds: list[int]
) -> None:
    closed = OwnedHandle(os.dup(fds[0]))
    sent = MemoryDesc(type="opaque_fd", allocation_size=2, chunks=[
        MemoryChunk(size=1, handle=fds[0]), MemoryChunk(size=1, handle=closed)])
    closed.close()
    with pytest.raises(xsem.ReleasedError):
        ipc.send(pair[0], sent)
    with pytest.raises(xsem.BadHandleError) as caught:
        ipc.pack(ipc.Message(semaphores=(), memories=(memory([1, 2], [fds[0], closed_number()]),), payload=b""))
    assert caught.value.reason == "closed_fd"
    with pytest.raises(BlockingIOError):
        pair[1].recv(1, socket.MSG_DONTWAIT)


def test_a_record_of_chunks_has_the_bytes_of_the_format(fds: list[int]) -> None:
    data, _ = ipc.pack(ipc.Message(semaphores=(), memories=(memory([20 * MIB] * 4 + [2 * MIB], fds),), payload=b""))
    whole = struct.pack("<BBHIQ", 2, 1, 1, 0, 82 * MIB) + DEVICE.bytes + bytes(32)
    runs = [struct.pack("<BBHIQ", 4, 0, 0, count, size * MIB) + bytes(48) for count, size in ((4, 20), (1, 2))]
    assert data == several(whole, *runs, fds=5)
