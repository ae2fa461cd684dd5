"""Checks of objects that need two types of memory, two devices or UUIDs, which `host` lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import TESTS
from support.plugin_folder import write_plugin

MUTANTS = TESTS / "mutants"
CODE = """
import sys
sys.path.insert(0, {mutants!r})
from xsem import spi
from xsem.types import DeviceInfo
import uuid
import objects
from xsem_host.device import HostDevice

FAULT = {fault!r}

class Objects(spi.Backend):
    name = "objects"
    spi_version = 2
    def devices(self):
        return [DeviceInfo(id=f"objects:{{index}}", backend="objects", index=index, name="host",
                           uuid=uuid.UUID(int=7 + index)) for index in range(2)]
    def open(self, index):
        return objects.OBJECTS[FAULT](HostDevice(), index)
    def details(self, index):
        return objects.details(FAULT, index)

    if FAULT == "borrow_undeclared":
        def borrow(self, native):
            return self.devices()[0], self.open(0)

@spi.hookimpl
def xsem_register_backends(register):
    register(Objects())
"""
MEMORY = ("XSEM-BUF-001", "XSEM-BUF-002", "XSEM-BUF-003", "XSEM-BUF-004", "XSEM-KILL-003", "XSEM-LIFE-003")
BOTH = ("XSEM-IMP-002", "XSEM-OWN-009")
"""Their cases are of semaphores and memory."""


def outcomes(
    folder: Path, fault: str, *requirements: str, exporter: str = "objects:0", profile: str = "core"
) -> dict[str, str]:
    """Run the suite on the device with the fault; return the outcome of each case by its requirement and type."""
    write_plugin(folder, "objects", CODE.format(mutants=str(MUTANTS), fault=fault))
    report = folder / "out.json"
    only = [part for each in requirements for part in ("--only", each)]
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", "objects:0", "--exporter", exporter,
         "--profile", profile, "--no-quirks", "--patience", "20" if fault == "sound" else "2", "--report",
         str(report), *only],
        env={**os.environ, "PYTHONPATH": str(folder)}, cwd=folder, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=120)
    assert report.exists(), done.stdout + done.stderr
    return {"/".join(each["key"].split("/")[:2]): each["outcome"]   # one direction of a key is enough
            for each in json.loads(report.read_text())["cases"] if each["outcome"] != "UNSUPPORTED"}


@pytest.mark.slow
def test_device_without_a_fault_passes(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "sound", *MEMORY, *BOTH, "XSEM-OWN-006", "XSEM-DISC-003", "XSEM-DISC-005",
                     "XSEM-BUF-006", "XSEM-CAP-004")
    assert set(found.values()) == {"PASS"}
    assert {"XSEM-BUF-001/dmabuf_fd", "XSEM-BUF-001/opaque_fd", "XSEM-DISC-003/-", "XSEM-CAP-004/-"} <= set(found)


@pytest.mark.slow
def test_any_device_exports_portable_objects(tmp_path: Path) -> None:
    # objects:1 has another UUID. The other types are not tried, and neither is a requirement that needs them.
    found = outcomes(tmp_path, "sound", "XSEM-IMP-001", "XSEM-BUF-017", "XSEM-STR-003", "XSEM-BATCH-003",
                     exporter="objects:1", profile="portable")
    assert found == dict.fromkeys(
        ("XSEM-IMP-001/semaphore.host_timeline_fd", "XSEM-IMP-001/memory.host_memory_fd",
         "XSEM-BUF-017/host_memory_fd", "XSEM-STR-003/host_timeline_fd"), "PASS")


@pytest.mark.slow
@pytest.mark.parametrize("requirement", [*MEMORY, *BOTH])
@pytest.mark.parametrize("type", ["opaque_fd", "dmabuf_fd"])
def test_memory_of_one_type_that_is_elsewhere_is_found(tmp_path: Path, type: str, requirement: str) -> None:
    found = outcomes(tmp_path, f"{type}_elsewhere", requirement)
    failed = {name for name, outcome in found.items() if outcome == "FAIL"}
    assert failed == {f"{requirement}/{'memory.' if requirement in BOTH else ''}{type}"}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "failing"), [
    ("opaque_fd_leaks", "XSEM-OWN-006/memory.opaque_fd"),
    ("dmabuf_fd_leaks", "XSEM-OWN-006/memory.dmabuf_fd"),
    ("objects_with_a_uuid_are_elsewhere", "XSEM-DISC-003/-"),
    ("details_of_the_second_raise", "XSEM-DISC-005/-"),
    ("one_dlpack_device", "XSEM-BUF-006/-"),
    ("borrow_undeclared", "XSEM-CAP-004/-"),
    ("linear_offset_dropped", "XSEM-MIP-016/-"),
    ("linear_rows_are_adjacent", "XSEM-MIP-016/-"),
    ("linear_maps_nothing", "XSEM-MIP-016/-"),
])
def test_fault_of_some_objects_is_found(tmp_path: Path, fault: str, failing: str) -> None:
    found = outcomes(tmp_path, fault, failing.partition("/")[0])
    assert [name for name, outcome in found.items() if outcome == "FAIL"] == [failing]


@pytest.mark.slow
def test_linear_dmabufs_are_images(tmp_path: Path) -> None:
    assert outcomes(tmp_path, "linear", "XSEM-MIP-016", "XSEM-MIP-005") == {"XSEM-MIP-016/-": "PASS"}


@pytest.mark.slow
def test_layouts_are_not_examined_without_an_exporter_of_dmabufs(tmp_path: Path) -> None:
    assert outcomes(tmp_path, "linear", "XSEM-MIP-016", exporter="host") == {"XSEM-MIP-016/-": "NOT_EXAMINED"}
