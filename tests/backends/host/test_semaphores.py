"""Test the host's semaphores in one process, at the driver interface."""

from __future__ import annotations

import functools
import os
import struct
import threading
import time

import pytest
from support.fake_backend import until
from support.host_peers import (
    BINARY,
    LONG_NS,
    SLICE_NS,
    TIMELINE,
    desc,
    import_again,
    imported,
    sleeps_in,
    three_asleep,
)
from support.open_files import is_open

from xsem.errors import BadArgumentError, ReleasedError, UnsupportedError
from xsem.portable import linux_timeline
from xsem.types import OwnedHandle, SemaphoreHandleType
from xsem_host import eventfds, semaphores
from xsem_host.device import HostDevice

BOTH = [TIMELINE, BINARY]


def wanted(type: SemaphoreHandleType, value: int = 1) -> int | None:
    return value if type is TIMELINE else None


# ---- binary
def test_binary_wait_resets_and_two_signals_are_one(driver: HostDevice) -> None:
    one = driver.create_semaphore(BINARY, 0)
    other = import_again(driver, BINARY, one)
    assert not driver.host_wait(other, None, 0)
    driver.host_signal(one, None)
    driver.host_signal(one, None)
    assert driver.host_wait(other, None, SLICE_NS)
    assert not driver.host_wait(one, None, 0)
    driver.release_semaphore(one)
    driver.release_semaphore(other)


@pytest.mark.parametrize("mode", [0, os.EFD_NONBLOCK], ids=["blocking", "nonblocking"])
@pytest.mark.timeout(10)
def test_binary_signal_never_blocks_at_the_counters_maximum(driver: HostDevice, mode: int) -> None:
    fd = os.eventfd(0, os.EFD_CLOEXEC | mode)
    os.write(fd, struct.pack("=Q", 2**64 - 2))
    token = imported(driver, desc(BINARY), OwnedHandle(fd))
    driver.host_signal(token, None)
    assert driver.host_wait(token, None, SLICE_NS)
    assert not driver.host_wait(token, None, 0)
    driver.release_semaphore(token)


def test_binary_signal_works_when_another_fills_the_counter(
    driver: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = driver.create_semaphore(BINARY, 0)
    write = os.eventfd_write

    def late(fd: int, value: int) -> None:
        os.write(fd, struct.pack("=Q", 2**64 - 2))
        write(fd, value)

    monkeypatch.setattr(os, "eventfd_write", late)
    driver.host_signal(token, None)
    monkeypatch.undo()
    assert driver.host_wait(token, None, SLICE_NS)
    driver.release_semaphore(token)


@pytest.mark.parametrize("mode", [0, os.EFD_NONBLOCK], ids=["blocking", "nonblocking"])
@pytest.mark.timeout(20)
def test_binary_wakes_exactly_one_of_several_waiters(driver: HostDevice, mode: int) -> None:
    token = imported(driver, desc(BINARY), OwnedHandle(os.eventfd(0, os.EFD_CLOEXEC | mode)))
    got: list[int] = []
    stop = threading.Event()

    def wait(number: int) -> None:
        while not stop.is_set():
            if driver.host_wait(token, None, SLICE_NS):
                got.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for count in range(1, 21):
        driver.host_signal(token, None)
        until(functools.partial(lambda wanted: len(got) == wanted, count))
    stop.set()
    for thread in threads:
        thread.join()
    assert len(got) == 20
    driver.release_semaphore(token)


@pytest.mark.timeout(10)
def test_loser_of_a_race_for_a_signal_is_not_held(driver: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    token = imported(driver, desc(BINARY), OwnedHandle(os.eventfd(0, os.EFD_CLOEXEC)))
    ready = eventfds.readable

    def stolen(fd: int, timeout_ns: int) -> bool:
        seen = ready(fd, timeout_ns)
        if seen:
            os.read(fd, 8)  # another reader is faster, between poll and read
        return seen

    monkeypatch.setattr(semaphores, "readable", stolen)
    driver.host_signal(token, None)
    assert not driver.host_wait(token, None, SLICE_NS)
    driver.release_semaphore(token)


def test_value_of_a_binary_is_unsupported(driver: HostDevice) -> None:
    token = driver.create_semaphore(BINARY, 0)
    with pytest.raises(UnsupportedError):
        driver.semaphore_value(token)
    driver.release_semaphore(token)


# ---- timeline
def test_timeline_without_a_value_is_refused(driver: HostDevice) -> None:
    token = driver.create_semaphore(TIMELINE, 3)
    for call in (lambda: driver.host_signal(token, None), lambda: driver.host_wait(token, None, 0)):
        with pytest.raises(BadArgumentError) as refusal:
            call()
        assert refusal.value.reason == "value_required"
    assert driver.semaphore_value(token) == 3
    driver.release_semaphore(token)


@pytest.mark.timeout(10)
def test_timeline_jump_by_two_to_the_32_wakes_a_sleeper(driver: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_timeline, "_LONGEST_SLEEP_NS", LONG_NS)  # only a wake-up can end the sleep in time
    one = driver.create_semaphore(TIMELINE, 0)
    met: list[bool] = []
    thread = threading.Thread(target=lambda: met.append(driver.host_wait(one, 2**32, LONG_NS)))
    thread.start()
    until(lambda: sleeps_in("futex", thread))
    driver.host_signal(one, 2**32)
    thread.join()
    assert met == [True]
    driver.release_semaphore(one)


@pytest.mark.timeout(10)
def test_timeline_signal_wakes_every_sleeper(driver: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux_timeline, "_LONGEST_SLEEP_NS", LONG_NS)
    token = driver.create_semaphore(TIMELINE, 0)
    with three_asleep(lambda: driver.host_wait(token, 1, LONG_NS)) as met:
        driver.host_signal(token, 1)
    assert met == [True] * 3
    driver.release_semaphore(token)


class Overtaken:
    """The value of a timeline that is signalled directly after a read of the value."""

    def __init__(self, timeline: linux_timeline.Timeline) -> None:
        self.timeline = timeline
        self.real = timeline._value

    @property
    def value(self) -> int:
        seen = self.real.value
        self.timeline._value = self.real
        self.timeline.signal(1)
        return seen


@pytest.mark.timeout(10)
def test_timeline_signal_between_look_and_sleep_is_not_missed(
    driver: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux_timeline, "_LONGEST_SLEEP_NS", LONG_NS)
    token = driver.create_semaphore(TIMELINE, 0)
    monkeypatch.setattr(token, "_value", Overtaken(token))  # type: ignore[arg-type]
    assert driver.host_wait(token, 1, LONG_NS)
    driver.release_semaphore(token)


# ---- waiting
@pytest.mark.parametrize("type", BOTH)
def test_wait_does_not_spin(driver: HostDevice, type: SemaphoreHandleType) -> None:
    token = driver.create_semaphore(type, 0)
    began, used = time.monotonic(), time.thread_time()
    assert not driver.host_wait(token, wanted(type), 400_000_000)
    assert time.thread_time() - used < 0.2 * (time.monotonic() - began)
    driver.release_semaphore(token)


def test_timeline_wait_does_not_spin_when_each_sleep_ends_early(
    driver: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = driver.create_semaphore(TIMELINE, 0)
    looks = 0

    def restless(address: int, expected: int, timeout_ns: int) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(linux_timeline, "futex_wait", restless)
    assert not driver.host_wait(token, 1, 300_000_000)
    # 64 reads without a pause, then at most one per millisecond. Without the pauses there would be tens of thousands.
    assert looks < 64 + 350
    driver.release_semaphore(token)


def test_binary_wait_does_not_spin_when_others_are_faster(
    driver: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = driver.create_semaphore(BINARY, 0)
    looks = 0

    def restless(fd: int, timeout_ns: int) -> bool:
        nonlocal looks
        looks += 1
        return True

    monkeypatch.setattr(semaphores, "readable", restless)
    assert not driver.host_wait(token, None, 300_000_000)
    assert looks < 64 + 350
    driver.release_semaphore(token)


@pytest.mark.parametrize("type", BOTH)
@pytest.mark.timeout(10)
def test_wait_without_end_can_be_met(driver: HostDevice, type: SemaphoreHandleType) -> None:
    token = driver.create_semaphore(type, 0)
    met: list[bool] = []
    thread = threading.Thread(target=lambda: met.append(driver.host_wait(token, wanted(type), 2**80)))
    thread.start()
    until(lambda: sleeps_in("futex" if type is TIMELINE else "poll", thread))
    driver.host_signal(token, wanted(type))
    thread.join()
    assert met == [True]
    driver.release_semaphore(token)


# ---- release
@pytest.mark.parametrize("type", BOTH)
@pytest.mark.timeout(10)
def test_release_leaves_the_file_to_a_wait_that_is_inside(driver: HostDevice, type: SemaphoreHandleType) -> None:
    token = driver.create_semaphore(type, 0)
    other = import_again(driver, type, token)
    fd = token.fd
    met: list[bool] = []
    thread = threading.Thread(target=lambda: met.append(driver.host_wait(token, wanted(type), LONG_NS)))
    thread.start()
    until(lambda: sleeps_in("futex" if type is TIMELINE else "poll", thread))
    driver.release_semaphore(token)
    os.fstat(fd)  # the number must not become another file's while the wait uses it
    driver.host_signal(other, wanted(type))
    thread.join()
    assert met == [True]
    assert not is_open(fd)
    driver.release_semaphore(other)


@pytest.mark.parametrize("type", BOTH)
def test_use_after_release_is_refused_and_closes_no_other_file(
    driver: HostDevice, type: SemaphoreHandleType
) -> None:
    token = driver.create_semaphore(type, 0)
    driver.release_semaphore(token)
    other = os.eventfd(0)  # takes the number that is free since the release
    driver.release_semaphore(token)
    os.fstat(other)
    with pytest.raises(ReleasedError):
        driver.host_signal(token, wanted(type))
    with pytest.raises(ReleasedError):
        driver.host_wait(token, wanted(type), 0)
    os.close(other)


@pytest.mark.parametrize(("type", "each"), [(BINARY, 1), (TIMELINE, 2)])
def test_a_semaphore_takes_one_file_descriptor_and_one_for_its_place(
    driver: HostDevice, type: SemaphoreHandleType, each: int
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    tokens = [driver.create_semaphore(type, 0) for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) == before + 10 * each
    for token in tokens:
        driver.release_semaphore(token)
    assert len(os.listdir("/proc/self/fd")) == before


def test_native_handle_is_the_fd(driver: HostDevice) -> None:
    for type in BOTH:
        token = driver.create_semaphore(type, 0)
        assert driver.native_handle(token) == token.fd
        driver.release_semaphore(token)
    with pytest.raises(UnsupportedError):
        driver.native_handle(None)
