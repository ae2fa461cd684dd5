"""Appends are whole or not made, on lists that may reorder and after each failing call."""

from __future__ import annotations

import pytest
from support.levelzero_facade import BOUND_S, driver_of, list_of, opened
from support.levelzero_rig import Rig, rig
from support.levelzero_sim import on_level_zero

import xsem
from xsem_levelzero import Native

INTEL = {"SIMZE_MODE": "intel"}


def native_of(app: Rig) -> Native:
    return Native(app.driver, app.context, app.device)


def fail(app: Rig, what: str | None) -> None:
    app.library().simze_fail(what.encode() if what else None, None)


# ---- lists that may reorder
@pytest.mark.parametrize("want_event", [False, True])
@on_level_zero(**INTEL)
def test_wait_is_appended_when_the_barrier_behind_it_fails(
    want_event: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        there, here = at.semaphore()
        commands = at.here.command_list(app.stream(flags=0), in_order=False)
        event = at.here.create_event() if want_event else None
        fail(app, "zeCommandListAppendBarrier:0x70000002:2")
        commands.append_wait(here, 1, signal_event=event)
        fail(app, None)
        assert "took no barrier" in caplog.text
        here.release()   # the wait is queued: the import lives until the wait is met
        assert not commands.query()
        there.host_signal(1)
        if event is not None:
            event.wait(timeout_s=BOUND_S)
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**INTEL)
def test_refused_wait_leaves_no_wait_for_its_events() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        gate_there, gate = at.semaphore()
        _, here = at.semaphore()
        own, passed = at.here.create_command_list(), at.here.create_event()
        own.append_wait(gate, 1, signal_event=passed)
        commands = at.here.command_list(app.stream(flags=0), in_order=False)
        fail(app, "zeCommandListAppendWaitExternalSemaphoreExt:0x70000002:1")
        with pytest.raises(xsem.OutOfMemoryError):
            commands.append_wait(here, 1, wait_events=[passed])
        fail(app, "zeCommandListAppendBarrier:0x70000002:2")
        with pytest.raises(xsem.OutOfMemoryError):
            commands.append_barrier(wait_events=[passed])
        fail(app, None)
        commands.synchronize(timeout_s=BOUND_S)   # nothing on the list waits for the event
        gate_there.host_signal(1)
        own.synchronize(timeout_s=BOUND_S)


@on_level_zero(**INTEL)
def test_interrupted_wait_keeps_its_fresh_import(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        extension = driver_of(at.here)._core.extension
        append = extension.append

        def interrupted(*args: object) -> None:
            append(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(extension, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            commands.append_wait(here, 1)
        monkeypatch.undo()
        there.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**INTEL)
def test_event_of_an_interrupted_barrier_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has the barrier and sets its event later, so no other operation may use the event."""
    with opened() as at:
        commands = at.here.create_command_list()
        queue = list_of(commands)
        fresh, loader = driver_of(at.here)._events._fresh, driver_of(at.here)._core.loader
        queue.append_barrier((), True)
        do, left = loader.do, list(fresh)

        def interrupted(*args: object) -> None:
            do(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(loader, "do", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.append_barrier((), True)
        monkeypatch.undo()
        assert list(fresh) == left[1:]
        assert driver_of(at.here).wait_fence(queue.append_barrier((), True), int(BOUND_S * 1e9))
