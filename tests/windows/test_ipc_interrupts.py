"""Ctrl-C in the calls about pipes of Windows: during a wait, and at the end of a transfer."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support import windows_objects as nt
from support.waiting import until

from xsem import ipc
from xsem.errors import WaitTimeoutError
from xsem.ipc.windows import calls, transit
from xsem.types import OwnedHandle, SemaphoreDesc

Ends = tuple[ipc.Pipe, ipc.Pipe]


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ipc.listen() as listener:
        a = ipc.connect(listener.name)
        b = listener.accept(timeout_s=nt.BOUND_S)
    with a, b:
        yield a, b
    transit.settle_all()


@pytest.fixture
def desc() -> Iterator[SemaphoreDesc]:
    with nt.closing(nt.event()) as event:
        yield SemaphoreDesc.opaque_win32(event, device_uuid=None)


def drained(pipe: ipc.Pipe) -> list[bytes]:
    """Receive all messages, each with an open handle."""
    found = []
    while True:
        try:
            with ipc.receive(pipe, timeout_s=0) as message:
                handle = message.semaphores[0].handle
                assert isinstance(handle, OwnedHandle)
                assert nt.is_open(handle.fileno())
                found.append(message.payload)
        except WaitTimeoutError:
            return found


# ---- during a wait
def interrupted_in_a_wait(act: Callable[[], object]) -> None:
    """Interrupt `act` when it waits for a transfer."""
    began = time.monotonic()

    def interrupt() -> None:
        until(lambda: calls._in_progress)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            act()
    finally:
        thread.join()
    assert not calls._in_progress
    assert time.monotonic() - began < nt.BOUND_S


def test_wait_for_a_message_is_interrupted(ends: Ends, desc: SemaphoreDesc) -> None:
    interrupted_in_a_wait(lambda: ipc.receive(ends[1], timeout_s=600))
    interrupted_in_a_wait(lambda: ipc.receive(ends[1], timeout_s=None))
    ipc.send(ends[0], desc, payload=b"after")
    assert drained(ends[1]) == [b"after"]


def test_wait_for_the_reader_is_interrupted(ends: Ends, desc: SemaphoreDesc) -> None:
    sent = 0
    with pytest.raises(WaitTimeoutError):
        while True:
            ipc.send(ends[0], desc, payload=bytes(65536), timeout_s=0)
            sent += 1
    interrupted_in_a_wait(lambda: ipc.send(ends[0], desc, payload=bytes(65536), timeout_s=600))
    assert ends[0]._transit.messages == sent
    assert len(drained(ends[1])) == sent


def test_wait_for_a_client_is_interrupted() -> None:
    with ipc.listen() as listener:
        interrupted_in_a_wait(lambda: listener.accept(timeout_s=600))
        with ipc.connect(listener.name), listener.accept(timeout_s=nt.BOUND_S):
            pass


# ---- at the end of a transfer
def test_message_sent_before_the_interrupt_keeps_its_handles(ends: Ends, desc: SemaphoreDesc) -> None:
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after_start(patch)
        with pytest.raises(KeyboardInterrupt):
            ipc.send(ends[0], desc, payload=b"sent")
    assert drained(ends[1]) == [b"sent"]


def test_message_received_before_the_interrupt_is_not_lost(ends: Ends, desc: SemaphoreDesc) -> None:
    ipc.send(ends[0], desc, payload=b"arrived")
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after_start(patch)
        with pytest.raises(KeyboardInterrupt):
            ipc.receive(ends[1])
    assert drained(ends[1]) == [b"arrived"]


def interrupt_after_start(patch: pytest.MonkeyPatch) -> None:
    start = calls.OverlappedCall.start

    def interrupted(call: calls.OverlappedCall) -> None:
        start(call)
        raise KeyboardInterrupt

    patch.setattr(calls.OverlappedCall, "start", interrupted)
