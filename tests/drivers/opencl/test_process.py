"""The simulated OpenCL device: crashes, configured failures and faults, log, counters, PoCL without the layer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import opencl_raw as cl
from support.opencl_rig import rig
from support.opencl_sim import on_opencl, opencl_command, opencl_environment
from support.paths import TESTS

HEAD = """
import os
from ctypes import *
from support.opencl_rig import *
import xsem
from support import opencl_raw as cl
host = xsem.open_device("host")
at = Rig(host)
there, here = at.semaphore()
other_there, other = at.semaphore()
queue = at.stream()
view, memory = at.memory()
"""
PENDING = "event = at.waits(queue, here); at.flush(queue)\n"


def run(script: str, *, bare: bool = False, **settings: str) -> subprocess.CompletedProcess[str]:
    """On the simulated device, or without the layer."""
    command = opencl_command(sys.executable, "-c", script)
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(command[-3:] if bare else command, check=False, capture_output=True, text=True, timeout=50,
                          env=opencl_environment(PYTHONPATH=path, **settings))


# ---- misuse that crashes a driver, or has no defined result
CRASHES = {
    "release_while_queued": (PENDING + "at.release(here)", "ReleaseSemaphoreKHR: this semaphore is released while its"),
    "release_of_what_is_not_flushed": ("at.signals(queue, here); at.release(here)", "released while its work is"),
    "late_wait": ("at.release(here); at.wait(queue, [here])", "WaitSemaphoresKHR: this semaphore was released"),
    "second_release": ("at.release(here); at.release(here)", "clReleaseSemaphoreKHR: this semaphore was released"),
    "errors_semaphore": ("at.wait(queue, [at.import_code(os.pipe()[0])[1]])", "this pointer came with an error"),
    "errors_memory_released": (
        "at.release_buffer(at.buffer_code(16, cl.MEMORY_OPAQUE_FD, 99999)[1])", "ReleaseMemObject: this pointer came"),
    "errors_memory_used": (
        "at.fill(queue, at.buffer_code(2 * PAGE, cl.MEMORY_OPAQUE_FD, at.fds[-1])[1], 1, 1)", "this pointer came with"),
}


@pytest.mark.variants
@pytest.mark.parametrize("name", CRASHES)
def test_misuse_ends_the_process_and_says_why(name: str) -> None:
    body, why = CRASHES[name]
    ran = run(f"{HEAD}{body}\nos._exit(0)")
    assert ran.returncode == -6, ran.stderr
    assert "simcl: abort in " in ran.stderr
    assert why in ran.stderr


def test_queued_semaphore_may_be_released_when_configured() -> None:
    ran = run(HEAD + PENDING + """
at.signals(queue, other)
at.flush(queue)
at.semaphores.clear()
assert at.release(here) == at.release(other) == 0
there.host_signal()
other_there.host_wait(timeout_s=20)
at.end()
""", SIMCL_RELEASE="deferred")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.variants
@pytest.mark.parametrize("flushed", [True, False])
def test_process_ends_with_a_wait_pending(flushed: bool) -> None:
    ran = run(f"{HEAD}event = at.waits(queue, here)\nif {flushed}: at.flush(queue)\nprint('end')")
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr


def test_pocl_without_the_layer_lacks_the_extensions() -> None:
    ran = run("""
from support import opencl_raw as cl
at = cl.Raw()
names = at.of_device(0x1030).rstrip(b"\\0").decode().split()
assert not set(names) & set(cl.EXTENSIONS), names
assert not any(at.functions.values())
assert at.devices_of(cl.CPU) == at.devices and at.devices_of(cl.GPU) == []
""", bare=True)
    assert ran.returncode == 0, ran.stderr


# ---- configured failures, the log, the counters
@on_opencl(SIMCL_FAIL="clCreateSemaphoreWithPropertiesKHR:-6:2,clFlush:-5:2+")
def test_calls_fail_as_configured() -> None:
    with rig() as at:
        _, fd = at.exported()
        made = [at.import_code(fd) for _ in range(3)]
        assert [code for code, _ in made] == [0, -6, 0]
        at.semaphores += [made[0][1], made[2][1]]
        queue = at.stream()
        at.flush(queue)
        for _ in range(2):
            with pytest.raises(cl.CodeError, match="clFlush: -5"):
                at.flush(queue)
        at.fail(None, b"clEnqueueSignalSemaphoresKHR:-36")
        code, event = at.signal(queue, [made[0][1]])
        assert code == -36
        assert event
        at.events.append(event)
        at.fail()
        at.flush(queue)
        assert at.reached(event)   # it has acted


def test_log_has_each_call_and_the_file_has_the_counters(tmp_path: Path) -> None:
    log, counters = tmp_path / "log", tmp_path / "counters"
    ran = run(HEAD + """
there.host_signal()
at.waits(queue, here)
event = at.signals(queue, other)
assert at.wait(queue, [])[0] == cl.INVALID_VALUE
at.events.append(at.fill(queue, memory, 1, 1))
at.flush(queue)
assert at.reached(event)
at.end()
""", SIMCL_LOG=str(log), SIMCL_COUNTERS=str(counters))
    assert ran.returncode == 0, ran.stderr
    lines = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    assert sum(line.startswith("clEnqueueWaitSemaphoresKHR queue=0x") for line in lines) == 2
    assert sum(line.startswith("clCreateSemaphoreWithPropertiesKHR context=0x") for line in lines) == 2
    assert "-> clEnqueueWaitSemaphoresKHR -30" in lines
    assert sum(line.endswith(" is used and not acquired") for line in lines) == 1
    assert list(memoryview(counters.read_bytes()).cast("Q")) == [1, 1, 1]   # waits, signals, unacquired


@pytest.mark.variants
@pytest.mark.parametrize(("setting", "value", "said"), [
    ("FD", "closed", "SIMCL_FD=closed is none of open, taken, kept"),
    ("FLUSH", "no", "SIMCL_FLUSH=no is neither needed nor unneeded"),
    ("FAIL", "clFlush", "SIMCL_FAIL is not NAME:CODE[:NUMBER[+]],… at 'clFlush'"),
])
def test_wrong_setting_is_reported(setting: str, value: str, said: str) -> None:
    ran = run("from support import opencl_raw; opencl_raw.Raw()", bare=False, **{f"SIMCL_{setting}": value})
    assert ran.returncode == -6
    assert said in ran.stderr


def test_number_of_devices_is_checked() -> None:
    ran = run("", SIMCL_DEVICES="0")
    assert (ran.returncode, ran.stderr) == (2, "tests/drivers/run: SIMCL_DEVICES is 1 to 9\n")


