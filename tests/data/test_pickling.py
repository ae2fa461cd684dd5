"""Descriptors pass through the channels of multiprocessing, and no other pickler takes them."""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
from support.at_once import threads
from support.open_files import closed_number, numbers
from support.waiting import until

import xsem
from xsem import ipc
from xsem.data import pickling, transfers
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="tests/windows has the tests with NT handles")

PROGRAM = """
import fcntl, multiprocessing, os, sys
import xsem
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType

def child(one, two, empty, answers):
    numbers = [one.handle.fileno(), two.handle.fileno()]
    assert all(isinstance(desc.handle, OwnedHandle) for desc in (one, two))
    assert len(set(numbers)) == 2, "two owners of one number"
    assert all(fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for number in numbers)
    assert empty.handle == -1
    one.close()
    os.fstat(numbers[1])
    with xsem.open_device("host") as device:
        device.import_semaphore(two).host_signal(7)
    answers.put("done")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with xsem.open_device("host") as device:
        semaphore = device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        with semaphore.export() as desc:
            number = desc.handle.fileno()
            again = SemaphoreDesc.timeline_fd(number, device_uuid=None)
            answers = context.Queue()
            process = context.Process(target=child, args=(desc, again, SemaphoreDesc.sync_fd(-1), answers))
            process.start()
            assert answers.get(timeout=40) == "done"
            process.join(40)
            assert process.exitcode == 0
            os.fstat(number)
        semaphore.host_wait(7, timeout_s=10)
    print("ok")
"""


@pytest.mark.variants
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_descriptors_reach_a_spawned_process(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program, method], capture_output=True, text=True, check=False, timeout=55)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"


CHANNELS = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
import xsem
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

def signal(given, value):
    (desc,), memory = given["semaphores"], given["memory"]
    assert isinstance(desc.handle, OwnedHandle) and not os.get_inheritable(desc.handle.fileno())
    with xsem.open_device("host") as device:
        device.import_semaphore(desc).host_signal(value)
        with device.import_memory(memory).map_buffer(size=4096) as buffer:
            buffer.numpy()[0] = value
    desc.close()
    return memory       # through the same channel back

def child(queue, pipe, answers):
    answers.put(signal(queue.get(timeout=40), 1))
    pipe.send(signal(pipe.recv(), 2))
    pipe.recv()   # this process must live until the descriptor is received

def seen(device, desc, value):
    with device.import_memory(desc).map_buffer(size=4096) as buffer:
        assert buffer.numpy()[0] == value
    desc.close()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    near, far = context.Pipe()
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, far, answers))
    process.start()
    with context.Pool(1) as pool, ProcessPoolExecutor(1, mp_context=context) as executor:
        executor.submit(int).result(40)
        with xsem.open_device("host") as device:
            semaphore = device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
            with semaphore.export() as desc, device.create_memory(MemoryHandleType.OPAQUE_FD, 4096).export() as memory:
                given = {"semaphores": [desc], "memory": memory}
                queue.put(given)
                seen(device, answers.get(timeout=40), 1)
                near.send(given)
                assert near.poll(40)
                seen(device, near.recv(), 2)
                near.send("received")
                seen(device, pool.apply_async(signal, (given, 3)).get(40), 3)
                seen(device, executor.submit(signal, given, 4).result(40), 4)
            semaphore.host_wait(4, timeout_s=10)
    process.join(40)
    print("ok", process.exitcode)
"""


@pytest.mark.variants
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_descriptors_pass_through_every_channel_both_ways(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(CHANNELS)
    done = subprocess.run([sys.executable, program, method], capture_output=True, text=True, check=False, timeout=55)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok 0\n", "")


def test_any_other_pickler_is_refused_with_the_alternatives() -> None:
    fd = os.memfd_create("pickled")
    with pytest.raises(xsem.BadArgumentError, match=r"ipc\.offer") as failure:
        pickle.dumps([SemaphoreDesc.opaque_fd(fd, device_uuid=None)])
    assert failure.value.reason == "pickled_outside_multiprocessing"
    os.close(fd)


@pytest.fixture
def pickled() -> Iterator[bytes]:
    """A descriptor, pickled as a queue does."""
    before = numbers()
    fd = os.memfd_create("pickled")
    yield bytes(ForkingPickler.dumps(SemaphoreDesc.opaque_fd(fd, device_uuid=None)))
    os.fstat(fd)
    os.close(fd)
    resource_sharer.stop(timeout=40)
    gc.collect()   # a refused connection is closed by its finalizer
    assert numbers() == before


def reason_of(data: bytes | memoryview) -> str:
    with pytest.raises(xsem.BadArgumentError) as failure:
        pickle.loads(data)
    return failure.value.reason


def test_pickled_descriptor_is_refused_on_another_host(pickled: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(pickling, "system_id", lambda: "another boot")
        assert reason_of(pickled) == "other_host"
    pickle.loads(pickled).close()


def test_pickled_descriptor_is_refused_to_a_process_of_another_key(
    pickled: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as stranger:
        stranger.setattr(multiprocessing.current_process(), "authkey", b"another key")
        assert reason_of(pickled) == "authentication_failed"
    pickle.loads(pickled).close()
    capfd.readouterr()   # the sender's thread reports the refused connection


def test_pickled_descriptor_is_received_once(pickled: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    pickle.loads(pickled).close()
    assert reason_of(pickled) == "already_received"
    capfd.readouterr()


def test_pickled_descriptor_of_an_ended_process_is_refused(tmp_path: Path) -> None:
    made = subprocess.run([sys.executable, "-c", """if True:
        import multiprocessing, os, sys
        from multiprocessing.reduction import ForkingPickler
        import xsem
        multiprocessing.current_process().authkey = bytes.fromhex(sys.argv[1])
        fd = os.memfd_create("gone")
        sys.stdout.buffer.write(ForkingPickler.dumps(xsem.SemaphoreDesc.opaque_fd(fd, device_uuid=None)))
        """, multiprocessing.current_process().authkey.hex()], capture_output=True, check=True, timeout=50)
    assert reason_of(made.stdout) == "sender_ended"


# ---- transfers that no process receives
@pytest.fixture
def memory() -> Iterator[MemoryDesc]:
    """A descriptor. At the end, nothing is open that was not open before."""
    before = numbers()
    with MemoryDesc.opaque_fd(OwnedHandle(os.memfd_create("kept")), allocation_size=1, device_uuid=None) as desc:
        yield desc
    resource_sharer.stop(timeout=40)
    gc.collect()
    assert numbers() == before
    until(lambda: not threads("transfers"))


def test_transfer_without_a_receiver_ends_with_its_lifetime(
    memory: MemoryDesc, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ForkingPickler.dumps([ipc.Transfer(memory, lifetime_s=0.05), memory])
    until(lambda: len(open_kept()) == 1)   # the other one has the default lifetime
    assert reason_of(data) == "transfer_expired"
    defaults: Any = pickling.carry_by_multiprocessing.__kwdefaults__
    monkeypatch.setitem(defaults, "lifetime_s", 0.05)
    late = ForkingPickler.dumps(memory)
    until(lambda: len(open_kept()) == 1)
    assert reason_of(late) == "transfer_expired"


def test_default_lifetimes_are_those_of_tickets() -> None:
    parameters = [inspect.signature(each).parameters["lifetime_s"].default
                  for each in (ipc.offer, ipc.Transfer, pickling.carry_by_multiprocessing)]
    assert parameters == [60.0] * 3


def test_transfer_is_received_within_its_lifetime(memory: MemoryDesc) -> None:
    transfer = ipc.Transfer(memory, lifetime_s=40)
    data = ForkingPickler.dumps({"memory": transfer})
    with pickle.loads(data)["memory"] as received:
        assert type(received) is MemoryDesc
        assert os.path.sameopenfile(received.handle.fileno(), memory.handle.fileno())  # type: ignore[union-attr]
    assert not transfer.take_back()   # it was received


def test_sender_takes_back_what_no_process_received(memory: MemoryDesc) -> None:
    transfer = ipc.Transfer(memory)
    data, again = ForkingPickler.dumps(transfer), ForkingPickler.dumps(transfer)
    pickle.loads(data).close()
    assert transfer.take_back()
    until(lambda: not open_kept())   # a thread closes what was received
    assert reason_of(again) == "transfer_taken_back"
    assert not transfer.take_back()
    assert reason_of(ForkingPickler.dumps(transfer)) == "transfer_taken_back"   # a queue can pickle it that late
    assert not open_kept()


def test_many_transfers_keep_no_record_after_their_receipt(memory: MemoryDesc) -> None:
    data = ForkingPickler.dumps(memory)   # it stays open, so that the thread does
    for _ in range(300):
        pickle.loads(ForkingPickler.dumps(memory)).close()
    assert len(transfers._Process.deadlines._heap) < 100
    pickle.loads(data).close()


def test_forked_child_keeps_no_transfer(memory: MemoryDesc) -> None:
    transfer = ipc.Transfer(memory)
    data = ForkingPickler.dumps(transfer)
    number = next(iter(open_kept()))._handle.fileno()
    child = os.fork()
    if child == 0:
        try:
            os.fstat(number)
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pickle.loads(data).close()


@pytest.mark.parametrize(("desc", "lifetime_s", "reason"), [
    (5, 60, "not_a_descriptor"), (SemaphoreDesc.sync_fd(-1), 0, "bad_timeout"),
    (SemaphoreDesc.sync_fd(-1), None, "bad_timeout"),
])
def test_bad_transfer_is_refused(desc: Any, lifetime_s: Any, reason: str) -> None:
    with pytest.raises(xsem.BadArgumentError) as failure:
        ipc.Transfer(desc, lifetime_s=lifetime_s)
    assert failure.value.reason == reason


def test_transfer_is_for_channels_of_multiprocessing_only(memory: MemoryDesc) -> None:
    with pytest.raises(xsem.BadArgumentError) as failure:
        pickle.dumps(ipc.Transfer(memory))
    assert failure.value.reason == "pickled_outside_multiprocessing"
    ForkingPickler.dumps(ipc.Transfer(SemaphoreDesc.sync_fd(-1)))   # it has no handle to keep
    assert repr(ipc.Transfer(memory)) == "<Transfer of opaque_fd for 60 s>"


def open_kept() -> set[transfers.Kept]:
    return transfers._Process.deadlines.open


class OddFile:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def fileno(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_closed_handle_is_refused_before_it_is_pickled() -> None:
    closed = SemaphoreDesc.opaque_fd(closed_number(), device_uuid=None)
    owned = SemaphoreDesc.opaque_fd(OwnedHandle(os.memfd_create("closed")), device_uuid=None)
    owned.close()
    with os.fdopen(os.memfd_create("closed")) as file:
        of_file = SemaphoreDesc.opaque_fd(file, device_uuid=None)
    odd = [SemaphoreDesc.opaque_fd(OddFile(answer), device_uuid=None) for answer in (RuntimeError("no"), "7")]
    for desc, reason in ((closed, "closed_fd"), (owned, "handle_closed"), (of_file, "closed_fd"),
                         (odd[0], "closed_fd"), (odd[1], "not_a_handle")):
        with pytest.raises(xsem.XsemError) as failure:
            ForkingPickler.dumps(desc)
        assert failure.value.reason == reason


@pytest.mark.parametrize("desc", [SemaphoreDesc.d3d12_fence(5), MemoryDesc.nvscibuf(64, allocation_size=1)])
def test_handle_of_another_kind_is_refused(desc: SemaphoreDesc | MemoryDesc) -> None:
    with pytest.raises(xsem.UnsupportedError):
        ForkingPickler.dumps(desc)
