"""Test the trial of a driver with a DRM syncobj, on a simulated kernel. The builds tell the contrary."""

from __future__ import annotations

import time

import pytest
from support.levelzero_facade import BINARY, BOUND_S, TIMELINE, failing, library, soon
from support.levelzero_sim import FIFO, HOST_FUNCTIONS, LIFO, build, on_level_zero
from support.syncobjs import syncobjs

import xsem
from xsem_levelzero.backend import LevelZeroBackend

ON = {"SIMZE_SYNCOBJS": "1"}
MANY = "an import supports many waits; signals came before their event; a signal behind an unmet wait is made"
UNMET = "a wait for 0 is not met before the first signal; an imported fd is closed"


def seen() -> tuple[str, str]:
    """Try the driver. Return what was seen, and whether waits use fresh imports."""
    backend = LevelZeroBackend()
    start = time.monotonic()
    with syncobjs() as kernel:
        details = backend.details(0)
        device = backend.open(0)
        assert {TIMELINE, BINARY} <= device.capabilities.semaphore_import
        device.close()
    assert time.monotonic() - start < BOUND_S
    assert set(kernel.handles.values()) == {-1}   # each handle was destroyed
    assert details["seen_with"] == "DRM syncobj"
    assert details["seen"] in str(backend.libraries(0)[1])
    assert details["seen"] in backend.checks()[1].detail
    soon(lambda: library().simze_alive() == 2)   # the driver and its device
    return details["seen"], details["fresh_import_per_wait"]


@on_level_zero(**{**HOST_FUNCTIONS, "SIMZE_DRIVER_VERSION": build(38646)}, **ON)
def test_host_functions_are_seen() -> None:
    assert seen() == (f"{MANY}; {UNMET}", "false")


@on_level_zero(**{**FIFO, "SIMZE_DRIVER_VERSION": build(39758)}, **ON, SIMZE_LAG_US="5000")
def test_controller_is_seen() -> None:
    assert seen() == (f"an import supports one wait; signals come after their event; {UNMET}", "true")


@on_level_zero(**LIFO, **ON, SIMZE_LAG_US="5000", SIMZE_FD="open")
def test_controller_before_26_22_is_seen() -> None:
    what, fresh = seen()
    assert what == (f"an import supports one wait; signals come after their event; {UNMET}"
                    .replace("is closed", "stays open"))
    assert fresh == "true"


@on_level_zero(**ON, SIMZE_WAIT_FOR_0="met")
def test_conforming_driver_is_seen() -> None:
    what, fresh = seen()
    assert what == f"{MANY}; a wait for 0 is met; an imported fd is closed"
    assert fresh == "false"


@on_level_zero(**HOST_FUNCTIONS, **ON)
def test_build_decides_when_the_trial_fails() -> None:
    with syncobjs(), failing("zeCommandListAppendSignalExternalSemaphoreExt:0x7ffffffe"):
        details = LevelZeroBackend().details(0)
    assert (details["seen"], details["fresh_import_per_wait"]) == ("", "false")


@on_level_zero(**HOST_FUNCTIONS, **ON)
def test_trial_without_memory_is_repeated_by_the_next_opening() -> None:
    backend = LevelZeroBackend()
    with syncobjs():
        with failing("zeCommandListAppendSignalExternalSemaphoreExt:0x70000002"), pytest.raises(xsem.OutOfMemoryError):
            backend.details(0)
        assert backend.details(0)["seen"]
