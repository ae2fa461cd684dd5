"""Windows, as far as Linux can simulate it: every module imports. `make windows` runs more, under Wine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.paths import TESTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the simulation takes Linux's names away")


def test_every_module_imports_on_windows() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", str(TESTS / "support" / "windows_sim.py")],
                          capture_output=True, text=True, check=False, timeout=100, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == {}
    assert found["count"] > 150
