"""The simulated Level Zero driver behind the real loader, by raw calls: each way to reach it, waits and signals."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pytest
from support import levelzero_raw as ze
from support.levelzero_rig import BINARY, TIMELINE, Rig, rig, value_of
from support.levelzero_sim import on_level_zero

from xsem.types import SemaphoreHandleType


# ---- each way to reach it: loaders, drivers, forced intercept
def walk(at: Rig, kind: SemaphoreHandleType) -> None:
    """A wait holds the later work until the signal, and the answer is signalled."""
    there, here = at.semaphore(kind)
    answer_there, answer = at.semaphore(kind)
    memory_there, memory = at.memory()
    commands = at.stream()
    waited, copied = at.events(2)
    source = ctypes.c_char(b"a")
    assert at.wait(commands, [here], [7], event=waited) == 0
    at.copy(commands, memory, ctypes.addressof(source), 1, event=copied)
    assert at.signal(commands, [answer], [9], after=[copied]) == 0
    assert at.held(waited)
    assert at.held(copied)
    source.value = b"b"   # a copy before the signal would read b"a"
    there.host_signal(value_of(kind, 7))
    answer_there.host_wait(value_of(kind, 9), timeout_s=20)
    assert at.reached(waited)
    assert at.reached(copied)
    assert memory_there[:1] == b"b"


SETUPS: dict[str, tuple[dict[str, str], str, int]] = {
    # name: settings, source of the functions, driver
    "by_address": ({}, "address", 0),
    "by_table": ({"SIMZE_NO_ADDRESS": "1"}, "table", 0),
    "by_address_intercepted": ({"ZE_ENABLE_LOADER_INTERCEPT": "1"}, "address", 0),
    "by_table_intercepted": ({"ZE_ENABLE_LOADER_INTERCEPT": "1", "SIMZE_NO_ADDRESS": "1"}, "table", 0),
    "by_address_second_driver": ({"SIMZE_DRIVERS": "2"}, "address", 1),
    "debian_13": ({"LOADER": "trixie"}, "loader", 0),
    "debian_13_two_drivers": ({"LOADER": "trixie", "SIMZE_DRIVERS": "2"}, "loader", 1),
    "newest_intercepted": ({"LOADER": "forky", "ZE_ENABLE_LOADER_INTERCEPT": "1"}, "loader", 0),
    "newest_validated": (
        {"LOADER": "forky", "ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}, "loader", 0,
    ),
}


def walks(name: str) -> Callable[[SemaphoreHandleType], None]:
    settings, path, driver = SETUPS[name]

    @on_level_zero(**settings)
    @pytest.mark.parametrize("kind", [TIMELINE, BINARY])
    def test(kind: SemaphoreHandleType) -> None:
        with rig(driver=driver) as at:
            assert (at.path, len(at.drivers)) == (path, int(settings.get("SIMZE_DRIVERS", "1")))
            walk(at, kind)

    return test


test_semaphores_by_address = walks("by_address")
test_semaphores_by_table = walks("by_table")
test_semaphores_by_address_with_forced_intercept = walks("by_address_intercepted")
test_semaphores_by_table_with_forced_intercept = walks("by_table_intercepted")
test_semaphores_by_address_of_the_second_driver = walks("by_address_second_driver")
test_semaphores_by_the_loader_of_debian_13 = walks("debian_13")
test_semaphores_by_the_loader_of_debian_13_with_two_drivers = walks("debian_13_two_drivers")
test_semaphores_by_the_newest_loader_with_forced_intercept = walks("newest_intercepted")
test_semaphores_by_the_newest_loader_with_parameter_validation = walks("newest_validated")


@on_level_zero(**SETUPS["newest_validated"][0])
def test_parameter_validation_refuses_before_the_driver() -> None:
    """The layer is in the path: undefined flags give the code of the layer. The driver would return another code."""
    with rig() as at:
        _there, fd = at.exported(BINARY)
        assert at.import_code(fd, 0x200)[0] == ze.INVALID_ENUMERATION
        os.close(fd)


# ---- order
@on_level_zero
def test_binary_wait_takes_the_signal() -> None:
    with rig() as at:
        there, here = at.semaphore(BINARY)
        commands = at.stream()
        first, second = at.events(2)
        assert at.wait(commands, [here], [0], event=first) == 0
        assert at.wait(commands, [here], [0], event=second) == 0
        there.host_signal()
        assert at.reached(first)
        assert at.held(second)
        there.host_signal()
        assert at.reached(second)
        assert at.counter(b"let_through") == 0


@on_level_zero
def test_batch_is_held_until_the_last_of_its_semaphores() -> None:
    with rig() as at:
        one_there, one = at.semaphore()
        two_there, two = at.semaphore(BINARY)
        commands = at.stream()
        (event,) = at.events(1)
        assert at.wait(commands, [one, two], [5, 0], event=event) == 0
        two_there.host_signal()
        one_there.host_signal(4)
        assert at.held(event)
        one_there.host_signal(6)
        assert at.reached(event)


@on_level_zero
def test_batch_signals_all_with_their_values() -> None:
    with rig() as at:
        one_there, one = at.semaphore()
        two_there, two = at.semaphore()
        (event,) = at.events(1)
        assert at.signal(at.stream(), [one, two], [3, 2**63], event=event) == 0
        assert at.reached(event)
        assert (one_there.value(), two_there.value()) == (3, 2**63)


@on_level_zero
def test_signal_waits_for_its_events() -> None:
    with rig() as at:
        there, here = at.semaphore()
        gate, done = at.events(2)
        assert at.signal(at.stream(), [here], [1], event=done, after=[gate]) == 0
        assert at.held(done)
        assert there.value() == 0
        at.call("zeEventHostSignal", ctypes.c_void_p(gate))
        assert at.reached(done)
        assert there.value() == 1


@on_level_zero
def test_wait_checks_its_semaphore_only_after_its_events() -> None:
    with rig() as at:
        there, here = at.semaphore(BINARY)
        gate, gated, passed = at.events(3)
        assert at.wait(at.stream(), [here], [0], event=gated, after=[gate]) == 0
        there.host_signal()
        other = at.again(there)
        assert at.wait(at.stream(), [other], [0], event=passed) == 0   # takes the signal: the other has not begun
        assert at.reached(passed)
        assert at.held(gated)
        at.call("zeEventHostSignal", ctypes.c_void_p(gate))
        there.host_signal()
        assert at.reached(gated)


@on_level_zero
def test_append_without_semaphores_is_a_barrier_with_events() -> None:
    with rig() as at:
        (event,) = at.events(1)
        assert at.wait(at.stream(), [], [], event=event) == 0
        assert at.reached(event)


@on_level_zero
def test_unordered_list_overtakes_a_wait_but_not_a_barrier() -> None:
    with rig() as at:
        there, here = at.semaphore()
        commands = at.stream(flags=0)
        waited, overtook, held = at.events(3)
        assert at.wait(commands, [here], [1], event=waited) == 0
        _view, memory = at.memory()
        assert at.fill_code(commands, memory, b"x", 16, event=overtook) == 0
        assert at.reached(overtook)
        assert at.held(waited)
        at.barrier(commands)
        assert at.fill_code(commands, memory, b"y", 16, event=held) == 0
        assert at.held(held)
        there.host_signal(1)
        assert at.reached(held)


@on_level_zero
def test_barrier_waits_only_for_its_events_and_holds_later_work() -> None:
    with rig() as at:
        there, here = at.semaphore()
        commands = at.stream(flags=0)
        waited, gate, held = at.events(3)
        assert at.wait(commands, [here], [1], event=waited) == 0
        at.barrier(commands, after=[gate])
        _view, memory = at.memory()
        assert at.fill_code(commands, memory, b"y", 16, event=held) == 0
        assert at.held(held)
        at.call("zeEventHostSignal", ctypes.c_void_p(gate))
        assert at.reached(held)
        assert at.held(waited)
        there.host_signal(1)
        assert at.reached(waited)


@on_level_zero
def test_synchronous_list_returns_when_its_work_is_done() -> None:
    with rig() as at:
        there, here = at.semaphore()
        commands = at.stream(mode=1)
        for value in range(1, 51):
            assert at.signal(commands, [here], [value]) == 0
            assert there.value() == value


@on_level_zero
def test_one_list_waits_while_others_run() -> None:
    with rig() as at:
        there, here = at.semaphore()
        waited, *passed = at.events(17)
        assert at.wait(at.stream(), [here], [1], event=waited) == 0
        for event in passed:
            at.barrier(at.stream(), event=event)
        assert all(at.reached(event) for event in passed)
        assert at.held(waited)
        there.host_signal(1)
        assert at.reached(waited)


@on_level_zero
def test_events_are_set_and_reset_by_the_host_and_by_a_list() -> None:
    with rig() as at:
        event, other = at.events(2)
        commands = at.stream()
        assert not at.reached(event, timeout_s=0)
        at.call("zeCommandListAppendSignalEvent", ctypes.c_void_p(commands), ctypes.c_void_p(event))
        at.call("zeCommandListAppendWaitOnEvents", ctypes.c_void_p(commands), ctypes.c_uint32(1), ze.handles([event]))
        at.barrier(commands, event=other)
        assert at.reached(other)
        assert at.reached(event, timeout_s=0)
        at.reset(event)
        assert at.pending(event)
        at.call("zeEventHostSignal", ctypes.c_void_p(event))
        at.reset(other)
        at.call("zeCommandListAppendEventReset", ctypes.c_void_p(commands), ctypes.c_void_p(event))
        at.barrier(commands, event=other)
        assert at.reached(other)
        assert at.pending(event)


# ---- Intel's driver
INTEL = {"SIMZE_MODE": "intel"}


def stays_signalled() -> None:
    with rig() as at:
        there, here = at.semaphore(BINARY)
        commands = at.stream()
        first, second, third = at.events(3)
        before = at.counter(b"let_through")
        assert at.wait(commands, [here], [0], event=first) == 0
        assert at.held(first)
        there.host_signal()
        assert at.reached(first)
        assert at.counter(b"let_through") == before
        assert at.wait(commands, [at.again(there)], [0], event=second) == 0
        assert at.reached(second)
        assert at.counter(b"let_through") == before + 1
        # The exporter resets and signals it again: the wait of a new import is held, and passes in order.
        there.host_wait(timeout_s=20)
        assert at.wait(commands, [at.again(there)], [0], event=third) == 0
        assert at.held(third)
        there.host_signal()
        assert at.reached(third)
        assert at.counter(b"let_through") == before + 1


@on_level_zero(**INTEL)
def test_intel_binary_stays_signalled_after_a_wait() -> None:
    stays_signalled()


@on_level_zero(**INTEL, SIMZE_CONTROLLER="fifo")
def test_intel_binary_stays_signalled_after_a_wait_of_the_controller() -> None:
    stays_signalled()


@on_level_zero(**INTEL)
def test_intel_signal_after_a_wait_meets_the_next_wait() -> None:
    with rig() as at:
        there, _here = at.semaphore(BINARY)
        commands = at.stream()
        before = at.counter(b"let_through")
        for event in at.events(3):
            there.host_signal()
            assert at.wait(commands, [at.again(there)], [0], event=event) == 0
            assert at.reached(event)
        assert at.counter(b"let_through") == before


@pytest.mark.parametrize("kind", [TIMELINE, BINARY])
@on_level_zero(**INTEL)
def test_intel_met_wait_lets_later_waits_of_its_handle_pass(kind: SemaphoreHandleType) -> None:
    with rig() as at:
        there, here = at.semaphore(kind)
        commands = at.stream()
        first, second, fresh = at.events(3)
        before = at.counter(b"let_through")
        there.host_signal(value_of(kind, 1))
        assert at.wait(commands, [here], [1], event=first) == 0
        assert at.reached(first)
        if kind is BINARY:
            there.host_wait(timeout_s=20)
        assert at.wait(commands, [here], [9], event=second) == 0
        assert at.reached(second)
        assert at.counter(b"let_through") == before + 1
        assert at.wait(commands, [at.again(there)], [9], event=fresh) == 0
        assert at.held(fresh)
        there.host_signal(value_of(kind, 9))
        assert at.reached(fresh)
        assert at.counter(b"let_through") == before + 1


@on_level_zero(SIMZE_QUEUES="1", SIMZE_ENGINES="1")
def test_wait_on_one_engine_stalls_no_earlier_work() -> None:
    with rig() as at:
        _, semaphore = at.semaphore(TIMELINE)
        for value in range(1, 101):
            signals, waits = at.stream(), at.stream()   # their first operations, on threads that start
            (event,) = at.events(1)
            assert at.signal(signals, [semaphore], [value]) == 0
            assert at.wait(waits, [semaphore], [value], event=event) == 0
            assert at.reached(event)
