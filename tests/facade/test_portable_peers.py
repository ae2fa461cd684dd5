"""A wait for a portable timeline ends when the processes that hold it have ended, whichever of them made it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fake_backend import BridgedDriver, fake
from support.open_files import numbers
from support.system_types import MEMORY, TIMELINE
from support.waiting import until

import xsem
from xsem.types import SemaphoreDesc, SemaphoreHandleType

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a timeline")
PORTABLE = SemaphoreHandleType.HOST_TIMELINE_FD
LONG_S = 100.0   # longer than a test may take
SOON_S = 1.0 if sys.platform == "linux" else 5.0
OTHER = """
import os, signal, socket, sys
import xsem, xsem_host.device
from xsem.types import SemaphoreDesc, SemaphoreHandleType
PORTABLE = SemaphoreHandleType.HOST_TIMELINE_FD
def share(sock, creates):
    with xsem.open_device("host") as device:
        if creates:
            semaphore = device.create_semaphore(PORTABLE, initial_value=1)
            with semaphore.export() as desc:
                socket.send_fds(sock, [b"x"], [desc.handle.fileno()])
        else:
            _, [fd], _, _ = socket.recv_fds(sock, 1, 1)
            semaphore = device.import_semaphore(SemaphoreDesc(type=PORTABLE, handle=fd))
            sock.send(b"x")
        value = 1
        commands = device.create_command_list()
        while order := sock.recv(1):
            if order == b"s":
                value += 1
                semaphore.host_signal(value)
            if order == b"a":
                value += 1
                commands.append_signal(semaphore, value)
                commands.synchronize()
            if order == b"r":
                semaphore.release()
            sock.send(b"x")
sock = socket.socket(fileno=int(sys.argv[1]))
if sys.argv[2] != "serve":
    share(sock, sys.argv[2] == "create")
else:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if not order:
            break
        pid = os.fork()
        if pid == 0:
            sock.close()
            share(socket.socket(fileno=fds[0]), order == b"c")
            os._exit(0)
        os.close(fds[0])
        sock.send(pid.to_bytes(4, "little"))
"""


class Server:
    """A process that starts others by fork: a thousand interpreters would take too long."""

    def __init__(self) -> None:
        self._sock, far = socket.socketpair()
        with far:
            self._process = subprocess.Popen([sys.executable, "-c", OTHER, str(far.fileno()), "serve"],
                                             pass_fds=[far.fileno()])

    def start(self, far: socket.socket, *, creates: bool) -> Forked:
        socket.send_fds(self._sock, [b"c" if creates else b"i"], [far.fileno()])
        return Forked(int.from_bytes(self._sock.recv(4), "little"))

    def close(self) -> None:
        self._sock.close()
        self._process.wait(LONG_S)


class Forked:
    """A process of the server."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._peer = xsem.Peer.of(pid)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float) -> None:
        until(lambda: not self._peer.alive, timeout_s)


class Other:
    """A process that shares a portable timeline, whose descriptor went by hand."""

    process: subprocess.Popen[bytes] | Forked

    def __init__(self, device: xsem.Device, *, creates: bool, server: Server | None = None, **exports: Any) -> None:
        near, far = socket.socketpair()
        with far:
            if server is not None:
                self.process = server.start(far, creates=creates)
            else:
                self.process = subprocess.Popen([sys.executable, "-c", OTHER, str(far.fileno()),
                                                 "create" if creates else "import"], pass_fds=[far.fileno()])
        self._sock = near
        self._sock.settimeout(LONG_S)
        if creates:
            _, [fd], _, _ = socket.recv_fds(near, 1, 1)
            self.semaphore = device.import_semaphore(SemaphoreDesc(type=PORTABLE, handle=fd), label="theirs")
            os.close(fd)
        else:
            self.semaphore = device.create_semaphore(PORTABLE, initial_value=1, label="ours")
            with self.semaphore.export(**exports) as desc:
                assert isinstance(desc.handle, xsem.OwnedHandle)
                socket.send_fds(near, [b"x"], [desc.handle.fileno()])
            assert near.recv(1) == b"x"

    def do(self, order: bytes) -> None:
        self._sock.send(order)
        assert self._sock.recv(1) == b"x"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LONG_S)

    def close(self) -> None:
        self.kill()
        self._sock.close()
        self.semaphore.release()


@pytest.fixture
def device() -> Iterator[xsem.Device]:
    with xsem.open_device("host") as opened:
        yield opened


@pytest.fixture(params=[False, True], ids=["importer", "creator"])
def other(request: pytest.FixtureRequest, device: xsem.Device) -> Iterator[Other]:
    made = Other(device, creates=request.param)
    yield made
    made.close()


@contextlib.contextmanager
def raises(reason: str, error: type[xsem.XsemError] = xsem.WaitTimeoutError) -> Iterator[pytest.ExceptionInfo[Any]]:
    with pytest.raises(error) as failure:
        yield failure
    assert failure.value.reason == reason


def host_wait(device: xsem.Device, semaphore: xsem.Semaphore, value: int) -> None:
    semaphore.host_wait(value, timeout_s=LONG_S)


def reached(device: xsem.Device, semaphore: xsem.Semaphore, value: int) -> None:
    asyncio.run(semaphore.reached(value, timeout_s=LONG_S))


def synchronize(device: xsem.Device, semaphore: xsem.Semaphore, value: int) -> None:
    commands = device.create_command_list()
    commands.append_wait(semaphore, value)
    commands.synchronize(timeout_s=LONG_S)


def event_wait(device: xsem.Device, semaphore: xsem.Semaphore, value: int) -> None:
    commands, event = device.create_command_list(), device.create_event()
    commands.append_wait(semaphore, value, signal_event=event)
    event.wait(timeout_s=LONG_S)


def event_await(device: xsem.Device, semaphore: xsem.Semaphore, value: int) -> None:
    commands, event = device.create_command_list(), device.create_event()
    commands.append_wait(semaphore, value, signal_event=event)

    async def wait() -> None:
        await event

    asyncio.run(wait())


WAITS = [host_wait, reached, synchronize, event_wait, event_await]


# ---- both directions
@pytest.mark.parametrize("wait", WAITS)
def test_wait_ends_when_the_other_holder_is_killed(
    device: xsem.Device, other: Other, wait: Callable[[xsem.Device, xsem.Semaphore, int], None]
) -> None:
    other.do(b"s")
    wait(device, other.semaphore, 2)
    other.do(b"a")
    wait(device, other.semaphore, 3)
    other.kill()
    wait(device, other.semaphore, 3)   # reached before
    began = time.monotonic()
    with raises("peer_ended") as failure:
        wait(device, other.semaphore, 4)
    assert time.monotonic() - began < SOON_S
    assert f"process {other.process.pid}, which held the timeline, has ended" in str(failure.value)
    assert failure.value.pending[0].current_value == 3


def test_wait_in_progress_ends_too(device: xsem.Device, other: Other) -> None:
    with raises("timeout"):
        other.semaphore.host_wait(4, timeout_s=0.2)   # four slices: a living holder keeps the wait
    other.process.kill()   # the wait can begin before or after the end
    with raises("peer_ended"):
        other.semaphore.host_wait(4, timeout_s=LONG_S)


def test_holder_that_released_the_timeline_is_gone(device: xsem.Device, other: Other) -> None:
    other.do(b"r")
    with raises("peer_ended") as failure:
        other.semaphore.host_wait(4, timeout_s=LONG_S)
    assert "released it" in str(failure.value)


def test_third_holder_keeps_the_wait(device: xsem.Device) -> None:
    first = Other(device, creates=False)
    with first.semaphore.export() as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        fd = desc.handle.fileno()
        near, far = socket.socketpair()
        third = subprocess.Popen([sys.executable, "-c", OTHER, "0", "import"], stdin=far.fileno())
        socket.send_fds(near, [b"x"], [fd])
    assert near.recv(1) == b"x"
    first.kill()
    with raises("timeout"):
        first.semaphore.host_wait(4, timeout_s=0.3)
    third.kill()
    with raises("peer_ended") as failure:
        first.semaphore.host_wait(4, timeout_s=LONG_S)
    assert str(third.pid) in str(failure.value)
    assert str(first.process.pid) in str(failure.value)
    third.wait(LONG_S)
    near.close()
    far.close()
    first.close()


# ---- what keeps a wait
def test_handle_on_its_way_to_a_further_process_keeps_the_wait(device: xsem.Device) -> None:
    first = Other(device, creates=False)
    with first.semaphore.export() as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        desc.handle.fileno()   # to a process that has not imported it yet
    first.kill()
    with raises("timeout"):
        first.semaphore.host_wait(4, timeout_s=0.3)
    first.semaphore.signalled_by(xsem.Peer(first.process.pid, None))   # the application says who signals
    with raises("peer_ended"):
        first.semaphore.host_wait(4, timeout_s=LONG_S)
    first.close()


def test_timeline_that_no_process_has_joined_waits_to_the_end(device: xsem.Device) -> None:
    semaphore = device.create_semaphore(PORTABLE)
    with raises("timeout"):
        semaphore.host_wait(1, timeout_s=0.2)
    with semaphore.export() as desc:
        semaphore.release()
        again = device.import_semaphore(desc)   # the same process a second time
        with raises("timeout"):
            again.host_wait(1, timeout_s=0.2)


def test_pending_signal_of_this_process_keeps_the_wait(device: xsem.Device, other: Other) -> None:
    gate = device.create_semaphore(TIMELINE)
    signals, waits = device.create_command_list(), device.create_command_list()
    signals.append_wait(gate, 1)
    signals.append_signal(other.semaphore, 5)
    waits.append_wait(other.semaphore, 5)
    other.kill()
    for wait in (waits.synchronize, lambda *, timeout_s: other.semaphore.host_wait(5, timeout_s=timeout_s)):
        with raises("timeout"):
            wait(timeout_s=0.5)
    gate.host_signal(1)
    waits.synchronize(timeout_s=LONG_S)


def test_lower_pending_signal_of_this_process_comes_before_the_end(device: xsem.Device, other: Other) -> None:
    gate = device.create_semaphore(TIMELINE)
    signals, waits = device.create_command_list(), device.create_command_list()
    signals.append_wait(gate, 1)
    signals.append_signal(other.semaphore, 5)
    waits.append_wait(other.semaphore, 10)
    other.kill()
    with raises("peer_ended"):
        waits.synchronize(timeout_s=LONG_S)
    gate.host_signal(1)
    other.semaphore.host_wait(5, timeout_s=LONG_S)
    with raises("peer_ended"):
        waits.synchronize(timeout_s=LONG_S)
    assert other.semaphore.value() == 5


@pytest.mark.parametrize("other", [False], ids=["importer"], indirect=True)   # only the creator exports
def test_second_device_of_this_process_keeps_the_wait(device: xsem.Device, other: Other) -> None:
    with xsem.open_device("host") as second, other.semaphore.export() as desc:
        imported = second.import_semaphore(desc)
        other.kill()
        for each in (other.semaphore, imported):
            with raises("timeout"):
                each.host_wait(4, timeout_s=0.3)
        other.semaphore.release()
        until(lambda: device.releasing() == ())
        with raises("peer_ended"):
            imported.host_wait(4, timeout_s=LONG_S)


def test_message_on_its_way_and_a_living_receiver_keep_the_wait(device: xsem.Device, other: Other) -> None:
    class Transfer:
        open = True

    transfer, signallers = Transfer(), other.semaphore._state.signallers
    signallers.opened(transfer)
    other.kill()
    with raises("timeout"):
        other.semaphore.host_wait(4, timeout_s=0.3)
    transfer.open = False
    with raises("peer_ended"):
        other.semaphore.host_wait(4, timeout_s=LONG_S)
    signallers.receiver(xsem.Peer.of(os.getppid()))
    with raises("timeout"):
        other.semaphore.host_wait(4, timeout_s=0.3)


def test_living_sender_keeps_the_wait_of_its_receiver(device: xsem.Device) -> None:
    with xsem.open_device("host") as maker:
        theirs = maker.create_semaphore(PORTABLE)
        with theirs.export() as desc:
            imported = device.import_semaphore(dataclasses.replace(desc, peer=xsem.Peer.of(os.getppid())))
        theirs.release()
        until(lambda: maker.releasing() == ())
        with raises("timeout"):
            imported.host_wait(1, timeout_s=0.3)


# ---- abandonment
def test_list_behind_a_dead_wait_ends_and_takes_no_more(device: xsem.Device, other: Other) -> None:
    ran = []
    commands, behind, event = device.create_command_list(), device.create_command_list(), device.create_event()
    commands.append_wait(other.semaphore, 4, signal_event=event)
    commands.append_work(lambda: ran.append(1))
    behind.append_wait(other.semaphore, 5)
    other.kill()
    with raises("peer_ended"):
        commands.synchronize(timeout_s=LONG_S)
    acts: list[Callable[[], object]] = [
        commands.synchronize, commands.query, commands.append_barrier, event.wait, event.query, behind.synchronize,
        behind.append_barrier]
    for act in acts:
        with raises("abandoned", xsem.DriverError) as failure:
            act()
        assert "was abandoned" in str(failure.value)
    until(lambda: ran == [1])   # the device ran the work, and its objects lived so long
    fresh = device.create_command_list()
    appends: list[Callable[[], None]] = [
        lambda: other.semaphore.host_signal(9), lambda: fresh.append_signal(other.semaphore, 9),
        lambda: fresh.append_wait(other.semaphore, 9)]
    for refused in appends:
        with raises("abandoned", xsem.ReleasedError):
            refused()
    assert other.semaphore.value() == 1
    fresh.append_wait(other.semaphore, 1)   # it had this value
    fresh.synchronize(timeout_s=LONG_S)
    for wait in (host_wait, reached):
        with raises("abandoned"):
            wait(device, other.semaphore, 9)


def test_list_of_a_bridged_device_ends_and_fails_too() -> None:
    driver = BridgedDriver()
    with fake(driver=driver) as (device, _):
        other = Other(device, creates=False)
        commands = device.create_command_list()
        answer, buffer = device.create_semaphore(PORTABLE), device.create_memory(MEMORY, 4096).map_buffer()
        commands.append_wait(other.semaphore, 4)
        commands.append_signal(answer, 1)
        commands.append_fill(buffer, b"x")
        other.kill()
        with raises("peer_ended"):
            commands.synchronize(timeout_s=LONG_S)
        until(lambda: driver.host_fences[0].reached)   # the device does not stay stuck
        driver.lists[0].fences[0].reached = True   # the signal, and not the fill
        with raises("abandoned", xsem.DriverError):
            commands.synchronize(timeout_s=LONG_S)
        assert answer.value() == 0   # it would promise what is not there
        buffer.release()
        time.sleep(0.2)   # several looks of the releasing thread
        assert "buffer" in device.releasing()   # the fill is pending
        driver.lists[0].reach_all()
        until(lambda: "buffer" not in device.releasing())
        other.close()


def test_abandonment_by_another_process_fails_the_lists_that_wait(device: xsem.Device) -> None:
    other = Other(device, creates=False)
    with other.semaphore, xsem.open_device("host") as second, other.semaphore.export() as desc:
        lists = [device.create_command_list() for _ in range(4)]
        events = [device.create_event() for _ in lists]
        for commands, event in zip(lists, events, strict=True):
            commands.append_wait(other.semaphore, 1)
            commands.append_wait(other.semaphore, 2, signal_event=event)
        second.import_semaphore(desc).abandon()   # as in another process: it knows nothing of the lists
        acts: list[Callable[[], object]] = [
            events[0].wait, lambda: until(events[1].query), lists[2].synchronize, lambda: until(lists[3].query)]
        for act, commands in zip(acts, lists, strict=True):   # each way to learn of it by itself
            with raises("abandoned", xsem.DriverError):
                act()
            with raises("abandoned", xsem.DriverError):
                commands.append_barrier()
    other.close()


def test_objects_of_a_failed_list_live_until_the_device_has_done_its_work(device: xsem.Device) -> None:
    other, running = Other(device, creates=False), threading.Event()
    memory = device.create_memory(MEMORY, 4096)
    buffer = memory.map_buffer()
    commands = device.create_command_list()
    commands.append_wait(other.semaphore, 4)
    commands.append_work(lambda: running.wait(LONG_S))
    commands.append_fill(buffer, b"x")
    other.kill()
    with raises("peer_ended"):
        commands.synchronize(timeout_s=LONG_S)
    for each in (buffer, memory, commands):
        each.release()
    time.sleep(0.3)   # several looks of the releasing thread
    assert "buffer" in device.releasing()
    running.set()
    until(lambda: device.releasing() == ())
    other.close()


def test_met_waits_survive_an_abandonment(device: xsem.Device) -> None:
    semaphore = device.create_semaphore(PORTABLE)
    commands, event = device.create_command_list(), device.create_event()
    commands.append_signal(semaphore, 3)
    commands.append_wait(semaphore, 3, signal_event=event)
    semaphore.host_wait(3, timeout_s=LONG_S)
    semaphore.abandon()
    event.wait(timeout_s=LONG_S)
    commands.append_barrier()
    commands.synchronize(timeout_s=LONG_S)
    semaphore.host_wait(3)
    assert semaphore.value() == 3


def test_pending_signal_forbids_an_abandonment(device: xsem.Device) -> None:
    semaphore, gate = device.create_semaphore(PORTABLE), device.create_semaphore(TIMELINE)
    commands = device.create_command_list()
    commands.append_wait(gate, 1)
    commands.append_signal(semaphore, 2)
    with raises("signal_pending", xsem.BusyError):
        semaphore.abandon()
    with raises("not_portable", xsem.UnsupportedError):
        gate.abandon()
    gate.host_signal(1)
    commands.synchronize(timeout_s=LONG_S)
    semaphore.abandon()
    assert semaphore.value() == 2


@pytest.mark.parametrize("whole", [False, True], ids=["list", "device"])
def test_release_behind_a_dead_wait_comes_to_its_end(whole: bool) -> None:
    device = xsem.open_device("host")
    other = Other(device, creates=False)
    commands = device.create_command_list()
    commands.append_wait(other.semaphore, 4)
    (device if whole else commands).release()
    time.sleep(0.2)   # several looks of the releasing thread
    assert len(device.releasing()) > 0   # the holder lives
    other.kill()
    until(lambda: device.releasing() == ())
    other.close()
    device.release()


# ---- read-only exports
def test_read_only_holder_waits_and_signals_nothing(device: xsem.Device) -> None:
    semaphore = device.create_semaphore(PORTABLE)
    with semaphore.export(read_only=True) as desc, xsem.open_device("host") as second:
        reader = second.import_semaphore(desc)
        commands = second.create_command_list()
        acts: list[Callable[[], object]] = [
            lambda: reader.host_signal(1), lambda: commands.append_signal(reader, 1),
            lambda: commands.append_signal([reader], [1]), reader.abandon]
        for act in acts:
            with raises("only_waits", xsem.BadArgumentError):
                act()
        assert semaphore.value() == 0
        commands.append_wait(reader, 1)
        semaphore.host_signal(1)
        commands.synchronize(timeout_s=LONG_S)
        reader.host_wait(1)
        assert reader.value() == 1
    with raises("not_portable", xsem.UnsupportedError):
        device.create_semaphore(TIMELINE).export(read_only=True)
    with raises("not_a_bool", xsem.BadArgumentError):
        semaphore.export(read_only=1)  # type: ignore[arg-type]


def test_reader_sees_the_end_of_the_writer_and_the_writer_needs_no_reader(device: xsem.Device) -> None:
    reader_elsewhere = Other(device, creates=False, read_only=True)
    with raises("timeout"):   # its end tells nothing: it could signal nothing
        reader_elsewhere.kill()
        reader_elsewhere.semaphore.host_wait(2, timeout_s=0.3)
    reader_elsewhere.close()
    importer = Other(device, creates=False)
    with importer.semaphore.export(read_only=True) as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        desc.handle.fileno()   # wherever it goes, no signal comes from there
        importer.kill()
        with raises("peer_ended"):
            importer.semaphore.host_wait(2, timeout_s=LONG_S)
    importer.close()
    writer = Other(device, creates=True)
    fd = os.open(f"/proc/self/fd/{writer.semaphore.native_handle}", os.O_RDONLY)
    reader = device.import_semaphore(SemaphoreDesc(type=PORTABLE, handle=fd))
    os.close(fd)
    writer.semaphore.release()
    until(lambda: device.releasing() == ())
    with raises("timeout"):
        reader.host_wait(2, timeout_s=0.3)
    writer.kill()
    with raises("peer_ended"):
        reader.host_wait(2, timeout_s=LONG_S)
    commands = device.create_command_list()
    commands.append_wait(reader, 2)
    with raises("peer_ended"):
        commands.synchronize(timeout_s=LONG_S)
    assert not commands.query()   # a reader cannot end the wait of its list
    fd = os.open(f"/proc/self/fd/{reader.native_handle}", os.O_RDWR)
    with device.import_semaphore(SemaphoreDesc(type=PORTABLE, handle=fd)) as writable:
        os.close(fd)
        writable.abandon()
    with raises("abandoned", xsem.DriverError):
        commands.synchronize(timeout_s=LONG_S)
    writer.close()


# ---- kills at random moments
@pytest.mark.parametrize("rounds", [24, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_kill_at_a_random_moment_ends_each_wait_within_a_second(rounds: int) -> None:
    random.seed(rounds)
    server = Server()
    before = numbers()
    with xsem.open_device("host") as device:
        for number in range(rounds):
            _kill_in_a_round(device, server, number)
        until(lambda: device.releasing() == ())
    until(lambda: numbers() == before)
    server.close()


def _kill_in_a_round(device: xsem.Device, server: Server, number: int) -> None:
    other = Other(device, creates=number % 2 == 1, server=server)
    commands = device.create_command_list()
    commands.append_wait(other.semaphore, 5)
    for _ in range(random.randrange(4)):
        other.do(random.choice([b"s", b"a"]))
    other._sock.send(random.choice([b"s", b"a", b"r"]))   # it is killed in the middle, perhaps
    time.sleep(random.random() * 0.002)
    other.process.kill()
    killed = time.monotonic()
    reason = "met"
    try:
        if number % 3 == 0:
            other.semaphore.host_wait(10, timeout_s=LONG_S)
        elif number % 3 == 1:
            reached(device, other.semaphore, 10)
        else:
            commands.synchronize(timeout_s=LONG_S)
    except xsem.WaitTimeoutError as error:
        reason = error.reason
    assert time.monotonic() - killed < SOON_S
    assert reason == ("met" if number % 3 == 2 and other.semaphore.value() >= 5 else "peer_ended")
    commands.release()
    other.close()
