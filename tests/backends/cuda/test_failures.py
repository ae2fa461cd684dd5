"""Failed calls leave nothing, and no call comes at the end of the process. On the stand-in for libcuda."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_sim import stand_in_environment

# One process for each case: the environment sets the answers of the stand-in.
PRELUDE = """
import os, sys, time
import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

host = xsem.open_device("host")
cuda = xsem.open_device("cuda:0")

def semaphore():
    with host.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD).export(for_device=cuda) as desc:
        return cuda.import_semaphore(desc)

def memory():
    with host.create_memory(MemoryHandleType.OPAQUE_FD, 4096).export(for_device=cuda) as desc:
        return cuda.import_memory(desc)

def fds():
    return sorted(os.listdir("/proc/self/fd"))
"""


def run(code: str, *, first: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", first + PRELUDE + code], env=stand_in_environment(**environment),
                          capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.variants
@pytest.mark.parametrize("code", [400, 999, 12345])
@pytest.mark.parametrize("function", ["semaphore", "memory"])
def test_failed_import_leaves_no_fd_behind(function: str, code: int) -> None:
    ran = run(f"""
before = fds()
for _ in range(10):
    try:
        {function}()
    except xsem.XsemError:
        pass
# The exporter's objects were dropped unreleased; its own thread closes them.
deadline = time.monotonic() + 20
while fds() != before and time.monotonic() < deadline:
    time.sleep(0.01)
assert fds() == before, (before, fds())
""", SIMCUDA_FAIL=f"cuImportExternal{function.capitalize()}:{code}")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.variants
@pytest.mark.parametrize("function", ["cuDestroyExternalSemaphore", "cuDestroyExternalMemory", "cuMemFree"])
@pytest.mark.parametrize("code", [3, 400, 700])
def test_failed_release_is_logged_and_raises_nothing(function: str, code: int) -> None:
    ran = run("""
import logging
logging.basicConfig(stream=sys.stderr)
s, m = semaphore(), memory()
b = m.map_buffer()
for each in (s, b, m):
    each.release()
    each.release()
cuda.release()
""", SIMCUDA_FAIL=f"{function}:{code}")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.variants
@pytest.mark.parametrize("how", ["pass", "cuda.release()", "del cuda", "raise SystemExit(0)"])
def test_no_driver_call_at_exit(how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    # The function is registered before xsem is imported, so it runs after xsem's own exit functions. A call in progress
    # ends before the mark is written. A call of a thread that still runs comes after the mark.
    marker = f"""
import atexit, time
def mark():
    time.sleep(0.2)
    with open({str(log)!r}, "a") as log:
        log.write("EXIT\\n")
    time.sleep(0.3)
atexit.register(mark)
"""
    ran = run(f"""
s, m = semaphore(), memory()
b = m.map_buffer()
commands = cuda.create_command_list()
done = cuda.create_event()
commands.append_signal(s, 1, signal_event=done)
commands.append_wait(s, 5)
capsule = b.__dlpack__()
{how}
""", first=marker, SIMCUDA_LOG=str(log))
    assert ran.returncode == 0, ran.stderr
    lines = log.read_text().splitlines()
    assert "EXIT" in lines
    assert lines[lines.index("EXIT") + 1:] == []
