"""Test the Level Zero backend on the semaphore controller of Intel's driver: one thread makes all waits and signals."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.levelzero_facade import BINARY, BOUND_S, TIMELINE, UNKNOWN, driver_of, failing, library, opened, soon
from support.levelzero_sim import FIFO, LIFO, build, on_level_zero
from support.paths import TESTS

import xsem
from xsem.types import OwnedHandle, SemaphoreHandleType
from xsem_levelzero.backend import LevelZeroBackend
from xsem_levelzero.suite_hooks import LevelZeroHooks


# ---- before 26.22: a signal behind an unmet wait blocks the thread for ever
def signal_behind_an_unmet_wait_is_refused() -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        commands.append_wait(here, 1)
        for each in (commands, at.here.create_command_list()):
            with pytest.raises(xsem.BusyError, match=r"26\.22") as caught:
                each.append_signal(here, 2)
            assert caught.value.reason == "signal_behind_wait"
        there.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)
        commands.append_signal(here, 2)
        commands.append_wait(here, 2)
        commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 2


@on_level_zero(**LIFO)
def test_signal_behind_an_unmet_wait_is_refused_by_name() -> None:
    signal_behind_an_unmet_wait_is_refused()


@on_level_zero(SIMZE_DRIVER_VERSION=build(38645))
def test_signal_behind_an_unmet_wait_is_refused_when_imports_support_several_waits() -> None:
    signal_behind_an_unmet_wait_is_refused()


@on_level_zero(**LIFO)
def test_wait_on_another_device_of_the_process_refuses_the_signal() -> None:
    with opened() as at, xsem.open_device("levelzero:0") as other:
        there, here = at.semaphore()
        with there.export(for_device=other) as desc:
            here_too = other.import_semaphore(desc)
        waits, signals = at.here.create_command_list(), other.create_command_list()
        waits.append_wait(here, 1)
        with pytest.raises(xsem.BusyError) as caught:
            signals.append_signal(here_too, 2)
        assert caught.value.reason == "signal_behind_wait"
        there.host_signal(1)
        waits.synchronize(timeout_s=BOUND_S)
        signals.append_signal(here_too, 2)
        signals.synchronize(timeout_s=BOUND_S)
        soon(lambda: there.value() == 2)


@on_level_zero(**LIFO)
def test_portable_timeline_is_signalled_behind_an_unmet_wait() -> None:
    with opened() as at:
        asked, answered = at.here.create_timeline(), at.here.create_timeline()
        commands = at.here.create_command_list()
        commands.append_wait(asked, 1)
        commands.append_signal(answered, 1)
        asked.host_signal(1)
        answered.host_wait(1, timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**LIFO)
def test_frame_that_synchronizes_between_wait_and_signal_works() -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        for value in range(1, 41, 2):
            commands.append_wait(here, value)
            there.host_signal(value)
            commands.synchronize(timeout_s=BOUND_S)
            commands.append_signal(here, value + 1)
            there.host_wait(value + 1, timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**LIFO, SIMZE_FAIL="zeCommandListAppendWaitExternalSemaphoreExt:0x7ffffffe:2")
def test_refused_wait_is_not_recorded() -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        with pytest.raises(xsem.DriverError):
            commands.append_wait(here, 1)
        commands.append_signal(here, 2)
        there.host_wait(2, timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**LIFO)
def test_signal_behind_an_unset_event_of_the_application_is_refused() -> None:
    with opened() as at:
        there, here = at.semaphore()
        native = LevelZeroHooks(driver_of(at.here)._core).native_event()
        unset = at.here.event(native.event)
        commands, other = at.here.create_command_list(), at.here.create_command_list()
        with pytest.raises(xsem.BusyError) as caught:
            commands.append_signal(here, 1, wait_events=[unset])
        assert caught.value.reason == "signal_behind_wait"
        commands.append_barrier(wait_events=[unset])
        for each in (commands, other):
            with pytest.raises(xsem.BusyError) as caught:
                each.append_signal(here, 1)
            assert caught.value.reason == "signal_behind_wait"
        native.reach()
        commands.synchronize(timeout_s=BOUND_S)
        commands.append_signal(here, 1, wait_events=[unset])
        commands.synchronize(timeout_s=BOUND_S)
        native.close()
        other.append_signal(here, 2)
        other.synchronize(timeout_s=BOUND_S)
        assert there.value() == 2


@on_level_zero(**LIFO)
def test_doctor_names_the_release_for_frame_loops() -> None:
    [_, check] = LevelZeroBackend().checks()
    assert check.ok
    assert "26.22" in check.detail


# ---- from 26.22 on
@on_level_zero(**FIFO)
def test_frame_loop_works_from_26_22_on() -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        for value in range(1, 41, 2):
            commands.append_wait(here, value)
            commands.append_signal(here, value + 1)
            there.host_signal(value)
            there.host_wait(value + 1, timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


# ---- signals that are made later than their event
def signals_are_made() -> None:
    with opened() as at:
        commands = at.here.create_command_list()
        for value in range(1, 21):
            there, here = at.semaphore()
            event = at.here.create_event()
            commands.append_signal(here, value, signal_event=event)
            if value % 2:
                commands.synchronize(timeout_s=BOUND_S)
            else:
                event.wait(timeout_s=BOUND_S)
            assert there.value() == value
            here.release()   # an early release ends the process
        binary_there, binary = at.semaphore(BINARY)
        commands.append_signal(binary)
        soon(commands.query)
        binary_there.host_wait(timeout_s=0)
        binary.release()


@on_level_zero(**FIFO, SIMZE_LAG_US="0")
def test_signals_are_made_at_a_lag_of_0() -> None:
    signals_are_made()


@on_level_zero(**FIFO, SIMZE_LAG_US="1000")
def test_signals_are_made_at_a_lag_of_1_ms() -> None:
    signals_are_made()


@on_level_zero(**FIFO, SIMZE_LAG_US="20000")
def test_signals_are_made_at_a_lag_of_20_ms() -> None:
    signals_are_made()


@on_level_zero(**LIFO, SIMZE_LAG_US="1000")
def test_signals_are_made_before_26_22_too() -> None:
    signals_are_made()


@on_level_zero(**LIFO, SIMZE_LAG_US="5000", SIMZE_ENTRY_US="5000")
def test_signals_are_made_before_26_22_by_a_slow_pass() -> None:
    """A pass of the driver's thread looks at xsem's wait before the signal."""
    signals_are_made()


@on_level_zero(**FIFO, SIMZE_LAG_US="5000", SIMZE_ENTRY_US="5000")
def test_signals_are_made_by_a_slow_pass() -> None:
    signals_are_made()


@pytest.mark.parametrize("how", ["barrier", "wait", "chain", "later"])
@on_level_zero(**FIFO, SIMZE_LAG_US="20000")
def test_event_behind_an_event_of_another_list_has_its_signals_made(how: str) -> None:
    with opened() as at:
        first, second, third = (at.here.create_command_list() for _ in range(3))
        met_there, met = at.semaphore()
        met_there.host_signal(1)
        there, here = at.semaphore()
        for value in range(1, 6):
            before, behind = at.here.create_event(), at.here.create_event()
            first.append_signal(here, value)
            first.append_barrier(signal_event=before)
            if how == "barrier":
                second.append_barrier(wait_events=[before], signal_event=behind)
            elif how == "wait":
                second.append_wait(met, 1, wait_events=[before], signal_event=behind)
            elif how == "chain":
                between = at.here.create_event()
                second.append_barrier(wait_events=[before], signal_event=between)
                third.append_barrier(wait_events=[between], signal_event=behind)
            else:
                second.append_barrier(wait_events=[before])
                second.append_barrier(signal_event=behind)
            behind.wait(timeout_s=BOUND_S)
            assert there.value() == value


@on_level_zero(**FIFO, SIMZE_LAG_US="1000")
def test_semaphores_released_behind_their_signal_stay_until_it_is_made() -> None:
    with opened() as at:
        commands = at.here.create_command_list()
        theres = []
        for value in range(1, 41):
            there, here = at.semaphore()
            commands.append_signal(here, value)
            here.release()
            theres.append(there)
        for value, there in enumerate(theres, 1):
            there.host_wait(value, timeout_s=BOUND_S)


@on_level_zero(**FIFO, SIMZE_LAG_US="1000")
def test_process_that_synchronized_ends_with_its_signals_made() -> None:
    program = """
import sys, xsem
from xsem.types import SemaphoreDesc
with xsem.open_device("levelzero:0") as device:
    here = device.import_semaphore(SemaphoreDesc.timeline_fd(int(sys.argv[1]), device_uuid=None))
    commands = device.create_command_list()
    commands.append_signal(here, 7)
    commands.synchronize(timeout_s=20)
"""
    with xsem.open_device("host") as host:
        there = host.create_semaphore(TIMELINE)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            fd = desc.handle.fileno()
            subprocess.run([sys.executable, "-c", program, str(fd)], check=True, pass_fds=[fd], timeout=60)
        assert there.value() == 7


@on_level_zero(**FIFO)
def test_releases_of_semaphores_do_not_wait_for_unrelated_waits() -> None:
    with opened() as at:
        gate_there, gate = at.semaphore()
        held, commands = at.here.create_command_list(), at.here.create_command_list()
        held.append_wait(gate, 1)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            there, here = at.semaphore(BINARY)
            there.host_signal()
            commands.append_wait(here)
            here.release()
            there.release()
        commands.synchronize(timeout_s=BOUND_S)
        soon(lambda: not any("semaphore" in each for each in at.here.releasing()))
        assert len(os.listdir("/proc/self/fd")) <= before
        assert not held.query()
        gate_there.host_signal(1)
        held.synchronize(timeout_s=BOUND_S)


# ---- a GPU without a copying engine
NO_COPY = {**FIFO, "SIMZE_LAG_US": "2000", "SIMZE_ENGINES": "1", "SIMZE_COPY_QUEUES": "0"}


@pytest.mark.parametrize("waiting", [0, 1])
@on_level_zero(**NO_COPY, SIMZE_QUEUES="2")
def test_last_queue_is_free_for_the_end_of_signals(waiting: int) -> None:
    with opened() as at:
        assert at.here.capabilities.independent_lists == 1
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        lists = [at.here.create_command_list() for _ in range(2)]
        event = at.here.create_event()
        lists[1 - waiting].append_signal(here, 1, signal_event=event)
        lists[waiting].append_wait(gate, 1)
        event.wait(timeout_s=BOUND_S)
        assert there.value() == 1
        gate_there.host_signal(1)


@on_level_zero(**NO_COPY, SIMZE_QUEUES="1")
def test_stalled_engine_tells_the_end_of_a_signal_of_timelines_only() -> None:
    with opened() as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore(BINARY)
        timeline_there, timeline = at.semaphore()
        commands, held = (at.here.create_command_list() for _ in range(2))
        made, event = at.here.create_event(), at.here.create_event()
        commands.append_signal(timeline, 1, signal_event=made)
        commands.append_signal(here, signal_event=event)
        held.append_wait(gate, 1)
        made.wait(timeout_s=BOUND_S)
        assert timeline_there.value() == 1
        with pytest.raises(xsem.WaitTimeoutError):
            event.wait(timeout_s=1.5)
        assert not event.query()
        gate_there.host_signal(1)
        event.wait(timeout_s=BOUND_S)
        there.host_wait(timeout_s=0)


_CLOSED_BESIDE_A_WAIT = """
import sys
sys.path[:0] = sys.argv[1:]
import pytest
from support.levelzero_facade import BOUND_S, TIMELINE, UNKNOWN, failing, opened
import xsem
from xsem.spi import duplicate_fd
from xsem.types import SignalParams
from xsem_levelzero.backend import LevelZeroBackend

with opened() as at:
    gate_there, gate = at.semaphore()
    held = at.here.create_command_list()
    held.append_wait(gate, 1)
    driver = LevelZeroBackend().open(0)   # xsem.Device would not close now: a wait of the process is pending
    with at.host.create_semaphore(TIMELINE).export() as desc:
        given = duplicate_fd(desc.handle.fileno())
        semaphore = driver.import_semaphore(desc, given).token
        given.detach()   # this driver closes it
    queue = driver.create_queue()
    with failing(f"zeCommandListAppendSignalExternalSemaphoreExt:{UNKNOWN}"), pytest.raises(xsem.DriverError):
        queue.append_signal([semaphore], [SignalParams(value=1)], (), (), False)
    driver.release_semaphore(semaphore)   # appends a wait on the stalled engine: the driver may have the signal
    queue.close()
    driver.close()
    gate_there.host_signal(1)
    held.synchronize(timeout_s=BOUND_S)
"""


@on_level_zero(**NO_COPY, SIMZE_QUEUES="1")
def test_device_closes_while_another_device_stalls_the_engine() -> None:
    """The driver ends a process that destroys an event in use."""
    subprocess.run([sys.executable, "-c", _CLOSED_BESIDE_A_WAIT, str(TESTS)], check=True, timeout=60)


# ---- releases that are deferred
@on_level_zero(**FIFO, SIMZE_LAG_US="300000")
def test_failed_query_frees_no_semaphore_in_use() -> None:
    """After a failed query, the facade regards the list's work as done. An early release ends the process."""
    with opened() as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        event = at.here.create_event()
        commands.append_wait(gate, 1)
        commands.append_signal(here, 1, signal_event=event)
        with failing(f"zeEventQueryStatus:{UNKNOWN},zeEventHostSynchronize:{UNKNOWN}"):
            with pytest.raises(xsem.DriverError):
                event.wait(timeout_s=BOUND_S)
            lifetimes = [each._lifetime for each in (gate, here)]
            gate.release()
            here.release()
            soon(lambda: at.semaphore() and all(each.freed for each in lifetimes))
        for _ in range(20):
            at.semaphore()   # each import releases the semaphores that the driver does not use any more
        assert there.value() == 0
        gate_there.host_signal(1)
        soon(lambda: at.semaphore() and there.value() == 1)
    soon(lambda: library().simze_alive() == 2)   # the driver and its device


@on_level_zero(**FIFO)
@pytest.mark.parametrize("kind", [BINARY, TIMELINE], ids=lambda kind: kind.value)
def test_refused_operation_behind_an_event_tells_nothing_of_the_list_of_the_event(kind: SemaphoreHandleType) -> None:
    with opened() as at:
        gate, asked = at.semaphore()
        _, here = at.semaphore(kind)
        waiting, other = at.here.create_command_list(), at.here.create_command_list()
        signalled, after = at.here.create_event(), at.here.create_event()
        waiting.append_wait(asked, 1)
        waiting.append_signal(here, None if kind is BINARY else 1, signal_event=signalled)
        with failing("zeCommandListAppendBarrier:0x70000002:1"), pytest.raises(xsem.OutOfMemoryError):
            other.append_barrier(wait_events=[signalled])
        other.append_barrier(signal_event=after)
        after.wait(timeout_s=BOUND_S)
        assert not signalled.query()
        gate.host_signal(1)
        waiting.synchronize(timeout_s=BOUND_S)
