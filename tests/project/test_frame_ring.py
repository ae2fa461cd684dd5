"""The benchmark of rings runs on the host and on the stand-in for libcuda. No figure is judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_sim import stand_in_environment
from support.paths import ROOT

from xsem.ring.message import MOST_CONSUMERS

PARTS = ("throughput", "small", "consumers")


def measured(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "benchmarks" / "frame_ring.py"), *arguments], check=False,
                          timeout=100, env=stand_in_environment(**environment), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)


@pytest.mark.timeout(110)
@pytest.mark.parametrize(("device", "parts"), [("cuda:0", ("endurance", *PARTS)), ("host:0", PARTS[:2])])
def test_frames_go_by_each_way(device: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = measured("--device", device, "--frames", "100", "--json", str(out), "--parts", *parts)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    for part in parts:
        assert part in done.stdout
    for part in set(PARTS) & set(parts):
        assert all(0 < each["low"] <= each["median"] <= each["high"] for each in found[part]["frame_us"].values())
        assert len(found[part]["frame_us"]) == 2
    assert all(0 < each["p50"] <= each["p99"] for each in found["small"]["round_trip_us"].values())
    if "endurance" in parts:
        assert found["consumers"]["consumers"] == MOST_CONSUMERS
        assert found["endurance"]["fifo"]["read"] == 100
        assert [len(each["points"]["producer"]) for each in found["endurance"].values()] == [10, 10]


def test_machine_without_the_timelines_is_not_measured() -> None:
    done = measured(SIMCUDA_ATTRIBUTES="122:0")
    assert done.returncode == 3
    assert "no timelines in host memory" in done.stderr
