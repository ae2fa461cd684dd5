"""The defaults of xsem.spi.DeviceDriver."""

from __future__ import annotations

from typing import Any

import pytest

import xsem.spi.device
from xsem.spi import DeviceDriver

LATE_NS = 250_000   # longest pause between two queries


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.now_ns = 10**15

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class Polled:
    """A driver with a fence that is reached at `reached_ns`."""

    wait_fence: Any = DeviceDriver.wait_fence

    def __init__(self, clock: Clock, reached_ns: int) -> None:
        self.clock, self.reached_ns, self.queries = clock, reached_ns, 0

    def query_fence(self, fence: object) -> bool:
        self.queries += 1
        return self.clock.now_ns >= self.reached_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(xsem.spi.device, "time", made)
    return made


@pytest.mark.parametrize("work_ns", [1_000, 300_000, 2_000_000, 20_700_000, 49_990_000])
def test_default_wait_ends_soon_after_its_fence(clock: Clock, work_ns: int) -> None:
    driver = Polled(clock, clock.now_ns + work_ns)
    assert driver.wait_fence("a fence", 50_000_000)
    assert 0 <= clock.now_ns - driver.reached_ns <= min(LATE_NS, max(20_000, work_ns))
    assert driver.queries <= 10 + work_ns // LATE_NS


def test_default_wait_ends_at_its_timeout(clock: Clock) -> None:
    began, driver = clock.now_ns, Polled(clock, clock.now_ns + 10**9)
    assert not driver.wait_fence("a fence", 7_777_777)
    assert clock.now_ns == began + 7_777_777


def test_default_wait_of_0_asks_once(clock: Clock) -> None:
    driver = Polled(clock, clock.now_ns + 1)
    assert not driver.wait_fence("a fence", 0)
    assert driver.queries == 1
