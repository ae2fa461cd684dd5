"""Test own and borrowed command lists of the Level Zero backend, and their events, on the simulated driver."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint32, c_void_p
from functools import partial
from typing import Any

import pytest
from support import levelzero_raw as raw
from support.levelzero_facade import BINARY, BOUND_S, PAGE, TIMELINE, driver_of, list_of, opened, soon
from support.levelzero_rig import Rig, rig
from support.levelzero_sim import on_level_zero

import xsem
from xsem.spi import Callers
from xsem.types import SignalParams, WaitParams


def native_of(app: Rig) -> Any:
    from xsem_levelzero import Native

    return Native(app.driver, app.context, app.device)


def regular(app: Rig) -> int:
    """Make a regular list, which is not immediate."""
    made = app.make("zeCommandListCreate", c_void_p(app.context), c_void_p(app.device),
                    byref(raw.structure(0xF, (c_uint32, 0), (c_uint32, 0))))
    app.lists.append(made)
    return made


# ---- reuse of events
@on_level_zero
def test_events_are_reused_after_signal_and_release() -> None:
    with opened() as at:
        events = driver_of(at.here)._events
        commands = at.here.create_command_list()
        for _ in range(500):
            event = at.here.create_event()
            commands.append_barrier(signal_event=event)
            event.wait(timeout_s=BOUND_S)
            del event
            commands.query()
        assert events.count == 32   # the first pool


@on_level_zero
def test_pools_grow_and_pending_events_are_not_reused() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        events = driver._events
        gate_there, gate = at.semaphore()
        held = at.here.create_command_list()
        commands = list_of(held)
        commands.append_wait([gate._token()], [WaitParams(value=1)], (), (), False)
        pending = [commands.append_barrier((), True) for _ in range(100)]
        for fence in pending:
            driver.release_fence(fence)   # no query follows, and the device still has to signal the event
        others = [events.take() for _ in range(200)]
        assert not {fence.handle for fence in pending} & {fence.handle for fence in others}
        assert len({fence.handle for fence in others}) == 200
        assert events.count > 300
        gate_there.host_signal(1)
        soon(lambda: driver.query_fence(pending[-1]))
        for fence in others:
            events.give_back(fence)
        before = events.count
        for _ in range(before):
            assert not driver.query_fence(events.take())   # each event is reset
        assert events.count == before
        held.synchronize(timeout_s=BOUND_S)


# ---- borrowed lists
@on_level_zero
def test_borrowed_list_is_in_order_and_outlives_its_release() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        there, here = at.semaphore()
        done_there, done = at.semaphore()
        source, target = ctypes.c_char(b"a"), app.memory()
        stream = app.stream()
        commands = at.here.command_list(stream)
        assert commands.native_handle == stream
        assert list_of(commands).identity == driver_of(at.here).queue_identity(stream) == stream
        # Simultaneous calls on one list are forbidden, and the application appends to its own list.
        assert list_of(commands).callers is Callers.APPLICATION
        assert list_of(at.here.create_command_list()).callers is Callers.ONE_AT_A_TIME
        commands.append_wait(here, 1)
        [copied] = app.events(1)
        app.copy(stream, target[1], ctypes.addressof(source), 1, event=copied)
        commands.append_signal(done, 1)
        assert app.pending(copied)
        source.value = b"b"
        there.host_signal(1)
        done_there.host_wait(1, timeout_s=BOUND_S)
        assert target[0][:1] == b"b"
        commands.synchronize(timeout_s=BOUND_S)
        commands.release()
        [again] = app.events(1)
        app.copy(stream, target[1], ctypes.addressof(source), 1, event=again)   # the borrowed list still works
        assert app.reached(again)


@on_level_zero
def test_out_of_order_list_gets_barriers() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        there, here = at.semaphore()
        done_there, done = at.semaphore()
        source, target = ctypes.c_char(b"a"), app.memory()
        stream = app.stream(flags=0)
        commands = at.here.command_list(stream, in_order=False)
        copied, last = app.events(2)
        commands.append_wait(here, 1)
        app.copy(stream, target[1], ctypes.addressof(source), 1, event=copied)
        assert not app.reached(copied, timeout_s=0.05)   # the application's work waits for xsem's wait
        commands.append_signal(done, 1)
        there.host_signal(1)
        done_there.host_wait(1, timeout_s=BOUND_S)
        assert app.reached(copied, timeout_s=0)          # the signal comes after the application's work
        commands.synchronize(timeout_s=BOUND_S)
        app.copy(stream, target[1], ctypes.addressof(source), 1, event=last)
        assert app.reached(last)


@on_level_zero
def test_events_of_a_wait_on_an_out_of_order_list_are_waited_for() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        own = at.here.create_command_list()
        passed, marked = at.here.create_event(), at.here.create_event()
        own.append_wait(gate, 1, signal_event=passed)
        commands = at.here.command_list(app.stream(flags=0), in_order=False)
        commands.append_signal(here, 1, wait_events=[passed])
        commands.append_barrier(wait_events=[passed], signal_event=marked)
        assert not marked.query()
        assert there.value() == 0
        gate_there.host_signal(1)
        marked.wait(timeout_s=BOUND_S)
        assert there.value() == 1
        own.synchronize(timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero
def test_out_of_order_signal_with_events_follows_earlier_work() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        there, here = at.semaphore()
        own, passed = at.here.create_command_list(), at.here.create_event()
        own.append_barrier(signal_event=passed)
        own.synchronize(timeout_s=BOUND_S)
        stream, target = app.stream(flags=0), app.memory()[1]
        held, copied = app.events(2)
        app.copy(stream, target, target + PAGE // 2, 8, event=copied, after=[held])
        commands = at.here.command_list(stream, in_order=False)
        commands.append_signal(here, 1, wait_events=[passed])
        with pytest.raises(xsem.WaitTimeoutError):   # the application's copy waits, and so does the signal
            there.host_wait(1, timeout_s=0.05)
        assert app.pending(copied)
        app.call("zeEventHostSignal", c_void_p(held))
        there.host_wait(1, timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


def refuses_regular(reason: str | None) -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        _, here = at.semaphore()
        stream = regular(app)
        if reason is not None:
            with pytest.raises(xsem.BadArgumentError, match="rule 8") as caught:
                at.here.command_list(stream)
            assert caught.value.reason == reason
            return
        commands = at.here.command_list(stream)
        for append in (commands.append_wait, commands.append_signal):
            with pytest.raises(xsem.XsemError, match="rule 8") as late:
                append(here, 1)
            assert late.value.code_name in ("ZE_RESULT_ERROR_INVALID_ARGUMENT", "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE")


@on_level_zero(LOADER="trixie")
def test_regular_list_is_refused_where_the_loader_can_tell() -> None:
    refuses_regular("not_immediate")


@on_level_zero
def test_regular_list_is_refused_when_the_driver_table_can_tell() -> None:
    refuses_regular("not_immediate")


@on_level_zero(SIMZE_DRIVERS="2")
def test_regular_list_of_one_of_two_drivers_is_refused() -> None:
    refuses_regular("not_immediate")


@on_level_zero(SIMZE_MISSING="zeCommandListIsImmediate")
def test_regular_list_is_a_likely_cause_when_nothing_can_tell() -> None:
    refuses_regular(None)


@on_level_zero(SIMZE_MODE="intel", SIMZE_MISSING="zeCommandListIsImmediate")
def test_regular_list_is_a_likely_cause_on_intels_driver() -> None:
    refuses_regular(None)


@on_level_zero(SIMZE_MISSING="zeCommandListIsImmediate")
def test_operations_are_refused_until_list_is_known_as_immediate() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        there, here = at.semaphore()
        buffer, source = at.here.host_buffer(PAGE), at.here.host_buffer(PAGE)
        for immediate, stream in ((False, regular(app)), (True, app.stream())):
            commands = at.here.command_list(stream)
            for name, arguments in (("fill", (buffer, b"x")), ("copy", (buffer, source)), ("barrier", ()),
                                    ("work", (lambda: pytest.fail("it was called"),))):
                with pytest.raises(xsem.BadArgumentError, match="or a signal first") as caught:
                    getattr(commands, f"append_{name}")(*arguments)
                assert caught.value.reason == "not_immediate"
            assert commands.query()   # nothing was appended
            if immediate:
                commands.append_signal(here, 1)
                commands.append_fill(buffer, b"x")
                commands.synchronize(timeout_s=BOUND_S)
                assert bytes(buffer.numpy()) == b"x" * PAGE
                assert there.value() == 1


def regular_list_ends_with_rule_8(closed: bool) -> None:
    """A list that may reorder gets a barrier before each wait and signal. A closed list refuses the barrier."""
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        there, here = at.semaphore()
        for name in ("append_wait", "append_signal"):
            stream = regular(app)
            app.barrier(stream)   # the application's own
            if closed:
                app.call("zeCommandListClose", c_void_p(stream))
            commands = at.here.command_list(stream, in_order=False)
            with pytest.raises(xsem.XsemError, match="rule 8"):
                getattr(commands, name)(here, 1)
            for append, arguments in ((commands.append_barrier, ()), (commands.append_work, (pytest.fail,))):
                with pytest.raises(xsem.DriverError, match="rule 8") as caught:
                    append(*arguments)
                assert caught.value.reason == "not_immediate"
            assert commands.query()
            commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 0
        here.release()


@pytest.mark.parametrize("closed", [False, True])
@on_level_zero(SIMZE_MISSING="zeCommandListIsImmediate")
def test_regular_list_that_gets_a_barrier_first_ends_with_rule_8(closed: bool) -> None:
    regular_list_ends_with_rule_8(closed)


@pytest.mark.parametrize("closed", [False, True])
@on_level_zero(SIMZE_MODE="intel", SIMZE_MISSING="zeCommandListIsImmediate")
def test_regular_list_that_gets_a_barrier_first_ends_with_rule_8_on_intel(closed: bool) -> None:
    regular_list_ends_with_rule_8(closed)


@on_level_zero(LOADER="trixie", SIMZE_DEVICES="2", ZE_ENABLE_LOADER_INTERCEPT="1")
def test_list_of_another_device_or_context_is_refused() -> None:
    with rig() as app, rig(device=1) as other, opened("levelzero", native=native_of(app)) as at:
        at.here.command_list(app.stream())
        with pytest.raises(xsem.WrongDeviceError) as caught:
            at.here.command_list(other.stream())
        assert caught.value.reason == "wrong_device"
        said = caught.value.expected, caught.value.actual
        assert len({*said}) == 2
        assert all(each.startswith("device 0x") for each in said)
        with rig() as same_device:
            with pytest.raises(xsem.WrongDeviceError, match="native=") as caught:
                at.here.command_list(same_device.stream())
            assert caught.value.reason == "wrong_context"
            said = caught.value.expected, caught.value.actual
            assert len({*said}) == 2
            assert all(each.startswith("context 0x") for each in said)


@on_level_zero
def test_invalid_list_or_event_is_refused() -> None:
    with opened() as at:
        driver = driver_of(at.here)
        for wrong, reason in ((0, "null_stream"), (object(), "not_a_stream")):
            with pytest.raises(xsem.BadArgumentError) as caught:
                at.here.command_list(wrong)   # type: ignore[arg-type]
            assert caught.value.reason == reason
        for wrong, reason in ((0, "null_stream"), (object(), "not_a_stream"), (True, "not_a_stream")):
            for refuse in (partial(driver.borrow_queue, wrong, True), partial(driver.queue_identity, wrong)):
                with pytest.raises(xsem.BadArgumentError) as caught:
                    refuse()
                assert caught.value.reason == reason
        for wrong, reason in ((0, "null_event"), (c_void_p(None), "null_event"), ("event", "not_an_event"),
                              (None, "not_an_event"), (True, "not_an_event")):
            with pytest.raises(xsem.BadArgumentError) as caught:
                _ = at.here.event(wrong)
            assert caught.value.reason == reason


@on_level_zero
def test_event_of_the_applications_is_waited_for_and_queried() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        stream = app.stream()
        at.here.command_list(stream).append_wait(gate, 1)
        [theirs] = app.events(1)
        target = app.memory()[1]
        app.copy(stream, target, target + PAGE // 2, 8, event=theirs)
        event = at.here.event(c_void_p(theirs))
        commands = at.here.create_command_list()
        commands.append_signal(here, 1, wait_events=[event])
        assert not event.query()
        assert there.value() == 0
        gate_there.host_signal(1)
        event.wait(timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 1


# ---- parameters
@on_level_zero
def test_binary_semaphores_have_the_value_0() -> None:
    from xsem_levelzero import ze as _ze
    from xsem_levelzero.semaphores import Batches, Semaphore

    semaphores = [Semaphore(1, BINARY), Semaphore(2, TIMELINE)]
    batches = Batches(_ze.WaitParams)
    structs = batches.fill(semaphores, [WaitParams(), WaitParams(value=7)])
    assert [(each.stype, each.pNext, each.value) for each in structs] == [
        (0x20026, None, 0), (0x20026, None, 7)]
    assert ctypes.sizeof(structs) == 2 * 24
    signals = Batches(_ze.SignalParams).fill(semaphores[1:2], [SignalParams(value=2**64 - 1)])
    assert (signals[0].stype, signals[0].value) == (0x20025, 2**64 - 1)
