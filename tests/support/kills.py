"""Processes that share a ring or a timeline with this one on any device, and that are killed at any moment.

    python -m support.kills cuda:0 5
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_sharer
from typing import Any, Literal

import pytest

import xsem
from support.waiting import until
from xsem import ipc
from xsem.errors import DriverError, RingEndedError, WaitTimeoutError
from xsem.types import SemaphoreHandleType

__all__ = [
    "POLICIES", "Policy", "consumers_are_killed", "consumers_in_processes", "fork_server", "holders_are_killed",
    "producers_are_killed",
]

Policy = Literal["fifo", "mailbox"]
OWN, OF_HOST = None, "HOST_MEMORY_FD"   # memory of a ring: of the device, or for processes on different devices
POLICIES: tuple[Policy, ...] = ("fifo", "mailbox")
BYTES = 64
BOUND_S = 60.0
BUSY_S = 20.0   # what a busy machine may add to a second
TORN = 3
TIMELINE = SemaphoreHandleType.HOST_TIMELINE_FD
SPAWN = multiprocessing.get_context("forkserver")   # a thousand interpreters would take too long
SPAWN.set_forkserver_preload(["xsem", "xsem_host.device", "numpy"])


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> None:
    """Start the process that forks the others. It belongs to the module, and is older than any use of a GPU."""
    first = SPAWN.Process(target=int)
    first.start()
    first.join()


class Side:
    """A device that writes and reads frames: the host itself, or lists of a GPU."""

    def __init__(self, device: xsem.Device) -> None:
        self.device = device
        on_lists = device.info.backend != "host"
        self.commands = device.create_command_list() if on_lists else None
        self._copied = device.host_buffer(BYTES) if on_lists else None

    def release(self) -> None:
        """Release the list, which a device may have only one of."""
        for each in (self.commands, self._copied):
            if each is not None:
                each.release()
        until(lambda: not self.device.releasing())

    def ring(self, policy: Policy, memory_type: str | None = OWN) -> xsem.FrameRing:
        return xsem.FrameRing.create(self.device, shape=(BYTES,), dtype="uint8", policy=policy, consumers=16,
                                     memory_type=memory_type)

    def write(self, ring: xsem.FrameRing, timeout_s: float = BOUND_S) -> int:
        with ring.write(self.commands, timeout_s=timeout_s) as frame:
            frame.payload = str(frame.number).encode()
            if self.commands is None:
                frame.numpy()[:] = frame.number % 251
            else:
                self.commands.append_fill(frame.buffer, bytes([frame.number % 251]))
            return frame.number

    def read(self, reader: xsem.FrameReader, timeout_s: float = BOUND_S) -> int:
        """Return the number of the frame, or its negative if the frame is torn or stale."""
        with reader.read(self.commands, timeout_s=timeout_s) as frame:
            whole = frame.payload == str(frame.number).encode()
            if self.commands is None or self._copied is None:
                return self._checked(frame, whole, frame.numpy())
            self.commands.append_copy(self._copied, frame.buffer)
        self.commands.synchronize(timeout_s=timeout_s)
        return self._checked(frame, whole, self._copied.numpy())

    @staticmethod
    def _checked(frame: xsem.Frame, whole: bool, read: Any) -> int:
        return frame.number if whole and bool((read == frame.number % 251).all()) else -frame.number


def producer(on: str, policy: Policy, memory_type: str | None, pipe: Any) -> None:
    with xsem.open_device(on) as device:
        side = Side(device)
        ring = side.ring(policy, memory_type)
        with ring.export() as message:
            pipe.send(message)
        pipe.recv()   # the descriptors are received
        while True:
            side.write(ring, timeout_s=1e6)


def consumer(on: str, message: ipc.Message, pipe: Any) -> None:
    with xsem.open_device(on) as device:
        side = Side(device)
        pipe.recv()
        reader = xsem.FrameRing.open(device, message)
        pipe.send("joined")
        while True:
            if side.read(reader, timeout_s=1e6) < 0:
                os._exit(TORN)
            pipe.send_bytes(b"x")


def holder(on: str, pipe: Any) -> None:
    with xsem.open_device(on) as device, contextlib.ExitStack() as made:
        desc = pipe.recv()
        if desc is None:
            there = made.enter_context(device.create_semaphore(TIMELINE))
            pipe.send(made.enter_context(there.export()))
        else:
            there = made.enter_context(device.import_semaphore(desc))
            pipe.send("joined")
        pipe.recv()
        commands = device.create_command_list()
        for turn in range(1, 1 << 40, 2):
            commands.append_wait(there, turn)
            commands.append_signal(there, turn + 1)
            commands.synchronize(timeout_s=1e6)


class Ahead:
    """Processes that start before they are needed, because a GPU takes long to open."""

    def __init__(self, role: Callable[..., None], *arguments: Any, ahead: int) -> None:
        self._role, self._arguments = role, arguments
        self.started = [self._start() for _ in range(ahead)]

    def _start(self) -> tuple[Any, Any]:
        near, far = SPAWN.Pipe()
        process = SPAWN.Process(target=self._role, args=(*self._arguments, far), daemon=True)
        process.start()
        far.close()
        return process, near

    @contextlib.contextmanager
    def next(self) -> Iterator[tuple[Any, Any]]:
        """Give a process and its pipe for the block. Both are gone after it."""
        self.started.append(self._start())
        process, pipe = self.started.pop(0)
        try:
            yield process, pipe
        finally:
            self._end(process, pipe)

    def _end(self, process: Any, pipe: Any) -> None:
        process.kill()
        process.join()
        process.close()
        pipe.close()

    def close(self) -> None:
        while self.started:
            self._end(*self.started.pop())


def kill_soon(process: Any, killed_s: list[float]) -> None:
    """Kill the process within 20 ms. `killed_s` gets 0 at once, and then the time of the kill in its place."""
    killed_s.append(0.0)

    def kill() -> None:
        killed_s[0] = time.monotonic()
        process.kill()

    threading.Timer(random.uniform(0, 0.02), kill).start()


def producers_are_killed(
    device: xsem.Device, policy: Policy, rounds: int, ahead: int = 0, on: str | None = None
) -> float:
    """Kill producers while frames are read. Return the longest time from a kill to the end of the reader's waits.

    `on` is their device, if it is another one than the reader's; also below.
    """
    side, slowest = Side(device), 0.0
    ahead_of = Ahead(producer, on or device.info.id, policy, OF_HOST if on else OWN, ahead=ahead)
    for _ in range(rounds):
        with ahead_of.next() as (process, pipe):
            with pipe.recv() as message:
                reader = xsem.FrameRing.open(device, message)
            pipe.send("go")
            killed_s, last = list[float](), 0
            with pytest.raises((RingEndedError, DriverError, WaitTimeoutError)) as caught:
                while True:
                    number = side.read(reader)
                    assert number == last + 1 or (policy == "mailbox" and number > last)
                    last = number
                    if not killed_s:
                        kill_soon(process, killed_s)
            slowest = max(slowest, time.monotonic() - killed_s[0])
            if isinstance(caught.value, RingEndedError):
                assert caught.value.reason == "producer_ended"
            else:   # a list waited for a frame whose signal never came
                assert caught.value.reason in ("abandoned", "peer_ended"), caught.value
                assert side.commands is not None
                side.release()
                side = Side(device)
            reader.close()
    ahead_of.close()
    side.release()
    assert slowest < 1 + BUSY_S
    return slowest


def consumers_are_killed(
    device: xsem.Device, policy: Policy, rounds: int, ahead: int = 0, on: str | None = None
) -> float:
    """Kill consumers while frames go to another one. Return the longest time that a frame took meanwhile."""
    writes, reads = Side(device), Side(device)
    with writes.ring(policy, OF_HOST if on else OWN) as ring, ring.export() as message:
        with ring.export() as ours:
            other = xsem.FrameRing.open(device, ours)
        going, longest, failed = True, 0.0, []

        def go_on() -> None:
            nonlocal longest
            last = 0
            try:
                while going:
                    began = time.monotonic()
                    writes.write(ring)
                    number = reads.read(other)
                    longest = max(longest, time.monotonic() - began)
                    assert number == last + 1 or (policy == "mailbox" and number > last)
                    last = number
            except BaseException as error:
                failed.append(error)

        ahead_of = Ahead(consumer, on or device.info.id, message, ahead=ahead)
        thread = threading.Thread(target=go_on)
        thread.start()
        for _ in range(rounds):
            with ahead_of.next() as (process, pipe):
                pipe.send("go")
                assert pipe.recv() == "joined"
                until(lambda pipe=pipe: pipe.poll() or failed)   # type: ignore[misc]   # it has read a frame
                assert not failed, failed
                time.sleep(random.uniform(0, 0.01))
                process.kill()
                process.join()
                assert process.exitcode == -signal.SIGKILL
        going = False
        thread.join(BOUND_S)
        ahead_of.close()
        assert not failed, failed
        other.close()
    writes.release()
    reads.release()
    assert longest < 1 + BUSY_S
    return longest


def consumers_in_processes(device: xsem.Device, count: int) -> int:
    """Return in how many processes a consumer has read the first frame."""
    side = Side(device)
    with xsem.FrameRing.create(device, shape=(BYTES,), dtype="uint8", consumers=count) as ring:
        with ring.export() as message:
            all_of = Ahead(consumer, device.info.id, message, ahead=count)
            for _, pipe in all_of.started:
                pipe.send("go")
            for _, pipe in all_of.started:
                assert pipe.recv() == "joined"
        side.write(ring)
        read = sum(bool(pipe.poll(BOUND_S) and pipe.recv_bytes() == b"x") for _, pipe in all_of.started)
        all_of.close()
    side.release()
    return read


def holders_are_killed(device: xsem.Device, rounds: int, ahead: int = 0, on: str | None = None) -> float:
    """Kill holders of a timeline that the device waits for. Return the longest time from a kill to a wait's end."""
    ahead_of, slowest = Ahead(holder, on or device.info.id, ahead=ahead), 0.0
    for number in range(rounds):
        with ahead_of.next() as (process, pipe):
            if number % 2:
                pipe.send(None)
                with pipe.recv() as desc:
                    here = device.import_semaphore(desc)
            else:
                here = device.create_semaphore(TIMELINE)
                with here.export() as desc:
                    pipe.send(desc)
                    assert pipe.recv() == "joined"
            pipe.send("go")
            commands, turn, killed_s = device.create_command_list(), 1, list[float]()
            kill_soon(process, killed_s)
            with pytest.raises((WaitTimeoutError, DriverError)) as caught:
                while True:
                    commands.append_signal(here, turn)
                    commands.append_wait(here, turn + 1)
                    commands.synchronize(timeout_s=BOUND_S)
                    turn += 2
            slowest = max(slowest, time.monotonic() - killed_s[0])
            assert caught.value.reason in ("peer_ended", "abandoned"), caught.value
            commands.release()
            here.release()
    ahead_of.close()
    resource_sharer.stop()   # the thread that sent descriptors
    until(lambda: not device.releasing())   # no wait of the device is left
    assert slowest < 1 + BUSY_S
    return slowest


def main(name: str, rounds: str) -> None:
    """Kill each role so often, on one device and on the host."""
    with xsem.open_device(name) as device:
        for on in (None, "host"):
            for policy in POLICIES:
                producers_are_killed(device, policy, int(rounds), on=on)
                consumers_are_killed(device, policy, int(rounds), on=on)
            holders_are_killed(device, int(rounds), on=on)


if __name__ == "__main__":
    main(*sys.argv[1:])
