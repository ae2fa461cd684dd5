"""Test what each backend says of its devices where all is well, and of a device that does not exist."""

from __future__ import annotations

import pytest
from support.each_device import EVERY, on_each, sides

from xsem.errors import DeviceNotFoundError
from xsem.plugins import registry


@on_each(*EVERY)
def test_checks_are_well_and_details_are_text(name: str) -> None:
    with sides(name):
        backend = registry().get(name)
        assert [check.name for check in backend.checks() if not check.ok] == []
        details = backend.details(0)
        assert all(isinstance(text, str) for pair in details.items() for text in pair)


@on_each("host", "levelzero", "opencl", "vulkan")   # cuInit decides for CUDA, with its own code
def test_index_without_a_device_is_refused(name: str) -> None:
    with sides(name):
        for index in (9, -1):
            with pytest.raises(DeviceNotFoundError) as caught:
                registry().get(name).open(index)
            assert caught.value.reason == "no_such_device"
