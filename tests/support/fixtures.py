"""Fixtures of several folders, which their conftest.py imports, and the check of a refusal."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import xsem
from support.fake_backend import FakeDriver, fake
from xsem.errors import BadArgumentError, XsemError
from xsem.types import OwnedHandle

Opened = tuple[xsem.Device, FakeDriver]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """The fake backend's device and its driver."""
    with fake() as (device, driver):
        yield device, driver


@pytest.fixture
def exporting(opened: Opened) -> Opened:
    """The fake backend's device and its driver, which exports each semaphore as a new file."""
    _, driver = opened
    driver.export_semaphore = lambda _: new_handle()  # type: ignore[assignment,method-assign]
    return opened


@pytest.fixture
def device() -> Iterator[xsem.Device]:
    """The host device."""
    if _no_host():
        pytest.skip("the host device needs Linux")
    with xsem.open_device("host") as opened:
        yield opened


@functools.cache   # it looks for the libraries of all vendors: 50 ms
def _no_host() -> bool:
    return next(info for info in xsem.backends() if info.name == "host").unavailable is not None


def new_handle() -> OwnedHandle:
    """Return a new eventfd, or a new event on Windows."""
    if sys.platform == "win32":
        from support.windows_objects import event

        return OwnedHandle(event())
    return OwnedHandle(os.eventfd(0))


def refused(act: Callable[[], object], reason: str, error: type[XsemError] = BadArgumentError) -> XsemError:
    """Check that `act` raises exactly this class with this reason and a text. Return the error."""
    with pytest.raises(XsemError) as caught:
        act()
    raised = caught.value
    assert (type(raised), raised.reason) == (error, reason), f"{type(raised).__name__}, {raised.reason}: {raised}"
    assert str(raised)
    return raised


def reason_of(act: Callable[[], object]) -> str:
    """Return the reason of the error of xsem that `act` raises."""
    with pytest.raises(XsemError) as caught:
        act()
    return caught.value.reason


def calls(driver: FakeDriver) -> list[Any]:
    """The operations appended to all lists, without xsem's own markers."""
    return [
        call for each in driver.lists for call, marker in zip(each.calls, each.by_marker, strict=True) if not marker
    ]


def refused_unasked(
    driver: FakeDriver, reason: str, call: Callable[[], object], error: type[xsem.XsemError] = BadArgumentError
) -> xsem.XsemError:
    """Check that `call` raises before any driver call."""
    before = calls(driver)
    raised = refused(call, reason, error)
    assert calls(driver) == before
    return raised
