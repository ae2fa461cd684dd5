"""A wait for a semaphore whose every possible signaller has ended raises. Here, this process is the exporter."""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
from support.system_types import BINARY

import xsem
from xsem import ipc
from xsem.types import SemaphoreDesc, Signaller, SignallerProcess

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the receivers are reached by Unix sockets")

LONG_S = 100.0   # longer than a test may take
# Short waits are for waits that must not end early. They last four looks.
SHORT_S = 0.2
BY_SOCKET = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
print("connected", flush=True)
socket.recv_fds(sock, 65536, 8)
print("received", flush=True)
sys.stdin.read()
"""
BY_PAIR = """
import socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
print("connected", flush=True)
socket.recv_fds(sock, 65536, 8)
sock.close()
print("received", flush=True)
sys.stdin.read()
"""
BY_TICKET = """
import sys
from xsem import ipc
print("connected", flush=True)
ipc.claim(sys.stdin.readline().strip())
print("received", flush=True)
sys.stdin.read()
"""


class Receiver:
    """A process that receives one message."""

    def __init__(self, program: str, *arguments: str, pass_fds: tuple[int, ...] = ()) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, pass_fds=pass_fds)
        self.pid = self.process.pid
        self.says("connected")

    def says(self, what: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == what + "\n"

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        print(text, file=self.process.stdin, flush=True)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Connected(Receiver):
    """A receiver behind a socket of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / f"socket{len(list(folder.iterdir()))}"))
            listener.listen()
            super().__init__(BY_SOCKET, listener.getsockname())
            self.sock, _ = listener.accept()

    def send(self, *descs: SemaphoreDesc) -> None:
        ipc.send(self.sock, *descs)
        self.says("received")

    def end(self) -> None:
        super().end()
        self.sock.close()


@pytest.fixture
def device() -> Iterator[xsem.Device]:
    with xsem.open_device("host") as opened:
        yield opened


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[Callable[[], Connected]]:
    made: list[Connected] = []

    def make() -> Connected:
        made.append(Connected(tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def receiver(receivers: Callable[[], Connected]) -> Connected:
    return receivers()


def ended(wait: Callable[[], object], who: str) -> xsem.WaitTimeoutError:
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        wait()
    assert failure.value.reason == "peer_ended"
    assert who in str(failure.value)
    return failure.value


def goes_on(semaphore: xsem.Semaphore) -> None:
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        semaphore.host_wait(7, timeout_s=SHORT_S)
    assert failure.value.reason == "timeout"


def waits_of(device: xsem.Device, semaphore: xsem.Semaphore) -> dict[str, Callable[[], object]]:
    """Return the waits for value 7, each with a long limit."""
    commands, event = device.create_command_list(), device.create_event()
    commands.append_wait(semaphore, 7, signal_event=event)

    async def event_done() -> None:
        async with asyncio.timeout(LONG_S):
            await event

    return {
        "host_wait": lambda: semaphore.host_wait(7, timeout_s=LONG_S),
        "reached": lambda: asyncio.run(semaphore.reached(7, timeout_s=LONG_S)),
        "synchronize": lambda: commands.synchronize(timeout_s=LONG_S),
        "event": lambda: event.wait(timeout_s=LONG_S),
        "await event": lambda: asyncio.run(event_done()),
    }


# ---- the end of a receiver
def test_every_wait_ends_when_the_only_receiver_ends(device: xsem.Device, receiver: Connected) -> None:
    semaphore = device.create_timeline(label="shown")
    with semaphore.export() as desc:
        receiver.send(desc)
    goes_on(semaphore)
    receiver.end()
    for what, wait in waits_of(device, semaphore).items():
        error = ended(wait, f"process {receiver.pid}, which received the semaphore, has ended")
        assert error.pending[0].operation == "wait", what
        assert error.pending[0].signallers == (Signaller(kind="importer", processes=(
            SignallerProcess(pid=receiver.pid, role="received", ended=True),)),), what
        assert error.pending[0].possible_signallers == (
            f"an importer of the exported handle (process {receiver.pid}, which received the semaphore, has ended)",)
    semaphore.host_signal(7)   # nothing was cancelled
    semaphore.host_wait(7)
    asyncio.run(semaphore.reached(7))


def test_await_in_progress_ends_at_the_death_of_the_receiver(device: xsem.Device, receiver: Connected) -> None:
    semaphore = device.create_timeline()
    with semaphore.export() as desc:
        asyncio.run(ipc.asend(receiver.sock, desc))

    async def main() -> None:
        tasks = [asyncio.create_task(semaphore.reached(value, timeout_s=LONG_S)) for value in (9, 7, 8)]
        await asyncio.sleep(SHORT_S)
        assert not any(task.done() for task in tasks)
        receiver.end()
        for task in tasks:
            await asyncio.wait([task], timeout=LONG_S)
            assert isinstance(error := task.exception(), xsem.WaitTimeoutError)
            assert error.reason == "peer_ended"

    asyncio.run(main())


def test_host_wait_for_a_binary_semaphore_ends(device: xsem.Device, receiver: Connected) -> None:
    semaphore = device.create_semaphore(BINARY)
    with semaphore.export() as desc:
        receiver.send(desc)
    receiver.end()
    ended(lambda: semaphore.host_wait(timeout_s=LONG_S), f"process {receiver.pid}")


def test_wait_ends_with_the_last_of_several_receivers(
    device: xsem.Device, receivers: Callable[[], Connected]
) -> None:
    semaphore = device.create_timeline()
    one, two = receivers(), receivers()
    with semaphore.export() as desc:
        one.send(desc)
        two.send(desc)
    one.end()
    goes_on(semaphore)
    two.end()
    ended(lambda: semaphore.host_wait(7, timeout_s=LONG_S),
          f"processes {one.pid} and {two.pid}, which received the semaphore, have ended")
    three = receivers()
    with semaphore.export() as desc:
        three.send(desc)
    goes_on(semaphore)   # a restarted receiver
    three.end()
    ended(lambda: semaphore.host_wait(7, timeout_s=LONG_S), f"process {three.pid}, which received")


# ---- lists that wait for a semaphore without a readable value
@pytest.fixture
def unreadable(device: xsem.Device, receiver: Connected) -> xsem.Semaphore:
    """A binary semaphore that the receiver has. Only the markers of a list tell whether its wait is met."""
    semaphore = device.create_semaphore(BINARY)
    with semaphore.export() as desc:
        receiver.send(desc)
    return semaphore


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("behind", [False, True])
def test_list_ends_at_a_wait_that_its_markers_show(
    device: xsem.Device, receiver: Connected, unreadable: xsem.Semaphore, before: bool, behind: bool
) -> None:
    commands, gate = device.create_command_list(), threading.Event()
    if before:
        commands.append_work(lambda: gate.wait(LONG_S))
        commands.append_barrier()
    commands.append_wait(unreadable)
    if behind:
        commands.append_work(lambda: None)
        commands.append_barrier()
    receiver.end()
    if before:
        list_goes_on(commands)   # the work holds the list
    gate.set()
    error = ended(lambda: commands.synchronize(timeout_s=LONG_S), f"process {receiver.pid}")
    assert error.pending[0].operation == "wait"
    unreadable.host_signal()
    commands.synchronize(timeout_s=LONG_S)


def test_work_behind_a_wait_that_was_met_holds_the_list(
    device: xsem.Device, receiver: Connected, unreadable: xsem.Semaphore
) -> None:
    commands, gate = device.create_command_list(), threading.Event()
    unreadable.host_signal()
    commands.append_wait(unreadable)
    commands.append_work(lambda: gate.wait(LONG_S))
    receiver.end()
    list_goes_on(commands)
    gate.set()
    commands.synchronize(timeout_s=LONG_S)


def test_wait_without_markers_does_not_end_the_wait_for_the_list(
    device: xsem.Device, receiver: Connected
) -> None:
    semaphore, commands, gate = device.create_semaphore(BINARY), device.create_command_list(), threading.Event()
    semaphore.host_signal()
    commands.append_wait(semaphore)   # before a signaller is known
    commands.append_work(lambda: gate.wait(LONG_S))
    with semaphore.export() as desc:
        receiver.send(desc)
    receiver.end()
    list_goes_on(commands)
    gate.set()
    commands.synchronize(timeout_s=LONG_S)


def test_batch_with_a_living_signaller_holds_the_list(
    device: xsem.Device, receiver: Connected, unreadable: xsem.Semaphore, receivers: Callable[[], Connected]
) -> None:
    other, living, commands = device.create_semaphore(BINARY), receivers(), device.create_command_list()
    with other.export() as desc:
        living.send(desc)
    commands.append_wait([unreadable, other], [None, None])
    receiver.end()
    list_goes_on(commands)
    living.end()
    ended(lambda: commands.synchronize(timeout_s=LONG_S), f"process {receiver.pid}")
    for each in (unreadable, other):
        each.host_signal()


def test_readable_wait_behind_work_ends_the_wait_for_the_list(device: xsem.Device, receiver: Connected) -> None:
    semaphore, commands, gate = device.create_timeline(), device.create_command_list(), threading.Event()
    with semaphore.export() as desc:
        receiver.send(desc)
    commands.append_work(lambda: gate.wait(LONG_S))
    commands.append_wait(semaphore, 7)
    receiver.end()
    ended(lambda: commands.synchronize(timeout_s=LONG_S), f"process {receiver.pid}")
    gate.set()
    semaphore.host_signal(7)


def test_list_without_known_signallers_gets_no_markers(device: xsem.Device) -> None:
    semaphore, commands = device.create_semaphore(BINARY), device.create_command_list()
    commands.append_wait(semaphore)
    assert not commands._queue.markers()
    semaphore.host_signal()


def list_goes_on(commands: xsem.CommandList) -> None:
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        commands.synchronize(timeout_s=3 * SHORT_S)   # a wait for a list ends after two looks
    assert failure.value.reason == "timeout"


# ---- other ways of a semaphore
def _fork(_: xsem.Semaphore, desc: SemaphoreDesc) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _read_number(_: xsem.Semaphore, desc: SemaphoreDesc) -> None:
    assert isinstance(desc.handle, xsem.OwnedHandle)
    desc.handle.fileno()


def _detach(_: xsem.Semaphore, desc: SemaphoreDesc) -> None:
    assert isinstance(desc.handle, xsem.OwnedHandle)
    os.close(desc.handle.take().detach())


def _send_to_this_process(_: xsem.Semaphore, desc: SemaphoreDesc) -> None:
    near, far = socket.socketpair()
    with near, far:
        ipc.send(near, desc)


def _offer(_: xsem.Semaphore, desc: SemaphoreDesc) -> Callable[[], object]:
    ticket = ipc.offer(desc)
    return lambda: ipc.claim(ticket).close()


def _pickle(_: xsem.Semaphore, desc: SemaphoreDesc) -> Callable[[], object]:
    data = ForkingPickler.dumps(desc)

    def receive() -> None:
        pickle.loads(data).close()
        resource_sharer.stop(timeout=LONG_S)

    return receive


# Each can return a function that ends the transfer.
UNSEEN: dict[str, Callable[[xsem.Semaphore, SemaphoreDesc], Any]] = {
    "number": _read_number,
    "detached": _detach,
    "packed": lambda _, desc: len(ipc.pack(ipc.Message(semaphores=(desc,), memories=(), payload=b""))),
    "forked": _fork,
    "sent to no known process": _send_to_this_process,
    "offered": _offer,
    "pickled": _pickle,
    "said to be unknown": lambda semaphore, _: semaphore.signalled_by(),
    "said to be this process": lambda semaphore, _: semaphore.signalled_by(xsem.Peer.of(os.getpid())),
}


@pytest.mark.parametrize("way", UNSEEN)
def test_wait_goes_on_if_another_process_can_have_the_semaphore(
    device: xsem.Device, receiver: Connected, way: str
) -> None:
    semaphore = device.create_timeline()
    with semaphore.export() as desc, semaphore.export() as other:
        receiver.send(desc)
        finish = UNSEEN[way](semaphore, other)
        receiver.end()
        goes_on(semaphore)
        if callable(finish):
            finish()


def test_signal_that_is_pending_here_meets_the_wait(device: xsem.Device, receiver: Connected) -> None:
    semaphore, gate = device.create_timeline(), device.create_timeline()
    with xsem.open_device("host") as second, semaphore.export() as desc:
        receiver.send(desc)
        signals = second.create_command_list()
        with gate.export() as of_gate:
            signals.append_wait(second.import_semaphore(of_gate), 1)
        signals.append_signal(second.import_semaphore(desc), 7)   # on another device of this process
        receiver.end()
        goes_on(semaphore)
        gate.host_signal(1)
        semaphore.host_wait(7, timeout_s=LONG_S)
        ended(lambda: semaphore.host_wait(8, timeout_s=LONG_S), f"process {receiver.pid}")


def test_import_in_the_exporting_process_has_the_same_signallers(device: xsem.Device, receiver: Connected) -> None:
    semaphore = device.create_timeline()
    with xsem.open_device("host") as second, semaphore.export() as desc:
        imported = second.import_semaphore(desc)
        goes_on(imported)
        receiver.send(desc)
        goes_on(imported)
        receiver.end()
        ended(lambda: imported.host_wait(7, timeout_s=LONG_S), f"process {receiver.pid}, which received")


def test_released_imports_of_one_handle_are_forgotten(device: xsem.Device) -> None:
    with device.create_timeline().export() as desc:
        kept = [device.import_semaphore(desc) for _ in range(10)]
        for _ in range(200):
            device.import_semaphore(desc).release()
        assert len(kept[0]._state.signallers.users) < 60
        del kept


def test_peer_of_a_descriptor_counts_in_an_import_of_ones_own(device: xsem.Device, receiver: Connected) -> None:
    semaphore = device.create_timeline()
    with semaphore.export() as desc:
        imported = device.import_semaphore(dataclasses.replace(desc, peer=xsem.Peer.of(receiver.pid)))
    goes_on(imported)
    receiver.end()
    ended(lambda: imported.host_wait(7, timeout_s=LONG_S), f"process {receiver.pid}")


# ---- how the receivers are known
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_receiver_behind_a_socket_pair_is_known(device: xsem.Device, kind: socket.SocketKind) -> None:
    semaphore = device.create_timeline()
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    with near, far:   # this process, too, has the far end
        receiver = Receiver(BY_PAIR, str(far.fileno()), pass_fds=(far.fileno(),))
        try:
            with semaphore.export() as desc:
                ipc.send(near, desc)
            receiver.says("received")   # and has closed its end
            goes_on(semaphore)
        finally:
            receiver.end()
        ended(lambda: semaphore.host_wait(7, timeout_s=LONG_S), f"process {receiver.pid}, which received")


def test_process_that_claims_a_ticket_is_known(device: xsem.Device) -> None:
    semaphore = device.create_timeline()
    receiver = Receiver(BY_TICKET)
    try:
        with semaphore.export() as desc:
            receiver.tell(ipc.offer(desc, claims=1, lifetime_s=LONG_S))
        receiver.says("received")
        goes_on(semaphore)
    finally:
        receiver.end()
    ended(lambda: semaphore.host_wait(7, timeout_s=LONG_S), f"process {receiver.pid}, which received")


def test_offer_without_a_claim_leaves_no_signaller(device: xsem.Device, receiver: Connected) -> None:
    semaphore = device.create_timeline()
    with semaphore.export() as desc:
        receiver.send(desc)
        ipc.offer(desc, lifetime_s=SHORT_S)
    receiver.end()
    ended(lambda: semaphore.host_wait(7, timeout_s=LONG_S), f"process {receiver.pid}")   # after the end of the offer


def _receive(queue: Any, given: SemaphoreDesc | None, answers: Any) -> None:
    desc = given or queue.get()
    answers.put("received")
    queue.get()   # until it is killed
    desc.close()


@pytest.mark.parametrize("by_start", [False, True])
def test_process_of_multiprocessing_is_known(device: xsem.Device, by_start: bool) -> None:
    context: Any = multiprocessing.get_context("spawn")
    semaphore = device.create_timeline()
    queue, answers = context.Queue(), context.Queue()
    with semaphore.export() as desc:
        process = context.Process(target=_receive, args=(queue, desc if by_start else None, answers))
        process.start()
        if not by_start:
            queue.put(desc)
        assert answers.get(timeout=LONG_S) == "received"
    goes_on(semaphore)
    process.kill()
    ended(lambda: semaphore.host_wait(7, timeout_s=LONG_S), f"process {process.pid}, which received")
    process.join()
    process.close()
    for each in (queue, answers):
        each.close()
        each.join_thread()
    resource_sharer.stop(timeout=LONG_S)


def test_received_semaphore_that_was_sent_on_has_two_signallers(
    device: xsem.Device, receivers: Callable[[], Connected]
) -> None:
    sender, third = receivers(), receivers()
    semaphore = device.create_timeline()
    with semaphore.export() as exported, ipc.unpack(*_copied(exported)) as message:
        desc = dataclasses.replace(message.semaphores[0], peer=xsem.Peer.of(sender.pid))
        imported = device.import_semaphore(desc)
        third.send(desc)
        sender.end()
        goes_on(imported)
        third.end()
        ended(lambda: imported.host_wait(7, timeout_s=LONG_S), f"process {third.pid}")


def _copied(desc: SemaphoreDesc) -> tuple[bytes, list[int]]:
    data, fds = ipc.pack(ipc.Message(semaphores=(desc,), memories=(), payload=b""))
    return data, [os.dup(fd) for fd in fds]


# ---- signallers that the application names
def test_named_signallers_count_in_place_of_the_noted_ones(
    device: xsem.Device, receivers: Callable[[], Connected]
) -> None:
    semaphore, viewer, writer = device.create_timeline(), receivers(), receivers()
    with semaphore.export() as desc:
        viewer.send(desc)
    semaphore.signalled_by(xsem.Peer.of(viewer.pid), xsem.Peer.of(writer.pid))
    viewer.end()
    goes_on(semaphore)
    writer.end()
    ended(lambda: semaphore.host_wait(7, timeout_s=LONG_S),
          f"processes {viewer.pid} and {writer.pid}, declared to signal the semaphore, have ended")


def test_bad_signaller_is_refused(device: xsem.Device) -> None:
    semaphore = device.create_timeline()
    with pytest.raises(xsem.BadArgumentError) as failure:
        semaphore.signalled_by(os.getpid())  # type: ignore[arg-type]
    assert failure.value.reason == "not_a_peer"


# ---- the limit of an await
def test_await_that_times_out_has_the_diagnosis(device: xsem.Device) -> None:
    semaphore = device.create_timeline(label="shown")
    with pytest.raises(xsem.WaitTimeoutError) as failure:
        asyncio.run(semaphore.reached(7, timeout_s=0.05))
    assert failure.value.reason == "timeout"
    (pending,) = failure.value.pending
    assert (pending.operation, pending.value, pending.current_value) == ("wait", 7, 0)
    assert "no known signaller" in failure.value.likely_causes[0]
    semaphore.host_signal(7)
    asyncio.run(semaphore.reached(7, timeout_s=0))
    asyncio.run(semaphore.reached(7, timeout_s=10**400))
    with pytest.raises(xsem.BadArgumentError) as refused:
        asyncio.run(semaphore.reached(7, timeout_s=-1))
    assert refused.value.reason == "bad_timeout"
