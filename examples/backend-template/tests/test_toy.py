"""Tests of the special behaviour of toy. The conformance suite of xsem tests the requirements of every backend."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import xsem
from xsem.errors import BadHandleError, DeviceNotFoundError
from xsem.plugins import registry
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType

BINARY = SemaphoreHandleType.OPAQUE_FD


@pytest.fixture
def device() -> Iterator[xsem.Device]:
    with xsem.open_device("toy:0") as opened:
        yield opened


def test_the_only_device_is_listed() -> None:
    assert [each.id for each in xsem.devices("toy")] == ["toy:0"]
    with pytest.raises(DeviceNotFoundError):
        xsem.open_device("toy:1")


def test_checks_find_nothing_missing() -> None:
    backend = registry().get("toy")
    assert [each.name for each in backend.checks() if not each.ok] == []
    assert backend.libraries(0)


def test_wait_ends_after_the_signal_of_another_device(device: xsem.Device) -> None:
    with xsem.open_device("toy:0") as producer:
        signalled = producer.create_semaphore(BINARY)
        with signalled.export() as desc:
            waited = device.import_semaphore(desc)
        consumer, event = device.create_command_list(), device.create_event()
        consumer.append_wait(waited, signal_event=event)
        assert not event.query()
        producer.create_command_list().append_signal(signalled)
        event.wait(timeout_s=30)


def test_file_that_is_not_an_eventfd_is_refused_and_stays_open(device: xsem.Device) -> None:
    with OwnedHandle(os.pidfd_open(os.getpid())) as handle:
        desc = SemaphoreDesc(type=BINARY, handle=handle)
        with pytest.raises(BadHandleError) as refused:
            device.import_semaphore(desc)
        assert refused.value.reason == "not_an_eventfd"
        os.fstat(handle.fileno())
