"""The short form of the soak of the Level Zero backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.levelzero_sim import level_zero_command

SOAK = Path(__file__).with_name("levelzero_soak.py")


@pytest.mark.slow
def test_short_soak_has_no_violation() -> None:
    level_zero_command("true")   # skips the test if the driver cannot be built
    ran = subprocess.run([sys.executable, str(SOAK), "--seconds", "6", "--round-seconds", "2", "--seed", "1"],
                         check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ": 0 violations" in ran.stdout
