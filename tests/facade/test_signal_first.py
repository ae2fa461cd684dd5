"""A device takes a wait for a binary semaphore only after its signal: a wait that no signal can meet is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest
from support.fake_backend import ALL, FakeDriver, open_fake
from support.fixtures import Opened, calls, new_handle

import xsem
from xsem.errors import BusyError, DriverError, UnsupportedError
from xsem.types import SemaphoreDesc, SemaphoreHandleType

S = SemaphoreHandleType
BINARY, TIMELINE = S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD


@pytest.fixture
def ordered() -> Iterator[Opened]:
    device, driver = open_fake(dataclasses.replace(ALL, wait_before_signal=frozenset({TIMELINE})))
    driver.export_semaphore = lambda _: new_handle()  # type: ignore[assignment,method-assign]
    driver.everything_is_done = True
    with device:
        yield device, driver


def refused(commands: xsem.CommandList, act: Callable[[], object], driver: FakeDriver) -> None:
    before = len(calls(driver))
    with pytest.raises(BusyError) as caught:
        act()
    assert (caught.value.reason, caught.value.handle_type) == ("nothing_signalled", BINARY)
    assert "append the signal first" in caught.value.message
    assert len(calls(driver)) == before   # the list is as it was
    commands.append_barrier()


def test_wait_before_any_signal_is_refused(ordered: Opened) -> None:
    device, driver = ordered
    commands, sem = device.create_command_list(), device.create_semaphore(BINARY)
    refused(commands, lambda: commands.append_wait(sem), driver)


def test_each_signal_serves_one_wait_on_any_list(ordered: Opened) -> None:
    device, driver = ordered
    first, second, sem = device.create_command_list(), device.create_command_list(), device.create_semaphore(BINARY)

    def wait() -> None:
        second.append_wait(sem)

    for _ in range(3):
        first.append_signal(sem)
        wait()
        refused(second, wait, driver)
    sem.host_signal()
    wait()


def test_refused_batch_leaves_its_other_semaphores_as_they_were(ordered: Opened) -> None:
    device, driver = ordered
    commands = device.create_command_list()
    there, missing, timeline = (device.create_semaphore(each) for each in (BINARY, BINARY, TIMELINE))
    commands.append_signal([there, timeline], [None, 1])
    refused(commands, lambda: commands.append_wait([there, missing], [None, None]), driver)
    refused(commands, lambda: commands.append_wait([timeline, there, missing], [1, None, None]), driver)
    commands.append_wait([there, timeline], [None, 1])


@pytest.mark.parametrize("operation", ["signal", "wait"])
def test_refusal_of_the_driver_takes_the_note_back(ordered: Opened, operation: str) -> None:
    device, driver = ordered
    commands, sem = device.create_command_list(), device.create_semaphore(BINARY)
    if operation == "wait":
        commands.append_signal(sem)
    driver.lists[0].fail_next = DriverError("no", reason="driver_error")
    with pytest.raises(DriverError):
        getattr(commands, f"append_{operation}")(sem)
    if operation == "wait":
        commands.append_wait(sem)
    else:
        refused(commands, lambda: commands.append_wait(sem), driver)


def test_refused_native_handle_changes_nothing(ordered: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = ordered
    commands, sem = device.create_command_list(), device.create_semaphore(BINARY)

    def none(_token: object) -> int:
        raise UnsupportedError("no", capability="native_handle")

    monkeypatch.setattr(driver, "native_handle", none)
    with pytest.raises(UnsupportedError):
        assert sem.native_handle
    refused(commands, lambda: commands.append_wait(sem), driver)


@pytest.mark.parametrize("other", ["exported", "lent", "imported", "timeline", "declared"])
def test_wait_is_taken_where_somebody_else_can_signal_or_the_device_permits_it(ordered: Opened, other: str) -> None:
    device, _ = ordered
    if other == "declared":
        device, driver = open_fake(ALL)
        driver.everything_is_done = True
    commands = device.create_command_list()
    if other == "imported":
        with new_handle() as handle:
            sem = device.import_semaphore(SemaphoreDesc(type=BINARY, handle=handle))
    else:
        sem = device.create_semaphore(TIMELINE if other == "timeline" else BINARY)
    if other == "exported":
        sem.export().close()
    if other == "lent":
        assert sem.native_handle   # the application may submit a signal itself
    for _ in range(2):
        commands.append_wait(sem, 1 if other == "timeline" else None)
    if other == "declared":
        device.release()
