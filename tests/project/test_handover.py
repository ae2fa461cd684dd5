"""The benchmark of hand-overs between processes runs on the stand-in for libcuda. No figure is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_sim import stand_in_environment
from support.paths import ROOT


def handover(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "benchmarks" / "handover.py"), *arguments], check=False,
                          timeout=100, env=stand_in_environment(SIMCUDA_LATE_US="0", **environment),
                          capture_output=True, text=True,   # late signals would make each hand-over 20 ms long
                          stdin=subprocess.DEVNULL)


@pytest.mark.timeout(110)
def test_each_way_hands_the_values_over_between_two_devices(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = handover("--count", "60", "--chunk", "20", "--devices", "cuda:0", "cuda:1", "--exporter", "host", "--json",
                    str(out), SIMCUDA_DEVICES="2")
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["hand_overs"] == 60
    assert "not measured: by hand: CUDA IPC events" in done.stdout   # the stand-in has none
    parts = {**found["hand_over_us"], "host_us": found["host_us"], "append_us": found["append_us"]}
    assert [(name, len(each)) for name, each in parts.items()] == [
        ("signals alone", 4), ("with a small work", 4), ("host_us", 5), ("append_us", 5)]
    for part in parts.values():
        assert all(0 < each["p50"] <= each["p99"] for each in part.values())
        assert all(name in done.stdout for name in part)


def test_machine_without_the_timelines_is_not_measured() -> None:
    done = handover(SIMCUDA_ATTRIBUTES="122:0")
    assert done.returncode == 3
    assert "no timelines in host memory" in done.stderr
