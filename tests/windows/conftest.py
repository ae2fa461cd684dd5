"""Tests on Windows. `make windows` runs them with CPython for Windows under Wine."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator

import pytest

# Not a skip: on other systems these tests do not exist.
collect_ignore_glob = [] if sys.platform == "win32" else ["test_*.py"]

GRACE_S = 20.0


@pytest.fixture(autouse=True)
def no_handle_left() -> Iterator[None]:
    """Each test leaves as many handles as before. The handle of a thread that has ended can be closed later."""
    from support.windows_objects import handle_count

    before = handle_count()
    yield
    deadline = time.monotonic() + GRACE_S
    while (now := handle_count()) > before:
        gc.collect()
        if time.monotonic() > deadline:
            pytest.fail(f"the test left {now - before} handles behind", pytrace=False)
        time.sleep(0.01)
