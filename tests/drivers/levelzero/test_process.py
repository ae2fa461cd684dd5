"""The simulated Level Zero driver: crashes, configured failures, log, counters, the vendor's headers."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes import c_void_p
from pathlib import Path

import pytest
from support import levelzero_raw as ze
from support.levelzero_rig import BINARY, PAGE, rig
from support.levelzero_sim import level_zero_command, loader_folder, on_level_zero
from support.paths import DRIVERS, TESTS

SOURCES = DRIVERS / "levelzero"


# ---- misuse that crashes a driver
HEAD = """
import ctypes, os
from support.levelzero_rig import *
import xsem
from support import levelzero_raw as ze
host = xsem.open_device("host")
at = Rig(host)
there, here = at.semaphore(BINARY)
commands = at.stream()
event, other = at.events(2)
_view, memory = at.memory()
"""
PENDING = """
at.wait(commands, [here], [0], event=event)
at.fill_code(commands, memory, b"x", 16)
"""
CRASHES = {
    "semaphore": (PENDING + "at.release(here)", "ReleaseExternalSemaphoreExt: this semaphore is released while"),
    "list": (PENDING + "at.destroy(CommandList=commands)", "ListDestroy: this command list is destroyed while"),
    "event": (PENDING + "at.destroy(Event=event)", "zeEventDestroy: this event is destroyed while"),
    "memory": (PENDING + "at.free(memory)", "zeMemFree: this memory is freed while"),
    "late_use": ("at.release(here); at.wait(commands, [here], [0])", "this object was destroyed"),
    "context": ("at.close()", "zeContextDestroy: this context is destroyed before"),
    "pool": ("at.destroy(EventPool=list(at.events_of)[0])", "zeEventPoolDestroy: this event pool is destroyed before"),
    "range": (f"at.fill_code(commands, memory, b'x', {PAGE + 1})", "this range leaves its allocation"),
}


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(level_zero_command(sys.executable, "-c", script), check=False, capture_output=True, text=True,
                          timeout=50, env={**os.environ, "PYTHONPATH": path, **environment})


@pytest.mark.variants
@pytest.mark.parametrize("name", CRASHES)
def test_misuse_ends_the_process_and_says_why(name: str) -> None:
    body, why = CRASHES[name]
    ran = run(f"{HEAD}{body}\nos._exit(0)")
    assert ran.returncode == -6, ran.stderr
    assert "simze: abort in " in ran.stderr
    assert why in ran.stderr


def test_process_ends_with_a_wait_pending() -> None:
    ran = run(f"{HEAD}{PENDING}\nprint('end')")
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr


def test_forked_child_refuses_handles_of_its_parent() -> None:
    ran = run(HEAD + """
pid = os.fork()
if pid == 0:
    assert at.code("zeEventHostReset", ctypes.c_void_p(event)) == ze.UNINITIALIZED
    child = Rig(xsem.open_device("host"))
    assert at.code("zeEventHostReset", ctypes.c_void_p(event)) == ze.INVALID_ARGUMENT
    there, here = child.semaphore(BINARY)
    (done,) = child.events(1)
    assert child.signal(child.stream(), [here], [0], event=done) == 0
    assert child.reached(done)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
at.end()
""")
    assert ran.returncode == 0, ran.stderr


# ---- configured failures, the log, the counters
@on_level_zero(SIMZE_FAIL="zeDeviceImportExternalSemaphoreExt:0x78000003:2,zeEventHostReset:0x70000001:2+")
def test_calls_fail_as_configured() -> None:
    with rig() as at:
        codes = []
        for _ in range(3):
            _there, fd = at.exported(BINARY)
            code, semaphore = at.import_code(fd, ze.OPAQUE_FD)
            codes.append(code)
            if code:
                os.close(fd)
            else:
                at.semaphores.append(semaphore)
        assert codes == [0, 0x78000003, 0]
        (event,) = at.events(1)
        assert [at.code("zeEventHostReset", c_void_p(event)) for _ in range(3)] == [0, 0x70000001, 0x70000001]
        fail = at.library().simze_fail
        fail(None, b"zeEventHostSignal:0x70000001")
        assert at.code("zeEventHostSignal", c_void_p(event)) == 0x70000001
        assert at.reached(event, timeout_s=0)   # it has acted
        fail(None, None)
        at.reset(event)


def test_log_has_each_call_and_the_file_has_the_counters(tmp_path: Path) -> None:
    log, counters = tmp_path / "log", tmp_path / "counters"
    ran = run(HEAD + """
there.host_signal()
at.wait(commands, [here], [0], event=event)
at.wait(commands, [here], [0], event=other)
assert at.reached(other)
at.reset(event)
at.signal(commands, [here], [0], event=event)
assert at.reached(event)   # otherwise it would be counted after the end
at.code("zeEventHostReset", None)
at.end()
""", SIMZE_MODE="intel", SIMZE_LOG=str(log), SIMZE_COUNTERS=str(counters))
    assert ran.returncode == 0, ran.stderr
    lines = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    assert sum(line.startswith("zeCommandListAppendWaitExternalSemaphoreExt list=0x") for line in lines) == 2
    assert "-> zeEventHostReset 0x78000005" in lines
    assert sum(line.startswith("# let through: semaphore=0x") for line in lines) == 1
    words = memoryview(counters.read_bytes()).cast("Q")
    assert list(words) == [1, 2, 1, 0]   # let through, waits, signals, overlaps


# ---- against the vendor's headers
@pytest.mark.parametrize("release", ["trixie", "forky"])
def test_layouts_numbers_and_offsets_match_the_vendor_header(release: str) -> None:
    include = loader_folder(release) / "include"
    command = ["gcc", "-std=c11", "-DAGAINST_VENDOR", f"-I{include}", "-fsyntax-only", str(SOURCES / "layouts.c")]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert ran.returncode == 0, ran.stderr


def test_every_function_of_the_driver_is_in_a_table() -> None:
    table = (SOURCES / "functions.def").read_text().splitlines()
    listed = {line.split(", ")[3] for line in table if line.startswith("F(")}
    made = {
        line.split("(")[0].removeprefix("ze_result_t ") for path in SOURCES.glob("*.c")
        for line in path.read_text().splitlines() if line.startswith("ze_result_t ze")
    }
    assert made == listed
