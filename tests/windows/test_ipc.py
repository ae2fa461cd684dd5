"""Descriptors through a pipe of Windows, in one process and between processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from multiprocessing import resource_sharer
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import windows_objects as nt
from support.fixtures import device, refused
from support.waiting import until

import xsem
from xsem import ipc
from xsem.data.file_descriptors import same_open_file
from xsem.errors import (
    BadArgumentError,
    BadHandleError,
    BusyError,
    DriverError,
    ReleasedError,
    UnsupportedError,
    WaitTimeoutError,
)
from xsem.ipc import wire
from xsem.ipc.windows import transit
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = ["device"]

Ends = tuple[ipc.Pipe, ipc.Pipe]


def connected() -> Ends:
    with ipc.listen() as listener:
        ours = ipc.connect(listener.name)
        return ours, listener.accept(timeout_s=nt.BOUND_S)


@pytest.fixture
def ends() -> Iterator[Ends]:
    a, b = connected()
    with a, b:
        yield a, b
    transit.settle_all()


def event_desc(number: Any) -> SemaphoreDesc:
    return SemaphoreDesc.opaque_win32(number, device_uuid=None)


def number_of(desc: SemaphoreDesc | MemoryDesc) -> int:
    assert isinstance(desc.handle, OwnedHandle)
    return desc.handle.fileno()


# ---- messages
def test_handles_names_and_numbers_arrive_in_order(ends: Ends) -> None:
    a, b = ends
    with nt.closing(nt.event()) as event, nt.closing(nt.section()) as section:
        ipc.send(
            a, event_desc(event), MemoryDesc.d3d12_resource(name="Local\\größe", allocation_size=2**40),
            SemaphoreDesc.d3d11_keyed_mutex_kmt(0x4000_0040),
            MemoryDesc.opaque_win32(section, allocation_size=4096, device_uuid=bytes(range(16)), dedicated=True),
            SemaphoreDesc.d3d12_fence(name="n"), payload=b"640x480")
        with ipc.receive(b) as message:
            first, mutex, fence = message.semaphores
            by_name, memory = message.memories
            assert same_open_file(event, number_of(first))
            assert same_open_file(section, number_of(memory))
            assert event != number_of(first)
            assert (mutex.handle, fence.name, by_name.name) == (0x4000_0040, "n", "Local\\größe")
            assert (by_name.allocation_size, by_name.dedicated, memory.dedicated) == (2**40, True, True)
            assert memory.device_uuid == uuid.UUID(bytes=bytes(range(16)))
            assert message.payload == b"640x480"
            assert message.peer == first.peer == b.peer
        ipc.send(b, payload=b"answer")
        assert ipc.receive(a).payload == b"answer"


def test_largest_message_goes_through(ends: Ends) -> None:
    a, b = ends
    descs = [SemaphoreDesc.d3d12_fence(name="ä" * 512) for _ in range(wire.MAX_DESCRIPTORS)]
    payload = bytes(range(256)) * 256
    thread = threading.Thread(target=lambda: ipc.send(a, *descs, payload=payload, timeout_s=nt.BOUND_S))
    thread.start()
    with ipc.receive(b, timeout_s=nt.BOUND_S) as message:
        assert (len(message.semaphores), message.payload) == (wire.MAX_DESCRIPTORS, payload)
    thread.join()


def test_duplicates_of_the_sender_live_until_the_receipt(ends: Ends) -> None:
    a, b = ends
    event = nt.event()
    ipc.send(a, event_desc(event))
    ipc.send(a, event_desc(event))
    assert nt.close(event)   # the message keeps the object
    assert a._transit.messages == 2
    with ipc.receive(b) as message:
        assert message.semaphores[0].handle is not None
        a._transit.settle()
        assert a._transit.messages == 1
    ipc.send(a, payload=b"no handle")
    assert a._transit.messages == 1   # it has no receipt
    ipc.receive(b).close()
    a._transit.settle()
    assert a._transit.messages == 0


def test_closed_pipe_keeps_the_handles_of_its_messages() -> None:
    a, b = connected()
    with b:
        with nt.closing(nt.event()) as event:
            ipc.send(a, event_desc(event))
            a.close()
            with ipc.receive(b) as message:
                assert same_open_file(event, number_of(message.semaphores[0]))
        refused(lambda: ipc.receive(b), "peer_closed")
    transit.settle_all()


# ---- refusals
def test_bad_arguments_of_send_are_refused_before_sending(ends: Ends) -> None:
    a, b = ends
    closed = OwnedHandle(nt.event())
    desc = event_desc(closed)
    closed.close()
    refused(lambda: ipc.send(a, desc), "handle_closed", ReleasedError)
    refused(lambda: ipc.send(a, event_desc(0x7770)), "closed_fd", BadHandleError)
    refused(lambda: ipc.send(a, SemaphoreDesc.d3d12_fence(name="n" * 1025)), "bad_name")
    refused(lambda: ipc.send(a, *[SemaphoreDesc.d3d12_fence(name="n")] * 129), "too_many_descriptors")
    refused(lambda: ipc.send(a, "desc"), "not_a_descriptor")  # type: ignore[arg-type]
    refused(lambda: ipc.send(a, payload=bytes(65537)), "payload_too_long")
    refused(lambda: ipc.send(a, timeout_s=-1), "bad_timeout")
    for wrong in (SemaphoreDesc.sync_fd(-1), SemaphoreDesc.nvscisync(4096)):
        with pytest.raises(UnsupportedError):
            ipc.send(a, wrong)
    with pytest.raises(WaitTimeoutError):
        ipc.receive(b, timeout_s=0)


@pytest.mark.parametrize("name", [
    "", "xsem", "\\\\.\\pipe\\", "\\\\other\\pipe\\x", "\\\\.\\pipe\\a\0b", 7, "\\\\.\\pipe\\" + "x" * 300,
])
def test_bad_name_of_a_pipe_is_refused(name: Any) -> None:
    refused(lambda: ipc.listen(name), "bad_name")
    refused(lambda: ipc.connect(name), "bad_name")


def test_names_exist_once_and_without_a_listener_not() -> None:
    with ipc.listen() as listener:
        if not nt.under_wine():   # Wine 8 ignores FILE_FLAG_FIRST_PIPE_INSTANCE
            refused(lambda: ipc.listen(listener.name), "name_in_use", BusyError)
    refused(lambda: ipc.connect(listener.name), "no_listener")
    refused(lambda: listener.accept(), "handle_closed", ReleasedError)


def test_time_limits_name_what_is_missing(ends: Ends) -> None:
    a, b = ends
    with ipc.listen() as listener, pytest.raises(WaitTimeoutError, match=r"no process connected for 0\.05 s"):
        listener.accept(timeout_s=0.05)
    with pytest.raises(WaitTimeoutError, match=r"the peer sent nothing for 0\.05 s"):
        ipc.receive(b, timeout_s=0.05)
    sent = 0
    with pytest.raises(WaitTimeoutError, match="the peer does not read"):
        while sent < 1000:
            ipc.send(a, payload=bytes(60_000), timeout_s=0.2)
            sent += 1
    for _ in range(sent):   # a message is sent as a whole or not at all
        assert len(ipc.receive(b).payload) == 60_000
    with pytest.raises(WaitTimeoutError):
        ipc.receive(b, timeout_s=0.05)


def test_listener_that_does_not_accept_is_busy() -> None:
    with ipc.listen() as listener, ipc.connect(listener.name), pytest.raises(WaitTimeoutError, match="accepted no"):
        ipc.connect(listener.name, timeout_s=0.05)


def test_sockets_and_their_calls_are_unavailable(ends: Ends) -> None:
    import socket

    with pytest.raises(UnsupportedError):
        ipc.receive_fds(ends[0], 1, 1)
    with socket.socket() as sock, pytest.raises(UnsupportedError, match=r"xsem\.ipc\.connect"):
        ipc.send(sock)


def test_closed_pipe_is_refused(ends: Ends) -> None:
    a, b = ends
    a.close()
    a.close()
    refused(lambda: ipc.send(a), "handle_closed", ReleasedError)
    refused(lambda: ipc.receive(a), "handle_closed", ReleasedError)
    refused(lambda: ipc.receive(b), "peer_closed")
    refused(lambda: ipc.send(b), "peer_closed")


# ---- messages of other senders
def test_longer_message_is_refused_as_a_whole(ends: Ends) -> None:
    a, b = ends
    thread = threading.Thread(target=nt.write_to_pipe, args=(a, bytes(wire.MAX_NT_MESSAGE_BYTES + 70_000)))
    thread.start()
    refused(lambda: ipc.receive(b), "message_truncated")
    thread.join()
    ipc.send(a, payload=b"next")
    assert ipc.receive(b).payload == b"next"


def test_closed_number_of_the_sender_is_named(ends: Ends) -> None:
    a, b = ends
    with nt.closing(nt.event()) as event:
        nt.write_to_pipe(a, wire.encode_nt([event_desc(event), event_desc(event)], [event, 0x7770], b"", event))
        before = nt.handle_count()
        refused(lambda: ipc.receive(b), "closed_fd", BadHandleError)
        assert nt.handle_count() == before


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_bytes_crash_the_receiver_or_leak(data: st.DataObject, ends: Ends) -> None:
    """Changed messages with open and closed numbers, and with arbitrary bytes."""
    a, b = ends
    with nt.closing(nt.event()) as event, nt.closing(nt.counting_semaphore()) as receipts:
        descs: list[SemaphoreDesc | MemoryDesc] = [
            event_desc(event), SemaphoreDesc.timeline_win32(name="Local\\n", device_uuid=None),
            MemoryDesc.opaque_win32(event, allocation_size=4096, device_uuid=None),
            SemaphoreDesc.opaque_win32_kmt(0x4000_0040, device_uuid=None)]
        message = bytearray(wire.encode_nt(descs, [event, None, event, None], b"payload", receipts))
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(0, len(message) - 1))
            message[at] = data.draw(st.integers(0, 255))
        cut = data.draw(st.sampled_from([0, 0, 1, 40]))
        before = nt.handle_count()
        nt.write_to_pipe(a, bytes(message[:len(message) - cut]) or b"x")
        with contextlib.suppress(BadArgumentError, BadHandleError, BusyError, DriverError):
            ipc.receive(b).close()
        assert nt.handle_count() == before


def test_handle_count_is_flat_over_many_messages(ends: Ends, device: xsem.Device) -> None:
    """Half of the messages are refused by the receiver, or their objects by the import."""
    a, b = ends
    with nt.closing(nt.event()) as good, nt.closing(nt.event(manual=True)) as bad:
        refusing = wire.encode_nt([event_desc(good)] * 2, [good, 0x7770], b"", good)

        def some(count: int) -> int:
            for turn in range(count):
                ipc.send(a, event_desc(good))
                with ipc.receive(b) as message:
                    device.import_semaphore(message.semaphores[0]).release()
                if turn % 2:
                    nt.write_to_pipe(a, refusing)
                    with pytest.raises(BadHandleError):
                        ipc.receive(b)
                    continue
                ipc.send(a, event_desc(bad))
                with ipc.receive(b) as message, pytest.raises(BadHandleError):
                    device.import_semaphore(message.semaphores[0])
            a._transit.settle()
            return nt.handle_count()

        before = some(10)
        assert some(1000) <= before


# ---- two processes
def spawned(target: Callable[..., None], *args: Any) -> Any:
    child = multiprocessing.get_context("spawn").Process(target=target, args=args)
    child.start()
    return child


def ended_well(child: Any) -> None:
    child.join(nt.BOUND_S)
    assert child.exitcode == 0
    child.close()


def test_frames_between_two_processes(device: xsem.Device) -> None:
    turns = device.create_semaphore(xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32)
    done = device.create_semaphore(xsem.SemaphoreHandleType.OPAQUE_WIN32)
    memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_WIN32, 8192)
    view = memory.map_buffer().numpy()
    commands = device.create_command_list()
    frames = 50
    with ipc.listen() as listener:
        child = spawned(nt.consume_from_pipe, listener.name, frames)
        with listener.accept(timeout_s=nt.BOUND_S) as pipe:
            assert pipe.peer.pid == child.pid
            with turns.export() as one, done.export() as two, memory.export() as three:
                ipc.send(pipe, one, two, three)
            for frame in range(1, frames + 1):
                view[:] = frame
                commands.append_signal(turns, frame)
                commands.append_wait(done)
                commands.synchronize(timeout_s=nt.BOUND_S)
                assert (view == 100 + frame).all()
            assert ipc.receive(pipe, timeout_s=nt.BOUND_S).payload == b"done"
            ended_well(child)
            error = refused(lambda: ipc.receive(pipe), "peer_closed")
            assert "has ended" in str(error)
    transit.settle_all()


def test_killed_peer_is_named() -> None:
    with ipc.listen() as listener, nt.closing(nt.event()) as event:
        child = spawned(nt.connect_and_sleep, listener.name)
        with listener.accept(timeout_s=nt.BOUND_S) as pipe:
            with ipc.receive(pipe, timeout_s=nt.BOUND_S) as message:   # the handle outlives its sender
                pid = child.pid
                until(lambda: nt.is_signalled(number_of(message.semaphores[1])))   # it has sent all
                ipc.send(pipe, event_desc(event))
                child.kill()
                child.join(nt.BOUND_S)
                child.close()
                assert nt.is_open(number_of(message.semaphores[0]))
                assert not pipe.peer.alive
            assert ipc.receive(pipe).payload == b"last"
            error = refused(lambda: ipc.receive(pipe), "sender_ended")   # its message with a handle
            assert f"process {pid}" in str(error)
            error = refused(lambda: ipc.receive(pipe), "peer_closed")
            assert f"process {pid} has ended" in str(error)
            refused(lambda: ipc.send(pipe, event_desc(event)), "peer_closed")
        assert not pipe._transit.messages


def test_host_wait_for_an_ended_peer_ends_early(device: xsem.Device) -> None:
    with ipc.listen() as listener:
        child = spawned(nt.connect_and_sleep, listener.name)
        with listener.accept(timeout_s=nt.BOUND_S) as pipe, ipc.receive(pipe, timeout_s=nt.BOUND_S) as message:
            semaphore = device.import_semaphore(message.semaphores[0])
            child.kill()
            child.join(nt.BOUND_S)
            child.close()
            began = time.monotonic()
            error = refused(lambda: semaphore.host_wait(timeout_s=600), "peer_ended", WaitTimeoutError)
            assert time.monotonic() - began < nt.BOUND_S
            assert str(pipe.peer.pid) in str(error)


def test_host_wait_ends_when_the_receiver_of_the_semaphore_ends(device: xsem.Device) -> None:
    semaphore = device.create_semaphore(xsem.SemaphoreHandleType.OPAQUE_WIN32)
    with ipc.listen() as listener:
        child = spawned(nt.connect_and_sleep, listener.name)
        with listener.accept(timeout_s=nt.BOUND_S) as pipe:
            with semaphore.export() as desc:
                ipc.send(pipe, desc)
            refused(lambda: semaphore.host_wait(timeout_s=0.2), "timeout", WaitTimeoutError)
            child.kill()
            child.join(nt.BOUND_S)
            child.close()
            error = refused(lambda: semaphore.host_wait(timeout_s=600), "peer_ended", WaitTimeoutError)
            assert f"process {pipe.peer.pid}, which received" in str(error)


def test_queue_of_multiprocessing_carries_descriptors(device: xsem.Device) -> None:
    context = multiprocessing.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = spawned(nt.echo_from_queue, there, back)
    semaphore = device.create_semaphore(xsem.SemaphoreHandleType.OPAQUE_WIN32)
    with semaphore.export() as desc:
        there.put([desc, {"twice": dataclasses.replace(desc)}])
        with back.get(timeout=nt.BOUND_S) as answer:
            assert same_open_file(number_of(answer), number_of(desc))
            assert answer.peer == xsem.Peer.of(os.getpid())   # the process that sent it first
    semaphore.host_wait(timeout_s=nt.BOUND_S)
    there.put(None)
    ended_well(child)
    for queue in (there, back):
        queue.close()
        queue.join_thread()
    resource_sharer.stop()   # it has a listener in this process


def test_pipes_pools_and_executors_carry_descriptors(device: xsem.Device) -> None:
    context = multiprocessing.get_context("spawn")
    semaphore = device.create_semaphore(xsem.SemaphoreHandleType.OPAQUE_WIN32)
    pids = []
    with semaphore.export() as desc:
        ours, theirs = context.Pipe()
        child = spawned(nt.answer_from_pipe, theirs)
        theirs.close()
        with ours:
            ours.send(desc)
            with ours.recv() as answer:
                assert same_open_file(number_of(answer), number_of(desc))
            ours.send(None)
            semaphore.host_wait(timeout_s=nt.BOUND_S)
        ended_well(child)
        with context.Pool(1) as pool:
            pids.append(pool.apply_async(nt.signalled, (desc,)).get(timeout=nt.BOUND_S))
            semaphore.host_wait(timeout_s=nt.BOUND_S)
            pool.close()
            pool.join()
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
            pids.append(executor.submit(nt.signalled, desc).result(timeout=nt.BOUND_S))
            semaphore.host_wait(timeout_s=nt.BOUND_S)
    assert os.getpid() not in pids
    resource_sharer.stop()   # it has a listener in this process
