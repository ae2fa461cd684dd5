"""A host wait for a semaphore of a process that has ended raises before its timeout, and names the process."""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from support.system_types import BINARY, TIMELINE

import xsem
from xsem import ipc
from xsem.types import SemaphoreDesc, SemaphoreHandleType

LONG_S = 100.0   # longer than a test may take
SENDER = """
import socket, sys
import xsem
from xsem.types import SemaphoreHandleType
def connected():
    if sys.platform == "win32":
        return xsem.ipc.connect(sys.argv[1], timeout_s=50)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
    return sock
with xsem.open_device("host") as device, connected() as sock:
    semaphore = device.create_semaphore(SemaphoreHandleType(sys.argv[2]))
    with semaphore.export() as desc:
        xsem.ipc.send(sock, desc)
    for line in sys.stdin:
        semaphore.host_signal(int(line))
        print("signalled", flush=True)
"""


class Sender:
    """A process that sent a semaphore of its own."""

    def __init__(self, folder: Path, type: SemaphoreHandleType = TIMELINE) -> None:
        with self._connected(folder, type) as connection:
            self.message = ipc.receive(connection, timeout_s=50)
        self.desc = self.message.semaphores[0]

    def _connected(self, folder: Path, type: SemaphoreHandleType) -> Any:
        if sys.platform == "win32":
            with ipc.listen() as pipe:
                self._start(pipe.name, type)
                return pipe.accept(timeout_s=50)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen()
            self._start(str(folder / "socket"), type)
            listener.settimeout(50)
            return listener.accept()[0]

    def _start(self, place: str, type: SemaphoreHandleType) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", SENDER, place, type.value],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def signal(self, value: int) -> None:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        print(value, file=stdin, flush=True)
        assert stdout.readline() == "signalled\n"

    def end(self) -> None:
        self.process.kill()
        self.process.wait(50)

    def close(self) -> None:
        self.end()
        self.message.close()
        pipes: list[IO[str] | None] = [self.process.stdin, self.process.stdout]
        for pipe in pipes:
            if pipe is not None:
                pipe.close()


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Sender]:
    made = Sender(tmp_path)
    yield made
    made.close()


@pytest.fixture
def device() -> Iterator[xsem.Device]:
    with xsem.open_device("host") as opened:
        yield opened


def check(failure: pytest.ExceptionInfo[xsem.WaitTimeoutError], sender: Sender) -> None:
    assert failure.value.reason == "peer_ended"
    assert f"process {sender.process.pid}, which sent" in str(failure.value)
    assert failure.value.pending[0].operation == "wait"


def test_message_and_descriptor_name_their_sender(sender: Sender) -> None:
    assert sender.desc.peer == sender.message.peer
    assert sender.message.peer is not None
    assert sender.message.peer.pid == sender.process.pid
    assert sender.message.peer.alive
    if sys.platform != "win32":
        sender.process.send_signal(signal.SIGSTOP)
        assert sender.message.peer.alive
        sender.process.kill()
        os.waitid(os.P_PID, sender.process.pid, os.WEXITED | os.WNOWAIT)
        assert not sender.message.peer.alive   # a zombie has ended
    sender.end()
    assert not sender.message.peer.alive


def test_later_process_with_the_same_number_is_another_peer() -> None:
    peer = xsem.Peer.of(os.getpid())
    assert peer.alive
    assert peer.started is not None
    assert not dataclasses.replace(peer, started=peer.started - 1).alive
    assert pickle.loads(pickle.dumps(peer)) == peer


def test_host_wait_ends_when_the_sender_ends(sender: Sender, device: xsem.Device) -> None:
    semaphore = device.import_semaphore(sender.desc)
    sender.signal(2)
    semaphore.host_wait(2, timeout_s=LONG_S)
    sender.end()
    semaphore.host_wait(2, timeout_s=LONG_S)   # reached before
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        semaphore.host_wait(3, timeout_s=LONG_S)
    check(failure, sender)
    assert failure.value.pending[0].current_value == 2


def test_host_wait_in_progress_ends_at_the_death_of_the_sender(sender: Sender, device: xsem.Device) -> None:
    semaphore = device.import_semaphore(sender.desc)
    with pytest.raises(xsem.WaitTimeoutError) as timeout:
        semaphore.host_wait(3, timeout_s=0.2)   # four slices: a running sender ends no wait
    assert timeout.value.reason == "timeout"
    sender.process.kill()   # the wait can begin before or after the end
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        semaphore.host_wait(3, timeout_s=LONG_S)
    check(failure, sender)


def test_binary_semaphore_of_an_ended_sender_ends_the_wait(tmp_path: Path, device: xsem.Device) -> None:
    sender = Sender(tmp_path, BINARY)
    semaphore = device.import_semaphore(sender.desc)
    sender.close()
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        semaphore.host_wait(timeout_s=LONG_S)
    check(failure, sender)


def test_list_and_event_behind_a_wait_for_an_ended_sender_end(sender: Sender, device: xsem.Device) -> None:
    semaphore = device.import_semaphore(sender.desc)
    commands, event = device.create_command_list(), device.create_event()
    commands.append_wait(semaphore, 5, signal_event=event)
    sender.end()
    for wait in (commands.synchronize, event.wait):
        with pytest.raises(xsem.WaitTimeoutError) as failure:
            wait(timeout_s=LONG_S)
        check(failure, sender)
    semaphore.host_signal(5)   # nothing was cancelled
    commands.synchronize(timeout_s=LONG_S)


def test_signal_of_this_process_still_meets_the_wait(sender: Sender, device: xsem.Device) -> None:
    semaphore = device.import_semaphore(sender.desc)
    gate = device.create_semaphore(TIMELINE)
    signals, waits = device.create_command_list(), device.create_command_list()
    signals.append_wait(gate, 1)
    signals.append_signal(semaphore, 5)
    waits.append_wait(semaphore, 5)
    sender.end()
    for wait in (waits.synchronize, lambda *, timeout_s: semaphore.host_wait(5, timeout_s=timeout_s)):
        with pytest.raises(xsem.WaitTimeoutError) as failure:
            wait(timeout_s=0.2)
        assert failure.value.reason == "timeout"
        assert f"process {sender.process.pid}" in str(failure.value)   # it is named, but ends no wait
    gate.host_signal(1)
    waits.synchronize(timeout_s=LONG_S)


def test_descriptor_without_its_peer_waits_to_the_end(sender: Sender, device: xsem.Device) -> None:
    semaphore = device.import_semaphore(dataclasses.replace(sender.desc, peer=None))
    sender.end()
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        semaphore.host_wait(3, timeout_s=0.2)
    assert failure.value.reason == "timeout"


def test_bad_peer_is_refused() -> None:
    with pytest.raises(xsem.BadArgumentError) as failure:
        SemaphoreDesc(type=SemaphoreHandleType.SYNC_FD, handle=-1, peer=5)  # type: ignore[arg-type]
    assert failure.value.reason == "not_a_peer"


# ---- other channels
@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork() is missing")
def test_socket_pair_names_the_sender_only_with_credentials() -> None:
    so_passcred = 16
    near, far = socket.socketpair()
    with near, far:
        ipc.send(far, SemaphoreDesc.sync_fd(-1))
        assert ipc.receive(near).peer is None
        near.setsockopt(socket.SOL_SOCKET, so_passcred, 1)
        child = os.fork()
        if child == 0:
            ipc.send(far, SemaphoreDesc.sync_fd(-1))
            os._exit(0)
        message = ipc.receive(near, timeout_s=50)
        assert message.peer is not None
        assert message.semaphores[0].peer == message.peer
        assert message.peer.pid == child
        os.waitpid(child, 0)


def _send(connection: multiprocessing.connection.Connection) -> None:
    with xsem.open_device("host") as device:
        semaphore = device.create_semaphore(TIMELINE)
        with semaphore.export() as desc:
            connection.send(desc)
            connection.recv()
    time.sleep(LONG_S)


def test_pickled_descriptor_names_its_sender(device: xsem.Device) -> None:
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=_send, args=(far,))
    process.start()
    far.close()
    with near, near.recv() as desc:
        assert desc.peer.pid == process.pid
        near.send("received")
        semaphore = device.import_semaphore(desc)
        process.kill()
        with pytest.raises(xsem.WaitTimeoutError) as failure:
            semaphore.host_wait(1, timeout_s=LONG_S)
        assert failure.value.reason == "peer_ended"
    process.join()
    process.close()
