"""Test the Level Zero backend on Intel's driver from 26.35 on: host functions of the engines make waits and signals."""

from __future__ import annotations

import subprocess
import sys
from ctypes import byref, c_uint32, c_void_p

import pytest
from support import levelzero_raw as ze
from support.levelzero_facade import BINARY, BOUND_S, opened
from support.levelzero_rig import rig
from support.levelzero_sim import HOST_FUNCTIONS, on_level_zero
from support.paths import TESTS

import xsem
from xsem_levelzero import Native
from xsem_levelzero.backend import LevelZeroBackend


@on_level_zero(**HOST_FUNCTIONS)
def test_waits_need_no_fresh_imports_and_signals_are_made_at_their_event() -> None:
    assert LevelZeroBackend().details(0)["fresh_import_per_wait"] == "false"
    with opened() as at, rig() as app:
        before = app.counter(b"let_through")
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        for value in range(1, 41, 2):
            commands.append_wait(here, value)
            commands.append_signal(here, value + 1)
            assert not commands.query()
            there.host_signal(value)
            commands.synchronize(timeout_s=BOUND_S)
            assert there.value() == value + 1
        assert not hasattr(here._token(), "_waits")
        assert app.counter(b"let_through") == before


@on_level_zero(**HOST_FUNCTIONS)
def test_second_wait_on_a_binary_is_refused_until_it_was_reset() -> None:
    with opened() as at:
        there, here = at.semaphore(BINARY)
        commands = at.here.create_command_list()
        there.host_signal()
        commands.append_wait(here)
        commands.synchronize(timeout_s=BOUND_S)
        with pytest.raises(xsem.BusyError) as caught:
            commands.append_wait(here)
        assert caught.value.reason == "not_reset"


# ---- regular lists
@on_level_zero(**HOST_FUNCTIONS)
def test_driver_takes_waits_and_signals_on_a_regular_list() -> None:
    with rig() as app:
        _, here = app.semaphore()
        commands = app.make("zeCommandListCreate", c_void_p(app.context), c_void_p(app.device),
                            byref(ze.structure(0xF, (c_uint32, 0), (c_uint32, 0))))
        assert app.wait(commands, [here], [1]) == app.signal(commands, [here], [2]) == 0
        with opened("levelzero", native=Native(app.driver, app.context, app.device)) as at:
            with pytest.raises(xsem.BadArgumentError) as caught:
                at.here.command_list(commands)
            assert caught.value.reason == "not_immediate"
        app.destroy(CommandList=commands)


@on_level_zero(**HOST_FUNCTIONS, SIMZE_MISSING="zeCommandListIsImmediate")
def test_list_of_unknown_type_is_refused_because_a_regular_list_would_take_a_wait() -> None:
    with rig() as app, opened("levelzero", native=Native(app.driver, app.context, app.device)) as at:
        with pytest.raises(xsem.BadArgumentError, match="neither the loader nor the driver") as caught:
            at.here.command_list(app.stream())
        assert caught.value.reason == "not_immediate"


# ---- the end of a process
_ENDS = """
import sys
sys.path[:0] = sys.argv[1:]
from support.levelzero_facade import opened
import xsem
host = xsem.open_device("host")
here = xsem.open_device("levelzero:0")
there = host.create_semaphore(xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
with there.export(for_device=here) as desc:
    semaphore = here.import_semaphore(desc)
commands = here.create_command_list()
commands.append_wait(semaphore, 1)
print("unmet", flush=True)
sys.exit(3)
"""


@on_level_zero(**HOST_FUNCTIONS)
def test_process_with_an_unmet_wait_ends_with_its_status() -> None:
    ran = subprocess.run([sys.executable, "-c", _ENDS, str(TESTS)], check=False, timeout=60, capture_output=True,
                         text=True)
    assert (ran.returncode, ran.stdout) == (3, "unmet\n"), ran.stderr
    assert "exit handlers" in ran.stderr


@on_level_zero(**HOST_FUNCTIONS)
def test_process_whose_waits_are_met_ends_with_the_exit_handlers() -> None:
    program = _ENDS.replace("sys.exit(3)", "there.host_signal(1); commands.synchronize(timeout_s=20); sys.exit(3)")
    ran = subprocess.run([sys.executable, "-c", program, str(TESTS)], check=False, timeout=60, capture_output=True,
                         text=True)
    assert (ran.returncode, ran.stderr) == (3, "")
