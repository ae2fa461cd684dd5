"""A command list copies, fills and calls work."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.fake_backend import fake, timeline
from support.fixtures import Opened, calls, refused_unasked
from support.waiting import until

from xsem.errors import BadArgumentError, DriverError, UnsupportedError, WrongDeviceError
from xsem.types import MemoryHandleType


# ---- copies and fills
def test_copy_and_fill_reach_the_driver(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    a, b = memory.map_buffer(0, 1024), memory.map_buffer(1024, 1024)
    done = device.create_event()
    commands.append_copy(a, b)
    commands.append_fill(a, b"\1\2", signal_event=done)
    commands.append_fill(b, bytearray(b"\0"), wait_events=[done])  # type: ignore[arg-type]
    assert calls(driver) == [
        ("copy", a._place.token, 0, b._place.token, 0, 1024), ("fill", a._place.token, 0, b"\1\2", 1024),
        ("fill", b._place.token, 0, b"\0", 1024),
    ]


def test_views_of_a_buffer_reach_the_driver_as_offsets(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    buffer = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096).map_buffer(512, 1024)
    first, second = buffer.view((100,), "uint8", offset=8), buffer.view((100,), "uint8", offset=500)
    commands.append_copy(first, second.view((100,), "uint8"))
    token = buffer._place.token
    assert calls(driver) == [("copy", token, 8, token, 500, 100)]


@pytest.mark.parametrize(("pattern", "period"), [
    (b"\0" * 8, b"\0"), (b"abab", b"ab"), (b"abc" * 4, b"abc"), (b"abca", b"abca"), (b"aab" * 2 + b"aac", b"aabaabaac"),
    (bytes(range(16)) * 2, bytes(range(16))),
])
def test_pattern_of_a_fill_is_the_shortest_period(opened: Opened, pattern: bytes, period: bytes) -> None:
    device, driver = opened
    buffer = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096).map_buffer(0, 36 * 32)
    device.create_command_list().append_fill(buffer, pattern)
    assert calls(driver) == [("fill", buffer._place.token, 0, period, buffer.size)]


def test_mappings_of_the_same_bytes_overlap_without_addresses(opened: Opened) -> None:
    device, driver = opened
    driver.addresses = False
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    a, b, c = (memory.map_buffer(offset, 64, overlap=True) for offset in (0, 63, 64))
    refused_unasked(driver, "overlap", lambda: commands.append_copy(a, b))
    commands.append_copy(a, c)
    with pytest.raises(UnsupportedError) as caught:
        a.address  # noqa: B018 - the access itself is tested
    assert (caught.value.capability, caught.value.backend) == ("address", "fake")
    assert "offset 0" in repr(a)


def test_bad_copies_and_fills_are_refused(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    a, b = memory.map_buffer(0, 1024), memory.map_buffer(1024, 512)
    refused_unasked(driver, "size_mismatch", lambda: commands.append_copy(a, b))
    refused_unasked(driver, "overlap", lambda: commands.append_copy(a, a))
    view = a.view((512,), "uint8", offset=256)
    refused_unasked(driver, "overlap", lambda: commands.append_copy(view, a.view((512,), "uint8")))
    refused_unasked(driver, "not_a_buffer", lambda: commands.append_copy(a, b"1" * 1024))  # type: ignore[arg-type]
    refused_unasked(driver, "not_a_buffer", lambda: commands.append_fill(memory, b"1"))  # type: ignore[arg-type]
    for pattern in (b"", b"123", "0", 0, memoryview(b"0"), None):
        refused_unasked(driver, "bad_pattern", lambda pattern=pattern: commands.append_fill(a, pattern))  # type: ignore[misc]
    with fake() as (other, _):
        theirs = other.create_memory(MemoryHandleType.OPAQUE_FD, 4096).map_buffer(0, 1024)
        refused_unasked(driver, "wrong_device", lambda: commands.append_copy(a, theirs), WrongDeviceError)
        refused_unasked(driver, "wrong_device", lambda: commands.append_fill(theirs, b"0"), WrongDeviceError)


def test_copy_keeps_its_buffers(opened: Opened) -> None:
    device, driver = opened
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096)
    a, b = memory.map_buffer(0, 1024), memory.map_buffer(1024, 1024)
    commands.append_copy(a, b)
    a.release()
    b.release()
    memory.release()
    until(lambda: driver.lists[0].markers == 1)
    assert driver.log == []
    driver.finish()
    until(lambda: len(driver.log) == 3)


# ---- work
def test_work_is_called_at_once_and_in_order(opened: Opened) -> None:
    device, driver = opened
    commands, sem = device.create_command_list(), timeline(device)
    seen: list[Any] = []
    commands.append_wait(sem, 1)
    commands.append_work(lambda: seen.append((threading.current_thread(), len(driver.lists[0].calls))))
    commands.append_signal(sem, 2)
    assert seen == [(threading.current_thread(), 1)]
    assert [op.operation for op in device.pending()] == ["wait", "work", "signal"]


@pytest.mark.parametrize("work", [None, 7, "work", b""])
def test_work_that_cannot_be_called_is_refused(opened: Opened, work: Any) -> None:
    device, driver = opened
    refused_unasked(driver, "not_callable", lambda: device.create_command_list().append_work(work))


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), KeyboardInterrupt(), SystemExit(3)])
def test_work_that_raises_stops_its_list_and_no_other(opened: Opened, error: BaseException) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def work() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        commands.append_work(work)
    assert raised.value is error
    before = calls(driver)
    for ask in (commands.query, commands.synchronize, commands.append_barrier, lambda: commands.append_work(print),
                lambda: commands.append_signal(sem, 1), lambda: commands.append_wait(sem, 1)):
        with pytest.raises(DriverError) as caught:
            ask()
        assert caught.value.reason == "work_failed"
        assert caught.value.from_earlier_work
        assert caught.value.__cause__ is error
    assert calls(driver) == before
    other.append_signal(sem, 1)
    commands.release()


def test_error_of_an_append_inside_work_stops_the_list(opened: Opened) -> None:
    device, _ = opened
    commands, sem = device.create_command_list(), timeline(device)

    def work() -> None:
        commands.append_signal(sem, 1)
        commands.append_signal(sem, 1)

    with pytest.raises(BadArgumentError):
        commands.append_work(work)
    with pytest.raises(DriverError):
        commands.query()


def test_work_may_append_to_other_lists_that_work_meanwhile(opened: Opened) -> None:
    device, driver = opened
    commands, other, sem = device.create_command_list(), device.create_command_list(), timeline(device)

    def work() -> None:
        thread = threading.Thread(target=lambda: other.append_signal(sem, 1))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        commands.append_work(lambda: commands.append_signal(sem, 2))

    commands.append_work(work)
    assert [call[0] for call in calls(driver)] == ["signal", "signal"]
