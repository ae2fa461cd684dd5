"""Memory and timelines of the host between two processes on any two devices of a GPU host, in both directions."""

from __future__ import annotations

import os

import pytest
from support.portable_pair import frames_go_both_ways
from support.programs import printed

import xsem

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

DEVICES = ("host:0", "cuda:0", "cuda:1", "vulkan:0", "opencl:0")


def needs(device: str) -> None:
    """Skip the test without the device, or where OpenCL's driver has no memory of the host."""
    try:
        with xsem.open_device(device) as opened:
            declared = opened.capabilities
    except xsem.DeviceNotFoundError as error:
        pytest.skip(f"the driver does not have {device}: {error}")
    except xsem.XsemError as error:
        pytest.skip(f"needs {device}: {error}")
    if not any(each.portable for each in declared.semaphore_import) or not any(
            each.portable for each in declared.memory_import):
        assert device == "opencl:0"
        pytest.skip("the driver does not offer memory of the host to opencl:0")


@pytest.mark.parametrize("importer", DEVICES)
@pytest.mark.parametrize("exporter", DEVICES)
def test_frames_go_both_ways_on_real_devices(exporter: str, importer: str) -> None:
    needs("cuda:0")   # a GPU
    needs(exporter)
    needs(importer)
    frames_go_both_ways(exporter, importer, lambda _: ([], os.environ))


@pytest.mark.parametrize("reads_on", ["vulkan:0", "cuda:0"])
def test_images_of_a_renderer_are_frames_of_a_ring(reads_on: str) -> None:
    needs(reads_on)
    printed("ring_images", "vulkan:0", reads_on)


@pytest.mark.parametrize("reads_on", DEVICES)
@pytest.mark.parametrize("writes_on", DEVICES)
def test_frames_of_a_ring_on_real_devices(writes_on: str, reads_on: str) -> None:
    needs("cuda:0")
    needs(writes_on)
    needs(reads_on)
    printed("ring_pair", writes_on, reads_on)
