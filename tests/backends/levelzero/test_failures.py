"""After a failing call nothing is left, and a failure that says nothing about the device is not remembered."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.levelzero_facade import (
    BINARY,
    BOUND_S,
    TIMELINE,
    UNKNOWN,
    driver_of,
    failing,
    library,
    opened,
    own,
    soon,
)
from support.levelzero_sim import on_level_zero

import xsem
from xsem.plugins import registry
from xsem.types import MemoryHandleType
from xsem_levelzero.backend import LevelZeroBackend

OUT_OF_MEMORY = "0x70000002"
KINDS = frozenset({TIMELINE, BINARY})
# Calls of the driver that an opening with its probe makes, in order.
OF_AN_OPENING = (
    "zeContextCreate", "zeDeviceImportExternalSemaphoreExt", "zeCommandListCreateImmediate", "zeEventPoolCreate",
    "zeEventCreate", "zeCommandListAppendWaitExternalSemaphoreExt", "zeEventQueryStatus",
    "zeDeviceGetExternalMemoryProperties", "zeDeviceGetCommandQueueGroupProperties", "zeMemAllocDevice",
    "zeMemGetAllocProperties",
)
# Calls that end an object, or a wait, of the probes.
ENDS = (
    "zeEventHostSynchronize", "zeMemFree", "zeCommandListDestroy", "zeEventDestroy", "zeEventPoolDestroy",
    "zeDeviceReleaseExternalSemaphoreExt", "zeContextDestroy",
)


def fds() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def alive() -> int:
    """Return the number of the driver's objects that are not destroyed."""
    return int(library().simze_alive())


def fresh() -> xsem.Device:
    """Open a device with a new probe."""
    xsem.devices("levelzero")
    backend = registry().get("levelzero")
    assert isinstance(backend, LevelZeroBackend)
    backend._known.clear()
    backend._exports.clear()
    return xsem.open_device("levelzero:0")


# ---- openings
@pytest.mark.parametrize(("call", "code"), [
    *((call, OUT_OF_MEMORY) for call in (*OF_AN_OPENING, *ENDS)), *((call, UNKNOWN) for call in ENDS)])
@on_level_zero
def test_failing_call_of_an_opening_leaves_nothing_and_is_not_remembered(call: str, code: str) -> None:
    fresh().release()
    soon(lambda: alive() == 2)   # the driver and its device
    before = fds()
    for number in (1, 2, 3):
        # The call may come less often.
        with failing(f"{call}:{code}:{number}"):
            with contextlib.suppress(xsem.OutOfMemoryError):
                fresh().release()
            soon(lambda: alive() == 2)
        assert fds() == before
        with xsem.open_device("levelzero:0") as device:
            assert own(device.capabilities.semaphore_import) == KINDS
            assert own(device.capabilities.memory_export) == {MemoryHandleType.OPAQUE_FD}
        soon(lambda: alive() == 2)


_ALWAYS = """
import contextlib, sys
sys.path[:0] = sys.argv[2:]
import xsem
from support.levelzero_facade import UNKNOWN, failing, own, soon
from test_failures import KINDS, alive, fresh

xsem.devices("levelzero")
before = alive()
with failing(f"{sys.argv[1]}:{UNKNOWN}"), contextlib.suppress(xsem.DriverError):
    device = fresh()
    device.release()
    soon(lambda: not device.releasing())
stay = alive()
assert stay > before
with fresh() as device:
    assert own(device.capabilities.semaphore_import) == KINDS
soon(lambda: alive() == stay)
"""


@pytest.mark.parametrize("call", ENDS)
@on_level_zero
def test_context_of_an_object_that_stays_is_not_destroyed(call: str) -> None:
    """The driver ends a process that destroys a context before its objects."""
    here = Path(__file__).parent
    subprocess.run([sys.executable, "-c", _ALWAYS, call, str(here), str(here.parents[1])], check=True, timeout=60)


@on_level_zero
def test_opening_without_any_fd_raises_and_the_next_one_succeeds() -> None:
    fresh().release()
    soon(lambda: alive() == 2)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, fds())) + 4, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many"):
            while True:
                held.append(os.dup(0))
        with pytest.raises(xsem.BusyError) as caught:
            fresh()
        assert caught.value.reason == "fd_limit"
        os.close(held.pop())
        with pytest.raises(xsem.XsemError):   # one fd: the driver needs another one
            fresh()
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    soon(lambda: alive() == 2)
    with xsem.open_device("levelzero:0") as device:
        assert own(device.capabilities.semaphore_import) == KINDS


# ---- events
@on_level_zero
def test_pool_whose_first_event_fails_is_destroyed() -> None:
    with opened() as at:
        before = alive()
        commands = at.here.create_command_list()
        with failing(f"zeEventCreate:{OUT_OF_MEMORY}"):
            for _ in range(3):
                with pytest.raises(xsem.OutOfMemoryError):
                    commands.append_barrier(signal_event=at.here.create_event())
        assert alive() == before + 1   # the list
        with failing(f"zeEventCreate:{OUT_OF_MEMORY}:3"):
            event = at.here.create_event()
            commands.append_barrier(signal_event=event)
            event.wait(timeout_s=BOUND_S)
        assert driver_of(at.here)._events.count == 2


@on_level_zero
def test_failed_destroy_of_an_event_is_repeated_at_the_close() -> None:
    with failing("zeEventDestroy:0x7ffffffe:1"):
        with opened() as at:
            event = at.here.create_event()
            commands = at.here.create_command_list()
            commands.append_barrier(signal_event=event)
            event.wait(timeout_s=BOUND_S)
        soon(lambda: alive() == 2)


@pytest.mark.parametrize("call", ["zeEventQueryStatus", "zeEventHostSynchronize"])
@on_level_zero
def test_query_without_memory_does_not_end_the_list(call: str) -> None:
    with opened() as at:
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        commands.append_wait(here, 1)
        with failing(f"{call}:{OUT_OF_MEMORY}"):
            assert not commands.query()
            with pytest.raises(xsem.WaitTimeoutError):
                commands.synchronize(timeout_s=0.05)
        commands.append_signal(here, 2)
        there.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 2


# ---- several drivers and devices
@on_level_zero(SIMZE_DRIVERS="2")
def test_failing_driver_hides_no_gpu_of_another() -> None:
    assert len(xsem.devices("levelzero")) == 2
    for name in ("libze_intel_gpu.so.1", "libze_intel_vpu.so.1"):
        for call in ("zeDriverGetProperties", "zeDeviceGet", "zeDeviceGetProperties"):
            with failing(f"{call}:0x70010000", name):
                [info] = xsem.devices("levelzero")
                assert info.name.endswith("of driver 1" if name == "libze_intel_gpu.so.1" else "of driver 0")
                checks = LevelZeroBackend().checks()
                assert [check.ok for check in checks] == [True, False, True]
                assert "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS" in checks[1].detail


@on_level_zero(SIMZE_DEVICES="2")
def test_checks_go_on_after_a_device_that_fails() -> None:
    with failing("zeContextCreate:0x7ffffffe:1"):
        assert [check.ok for check in LevelZeroBackend().checks()] == [True, False, True]


@on_level_zero(SIMZE_DRIVERS="2", SIMZE_MISSING_1="zeInitDrivers", LOADER="trixie")
def test_driver_without_zeinitdrivers_is_listed() -> None:
    assert len(xsem.devices("levelzero")) == 2


@on_level_zero(LOADER="trixie")
def test_two_devices_of_a_process_start_on_different_queues() -> None:
    with opened() as at, xsem.open_device("levelzero:0") as other:
        found, loader = [], ctypes.CDLL("libze_loader.so.1")
        for device in (at.here, other):
            commands, index = device.create_command_list(), ctypes.c_uint32()
            assert loader.zeCommandListImmediateGetIndex(
                ctypes.c_void_p(commands.native_handle), ctypes.byref(index)) == 0
            found.append(index.value)
        assert found[0] != found[1]
