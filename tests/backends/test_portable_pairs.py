"""Memory and timelines of the host between two processes on any two kinds of devices, in both directions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import pytest
from support.cuda_sim import stand_in_environment
from support.levelzero_sim import level_zero_command
from support.opencl_sim import opencl_command, opencl_environment
from support.portable_pair import frames_go_both_ways
from support.vulkan_sim import environment as swiftshader_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins need Linux")

DEVICES = ("host:0", "cuda:0", "vulkan:0", "opencl:0", "levelzero:0")


def place(device: str) -> tuple[list[str], Mapping[str, str]]:
    """Return the prefix of a command on the device's stand-in, and its environment."""
    backend = device.partition(":")[0]
    if backend == "cuda":
        return [], stand_in_environment()
    if backend == "vulkan":
        return [], swiftshader_environment()
    if backend == "opencl":
        return opencl_command(), opencl_environment()
    if backend == "levelzero":
        return level_zero_command(), os.environ
    return [], os.environ


@pytest.mark.parametrize("importer", DEVICES)
@pytest.mark.parametrize("exporter", DEVICES)
def test_frames_go_both_ways(exporter: str, importer: str) -> None:
    frames_go_both_ways(exporter, importer, place)
