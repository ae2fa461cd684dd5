"""Tests on Windows. `make windows` runs them with CPython for Windows under Wine."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

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
    deadline = time.monotonic() + GRACE_S
    while any(each.name.startswith("xsem-") for each in threading.enumerate()):   # it has handles
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def start_system_threads() -> Callable[[], None]:
    """A module replaces this fixture if its calls start threads of Windows that live on for a while.

    They have handles. Each count therefore follows a call of this function.
    """
    return lambda: None


@pytest.fixture(autouse=True)
def no_handle_left(
    drivers_started: None, start_system_threads: Callable[[], None], request: pytest.FixtureRequest
) -> Iterator[None]:
    """Each test leaves as many handles of each type as before, because pytest replaces handles of files.

    The handle of a thread that has ended can be closed later. A test with Hypothesis counts in each of its examples.
    """
    if getattr(request.function, "is_hypothesis_test", False):
        yield
        return
    from support.windows_objects import handles

    from xsem.ipc.pipes import transit

    start_system_threads()
    before = Counter(handles().values())
    yield
    while transit._left:   # messages to this process that the test did not receive: they would wait for its end
        transit._left.pop().free()
    deadline = time.monotonic() + GRACE_S
    start_system_threads()
    while left := Counter(handles().values()) - before:
        gc.collect()
        start_system_threads()
        if time.monotonic() > deadline:
            pytest.fail(f"the test left handles behind: {dict(left)}", pytrace=False)
        time.sleep(0.01)
