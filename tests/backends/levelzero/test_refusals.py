"""Test the report of a device without semaphores: the code, the flaw, the remedy, other sources."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.levelzero_facade import BINARY, BOUND_S, TIMELINE, opened
from support.levelzero_sim import on_level_zero

import xsem
from xsem.types import HealthCheck, SemaphoreDesc, SemaphoreHandleType
from xsem_levelzero.backend import LevelZeroBackend
from xsem_levelzero.results import RESULTS, name_of

KINDS = frozenset({TIMELINE, BINARY, SemaphoreHandleType.HOST_TIMELINE_FD})
REFUSED = "zeDeviceImportExternalSemaphoreExt:"


def check() -> HealthCheck:
    [_, found] = LevelZeroBackend().checks()
    return found


def refused_import() -> xsem.UnsupportedError:
    with xsem.open_device("levelzero:0") as device, pytest.raises(xsem.UnsupportedError) as caught:
        fd = os.eventfd(0)
        try:
            device.import_semaphore(SemaphoreDesc.opaque_fd(fd, device_uuid=None))
        finally:
            os.close(fd)
    return caught.value


@on_level_zero(SIMZE_DRIVER_VERSION=str(1 << 24 | 6 << 16 | 33944), SIMZE_MODE="intel")
def test_refused_import_names_the_flaw_of_the_driver() -> None:
    error = refused_import()
    assert any("25.22 hands the kernel uninitialised flags" in cause for cause in error.likely_causes)
    assert "26.22" in check().remedy


@on_level_zero(SIMZE_DRIVER_VERSION=str(1 << 24 | 6 << 16 | 33944), SIMZE_FAIL=f"{REFUSED}0x78000003")
def test_doctor_shows_the_code_beside_a_known_flaw() -> None:
    assert "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE" in check().detail
    assert "uninitialised flags" in check().detail


@on_level_zero(SIMZE_FAIL=f"{REFUSED}0x70020000")
def test_refused_import_names_the_code_of_the_probe() -> None:
    assert any("DEPENDENCY_UNAVAILABLE" in cause for cause in refused_import().likely_causes)
    assert "DEPENDENCY_UNAVAILABLE" in check().detail


@on_level_zero(SIMZE_API="1.4", SIMZE_NO_ADDRESS="1")
def test_remedy_of_missing_functions_is_the_driver() -> None:
    assert "neither the loader nor the driver has the functions" in check().remedy


@on_level_zero(LOADER="trixie", ZE_ENABLE_VALIDATION_LAYER="1", ZE_ENABLE_PARAMETER_VALIDATION="1")
def test_remedy_of_an_old_validation_layer_is_the_loader() -> None:
    found = check()
    assert not found.ok
    assert "1.21.2" in found.remedy
    assert "1.20.6" in found.remedy
    assert "validation layer in the path" in found.detail


@on_level_zero(LOADER="forky", ZE_ENABLE_VALIDATION_LAYER="1", ZE_ENABLE_HANDLE_LIFETIME="1")
def test_remedy_of_the_lifetime_checker_names_its_variable() -> None:
    # A new process: the layer also refuses the release of the import.
    program = ("from xsem_levelzero.backend import LevelZeroBackend; check = LevelZeroBackend().checks()[1]; "
               "print(check.ok, check.remedy)")
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.startswith("False unset ZE_ENABLE_HANDLE_LIFETIME"), ran.stdout


@on_level_zero(ZE_ENABLE_VALIDATION_LAYER="true")
def test_layer_is_not_requested_by_another_value_than_1() -> None:
    assert "validation layer" not in check().detail


@on_level_zero(ZE_ENABLE_VALIDATION_LAYER="1")
def test_layer_that_is_not_loaded_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import xsem_levelzero.reports as module

    assert "requested but not loaded" not in check().detail
    monkeypatch.setattr(module, "_LAYER", "libze_of_another_release.so.1")
    assert "requested but not loaded" in check().detail


@on_level_zero(LOADER="trixie", SIMZE_NO_TABLE="1")
def test_functions_by_address_are_tried_when_the_loader_has_none_of_the_driver() -> None:
    with opened() as at:
        assert at.here.capabilities.semaphore_import == KINDS
        assert LevelZeroBackend().details(0)["functions"] == "zeDriverGetExtensionFunctionAddress"
        there, here = at.semaphore()
        commands = at.here.create_command_list()
        commands.append_wait(here, 1)
        commands.append_signal(here, 2)
        there.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 2


@on_level_zero(LOADER="trixie", SIMZE_NO_TABLE="1", SIMZE_NO_ADDRESS="1")
def test_loader_without_functions_of_the_driver_is_reported() -> None:
    found = check()
    assert not found.ok
    assert "loader export" in found.detail
    assert "driver" in found.remedy


def test_newer_codes_have_names() -> None:
    assert name_of(0x78000026) == "ZE_RESULT_ERROR_GRAPH_CAPTURE_INVALIDATED"
    assert name_of(0x70020001) == "ZE_RESULT_WARNING_DROPPED_DATA"
    assert name_of(0x78000099) is None
    assert len(set(RESULTS.values())) == len(RESULTS)
