"""Count the driver's calls of a frame, a wait and a signal, on the releases of Intel's driver."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.levelzero_sim import FIFO, HOST_FUNCTIONS, LIFO, on_level_zero
from support.paths import TESTS

FRAMES = 200
PROGRAM = f"""
import os, sys
sys.path.insert(0, sys.argv[1])
synchronizes, between = (each == "True" for each in sys.argv[2:])
from support.levelzero_facade import BOUND_S, opened
with opened() as at:
    free_there, free = at.semaphore()
    done_there, done = at.semaphore()
    commands = at.here.create_command_list()
    for number in range(1, 1 + 2 * {FRAMES}):
        if number == {FRAMES}:
            print(os.path.getsize(os.environ["SIMZE_LOG"]))
        free_there.host_signal(number)
        commands.append_wait(free, number)
        if between:
            commands.synchronize(timeout_s=BOUND_S)
        commands.append_signal(done, number)
        if synchronizes:
            commands.synchronize(timeout_s=BOUND_S)
        else:
            done_there.host_wait(number, timeout_s=BOUND_S)
    print(os.path.getsize(os.environ["SIMZE_LOG"]))
"""


def check(log: Path, most: float, *, synchronizes: bool, between: bool = False) -> None:
    """Check the calls of the later half of the frames."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(TESTS), str(synchronizes), str(between)], check=True,
                         stdout=subprocess.PIPE, text=True, timeout=100, env={**os.environ, "SIMZE_LOG": str(log)})
    start, end = map(int, ran.stdout.split())
    names = [line.split()[1] for line in log.read_bytes()[start:end].decode().splitlines()]
    counts = collections.Counter(name for name in names if name.startswith("ze"))
    assert counts.total() / FRAMES < most, counts
    # Up to 26.22, each operation of a semaphore costs the driver an event that it does not give back.
    operations = sum(count for name, count in counts.items() if "Append" in name and "ExternalSemaphore" in name)
    assert operations / FRAMES < 2.1, counts


@pytest.mark.parametrize(("synchronizes", "most"), [(False, 5.6), (True, 8.6)])
@on_level_zero(**FIFO)
def test_26_22(tmp_path: Path, synchronizes: bool, most: float) -> None:
    check(tmp_path / "log", most, synchronizes=synchronizes)


@pytest.mark.parametrize(("synchronizes", "most"), [(False, 8.6), (True, 11.6)])
@on_level_zero(**LIFO)
def test_before_26_22(tmp_path: Path, synchronizes: bool, most: float) -> None:
    check(tmp_path / "log", most, synchronizes=synchronizes, between=True)


@pytest.mark.parametrize(("synchronizes", "most"), [(False, 3.6), (True, 6.6)])
@on_level_zero(**HOST_FUNCTIONS)
def test_26_35(tmp_path: Path, synchronizes: bool, most: float) -> None:
    check(tmp_path / "log", most, synchronizes=synchronizes)
