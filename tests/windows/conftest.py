"""Tests on Windows. `make windows` runs them with CPython for Windows under Wine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest
from support.at_once import threads
from support.waiting import until

import xsem

# Not a skip: on other systems these tests do not exist.
collect_ignore_glob = [] if sys.platform == "win32" else ["test_*.py"]

GRACE_S = 20.0


@pytest.fixture(scope="session")
def drivers_started() -> None:
    """Each device has done work once, and asyncio. The libraries keep a few handles from then on."""
    asyncio.run(asyncio.sleep(0))
    for info in xsem.devices():
        with xsem.open_device(info.id) as device:
            commands = device.create_command_list()
            commands.append_barrier()
            commands.synchronize(timeout_s=GRACE_S)
    until(lambda: not threads())   # it has handles


@pytest.fixture(autouse=True)
def no_handle_left(drivers_started: None, request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves as many handles of each type as before.

    A test with Hypothesis counts in each of its examples.
    """
    if getattr(request.function, "is_hypothesis_test", False):
        yield
        return
    from support.windows_objects import handles_as_before

    with handles_as_before():
        yield
