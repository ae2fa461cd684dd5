"""Rings between the host and each other device, on the stand-ins: the devices wait, natively or over the bridge."""

from __future__ import annotations

import subprocess
import sys

import pytest
from backends.test_portable_pairs import DEVICES, place
from support.paths import TESTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins need Linux")


@pytest.mark.parametrize("other", [each for each in DEVICES if each != "host:0"])
def test_frames_go_from_and_to_each_device(other: str) -> None:
    prefix, environment = place(other)
    for pair in (("host:0", other), (other, "host:0")):
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "support.ring_pair", *pair], check=False, capture_output=True, text=True,
            timeout=100, env={**environment, "PYTHONPATH": f"{TESTS}:{environment.get('PYTHONPATH', '')}"})
        assert done.returncode == 0, done.stdout + done.stderr
