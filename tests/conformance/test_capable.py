"""Checks of rare capabilities and of SHOULDs: recording, sync files, a second device, a plugin with many imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import TESTS
from support.plugin_folder import NOTHING, write_plugin

from xsem_conformance.requirements import load

MUTANTS = TESTS / "mutants"
CODE = """
import os, sys
sys.path.insert(0, {mutants!r})
from xsem import spi
from xsem.types import DeviceInfo
from xsem_host.device import HostDevice

FAULT = {fault!r}

class Capable(spi.Backend):
    name = "capable"
    spi_version = 2
    one = None
    def devices(self):
        return [DeviceInfo(id=f"capable:{{index}}", backend="capable", index=index, name="host")
                for index in range(2)]
    def open(self, index):
        from capable import CAPABLE
        from faults.lists import ListsAreOne
        if FAULT == "devices_are_one":
            if self.one is None:
                self.one = HostDevice().create_queue()
            made = ListsAreOne(HostDevice())
            made._one = self.one
            return made
        return CAPABLE[FAULT].driver(HostDevice())

@spi.hookimpl
def xsem_register_backends(register):
    register(Capable())
"""


def outcomes(
    folder: Path, requirement: str, code: str, expected: str, device: str = "capable:0"
) -> tuple[int, dict[str, str]]:
    """Run the suite on the device of a plugin. Return the status and the outcome of each case except UNSUPPORTED."""
    # A failing check waits for all of the patience. A passing one does so only on a busy machine.
    patience = "1" if expected == "FAIL" else "20"
    write_plugin(folder, "capable", code)
    exporter = ["--exporter", device] if requirement == "XSEM-ORD-012" else []   # the only one with sync files
    report = folder / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", device, "--only", requirement, "--no-quirks",
         *exporter, "--patience", patience, "--report", str(report)],
        env={**os.environ, "PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=50)
    assert report.exists(), done.stdout + done.stderr
    return done.returncode, {each["handle_type"]: each["outcome"] for each in json.loads(report.read_text())["cases"]
                             if each["outcome"] != "UNSUPPORTED"}


@pytest.mark.slow
@pytest.mark.parametrize(("requirement", "fault", "expected"), [
    ("XSEM-ORD-008", "capable", "PASS"),
    ("XSEM-ORD-008", "recording_runs_at_once", "FAIL"),
    ("XSEM-ORD-008", "replay_keeps_its_values", "FAIL"),
    ("XSEM-ORD-008", "replay_signals_as_recorded", "FAIL"),
    ("XSEM-ORD-008", "second_of_two_recorded_ignored", "FAIL"),
    ("XSEM-ORD-008", "last_of_three_recorded_ignored", "FAIL"),
    ("XSEM-ORD-008", "recorded_batch_has_one_value", "FAIL"),
    ("XSEM-ORD-008", "empty_replay_repeats_the_last", "FAIL"),
    ("XSEM-EVT-011", "bridged", "PASS"),
    ("XSEM-EVT-011", "fences_of_the_host_are_one", "FAIL"),
    ("XSEM-IMP-011", "capable", "PASS"),
    ("XSEM-IMP-011", "sync_file_minus_one_is_pending", "FAIL"),
    ("XSEM-ORD-012", "capable", "PASS"),
    ("XSEM-ORD-012", "sync_file_is_signalled_at_once", "FAIL"),
    ("XSEM-ORD-012", "sync_file_is_the_first_one", "FAIL"),
    ("XSEM-DEV-006", "capable", "PASS"),
    ("XSEM-DEV-006", "devices_are_one", "FAIL"),
    ("XSEM-WBS-006", "capable", "PASS"),
    ("XSEM-WBS-006", "wakes_late", "FAIL"),
    ("XSEM-LIFE-008", "capable", "PASS"),
    ("XSEM-LIFE-008", "exit_waits", "FAIL"),   # a SHOULD
    ("XSEM-IMP-010", "capable", "PASS"),
    ("XSEM-IMP-010", "size_unchecked", "FAIL"),   # a SHOULD
])
def test_fault_in_a_rare_capability_is_found(
    tmp_path: Path, requirement: str, fault: str, expected: str
) -> None:
    code = CODE.format(mutants=str(MUTANTS), fault=fault)
    bad = expected == "FAIL" and load().requirements[requirement].level == "MUST"
    status, found = outcomes(tmp_path, requirement, code, expected)
    if fault == "size_unchecked":   # xsem itself checks the size of portable memory
        assert found.pop("host_memory_fd") == "PASS"
    assert (status, set(found.values())) == (int(bad), {expected})


@pytest.mark.slow
@pytest.mark.parametrize(("first", "expected"), [("import numpy\n", "FAIL"), ("", "PASS")])
def test_plugin_that_imports_numpy_when_registered_is_found(tmp_path: Path, first: str, expected: str) -> None:
    status, found = outcomes(tmp_path, "XSEM-DISC-004", first + NOTHING, expected, device="nothing:0")
    assert (status, found) == (0 if expected == "PASS" else 1, {"-": expected})
