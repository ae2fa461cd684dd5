"""Test semaphores of the host device on CUDA: import, wait, signal, release. On the stand-in for libcuda."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from support.cuda_sim import on_stand_in

import xsem
from xsem.types import SemaphoreHandleType

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
BOUND_S = 20.0


class Shared(NamedTuple):
    there: xsem.Semaphore
    here: xsem.Semaphore


class Rig:
    """The exporter, the CUDA device, and semaphores of both."""

    def __init__(self, host: xsem.Device, cuda: xsem.Device) -> None:
        self.host = host
        self.cuda = cuda

    def semaphore(self, kind: SemaphoreHandleType = TIMELINE) -> Shared:
        there = self.host.create_semaphore(kind)
        with there.export(for_device=self.cuda) as desc:
            return Shared(there, self.cuda.import_semaphore(desc, label="shared"))


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Rig(host, cuda)


# ---- timelines
@on_stand_in
def test_signal_of_a_timeline_reaches_the_host() -> None:
    with rig() as at:
        shared = at.semaphore()
        at.cuda.create_command_list().append_signal(shared.here, 7)
        shared.there.host_wait(7, timeout_s=BOUND_S)
        assert shared.there.value() == 7


@on_stand_in
@pytest.mark.parametrize("value", [1, 2**31, 2**32 + 1, 2**63, 2**64 - 1])
def test_wait_for_a_timeline_stays_pending_until_its_value(value: int) -> None:
    with rig() as at:
        shared = at.semaphore()
        done = at.cuda.create_event()
        at.cuda.create_command_list().append_wait(shared.here, value, signal_event=done)
        if value > 1:
            shared.there.host_signal(value - 1)
        assert not done.query()
        shared.there.host_signal(value)
        done.wait(timeout_s=BOUND_S)


@on_stand_in
@pytest.mark.parametrize("count", [2, 8, 64])
def test_batch_signals_each_with_its_own_value(count: int) -> None:
    with rig() as at:
        batch = [at.semaphore() for _ in range(count)]
        commands = at.cuda.create_command_list()
        for turn in (100, 200):
            commands.append_signal([each.here for each in batch], [turn + index for index in range(count)])
            commands.append_wait([each.here for each in batch], [turn + index for index in range(count)])
        commands.synchronize(timeout_s=BOUND_S)
        assert [each.there.value() for each in batch] == [200 + index for index in range(count)]


# ---- binary semaphores
@on_stand_in
def test_binary_wait_takes_the_signal() -> None:
    with rig() as at:
        shared = at.semaphore(BINARY)
        first, second = at.cuda.create_event(), at.cuda.create_event()
        commands = at.cuda.create_command_list()
        commands.append_wait(shared.here, signal_event=first)
        assert not first.query()
        shared.there.host_signal()
        first.wait(timeout_s=BOUND_S)
        commands.append_wait(shared.here, signal_event=second)
        assert not second.query()
        shared.there.host_signal()
        second.wait(timeout_s=BOUND_S)


@on_stand_in
def test_binary_signal_is_seen_by_the_host() -> None:
    with rig() as at:
        shared = at.semaphore(BINARY)
        at.cuda.create_command_list().append_signal(shared.here)
        shared.there.host_wait(timeout_s=BOUND_S)


# ---- order between lists
@on_stand_in
def test_event_of_one_list_orders_another() -> None:
    with rig() as at:
        shared = at.semaphore()
        first, second = at.cuda.create_command_list(), at.cuda.create_command_list()
        between = at.cuda.create_event()
        first.append_wait(shared.here, 1, signal_event=between)
        second.append_signal(shared.here, 5, wait_events=[between])
        assert shared.there.value() == 0
        shared.there.host_signal(1)
        shared.there.host_wait(5, timeout_s=BOUND_S)


@on_stand_in
def test_lists_are_independent_while_one_waits() -> None:
    with rig() as at:
        gate = at.semaphore()
        waiting = at.cuda.create_command_list()
        waiting.append_wait(gate.here, 1)
        for _ in range(8):
            shared = at.semaphore()
            at.cuda.create_command_list().append_signal(shared.here, 1)
            shared.there.host_wait(1, timeout_s=BOUND_S)
        gate.there.host_signal(1)
        waiting.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_timeout_names_what_is_pending() -> None:
    with rig() as at:
        shared = at.semaphore()
        commands = at.cuda.create_command_list()
        commands.append_wait(shared.here, 3)
        with pytest.raises(xsem.WaitTimeoutError) as caught:
            commands.synchronize(timeout_s=0.05)
        stuck = caught.value.pending[0]
        assert (stuck.operation, stuck.value) == ("wait", 3)
        assert "shared" in str(stuck.semaphore)
        shared.there.host_signal(3)
        commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_append_raises_before_the_driver_would_block() -> None:
    with rig() as at:
        shared, other = at.semaphore(), at.semaphore()
        commands = at.cuda.create_command_list()
        commands.append_wait(shared.here, 1)
        appended = 1

        def fill_up() -> None:
            nonlocal appended
            for value in range(1, 5000):
                commands.append_signal(other.here, value)
                appended += 1

        with pytest.raises(xsem.WouldBlockError):
            fill_up()
        assert 1000 < appended <= 1020
        shared.there.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)
        commands.append_signal(other.here, 10_000)
        other.there.host_wait(10_000, timeout_s=BOUND_S)


# ---- release
@on_stand_in
def test_release_twice_with_a_pending_wait_is_harmless() -> None:
    with rig() as at:
        shared = at.semaphore()
        done = at.cuda.create_event()
        commands = at.cuda.create_command_list()
        commands.append_wait(shared.here, 1, signal_event=done)
        shared.here.release()
        shared.here.release()
        commands.release()
        assert not done.query()
        with pytest.raises(xsem.ReleasedError):
            commands.append_wait(shared.here, 2)
        shared.there.host_signal(1)
        done.wait(timeout_s=BOUND_S)


@on_stand_in
def test_release_with_a_signal_queued_behind_a_wait_returns() -> None:
    with rig() as at:
        gate, shared = at.semaphore(), at.semaphore()
        commands = at.cuda.create_command_list()
        commands.append_wait(gate.here, 1)
        commands.append_signal(shared.here, 1)
        shared.here.release()
        assert shared.there.value() == 0
        gate.there.host_signal(1)
        shared.there.host_wait(1, timeout_s=BOUND_S)


@on_stand_in
def test_device_release_with_everything_pending_returns() -> None:
    with xsem.open_device("host") as host:
        cuda = xsem.open_device("cuda:0")
        shared = Rig(host, cuda).semaphore()
        commands = cuda.create_command_list()
        commands.append_wait(shared.here, 1)
        commands.append_signal(shared.here, 2)
        cuda.release()
        cuda.release()
        assert shared.there.value() == 0
        shared.there.host_signal(1)
        shared.there.host_wait(2, timeout_s=BOUND_S)


@on_stand_in
def test_many_imports_and_releases_leave_no_fds() -> None:
    with rig() as at:
        commands = at.cuda.create_command_list()
        before = os.listdir("/proc/self/fd")
        for _ in range(100):
            shared = at.semaphore()
            commands.append_signal(shared.here, 1)
            shared.here.release()
            shared.there.release()
        commands.synchronize(timeout_s=BOUND_S)
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 1  # the file that listdir opens


# ---- fds
@on_stand_in
def test_callers_fd_is_as_before_the_import() -> None:
    with rig() as at, at.host.create_semaphore(TIMELINE).export(for_device=at.cuda) as desc:
        assert isinstance(desc.handle, xsem.OwnedHandle)
        before = os.fstat(desc.handle.fileno())
        at.cuda.import_semaphore(desc).release()
        assert os.fstat(desc.handle.fileno()).st_ino == before.st_ino
        again = at.cuda.import_semaphore(desc)
        at.cuda.create_command_list().append_signal(again, 4)


@on_stand_in
def test_wrong_fd_is_refused_and_left_open() -> None:
    with rig() as at:
        fd = os.memfd_create("nothing")
        os.write(fd, b"x" * 64)
        try:
            with pytest.raises(xsem.BadHandleError) as caught:
                at.cuda.import_semaphore(xsem.SemaphoreDesc.timeline_fd(fd, device_uuid=at.cuda.info.uuid))
            assert caught.value.call == "cuImportExternalSemaphore"
            assert caught.value.backend == "cuda"
            os.fstat(fd)
        finally:
            os.close(fd)


# ---- two processes
def peer(desc: xsem.SemaphoreDesc, index: int) -> None:
    with desc, xsem.open_device("cuda:0") as cuda:
        semaphore = cuda.import_semaphore(desc)
        commands = cuda.create_command_list()
        commands.append_wait(semaphore, 2 * index + 1)
        commands.append_signal(semaphore, 2 * index + 2)
        commands.synchronize(timeout_s=BOUND_S)


@on_stand_in
def test_two_processes_take_turns() -> None:
    with rig() as at:
        shared = at.semaphore()
        spawn = multiprocessing.get_context("spawn")
        commands = at.cuda.create_command_list()
        for index in range(2):
            with shared.there.export(for_device=at.cuda) as desc:
                process = spawn.Process(target=peer, args=(desc, index))
                process.start()
            commands.append_signal(shared.here, 2 * index + 1)
            shared.there.host_wait(2 * index + 2, timeout_s=40)
            process.join(timeout=40)
            assert process.exitcode == 0
            process.close()
