"""Rings of frames on the host device: order, waits, bad input, and processes that are killed."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.fixtures import device, refused
from support.kills import (
    POLICIES,
    Policy,
    consumers_are_killed,
    consumers_in_processes,
    fork_server,
    producers_are_killed,
)
from support.open_files import numbers
from support.waiting import until

import xsem
from xsem import ipc
from xsem.errors import (
    BadArgumentError,
    BadHandleError,
    BusyError,
    ReleasedError,
    RingEndedError,
    UnsupportedError,
    WaitTimeoutError,
)

__all__ = ["device", "fork_server"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rings are made on Linux only")
BOUND_S = 60.0
IMAGE = xsem.MipmapDesc(extent=(4, 4, 0), format="uint8", channels=4)


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Policy:
    return request.param  # type: ignore[no-any-return]


def made(device: xsem.Device, **more: Any) -> xsem.FrameRing:
    return xsem.FrameRing.create(device, **{"shape": (64,), "dtype": "uint8", **more})


def joined(device: xsem.Device, ring: xsem.FrameRing) -> xsem.FrameReader:
    with ring.export() as message:
        return xsem.FrameRing.open(device, message)


def write(ring: xsem.FrameRing, stream: xsem.CommandList | None = None, timeout_s: float = BOUND_S) -> int:
    with ring.write(stream, timeout_s=timeout_s) as frame:
        frame.payload = str(frame.number).encode()
        if stream is None:
            frame.numpy()[:] = frame.number % 251
        else:
            stream.append_fill(frame.buffer, bytes([frame.number % 251]))
        return frame.number


def is_whole(frame: xsem.Frame) -> bool:
    return frame.payload == str(frame.number).encode() and bool((frame.numpy() == frame.number % 251).all())


def read(reader: xsem.FrameReader, timeout_s: float = BOUND_S) -> int:
    with reader.read(timeout_s=timeout_s) as frame:
        assert is_whole(frame)
        return frame.number


# ---- frames
def test_each_consumer_gets_every_frame_from_its_joining_on(device: xsem.Device) -> None:
    with made(device) as ring, joined(device, ring) as first:
        assert [write(ring), write(ring)] == [1, 2]
        with joined(device, ring) as second:
            write(ring)
            assert [read(first) for _ in range(3)] == [1, 2, 3]
            assert read(second) == 3


def test_newest_frame_is_read_and_the_others_are_counted(device: xsem.Device) -> None:
    with made(device, policy="mailbox") as ring, joined(device, ring) as reader:
        assert write(ring) == 1
        assert read(reader) == 1
        for _ in range(5):
            write(ring)
        with reader.read() as frame:
            assert (frame.number, frame.skipped) == (6, 4)
            for _ in range(20):   # the slot that is being read stays
                write(ring)
            assert is_whole(frame)
        assert read(reader) == 26


def test_producer_waits_for_the_slowest_consumer(device: xsem.Device) -> None:
    with made(device, slots=2) as ring, joined(device, ring) as reader:
        write(ring)
        write(ring)
        refused(lambda: write(ring, timeout_s=0.05), "timeout", WaitTimeoutError)
        assert read(reader) == 1
        assert write(ring) == 3


def test_mailbox_waits_only_if_all_slots_are_held(device: xsem.Device) -> None:
    with (made(device, policy="mailbox", slots=2) as ring, joined(device, ring) as reader):
        write(ring)
        with reader.read():
            write(ring)
            refused(lambda: write(ring, timeout_s=0.05), "timeout", WaitTimeoutError)
        assert write(ring) == 3


def test_frame_of_a_failed_block_is_not_published(device: xsem.Device, policy: Policy) -> None:
    with made(device, policy=policy) as ring, joined(device, ring) as reader:
        for _ in range(5):
            with pytest.raises(ZeroDivisionError), ring.write():
                raise ZeroDivisionError
        assert write(ring) == 1
        assert read(reader) == 1


def test_work_on_lists_is_ordered_by_the_device(device: xsem.Device, policy: Policy) -> None:
    with made(device, policy=policy) as ring, joined(device, ring) as reader:
        writes, reads = device.create_command_list(), device.create_command_list()
        for _ in range(50):
            number = write(ring, writes)
            copied = device.host_buffer(64)
            with reader.read(reads) as frame:
                assert frame.number <= number
                reads.append_copy(copied, frame.buffer)
                wanted = frame.number % 251
            reads.synchronize()
            assert (copied.numpy() == wanted).all()


def test_host_is_two_rounds_of_slots_ahead_of_lists(device: xsem.Device) -> None:
    with made(device, policy="fifo", slots=3) as ring, joined(device, ring) as reader:
        writes, reads = device.create_command_list(), device.create_command_list()
        gate = device.create_semaphore("HOST_TIMELINE_FD")
        write(ring, writes)
        assert read(reader) == 1
        try:
            for number in range(2, 8):
                write(ring, writes, timeout_s=0)   # the device waits for the slot, and the host does not
                reads.append_wait(gate, number)
                with reader.read(reads) as frame:
                    assert frame.number == number
            with pytest.raises(WaitTimeoutError):
                write(ring, writes, timeout_s=0)
            gate.host_signal(2)
            assert write(ring, writes) == 8
        finally:
            gate.host_signal(8)
        assert read(reader) == 8


def test_lists_and_the_host_take_turns(device: xsem.Device, policy: Policy) -> None:
    with made(device, policy=policy) as ring, joined(device, ring) as reader:
        lists = [None, device.create_command_list(), device.create_command_list()]
        for number in range(1, 40):
            assert write(ring, lists[number % 3]) == number
            with reader.read(lists[(number + number // 3) % 3]) as frame:
                assert frame.number == number


def test_frames_are_awaited(device: xsem.Device, policy: Policy) -> None:
    async def produce(ring: xsem.FrameRing) -> None:
        for _ in range(20):
            async with ring.write(timeout_s=BOUND_S) as frame:
                frame.numpy()[:] = frame.number % 251
                frame.payload = str(frame.number).encode()
            await asyncio.sleep(0)

    async def consume(reader: xsem.FrameReader) -> int:
        last = 0
        while last < 20:
            async with reader.read(timeout_s=BOUND_S) as frame:
                assert is_whole(frame)
                last = frame.number
        return last

    async def both(ring: xsem.FrameRing, reader: xsem.FrameReader) -> None:
        assert (await asyncio.gather(produce(ring), consume(reader)))[1] == 20

    with made(device, policy=policy) as ring, joined(device, ring) as reader:
        asyncio.run(both(ring, reader))


def test_sixty_four_consumers_get_each_frame(device: xsem.Device, policy: Policy) -> None:
    with made(device, policy=policy, consumers=64, slots=66) as ring:
        readers = [joined(device, ring) for _ in range(64)]
        for number in range(1, 4):
            write(ring)
            assert [read(each) for each in readers] == [number] * 64
        refused(lambda: joined(device, ring), "too_many_consumers", BusyError)
        readers.pop().close()
        readers.append(joined(device, ring))
        for each in readers:
            each.close()


@pytest.mark.parametrize("picture", [xsem.Nv12(64, 32), xsem.P010(6, 4)])
def test_picture_has_two_planes(device: xsem.Device, picture: Any) -> None:
    with (xsem.FrameRing.create(device, shape=picture) as ring, joined(device, ring) as reader):
        with ring.write() as frame:
            luma, chroma = frame.cuda()
            assert (luma.shape, chroma.shape) == ((picture.height, picture.width, 1),
                                                  (picture.height // 2, picture.width // 2, 2))
            for number, plane in enumerate(frame.planes, 1):
                plane.numpy()[:] = number
        with reader.read() as frame:
            whole = frame.numpy()
            assert whole.dtype == picture.dtype
            assert (whole[: picture.height] == 1).all()
            assert (whole[picture.height :] == 2).all()
            assert whole.shape == (picture.height * 3 // 2, picture.width)
            refused(lambda: frame.image, "no_image", UnsupportedError)
        refused(lambda: frame.planes, "released", ReleasedError)
        refused(lambda: frame.image, "released", ReleasedError)


def test_slots_are_in_memory_of_another_api(device: xsem.Device) -> None:
    with device.create_memory("HOST_MEMORY_FD", 4096) as memory, memory.export() as desc:
        theirs = memory.map_buffer()
        with made(device, memory=desc) as ring, joined(device, ring) as reader:
            for number in (1, 2, 3, 4):
                write(ring)
                assert theirs.numpy()[number % 3 * 256] == number
                assert read(reader) == number
        refused(lambda: made(device, memory=desc, slots=1000), "bad_size")
        refused(lambda: made(device, memory=desc, memory_type="HOST_MEMORY_FD"), "bad_type")
        refused(lambda: made(device, memory=[desc, desc]), "bad_slots")
        images = {"shape": IMAGE, "dtype": None}
        refused(lambda: made(device, memory=desc, **images), "bad_slots")
        before = numbers()
        refused(lambda: made(device, memory=[desc] * 3, **images), "unsupported", UnsupportedError)   # on `host`
        until(lambda: numbers() <= before)
        desc.close()
        refused(lambda: made(device, memory=desc), "handle_closed", ReleasedError)


# ---- ends
def test_consumers_get_the_frames_that_are_left_and_then_the_end(device: xsem.Device, policy: Policy) -> None:
    with made(device, policy=policy) as ring:
        reader = joined(device, ring)
        write(ring)
        write(ring)
    if policy == "fifo":
        assert read(reader) == 1
    assert read(reader) == 2
    refused(lambda: read(reader), "producer_closed", RingEndedError)
    reader.close()


def test_slow_consumer_is_dropped(device: xsem.Device) -> None:
    with made(device, slots=2, drop_after_s=0.05) as ring, joined(device, ring) as slow:
        write(ring)

        def read_slowly() -> None:
            with slow.read():
                for _ in range(5):
                    write(ring)

        refused(read_slowly, "dropped", RingEndedError)
        refused(lambda: read(slow), "dropped", RingEndedError)
        slow.close()
        again = joined(device, ring)
        write(ring)
        assert read(again) == 7
        again.close()


def test_nothing_is_left_behind(device: xsem.Device, policy: Policy) -> None:
    before = numbers()
    for _ in range(3):
        with made(device, policy=policy) as ring, joined(device, ring) as reader:
            write(ring)
            read(reader)
    until(lambda: numbers() <= before)


@pytest.mark.filterwarnings("always::ResourceWarning")
def test_end_that_is_dropped_is_named_and_given_up(device: xsem.Device, recwarn: pytest.WarningsRecorder) -> None:
    before = numbers()
    ring = made(device)
    reader = joined(device, ring)
    del ring
    gc.collect()
    with pytest.raises(RingEndedError):
        read(reader)
    del reader
    gc.collect()
    assert {"FrameRing", "FrameReader"} <= {str(each.message).split()[1][1:] for each in recwarn}
    recwarn.clear()   # each has its object
    gc.collect()
    until(lambda: numbers() <= before)


def test_child_of_fork_has_no_ring(device: xsem.Device) -> None:
    with made(device) as ring, joined(device, ring) as reader:
        write(ring)
        child = os.fork()
        if child == 0:
            for act in (functools.partial(write, ring), functools.partial(read, reader)):
                try:
                    act()
                except xsem.ForkedError:
                    continue
                except BaseException:
                    os._exit(2)
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert read(reader) == 1
        assert write(ring) == 2


def test_close_refuses_an_open_block(device: xsem.Device, policy: Policy) -> None:
    with made(device, policy=policy) as ring, joined(device, ring) as reader:
        with ring.write():
            refused(ring.close, "frame_open", BusyError)
            refused(lambda: write(ring), "frame_open", BusyError)
        with reader.read():
            refused(reader.close, "frame_open", BusyError)
            refused(lambda: read(reader), "frame_open", BusyError)
    refused(lambda: write(ring), "released", ReleasedError)
    refused(lambda: read(reader), "released", ReleasedError)
    refused(ring.export, "released", ReleasedError)


def test_frame_is_refused_after_its_block(device: xsem.Device) -> None:
    with made(device) as ring:
        with ring.write() as frame:
            pass
        for act in (frame.numpy, lambda: frame.buffer, frame.__dlpack__, lambda: np.asarray(frame)):
            refused(act, "released", ReleasedError)


# ---- bad input
@pytest.mark.parametrize(("given", "reason"), [
    ({"slots": 0}, "bad_slots"), ({"slots": 1}, "bad_slots"), ({"slots": 1025}, "bad_slots"),
    ({"slots": 2.0}, "not_an_int"), ({"consumers": 0}, "bad_consumers"), ({"consumers": 65}, "bad_consumers"),
    ({"policy": "lifo"}, "bad_policy"), ({"shape": (0,)}, "bad_shape"), ({"shape": (-1,)}, "bad_shape"),
    ({"dtype": "object"}, "bad_dtype"), ({"payload_bytes": 65_537}, "payload_too_long"),
    ({"drop_after_s": 0}, "bad_timeout"), ({"drop_after_s": 1, "policy": "mailbox"}, "bad_timeout"),
    ({"memory_type": "NOTHING"}, "bad_type"), ({"dtype": None}, "bad_dtype"), ({"memory": 3}, "not_a_descriptor"),
    ({"shape": xsem.Nv12(4, 2)}, "bad_dtype"), ({"shape": IMAGE}, "bad_dtype"),
    ({"shape": IMAGE, "dtype": None, "slots": 33}, "bad_slots"),
    ({"shape": IMAGE, "dtype": None}, "not_a_descriptor"),
    ({"shape": IMAGE, "dtype": None, "memory": [3, 3, 3]}, "not_a_descriptor"),
])
def test_bad_ring_is_refused(device: xsem.Device, given: dict[str, Any], reason: str) -> None:
    refused(lambda: made(device, **given), reason)


def test_payload_that_is_too_long_is_refused(device: xsem.Device) -> None:
    with made(device, payload_bytes=3) as ring:
        refused(lambda: ring.write(payload=b"1234").__enter__(), "payload_too_long")
        with ring.write(payload=b"123") as frame:
            with pytest.raises(BadArgumentError):
                frame.payload = b"1234"
            assert frame.payload == b"123"


def changed(message: ipc.Message, **fields: object) -> ipc.Message:
    payload = {**json.loads(message.payload), **fields}
    return dataclasses.replace(message, payload=json.dumps(payload).encode())


@pytest.mark.parametrize("change", [
    lambda each: None,
    lambda each: dataclasses.replace(each, payload=b""),
    lambda each: dataclasses.replace(each, payload=each.payload[:-5]),
    lambda each: dataclasses.replace(each, payload=b"[1, 2]"),
    lambda each: dataclasses.replace(each, payload=b"\xff"),
    lambda each: dataclasses.replace(each, semaphores=each.semaphores[:-1]),
    lambda each: dataclasses.replace(each, memories=each.memories[:1]),
    lambda each: changed(each, kind="another"),
    lambda each: changed(each, slots=4),
    lambda each: changed(each, slots=1),
    lambda each: changed(each, shape=[1 << 40]),
    lambda each: changed(each, shape=None),
    lambda each: changed(each, payload_bytes=1 << 16),
    lambda each: changed(each, extra=1),
    lambda each: changed(each, planes=True),
    lambda each: changed(each, image={}),
    lambda each: changed(each, image={"extent": [4, 4, 0], "format": "uint8", "channels": 4}),
])
def test_message_that_was_cut_or_forged_is_refused(
    device: xsem.Device, change: Callable[[ipc.Message], ipc.Message]
) -> None:
    with made(device) as ring, ring.export() as message:
        before = numbers()
        refused(lambda: xsem.FrameRing.open(device, change(message)), "bad_ring")
        until(lambda: numbers() <= before)


def test_words_of_another_ring_are_refused(device: xsem.Device) -> None:
    with made(device) as ring, made(device, slots=4) as other, ring.export() as message, other.export() as theirs:
        mixed = dataclasses.replace(message, memories=(theirs.memories[0], message.memories[1]))
        refused(lambda: xsem.FrameRing.open(device, mixed), "wrong_magic", BadHandleError)


@pytest.mark.parametrize(("width", "height", "reason"), [
    (3, 2, "bad_shape"), (2, 3, "bad_shape"), (0, 2, "bad_shape"), (65_538, 2, "bad_shape"), (2.0, 2, "not_an_int")])
def test_bad_picture_is_refused(width: Any, height: Any, reason: str) -> None:
    for kind in (xsem.Nv12, xsem.P010):
        refused(functools.partial(kind, width, height), reason)


def test_error_of_a_wrong_object_names_what_to_pass(device: xsem.Device) -> None:
    left, right = socket.socketpair()
    with left, right, device.create_timeline() as timeline, timeline.export() as desc:
        with pytest.raises(xsem.BadArgumentError, match=r"of export\(\) is needed, not Semaphore"):
            ipc.send(left, timeline)  # type: ignore[arg-type]
        with pytest.raises(xsem.BadArgumentError, match=r"of export\(\) is needed, not Semaphore"):
            ipc.Transfer(timeline)  # type: ignore[arg-type]
        ipc.send(left, desc)
        with ipc.receive(right) as received, pytest.raises(xsem.BadArgumentError, match=r"FrameRing\.export"):
            xsem.FrameRing.open(device, received)
        desc.close()
        with pytest.raises(xsem.ReleasedError, match=r"export\(\) returns a new one"):
            device.import_semaphore(desc)
        with pytest.raises(xsem.UnsupportedError, match="or no stream to a ring"):
            device.command_list(5)


def test_ring_is_sent_alone(device: xsem.Device) -> None:
    left, right = socket.socketpair()
    with left, right, made(device) as ring, ring.export() as message:
        before = numbers()
        for given, payload in (((ring, ring), b""), ((message, message.semaphores[0]), b""), ((ring,), b"x")):
            refused(functools.partial(ipc.send, left, *given, payload=payload), "not_a_descriptor")
        ipc.send(left, ring)
        with ipc.receive(right) as received:
            assert received.payload == message.payload
        until(lambda: numbers() <= before)


# ---- other processes
def test_message_goes_through_sockets_tickets_and_pickles(device: xsem.Device) -> None:
    left, right = socket.socketpair()
    with left, right, made(device) as ring, ring.export() as message:
        ipc.send(left, message)
        ticket = ipc.offer(ring)
        with (ipc.receive(right) as first, ipc.claim(ticket) as second, xsem.FrameRing.open(device, first) as one,
              xsem.FrameRing.open(device, second) as other):
            write(ring)
            assert read(one) == read(other) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sixty_four_processes_join(device: xsem.Device) -> None:
    assert consumers_in_processes(device, 64) == 64


ROUNDS = [5, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("killed", [producers_are_killed, consumers_are_killed], ids=["producer", "consumer"])
def test_process_is_killed_at_any_moment(
    device: xsem.Device, policy: Policy, rounds: int, killed: Callable[..., float]
) -> None:
    before = numbers()
    killed(device, policy, rounds)
    until(lambda: numbers() <= before)
