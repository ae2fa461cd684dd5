"""Fixtures of the tests of the host backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fake_backend import until
from support.fixtures import device

from xsem_host.device import HostDevice

__all__ = ["device", "driver"]


@pytest.fixture
def driver() -> Iterator[HostDevice]:
    """The driver of the host device. At its end no mapping is left."""
    from support.host_peers import mapped, workers  # needs Linux

    made = HostDevice()
    yield made
    made.close()
    until(lambda: not workers())   # a worker in a wait holds the page until its sleep ends
    assert mapped() == []
