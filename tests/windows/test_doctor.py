"""`xsem devices` and `xsem doctor` on Windows, on the stand-in nvcuda.dll and on faults of it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import pytest
from support.cuda_sim import stand_in_environment
from support.paths import ROOT

PATIENCE = ("--patience", "200")
# Parts of advice that is of no use on Windows.
OF_LINUX = ("/dev", "/etc", "pocl", "Debian", "apt-get", "container", "group that owns", ".so", "file descriptor",
            "DRM", "kcmp")


def python(*arguments: str, **settings: str) -> tuple[int, str]:
    ran = subprocess.run([sys.executable, *arguments], env=stand_in_environment(**settings), cwd=ROOT,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=350, check=False)
    return ran.returncode, ran.stdout


@functools.cache
def doctor(**settings: str) -> dict[str, Any]:
    _, said = python("-m", "xsem", "doctor", "--json", *PATIENCE, **settings)
    for each in OF_LINUX:
        assert each not in said
    answer: dict[str, Any] = json.loads(said)
    return answer


def checks_of(answer: dict[str, Any], backend: str) -> dict[str, dict[str, Any]]:
    (section,) = [each for each in answer["backends"] if each["name"] == backend]
    return {check["name"]: check for check in section["checks"]}


def test_devices_lists_cuda_with_its_luid() -> None:
    status, said = python("-m", "xsem", "devices", "--json", *PATIENCE, SIMCUDA_DEVICES="2")
    assert status == 0, said
    rows = [each for each in json.loads(said)["devices"] if each["backend"] == "cuda"]
    assert [(each["id"], each["luid"]) for each in rows] == [("cuda:0", "f403010000000000"),
                                                             ("cuda:1", "f403020000000000")]
    assert rows[0]["details"]["library"] == "nvcuda.dll"
    assert rows[0]["details"]["luid_node_mask"] == "0x1"


def test_doctor_finds_nothing_to_repair_in_cuda() -> None:
    answer = doctor()
    checks = checks_of(answer, "cuda")
    assert all(each["ok"] for each in checks.values())
    assert checks["nvcuda.dll"]["detail"] == "CUDA 13.0"
    assert "device nodes" not in checks
    assert answer["summary"].startswith("cuda and host work")


@pytest.mark.parametrize(("setting", "value", "remedy"), [
    ("SIMCUDA_DEVICES", "0", "check CUDA_VISIBLE_DEVICES"),
    ("SIMCUDA_FAIL", "cuInit:803",
     "restart the machine after an update of the driver"),
    ("SIMCUDA_FAIL", "cuInit:999", "run nvidia-smi; if it fails, reinstall the NVIDIA driver and restart the machine"),
    ("SIMCUDA_MISSING", "cuDeviceGetCount", "update the driver"),
])
def test_doctor_names_the_remedy_for_the_driver(setting: str, value: str, remedy: str) -> None:
    check = checks_of(doctor(XSEM_BACKENDS="cuda", **{setting: value}), "cuda")["nvcuda.dll"]
    assert (check["ok"], check["remedy"]) == (False, remedy)


def test_loaders_are_looked_for_by_their_names_on_windows() -> None:
    loader = checks_of(doctor(), "levelzero")["loader"]
    assert "ze_loader.dll" in loader["detail"]
    assert loader["remedy"] == "install Intel's GPU driver, which has the loader"
    checks = checks_of(doctor(), "opencl")
    assert checks["pyopencl"]["detail"].endswith("loader by way of OpenCL.dll")   # under Wine, it has no driver
    assert not checks["OpenCL driver"]["ok"]


@pytest.mark.parametrize(("module", "found"), [("nvcuda.dll", "OpenCL.dll"), ("OpenCL.dll", "OpenCL.dll")])
def test_loader_of_opencl_is_found_beside_an_extension_module(module: str, found: str) -> None:
    """The extension module of pyopencl does not export the functions of the loader that it is linked with."""
    code = ("import types; from xsem_opencl.loader import find_library as find;"
            f"print(find(types.SimpleNamespace(_cl=types.SimpleNamespace(__file__={module!r}))).file)")
    assert python("-c", code) == (0, f"{found}\n")
