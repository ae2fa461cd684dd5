"""Windows, as far as Linux can simulate it: every module imports, and DuplicateHandle duplicates NT handles."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.paths import TESTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the simulation takes Linux's names away")


def simulated(what: str) -> Any:
    done = subprocess.run([sys.executable, "-W", "ignore", str(TESTS / "support" / "windows_sim.py"), what],
                          capture_output=True, text=True, check=False, timeout=100, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_module_imports_on_windows() -> None:
    found = simulated("imports")
    assert found["failed"] == {}
    assert found["count"] > 150


def test_nt_handle_is_duplicated_and_the_original_stays_open() -> None:
    found = simulated("handles")
    callers = 0x100
    for what, left in found["left"].items():
        # As on Linux without kernel support: a handle in an unknown state is leaked rather than closed twice.
        driver_has_one = what in ("taken by the driver", "refused, taken", "refused, unknown")
        assert callers in left, what
        assert len(left) == 1 + driver_has_one, what
    assert callers not in found["given"]
    assert found["given"][-1] == -1   # a KMT handle has no duplicate
    assert found["open"] == [callers]
    assert found["reasons"] == {
        "30583": "closed_fd",
        "-1": "null_handle", "owned -1": "null_handle",
        "18446744073709551615": "null_handle", "owned 18446744073709551615": "null_handle",
        "-2": "pseudo_handle", "owned -2": "pseudo_handle",
        "0": "null_handle", "owned 0": "null_handle",
    }
