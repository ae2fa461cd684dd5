"""examples/join_cuda_opencl.py without a GPU: on the stand-in for libcuda and the simulated OpenCL device."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from support.cuda_sim import stand_in_environment
from support.opencl_sim import opencl_command, opencl_environment
from support.paths import ROOT

import xsem

EXAMPLE = ROOT / "examples" / "join_cuda_opencl.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    cuda = stand_in_environment()
    both = opencl_environment() | {"LD_LIBRARY_PATH": cuda["LD_LIBRARY_PATH"]}
    return subprocess.run(
        opencl_command(sys.executable, "-W", "error", str(EXAMPLE), "--exporter", "host", *arguments), env=both,
        check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=55)


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("join_cuda_opencl", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_thousand_rounds_between_cuda_and_opencl() -> None:
    ran = run("--values", "512")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == (
        "join: 1000 rounds between cuda:0 and opencl:0, 1024000 values checked, 0 wrong")


@pytest.mark.variants
@pytest.mark.parametrize("devices", [("opencl:0", "cuda:0"), ("host:0", "opencl:0"), ("opencl:0", "opencl:0")])
def test_devices_may_be_exchanged(devices: tuple[str, str]) -> None:
    ran = run("--rounds", "50", "--values", "64", "--devices", *devices)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == (
        f"join: 50 rounds between {devices[0]} and {devices[1]}, 6400 values checked, 0 wrong")


def test_missing_device_is_reported_in_one_line() -> None:
    ran = run("--devices", "host:0", "opencl:7")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "opencl:7" in line


def test_wrong_values_are_counted(program: ModuleType) -> None:
    """If a device writes other values, the program prints the number of wrong values."""

    class Liar(program.PlainSide):   # type: ignore[misc,name-defined]
        def write(self, value: int) -> None:
            super().write(value + (value == 4))

    with xsem.open_device("host") as exporter:
        first, second = program.PlainSide("host:0"), Liar("host:0")
        looked, wrong = program.join(first, second, exporter, 5, 16)
        for side in (first, second):
            side.seen = np.zeros(0, dtype="uint32")
            side.device.release()
    assert (looked, wrong) == (5 * 2 * 16, 16)
