"""Run requirements of the suite on variants of the stand-ins: several devices, and images of Level Zero."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.cuda_sim import stand_in_environment
from support.levelzero_sim import level_zero_command
from support.opencl_sim import opencl_command, opencl_environment

from xsem_conformance.outcomes import UNOBSERVED


class Variant(NamedTuple):
    device: str
    settings: dict[str, str]
    only: tuple[str, ...]
    met: set[str]   # requirements of which a case must pass


SEVERAL = ("XSEM-DISC", "XSEM-DEV")
OF_SEVERAL = {"XSEM-DISC-001", "XSEM-DISC-002", "XSEM-DEV-005", "XSEM-DEV-006", "XSEM-DEV-008"}
VARIANTS = {
    "two CUDA devices": Variant("cuda:1", {"SIMCUDA_DEVICES": "2"}, SEVERAL, OF_SEVERAL),
    "two Level Zero devices": Variant("levelzero:1", {"SIMZE_DEVICES": "2"}, SEVERAL, OF_SEVERAL),
    "two OpenCL devices": Variant("opencl:1", {"SIMCL_DEVICES": "2"}, SEVERAL, OF_SEVERAL),
    "images of Level Zero": Variant("levelzero:0", {"SIMZE_IMAGES": "1"}, ("XSEM-MIP",), {
        f"XSEM-MIP-{number:03}" for number in (1, 11, 12, 13, 15)}),
}


def run(variant: Variant, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xsem", "conformance", "run", "--device", variant.device, "--exporter", "host",
               "--no-quirks", *arguments]
    backend, environment = variant.device.partition(":")[0], variant.settings
    if backend == "cuda":
        environment = stand_in_environment(**environment)
    elif backend == "levelzero":
        command, environment = level_zero_command(*command), {**os.environ, **environment}
    else:
        command, environment = opencl_command(*command), opencl_environment(**environment)
    return subprocess.run(command, env=environment, check=False, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)


@pytest.mark.timeout(110)
@pytest.mark.parametrize("name", VARIANTS)
def test_variant_meets_its_requirements(name: str, tmp_path: Path) -> None:
    variant, report = VARIANTS[name], tmp_path / "report.json"
    ran = run(variant, *(f"--only={each}" for each in variant.only), "--report", str(report))
    assert report.exists(), ran.stdout
    cases = json.loads(report.read_text())["cases"]
    assert {case["outcome"] for case in cases} <= {"PASS", *UNOBSERVED}, ran.stdout
    assert {case["requirement"] for case in cases if case["outcome"] == "PASS"} >= variant.met, ran.stdout
