"""Timelines and memory of the host pass through every channel, without an identity, to any device."""

from __future__ import annotations

import multiprocessing
import socket
import uuid
from collections.abc import Callable
from multiprocessing import resource_sharer

import pytest

import xsem
from xsem import ipc
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs file descriptors")

Sent = tuple[SemaphoreDesc, MemoryDesc]


def over_socket(*descs: SemaphoreDesc | MemoryDesc) -> Sent:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ipc.send(ours, *descs)
        return in_order(ipc.receive(theirs))


def over_ticket(*descs: SemaphoreDesc | MemoryDesc) -> Sent:
    return in_order(ipc.claim(str(ipc.offer(*descs))))


def over_multiprocessing(*descs: SemaphoreDesc | MemoryDesc) -> Sent:
    near, far = multiprocessing.Pipe()
    with near, far:
        near.send(descs)
        semaphore, memory = far.recv()
    resource_sharer.stop(timeout=40)
    return semaphore, memory


def in_order(message: ipc.Message) -> Sent:
    return message.semaphores[0], message.memories[0]


@pytest.mark.parametrize("channel", [over_socket, over_ticket, over_multiprocessing])
def test_portable_objects_arrive_without_an_identity(channel: Callable[..., Sent]) -> None:
    with xsem.open_device("host") as sender, xsem.open_device("host") as receiver:
        timeline = sender.create_semaphore(SemaphoreHandleType.HOST_TIMELINE_FD, initial_value=5)
        memory = sender.create_memory(MemoryHandleType.HOST_MEMORY_FD, 16)
        memory.map_buffer(size=16).numpy()[:] = 7
        # The UUID of an importer is checked and left out.
        with timeline.export(for_device=uuid.uuid4()) as one, memory.export(for_device=receiver) as two:
            received = channel(one, two)
        for desc in received:
            assert (desc.device_uuid, desc.driver_uuid) == (None, None)
        imported = receiver.import_semaphore(received[0])
        pixels = receiver.import_memory(received[1]).map_buffer(size=16).numpy()
        for desc in received:
            desc.close()
        assert imported.type is SemaphoreHandleType.HOST_TIMELINE_FD
        assert (imported.value(), pixels[15]) == (5, 7)
        imported.host_signal(6)
        timeline.host_wait(6, timeout_s=10)


def test_uuid_of_an_importer_is_still_checked() -> None:
    with xsem.open_device("host") as device:
        timeline = device.create_semaphore(SemaphoreHandleType.HOST_TIMELINE_FD)
        with pytest.raises(xsem.BadArgumentError) as caught:
            timeline.export(for_device="cuda:0")
        assert caught.value.reason == "bad_uuid"
