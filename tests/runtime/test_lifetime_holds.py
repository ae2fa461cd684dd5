"""A released object lives on while an array, a call in progress or a capture holds it."""

from __future__ import annotations

import threading

import pytest
from support.fake_backend import ALL, FakeStream, fake, timeline
from support.fixtures import Opened
from support.releasing import NEVER_BLOCKS, memory, rest
from support.waiting import until

from xsem.errors import BusyError
from xsem.runtime.queues.room import MARK_EVERY
from xsem.types import Capabilities


@pytest.mark.parametrize("capabilities", [ALL, NEVER_BLOCKS], ids=["blocks", "never blocks"])
def test_array_keeps_a_released_mapping_until_collected(capabilities: Capabilities) -> None:
    with fake(capabilities) as (device, driver):
        driver.dlpack = (1, 0)
        mem = memory(device)
        buffer = mem.map_buffer()
        capsule = buffer.__dlpack__()
        buffer.release()
        mem.release()
        device.release()
        rest(device)
        assert driver.log == []
        del capsule
        until(lambda: [call[0] for call in driver.log] == ["unmap_buffer", "release_memory", "close"])


def test_object_is_freed_after_the_call_in_progress(opened: Opened) -> None:
    device, driver = opened
    sem = timeline(device)
    inside, leave = threading.Event(), threading.Event()

    def on_wait() -> None:
        inside.set()
        assert leave.wait(10)
        driver.values[sem._state.token] = 1

    driver.on_wait = on_wait
    waiter = threading.Thread(target=lambda: sem.host_wait(1))
    waiter.start()
    assert inside.wait(10)
    sem.release()
    device.release()
    rest(device)
    assert driver.log == []
    leave.set()
    waiter.join(10)
    until(lambda: [call[0] for call in driver.log] == ["release_semaphore", "close"])


def test_objects_of_a_capture_stay_until_the_device_closes(opened: Opened) -> None:
    device, driver = opened
    commands = device.command_list(FakeStream(7))
    driver.lists[0].capture = True
    sem, mem = timeline(device), memory(device)
    commands.append_wait(sem, 1, acquire=[mem])
    commands.append_signal(sem, 2)
    driver.lists[0].capture = False
    later = timeline(device)
    driver.lists[0].capture = True
    commands.append_wait(later, 1)
    driver.lists[0].capture = False
    sem.release()
    mem.release()
    rest(device)
    driver.finish()
    assert commands.query()
    later.release()   # although all is done now: the graph may be launched again
    rest(device)
    assert driver.log == []
    device.release()
    until(lambda: ("close",) in driver.log)
    assert (len(driver.released("release_semaphore")), len(driver.released("release_memory"))) == (2, 1)


def test_release_during_a_captured_append_blocks_no_thread(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.command_list(FakeStream(7)), timeline(device)

    def during() -> None:
        thread = threading.Thread(target=sem.release)
        thread.start()
        thread.join(10)

    driver.lists[0].capture = True
    driver.lists[0].during = during
    commands.append_wait(sem, 1)
    driver.lists[0].capture = False
    rest(device)
    assert driver.log == []


def test_nothing_is_appended_to_a_capture_by_xsem(opened: Opened) -> None:
    device, driver = opened
    commands = device.command_list(FakeStream(7))
    sem = timeline(device)
    commands.append_signal(sem, 1)
    driver.lists[0].capture = True
    for value in range(2, 2 * MARK_EVERY):
        commands.append_signal(sem, value)
    sem.release()
    for ask in (commands.query, lambda: commands.synchronize(timeout_s=5)):
        with pytest.raises(BusyError) as caught:
            ask()
        assert caught.value.reason == "capturing"
    device.pending()
    assert driver.lists[0].markers == 0
    driver.lists[0].capture = False
    assert not commands.query()
    assert driver.lists[0].markers == 1
    driver.finish()
    assert commands.query()
