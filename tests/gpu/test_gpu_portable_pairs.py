"""Memory and timelines of the host between two processes on any two devices of a GPU host, in both directions."""

from __future__ import annotations

import os

import pytest
from support.portable_pair import frames_go_both_ways

import xsem

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

DEVICES = ("host:0", "cuda:0", "cuda:1", "vulkan:0", "opencl:0")


def needs(device: str) -> None:
    """Skip the test without the device, or if it does not declare the types."""
    try:
        with xsem.open_device(device) as opened:
            declared = opened.capabilities
    except xsem.XsemError as error:
        pytest.skip(f"needs {device}: {error}")
    if not any(each.portable for each in declared.semaphore_import) or not any(
            each.portable for each in declared.memory_import):
        pytest.skip(f"{device} does not declare timelines and memory of the host")


@pytest.mark.parametrize("importer", DEVICES)
@pytest.mark.parametrize("exporter", DEVICES)
def test_frames_go_both_ways_on_real_devices(exporter: str, importer: str) -> None:
    needs("cuda:0")   # a GPU
    needs(exporter)
    needs(importer)
    frames_go_both_ways(exporter, importer, lambda _: ([], os.environ))
