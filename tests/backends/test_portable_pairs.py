"""Memory and timelines of the host between two processes on any two kinds of devices, in both directions."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

import pytest
from support.cuda_sim import stand_in_environment
from support.levelzero_sim import level_zero_command
from support.opencl_sim import opencl_command, opencl_environment
from support.paths import TESTS
from support.vulkan_sim import environment as swiftshader_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins need Linux")

DEADLINE_S = 90
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


def start(role: str, device: str, sock: socket.socket) -> subprocess.Popen[str]:
    prefix, environment = place(device)
    path = os.pathsep.join([str(TESTS), *filter(None, [environment.get("PYTHONPATH")])])
    return subprocess.Popen([*prefix, sys.executable, "-m", "support.portable_pair", role, device, str(sock.fileno())],
                            env={**environment, "PYTHONPATH": path}, pass_fds=[sock.fileno()], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.parametrize("importer", DEVICES)
@pytest.mark.parametrize("exporter", DEVICES)
def test_frames_go_both_ways(exporter: str, importer: str) -> None:
    ends = socket.socketpair()
    sides = [start("exporter", exporter, ends[0]), start("importer", importer, ends[1])]
    for end in ends:
        end.close()
    try:
        said = [side.communicate(timeout=DEADLINE_S)[0] for side in sides]
    finally:
        for side in sides:
            side.kill()
            side.wait()
    assert [side.returncode for side in sides] == [0, 0], "\n".join(said)
