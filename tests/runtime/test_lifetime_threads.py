"""Release frees objects in a fixed order, on one thread."""

from __future__ import annotations

import logging
import threading

import pytest
from support.at_once import threads
from support.fake_backend import fake, timeline
from support.fixtures import Opened
from support.releasing import NEVER_BLOCKS, failing, memory, rest
from support.waiting import until

from xsem.runtime import lifetime as lifetime_module
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.threads import Pause


def _out_of_memory(*_: object) -> bool:
    raise MemoryError


# ---- order and threads
def test_buffers_are_freed_before_memory_before_the_device(opened: Opened) -> None:
    device, driver = opened
    mem = memory(device)
    buffers = [mem.map_buffer(offset, 1024) for offset in (0, 1024)]
    view = buffers[0].view((4,), "uint8")
    sem = timeline(device)
    device.release()
    assert all(each.released for each in (mem, sem, view, *buffers))
    until(lambda: ("close",) in driver.log)
    order = [call[0] for call in driver.log if call[0] != "release_semaphore"]
    assert order == ["unmap_buffer", "unmap_buffer", "release_memory", "close"]
    assert len(driver.released("release_semaphore")) == 1


def test_memory_released_first_is_freed_after_its_buffer(opened: Opened) -> None:
    device, driver = opened
    mem = memory(device)
    buffer = mem.map_buffer()
    mem.release()
    rest(device)
    assert driver.log == []
    buffer.release()
    until(lambda: len(driver.log) == 2)
    assert [call[0] for call in driver.log] == ["unmap_buffer", "release_memory"]


def test_only_the_releasing_thread_frees_memory(opened: Opened) -> None:
    device, driver = opened
    mem = memory(device)
    mem.map_buffer().release()
    mem.release()
    until(lambda: len(driver.released("release_memory")) == 1)
    assert driver.threads == {"xsem-release-fake:0"}


def test_other_calls_go_on_while_an_unmap_blocks(opened: Opened) -> None:
    device, driver = opened
    commands, sem, mem = device.create_command_list(), timeline(device), memory(device)
    driver.unblock.clear()
    mem.map_buffer().release()
    until(lambda: driver.threads)
    commands.append_signal(sem, 1)
    sem.release()
    mem.release()
    assert not commands.query()
    assert device.pending()[0].operation == "signal"
    driver.lists[0].reach_all()
    assert commands.query()
    assert driver.log == []
    driver.unblock.set()
    until(lambda: {"unmap_buffer", "release_memory", "release_semaphore"} == {call[0] for call in driver.log})


def test_objects_are_freed_by_the_caller_when_frees_never_block() -> None:
    with fake(NEVER_BLOCKS) as (device, driver):
        mem = memory(device)
        buffer = mem.map_buffer()
        buffer.release()
        mem.release()
        assert [call[0] for call in driver.log] == ["unmap_buffer", "release_memory"]
        assert driver.threads == {threading.current_thread().name}
        assert not threads()


def test_object_that_another_thread_frees_meanwhile_has_no_release_left() -> None:
    with fake(NEVER_BLOCKS) as (device, driver):
        mem, releaser = memory(device), device._device_state.releaser
        others: list[threading.Thread] = []

        class Ending(set[Lifetime]):
            def add(self, lifetime: Lifetime) -> None:
                other = threading.Thread(target=mem._lifetime.free)
                other.start()
                # If this call holds the lock, the thread can free the object only afterwards.
                if not releaser.lock._is_owned():
                    other.join()
                others.append(other)
                super().add(lifetime)

        releaser.ending = Ending()
        mem.release()
        for other in others:
            other.join()
        assert len(driver.released("release_memory")) == len(others) == 1
        assert releaser.releasing() == ()
        assert device.releasing() == ()


def test_thread_ends_when_nothing_is_pending_and_comes_back(opened: Opened) -> None:
    device, driver = opened
    for round_ in range(1, 4):
        memory(device).release()
        while len(driver.released("release_memory")) < round_:
            rest(device)
        rest(device)


# ---- errors, logs and polls of the releasing thread
def test_releasing_thread_survives_an_unexpected_error(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    monkeypatch.setattr("xsem.runtime.threads._AGAIN_S", 0.001)
    mem = memory(device)
    with monkeypatch.context() as patched:
        patched.setattr(device._device_state.releaser, "_settle", _out_of_memory)
        mem.release()
        until(lambda: "MemoryError" in caplog.text)
    until(lambda: driver.released("release_memory"))   # it continues without another release
    assert "xsem-release-fake:0 failed, and goes on" in caplog.text


def test_logging_in_the_releasing_thread_leaves_no_dummy_thread(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    device, driver = opened
    caplog.set_level(logging.WARNING)
    driver.release_memory = failing  # type: ignore[assignment,method-assign]
    memory(device).release()
    until(lambda: "releasing the" in caplog.text)
    assert caplog.records[0].threadName == "xsem-release-fake:0"
    rest(device)
    assert not [thread for thread in threading.enumerate() if "Dummy" in thread.name]


def test_pending_release_is_polled_less_and_less_often(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = opened
    pauses: list[float] = []

    class Nap(Pause):
        def wait(self, timeout_s: float) -> bool:
            pauses.append(timeout_s)
            return super().wait(min(timeout_s, 0.001))

    commands, sem = device.create_command_list(), timeline(device)
    commands.append_wait(sem, 1)
    monkeypatch.setattr(device._device_state.releaser, "_nap", Nap())
    sem.release()
    until(lambda: len(pauses) > 12)
    assert pauses[:2] == [0.0005, 0.001]
    assert pauses[-1] == 0.05
    driver.finish()
    until(lambda: driver.log)


def test_releasing_thread_waits_for_the_next_release(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = opened
    monkeypatch.setattr(lifetime_module, "_LINGER_S", 30.0)
    releaser = device._device_state.releaser
    threads: list[int] = []
    driver.on_release = lambda: threads.append(threading.get_ident())
    for count in (1, 2, 3):
        timeline(device).release()
        until(lambda count=count: len(driver.released("release_semaphore")) == count)  # type: ignore[misc]
        until(lambda: releaser._lingering)
    assert len(set(threads)) == 1
    monkeypatch.setattr(lifetime_module, "_LINGER_S", 0.0)
    timeline(device).release()
    until(lambda: not releaser._thread.running)
