"""Test the Level Zero backend under the loader's parameter validation, after a proof that the layer is in the path."""

from __future__ import annotations

import os

import pytest
from support import levelzero_raw as raw
from support.levelzero_facade import BINARY, BOUND_S, TIMELINE, opened, value_of
from support.levelzero_rig import rig
from support.levelzero_sim import on_level_zero

from xsem.plugins import registry
from xsem.types import SemaphoreHandleType

# The layer of 1.20 refuses every import: its check of structure types is older than the extension. 1.32's does not.
VALIDATED = {"LOADER": "forky", "ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}
REACHED = 0x7FFFFFFE   # this driver's answer to every import


@on_level_zero(**VALIDATED, SIMZE_FAIL=f"zeDeviceImportExternalSemaphoreExt:{REACHED:#x}")
def test_layer_is_in_the_path() -> None:
    with rig() as app:
        _, fd = app.exported(BINARY)
        code, _ = app.import_code(fd, 0x200)
        assert code == raw.INVALID_ENUMERATION   # the answer of the layer, not of the driver
        code, _ = app.import_code(fd, raw.OPAQUE_FD)
        assert code == REACHED
        os.close(fd)


def says(told: str) -> None:
    """Check what the details and doctor report about the place of the layer."""
    backend = registry().get("levelzero")
    assert backend.details(0)["validation_layer"] == told
    checks = {each.name: each.detail for each in backend.checks()}
    assert ("validation layer" in checks["levelzero:0"]) == bool(told)
    assert told in checks["levelzero:0"]


@on_level_zero(**VALIDATED)
def test_layer_in_the_path_is_reported() -> None:
    says("in the path of the semaphore functions")


@on_level_zero(ZE_ENABLE_VALIDATION_LAYER="1", ZE_ENABLE_PARAMETER_VALIDATION="1")
def test_layer_outside_the_path_is_reported() -> None:
    says("not in the path of the semaphore functions, which come from the driver past the loader's layers")


@on_level_zero
def test_layer_is_not_reported_when_not_requested() -> None:
    says("")


@on_level_zero(**VALIDATED)
@pytest.mark.parametrize("kind", [TIMELINE, BINARY])
def test_layer_refuses_no_call_of_the_backend(kind: SemaphoreHandleType) -> None:
    with opened() as at:
        drawn_there, drawn = at.semaphore(kind)
        other_there, other = at.semaphore(kind)
        done_there, done = at.semaphore(kind)
        there, here = at.memory()
        picture, staging = here.map_buffer(), at.here.host_buffer(4096)
        there.map_buffer().numpy()[:] = 9
        first, second = at.here.create_command_list(), at.here.create_command_list()
        copied, waited = at.here.create_event(), at.here.create_event()
        first.append_wait([drawn, other], [value_of(kind, 1), value_of(kind, 2)], signal_event=waited)
        first.append_copy(staging, picture, wait_events=[waited], signal_event=copied)
        second.append_fill(picture, b"\1\2", wait_events=[copied])
        second.append_barrier(wait_events=[copied, waited])
        second.append_signal(done, value_of(kind, 3), wait_events=[copied])
        drawn_there.host_signal(value_of(kind, 1))
        assert not first.query()
        other_there.host_signal(value_of(kind, 2))
        done_there.host_wait(value_of(kind, 3), timeout_s=BOUND_S)
        assert (staging.numpy() == 9).all()
        first.synchronize(timeout_s=BOUND_S)
        second.synchronize(timeout_s=BOUND_S)
