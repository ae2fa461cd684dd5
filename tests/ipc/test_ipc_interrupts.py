"""Ctrl-C in `xsem.ipc`: a KeyboardInterrupt before each bytecode of each call. CPython delivers them at fewer places.

After each interrupt every file descriptor is closed once, and the socket is in step or reports an error.
"""

from __future__ import annotations

import array
import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from support.bytecode_interrupts import Interrupt, canaries
from support.open_files import is_open, numbers

import xsem
from xsem import ipc
from xsem.ipc import wire
from xsem.spi import same_open_file
from xsem.types import SemaphoreDesc

STREAM, PACKET = socket.SOCK_STREAM, socket.SOCK_SEQPACKET
SO_PASSPIDFD = 76


def raw(sock: socket.socket, data: bytes, *fds: int) -> None:
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


class Scene:
    """Two connected sockets and a file. `call` is interrupted; `check` returns the errors afterwards."""

    def __init__(self, kind: int) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, kind)
        self.fd = os.memfd_create("sent")

    def desc(self) -> SemaphoreDesc:
        return SemaphoreDesc.opaque_fd(self.fd, device_uuid=None)

    def prepare(self) -> None:
        """Prepare the sockets, before the interrupt."""

    def call(self) -> object:
        """Make the call that is interrupted. The result owns the received descriptors."""
        raise NotImplementedError

    def check(self) -> str:
        """Return the error of the stream, or an empty string."""
        raise NotImplementedError

    def end(self) -> None:
        self.near.close()
        self.far.close()
        os.close(self.fd)


class Receiving(Scene):
    """A message with two descriptors is available."""

    reasons: tuple[str, ...] = ("peer_closed",)   # why the next message may be refused

    def prepare(self) -> None:
        ipc.send(self.far, self.desc(), self.desc(), payload=b"first")

    def call(self) -> object:
        return ipc.receive(self.near, timeout_s=5)

    def check(self) -> str:
        try:
            ipc.send(self.far, self.desc(), payload=b"second")
            with ipc.receive(self.near, timeout_s=5) as message:
                if message.payload not in (b"first", b"second"):
                    return f"the next message is {message.payload!r}"
            if message.payload == b"first":
                with ipc.receive(self.near, timeout_s=5) as message:
                    if message.payload != b"second":
                        return f"after the first comes {message.payload!r}"
        except xsem.XsemError as error:
            return "" if error.reason in self.reasons else f"{error.reason}: {error}"
        return ""


class ReceivingPidfds(Receiving):
    """The same, and the kernel adds a pidfd to each part."""

    def prepare(self) -> None:
        with suppress(OSError):  # Linux before 6.5
            self.near.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, 1)
        super().prepare()


class ReceivingTooMany(Receiving):
    """The available message is refused, and its descriptors are closed."""

    reasons = ("peer_closed", "fd_count")

    def prepare(self) -> None:
        raw(self.far, wire.encode([], [], b""), *[self.fd] * 3)


class ReceivingHalf(Receiving):
    """Half a message is available, and the rest does not come in time."""

    def prepare(self) -> None:
        self.message = wire.encode([self.desc()], [True], b"first")
        raw(self.far, self.message[:40], self.fd)

    def call(self) -> object:
        return ipc.receive(self.near, timeout_s=0)

    def check(self) -> str:
        try:
            self.far.send(self.message[40:])
        except BrokenPipeError:
            return ""
        return super().check()


class ReceivingForeign(Receiving):
    """Bytes that are not a message, and two descriptors, are available."""

    def prepare(self) -> None:
        raw(self.far, b"foreign", self.fd, self.fd)

    def call(self) -> object:
        return ipc.receive_fds(self.near, 7, 2, timeout_s=5)

    def check(self) -> str:
        self.far.setblocking(False)
        try:
            self.far.send(b"another")
            data, handles = ipc.receive_fds(self.near, 7, 2, timeout_s=5)
        except BrokenPipeError:
            return ""  # shut down
        except xsem.BadArgumentError as error:
            return "" if error.reason == "peer_closed" else f"{error.reason}: {error}"
        for handle in handles:
            handle.close()
        return "" if data in (b"foreign", b"another") else f"the next data are {data!r}"


class Sending(Scene):
    """The socket has room for the whole message."""

    payload = b"first"
    whole = 32 + 64 + 5

    def call(self) -> object:
        ipc.send(self.near, self.desc(), payload=self.payload, timeout_s=0)
        return None

    def check(self) -> str:
        self.far.setblocking(False)
        data, ended = b"", False
        try:
            while more := self.far.recv(1 << 20):
                data += more
            ended = True
        except BlockingIOError:
            pass
        if ended:
            try:
                ipc.send(self.near, timeout_s=0)
            except xsem.BadArgumentError as error:
                return "" if error.reason == "peer_closed" else f"{error.reason}: {error}"
            return "it sends to a stream that has ended"
        if len(data) not in (0, self.whole):
            return f"{len(data)} bytes came, and the stream goes on"
        ipc.send(self.near, payload=b"second", timeout_s=0)
        with ipc.receive(self.far, timeout_s=5) as message:
            return "" if message.payload == b"second" else f"the next message is {message.payload!r}"


class SendingHalf(Sending):
    """The socket has room for a part of the message, and the peer does not read."""

    payload = b"x" * 60000
    whole = 32 + 64 + 60000

    def prepare(self) -> None:
        self.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def interrupted_once(make: Callable[[], Scene], at: int) -> tuple[Interrupt, str]:
    """Interrupt the scene's call at that place. Return the place and the error."""
    scene = make()
    interrupt = Interrupt(at)
    try:
        scene.prepare()
        before = numbers()
        raised = interrupt.during(scene.call)
        with canaries() as made:
            # The canaries first, then the traceback: the objects that it kept alive are closed now.
            del raised
            gc.collect()
            wrong = "".join(f"file {number} was closed, " for number, witness in made
                            if not (is_open(number) and same_open_file(number, witness)))
            left = numbers() - before - {each for pair in made for each in pair}
            gone = before - numbers()
        if left or gone:
            wrong += f"left open: {left}, closed: {gone}, "
        wrong += scene.check()
    finally:
        scene.end()
    return interrupt, wrong


def places(make: Callable[[], Scene]) -> int:
    """Interrupt the scene's call at each place in turn, and fail on an error. Return the number of places."""
    bad: list[str] = []
    at = 0
    gc.freeze()  # so that a thousand collections skip the existing objects
    try:
        while True:
            at += 1
            interrupt, wrong = interrupted_once(make, at)
            if not interrupt.where:
                break
            if wrong:
                bad.append(f"place {at}, {interrupt.where}: {wrong}")
    finally:
        gc.unfreeze()
    print(f"{at - 1} places, {len(bad)} bad")
    assert bad == []
    return at - 1


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    before = numbers()
    yield
    assert numbers() == before


@pytest.mark.parametrize(("scene", "kind"), [
    (Receiving, STREAM),
    *(pytest.param(scene, kind, marks=pytest.mark.slow) for scene, kind in (
        (Receiving, PACKET), (ReceivingPidfds, STREAM), (ReceivingForeign, STREAM), (ReceivingTooMany, STREAM),
        (ReceivingHalf, STREAM))),
])
def test_interrupted_receive_loses_no_descriptor(scene: type[Scene], kind: int) -> None:
    assert places(lambda: scene(kind)) > 300


# Between its creation and the `with` that owns it, a socket of the kernel's diagnosis is closed by the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("scene", "kind"), [
    (Sending, STREAM),
    *(pytest.param(scene, kind, marks=pytest.mark.slow) for scene, kind in (
        (Sending, PACKET), (SendingHalf, STREAM))),
])
def test_interrupted_send_is_whole_or_nothing_or_ends_the_stream(scene: type[Scene], kind: int) -> None:
    assert places(lambda: scene(kind)) > 300
