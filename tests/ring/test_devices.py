"""Rings on each other device than the host, on the stand-ins: the devices wait, natively or over the bridge."""

from __future__ import annotations

import sys

import pytest
from backends.test_portable_pairs import DEVICES, place
from support import opengl_sim
from support.programs import printed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins need Linux")


def ends_well(device: str, program: str, *arguments: str) -> None:
    """Run a program where the device is."""
    prefix, environment = place(device)
    printed(program, *arguments, prefix=prefix, environment=environment)


@pytest.mark.parametrize("other", [each for each in DEVICES if each != "host:0"])
def test_frames_go_from_and_to_each_device(other: str) -> None:
    for pair in (("host:0", other), (other, "host:0")):
        ends_well(other, "ring_pair", *pair)


@pytest.mark.parametrize("devices", [
    ("cuda:0", "cuda:0", "host:0"),
    pytest.param(("vulkan:0", "vulkan:0"), marks=pytest.mark.slow),
], ids=" ".join)
def test_images_of_a_renderer_are_frames(devices: tuple[str, ...]) -> None:
    ends_well(devices[0], "ring_images", *devices)


def test_frame_is_given_back_behind_the_applications_own_commands() -> None:
    pytest.importorskip("moderngl", reason="moderngl is not installed")
    assert printed("gl_ring", environment=opengl_sim.environment()) == "done\n"


# Not SwiftShader: it has one list, and two are needed.
@pytest.mark.parametrize("other", ["cuda:0", *[pytest.param(each, marks=pytest.mark.slow)
                                               for each in ("opencl:0", "levelzero:0")]])
def test_processes_with_work_on_a_device_are_killed(other: str) -> None:
    ends_well(other, "kills", other, "3")
