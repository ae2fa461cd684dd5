"""The short stress run on the stand-in for libcuda, and its reports of leaks and hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.cuda_sim import stand_in_environment
from support.paths import TESTS

from stress import census
from stress.run import SCALES

RUN = TESTS / "stress" / "run.py"


def stress(record: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(RUN), "--json", str(record), *arguments], check=False, timeout=100,
                          env=stand_in_environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.timeout(110)
@pytest.mark.parametrize("part", SCALES["short"])
def test_short_form_holds(tmp_path: Path, part: str) -> None:
    done = stress(tmp_path / "record.json", "--scale", "short", "--only", part, "--deadline", "90")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("stress: 1 of 1 parts held, seed ")
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["good"]
    assert f"seed {record['seed']}" in done.stdout
    (found,) = record["parts"]
    counts = {"signals": "operations", "imports": "imports", "peers": "kills", "fuzz": "semaphores taken"}
    assert found["counts"][counts[part]] >= (1 if part == "fuzz" else SCALES["short"][part])
    assert found["growth"]["after"]["fds"] <= found["growth"]["before"]["fds"]


@pytest.mark.slow
@pytest.mark.timeout(110)
def test_hanging_part_is_ended_and_shows_its_stack(tmp_path: Path) -> None:
    """A million operations take longer than this deadline."""
    done = stress(tmp_path / "record.json", "--scale", "long", "--only", "signals", "--deadline", "4")
    assert done.returncode == 1
    (part,) = json.loads((tmp_path / "record.json").read_text())["parts"]
    assert "ended with status 1 " in part["failures"][0]
    assert "(work):\n  File " in part["failures"][0]   # of signals.Worker: the traceback of its thread
    assert done.stdout.splitlines()[-1].startswith("stress: 0 of 1 parts held, seed ")


def test_missing_device_gives_status_3(tmp_path: Path) -> None:
    done = stress(tmp_path / "record.json", "--device", "cuda:9", "--scale", "short")
    assert done.returncode == 3
    assert done.stderr.startswith("stress: ")
    assert not (tmp_path / "record.json").exists()


def test_leaks_of_every_kind_are_reported() -> None:
    before = census.take()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    fd = os.memfd_create("leak")
    memory = os.urandom(census.RSS_ALLOWANCE + (4 << 20))
    try:
        complaints = census.Growth(before, census.take()).complaints()
    finally:
        stop.set()
        thread.join()
        os.close(fd)
    assert [each.split(maxsplit=1)[1] if each[0].isdigit() else each.split(" by ")[0] for each in complaints] == [
        "file descriptors leaked", "threads leaked", "resident memory grew"]
    assert len(memory) > census.RSS_ALLOWANCE
    del memory
    assert not [each for each in census.Growth(before, census.take()).complaints() if "memory" not in each]
