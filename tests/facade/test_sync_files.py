"""Sync files: an imported one serves one wait; each signal of a created one serves one export or one wait."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator

import pytest
from support.fake_backend import INFO, fake, timeline
from support.fixtures import Opened, new_handle

from xsem.errors import BusyError, DriverError
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

SYNC = SemaphoreHandleType.SYNC_FD


@pytest.fixture
def exporting_done() -> Iterator[Opened]:
    with fake() as (device, driver):
        driver.export_semaphore = lambda _: None  # type: ignore[assignment,method-assign]
        yield device, driver


def busy(reason: str, call: Callable[[], object]) -> None:
    with pytest.raises(BusyError) as caught:
        call()
    assert (caught.value.reason, caught.value.handle_type) == (reason, SYNC)
    assert "'drawn'" in str(caught.value)


def failing(_semaphore: int) -> OwnedHandle:
    raise DriverError("no", reason="driver")


# ---- one signal, one use
@pytest.mark.parametrize("use", ["export", "wait"])
def test_a_signal_is_for_one_export_or_one_wait(exporting_done: Opened, use: str) -> None:
    device, driver = exporting_done
    commands, drawn = device.create_command_list(), device.create_semaphore(SYNC, label="drawn")

    def use_up() -> None:
        if use == "wait":
            commands.append_wait(drawn)
        else:
            drawn.export()

    busy("nothing_signalled", use_up)
    for _ in range(2):
        commands.append_signal(drawn)
        busy("signalled_already", lambda: commands.append_signal(drawn))
        use_up()
        busy("nothing_signalled", use_up)
    given = [each[0] for each in driver.lists[0].calls if each[0] in ("wait", "signal")]
    assert given == (["signal", "wait"] * 2 if use == "wait" else ["signal"] * 2)


@pytest.mark.parametrize("refuses", ["signal", "wait", "export"])
def test_refused_call_does_not_consume_the_signal(
    exporting_done: Opened, refuses: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, driver = exporting_done
    commands, drawn = device.create_command_list(), device.create_semaphore(SYNC, label="drawn")
    other = timeline(device)
    acts: dict[str, Callable[[], object]] = {
        "signal": lambda: commands.append_signal([drawn, other], [None, 1]),
        "wait": lambda: commands.append_wait([drawn, other], [None, 1]), "export": drawn.export}
    if refuses != "signal":
        acts["signal"]()
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with monkeypatch.context() as patch:
        if refuses == "export":
            patch.setattr(driver, "export_semaphore", failing)
        with pytest.raises(DriverError):
            acts[refuses]()
    driver.lists[0].fail_next = None
    acts[refuses]()


def test_imported_sync_file_is_for_one_wait(exporting_done: Opened) -> None:
    device, driver = exporting_done
    commands, other = device.create_command_list(), device.create_command_list()
    drawn, frames = device.import_semaphore(SemaphoreDesc.sync_fd(-1), label="drawn"), timeline(device)
    driver.lists[0].fail_next = DriverError("no", reason="driver")
    with pytest.raises(DriverError):
        commands.append_wait([drawn, frames], [None, 1])
    looks: list[None] = []

    def another_thread() -> None:
        busy("sync_file_used", lambda: other.append_wait(drawn))
        looks.append(None)

    driver.lists[0].during = another_thread
    commands.append_wait([drawn, frames], [None, 1])
    assert looks == [None]
    for each in (commands, other):
        busy("sync_file_used", lambda on=each: on.append_wait([frames, drawn], [1, None]))  # type: ignore[misc]
    assert [[call[0] for call in each.calls] for each in driver.lists] == [["wait"], []]


def test_batch_with_a_signalled_member_signals_nothing(exporting_done: Opened) -> None:
    device, driver = exporting_done
    commands, frames = device.create_command_list(), timeline(device)
    first, drawn = device.create_semaphore(SYNC), device.create_semaphore(SYNC, label="drawn")
    commands.append_signal(drawn)
    busy("signalled_already", lambda: commands.append_signal([first, drawn, frames], [None, None, 1]))
    commands.append_signal([first, frames], [None, 1])   # neither was signalled before
    assert [call[0] for call in driver.lists[0].calls if call[0] == "signal"] == ["signal", "signal"]


@pytest.mark.parametrize("first", ["signal", "wait", "export"])
def test_signal_is_unavailable_to_other_threads_until_appended(
    exporting_done: Opened, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On some drivers, an export before the submission of the signal would never be signalled."""
    device, driver = exporting_done
    commands, other = device.create_command_list(), device.create_command_list()
    drawn = device.create_semaphore(SYNC, label="drawn")
    if first != "signal":
        commands.append_signal(drawn)
    looks = 0

    def others(*_: object) -> None:
        nonlocal looks
        looks += 1
        busy("nothing_signalled", drawn.export)
        busy("nothing_signalled", lambda: other.append_wait(drawn))
        busy("signalled_already", lambda: other.append_signal(drawn))

    if first == "export":
        monkeypatch.setattr(driver, "export_semaphore", others)
        drawn.export()
    else:
        driver.lists[0].during = others
        (commands.append_signal if first == "signal" else commands.append_wait)(drawn)
    assert looks == 1


# ---- descriptors
def test_a_signal_that_is_done_has_the_handle_minus_one(exporting_done: Opened) -> None:
    device, driver = exporting_done
    commands, drawn = device.create_command_list(), device.create_semaphore(SYNC)
    commands.append_signal(drawn)
    with drawn.export() as desc:
        assert (desc.type, desc.handle) == (SYNC, -1)
        commands.append_wait(device.import_semaphore(desc))
    driver.export_semaphore = lambda _: new_handle()  # type: ignore[assignment,method-assign]
    commands.append_signal(drawn)
    with drawn.export() as desc:
        assert isinstance(desc.handle, OwnedHandle)


def test_sync_files_and_dma_bufs_are_exported_for_any_device() -> None:
    ours, theirs = uuid.uuid4(), uuid.uuid4()
    with fake(info=dataclasses.replace(INFO, uuid=ours)) as (device, driver):
        driver.export_semaphore = lambda _: None  # type: ignore[assignment,method-assign]
        driver.export_memory = lambda _: new_handle()  # type: ignore[assignment,method-assign]
        drawn, memory = device.create_semaphore(SYNC), device.create_memory(MemoryHandleType.DMABUF_FD, 4096)
        device.create_command_list().append_signal(drawn)
        with drawn.export(for_device=theirs) as fence, memory.export(for_device=theirs) as shared:
            assert (fence.device_uuid, shared.device_uuid) == (ours, ours)
