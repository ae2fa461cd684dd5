"""Test codes of the driver, missing functions and the end of the process. On the stand-in for libcuda."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.cuda_sim import stand_in_environment

# One process for each case: the environment sets the answers of the stand-in.
PRELUDE = """
import os, pickle, sys, time
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

OPERATIONS = {
    "cuImportExternalSemaphore": "semaphore()",
    "cuImportExternalMemory": "memory()",
    "cuExternalMemoryGetMappedBuffer": "memory().map_buffer()",
    "cuSignalExternalSemaphoresAsync": "cuda.create_command_list().append_signal(semaphore(), 1)",
    "cuWaitExternalSemaphoresAsync": "cuda.create_command_list().append_wait(semaphore(), 0)",
    "cuStreamCreate": "cuda.create_command_list()",
    "cuMemHostAlloc": "cuda.host_buffer(64)",
}


def run(code: str, *, first: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", first + PRELUDE + code], env=stand_in_environment(**environment),
                          capture_output=True, text=True, timeout=60, check=False)


def outcome(function: str, **environment: str) -> list[str]:
    """Return class, reason, call, code, code name and from_earlier_work of the operation's error."""
    code = f"""
try:
    {OPERATIONS[function]}
except xsem.XsemError as error:
    pickle.loads(pickle.dumps(error))
    print(type(error).__name__, error.reason, error.call, error.code, error.code_name,
          getattr(error, "from_earlier_work", False))
else:
    print("no error")
"""
    ran = run(code, **environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 3: "CUDA_ERROR_NOT_INITIALIZED",
         304: "CUDA_ERROR_OPERATING_SYSTEM", 400: "CUDA_ERROR_INVALID_HANDLE", 700: "CUDA_ERROR_ILLEGAL_ADDRESS",
         719: "CUDA_ERROR_LAUNCH_FAILED", 801: "CUDA_ERROR_NOT_SUPPORTED", 909: "CUDA_ERROR_TIMEOUT",
         999: "CUDA_ERROR_UNKNOWN"}


@pytest.mark.variants
@pytest.mark.parametrize(
    ("function", "code", "expected", "reason", "earlier"),
    [
        ("cuImportExternalSemaphore", 1, "DriverError", "invalid_value", False),
        ("cuSignalExternalSemaphoresAsync", 1, "DriverError", "invalid_value", False),
        ("cuWaitExternalSemaphoresAsync", 1, "DriverError", "invalid_value", False),
        ("cuImportExternalSemaphore", 3, "DriverError", "not_initialized", False),
        ("cuImportExternalSemaphore", 801, "UnsupportedError", "not_supported", False),
        ("cuImportExternalSemaphore", 400, "BadHandleError", "refused_by_driver", False),
        ("cuImportExternalSemaphore", 304, "DriverError", "operating_system", False),
        ("cuImportExternalSemaphore", 999, "BadHandleError", "refused_by_driver", False),
        ("cuImportExternalSemaphore", 700, "DeviceLostError", "device_lost", True),
        ("cuImportExternalMemory", 3, "DriverError", "not_initialized", False),
        ("cuImportExternalMemory", 1, "DriverError", "invalid_value", False),
        ("cuImportExternalMemory", 400, "BadHandleError", "refused_by_driver", False),
        ("cuImportExternalMemory", 304, "DriverError", "operating_system", False),
        ("cuImportExternalMemory", 2, "OutOfMemoryError", "out_of_memory", False),
        ("cuExternalMemoryGetMappedBuffer", 3, "DriverError", "not_initialized", False),
        ("cuExternalMemoryGetMappedBuffer", 1, "DriverError", "invalid_value", False),
        ("cuExternalMemoryGetMappedBuffer", 400, "DriverError", "invalid_handle", False),
        ("cuSignalExternalSemaphoresAsync", 3, "DriverError", "not_initialized", False),
        ("cuSignalExternalSemaphoresAsync", 400, "DriverError", "invalid_handle", False),
        ("cuSignalExternalSemaphoresAsync", 801, "DriverError", "not_supported", False),
        ("cuSignalExternalSemaphoresAsync", 999, "DriverError", "earlier_work_failed", True),
        ("cuSignalExternalSemaphoresAsync", 719, "DeviceLostError", "device_lost", True),
        ("cuWaitExternalSemaphoresAsync", 3, "DriverError", "not_initialized", False),
        ("cuWaitExternalSemaphoresAsync", 400, "DriverError", "invalid_handle", False),
        ("cuWaitExternalSemaphoresAsync", 801, "DriverError", "not_supported", False),
        ("cuWaitExternalSemaphoresAsync", 909, "WaitTimeoutError", "timeout", False),
        ("cuStreamCreate", 2, "OutOfMemoryError", "out_of_memory", False),
        ("cuMemHostAlloc", 2, "OutOfMemoryError", "out_of_memory", False),
    ],
)
def test_each_code_of_the_driver_has_its_error(
    function: str, code: int, expected: str, reason: str, earlier: bool
) -> None:
    assert outcome(function, SIMCUDA_FAIL=f"{function}:{code}") == [
        expected, reason, function, str(code), NAMES[code], str(earlier)]


@pytest.mark.parametrize("function", ["cuImportExternalSemaphore", "cuSignalExternalSemaphoresAsync"])
def test_code_that_the_bindings_do_not_know_keeps_its_number(function: str) -> None:
    assert outcome(function, SIMCUDA_FAIL=f"{function}:12345") == [
        "DriverError", "unknown_code", function, "12345", "None", "True"]


@pytest.mark.variants
@pytest.mark.parametrize("code", [400, 999, 12345])
@pytest.mark.parametrize("function", ["cuImportExternalSemaphore", "cuImportExternalMemory"])
def test_failed_import_leaves_no_fd_behind(function: str, code: int) -> None:
    ran = run(f"""
before = fds()
for _ in range(10):
    try:
        {OPERATIONS[function]}
    except xsem.XsemError:
        pass
# The exporter's objects were dropped unreleased; its own thread closes them.
deadline = time.monotonic() + 20
while fds() != before and time.monotonic() < deadline:
    time.sleep(0.01)
assert fds() == before, (before, fds())
""", SIMCUDA_FAIL=f"{function}:{code}")
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


def test_driver_that_lacks_a_function_says_which() -> None:
    assert outcome("cuImportExternalSemaphore", SIMCUDA_MISSING="cuImportExternalSemaphore")[:3] == [
        "UnsupportedError", "driver_too_old", "cuImportExternalSemaphore"]
