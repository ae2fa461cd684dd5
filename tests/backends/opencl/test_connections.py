"""Test the declared number of lists against CUDA_DEVICE_MAX_CONNECTIONS, on NVIDIA's driver and on others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.opencl_sim import opencl_command, opencl_environment

from xsem_opencl.capabilities import Answers, capabilities_of
from xsem_opencl.nvidia import NVIDIA, connections

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.mark.parametrize(("text", "number"), [
    (None, 8), ("1", 1), ("7", 7), ("8", 8), ("32", 31), ("33", 31), ("0", 8), ("-1", 31), ("+4", 4), ("abc", 8),
    (" 4x", 4)])
def test_number_of_hardware_queues(text: str | None, number: int) -> None:
    assert connections(text) == number
    nvidia = Answers(vendor=NVIDIA, connections=number)
    assert capabilities_of(nvidia, "linux").independent_lists == number
    assert capabilities_of(nvidia._replace(vendor=0x1002), "linux").independent_lists == 1


PROGRAM = """
import json, os
import xsem
from xsem.types import SemaphoreHandleType

xsem.devices("opencl")
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "3"   # too late
device, host = xsem.open_device("opencl:0"), xsem.open_device("host")
there = host.create_semaphore(SemaphoreHandleType.OPAQUE_FD)
with there.export(for_device=device) as desc:
    here = device.import_semaphore(desc)
commands = device.create_command_list()
commands.append_wait(here)
try:
    commands.synchronize(timeout_s=0)
    causes = []
except xsem.WaitTimeoutError as error:
    causes = error.likely_causes
there.host_signal()
commands.synchronize(timeout_s=30)
checks = [each.detail for each in xsem.plugins.registry().get("opencl").checks() if each.name == "opencl:0"]
print(json.dumps([device.capabilities.independent_lists, causes, checks]))
"""


@pytest.mark.parametrize(("number", "settings"), [(8, {}), (1, {VARIABLE: "1"}), (2, {VARIABLE: "2"})])
def test_declared_number_is_in_doctor_and_in_timeout_causes(
    monkeypatch: pytest.MonkeyPatch, number: int, settings: dict[str, str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    ran = subprocess.run(opencl_command(sys.executable, "-c", PROGRAM), env=opencl_environment(**settings), text=True,
                         capture_output=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    declared: int
    causes: Any
    declared, causes, (check,) = json.loads(ran.stdout)
    assert declared == number
    told = f"{number} ({VARIABLE} {f'was {str(number)!r} when' if settings else 'is not set'}"
    assert f"hardware queues: {told}" in check
    assert any(told in each for each in causes) is (number < 8)
