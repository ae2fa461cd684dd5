"""Drivers and lists implement the calls that their capabilities declare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeList, open_fake
from support.plugin_modules import Acme

from xsem import spi
from xsem.errors import BackendUnavailableError
from xsem.facade.device import Device
from xsem.plugins import check_implements, check_native_implements, check_queue_implements
from xsem.types import Capabilities, Feature, MemoryHandleType, SemaphoreHandleType


def broken(check: Callable[[], object]) -> str:
    with pytest.raises(BackendUnavailableError) as caught:
        check()
    assert caught.value.reason == "broken_promise"
    assert caught.value.backend == "fake"
    assert "fake:0" in str(caught.value)
    return str(caught.value).rpartition(": ")[2]


class Bare(spi.DeviceDriver):
    """Implements only the abstract methods."""

    def __init__(self, declared: Capabilities) -> None:
        self.declared = declared

    @property
    def capabilities(self) -> Capabilities:
        return self.declared

    def create_queue(self) -> spi.QueueDriver:
        return BareQueue()

    def query_fence(self, fence: object) -> bool:
        return True

    def release_fence(self, fence: object) -> None: ...
    def close(self) -> None: ...


class BareQueue(spi.QueueDriver):
    identity = 1
    closed = 0

    def append_barrier(self, wait_fences: Sequence[object], want_fence: bool) -> object:
        return 1 if want_fence else None

    def close(self) -> None:
        self.closed += 1


SEMAPHORE = frozenset({SemaphoreHandleType.OPAQUE_FD})
MEMORY = frozenset({MemoryHandleType.OPAQUE_FD})


@pytest.mark.parametrize(
    ("declared", "missing"),
    [
        ({"semaphore_import": SEMAPHORE}, {"SemaphoreImport"}),
        ({"semaphore_import": SEMAPHORE | {SemaphoreHandleType.NVSCISYNC}}, {"SemaphoreImport", "NvSciSync"}),
        ({"semaphore_export": SEMAPHORE}, {"SemaphoreExport"}),
        ({"memory_import": MEMORY}, {"MemoryImport"}),
        ({"memory_export": MEMORY}, {"MemoryExport"}),
        ({"features": frozenset({Feature.HOST_SIGNAL})}, {"HostSemaphore"}),
        ({"features": frozenset({Feature.HOST_WAIT})}, {"HostSemaphore"}),
        ({"features": frozenset({Feature.READ_VALUE})}, {"HostSemaphore"}),
        ({"features": frozenset({Feature.NATIVE_EVENTS})}, {"BorrowedEvents"}),
        ({"features": frozenset({Feature.MIPMAPPED_ARRAY})}, {"Images", "HostMemory"}),
        ({"features": frozenset({Feature.IMAGE})}, {"Images", "HostMemory"}),
        ({"features": frozenset({Feature.IMAGE}), "image_formats": frozenset({"nv12"})},
         {"Images", "HostMemory", "PlanarImages"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_device_without_its_declared_calls_is_refused(
    declared: dict[str, Any], missing: set[str]
) -> None:
    driver = Bare(Capabilities(**declared))
    assert set(broken(lambda: check_implements(INFO, driver)).split(", ")) == missing
    broken(lambda: Device(INFO, driver))


def test_a_device_that_declares_nothing_implements_nothing() -> None:
    with Device(INFO, Bare(Capabilities())) as device:
        device.create_command_list().append_barrier()


def test_every_feature_is_checked_somewhere() -> None:
    every = Capabilities(features=frozenset(Feature))
    missing = set(broken(lambda: check_implements(INFO, Bare(every))).split(", "))
    missing |= set(broken(lambda: check_queue_implements(INFO, every, BareQueue())).split(", "))
    missing |= set(broken(lambda: check_native_implements(INFO, Acme(), every)).split(", "))
    for feature in Feature:
        alone = Capabilities(features=frozenset({feature}))
        checks: list[Callable[[], object]] = [
            lambda alone=alone: check_implements(INFO, Bare(alone)),  # type: ignore[misc]
            lambda alone=alone: check_queue_implements(INFO, alone, BareQueue()),  # type: ignore[misc]
            lambda alone=alone: check_native_implements(INFO, Acme(), alone),  # type: ignore[misc]
        ]
        refused = 0
        for check in checks:
            try:
                check()
            except BackendUnavailableError:
                refused += 1
        assert refused >= 1, feature   # images need calls of the device and of its lists


@pytest.mark.parametrize(
    ("declared", "missing"),
    [
        ({"semaphore_import": SEMAPHORE}, {"SemaphoreQueue"}),
        ({"semaphore_export": SEMAPHORE}, {"SemaphoreQueue"}),
        ({"features": frozenset({Feature.RECORDING})}, {"RecordingQueue"}),
        ({"features": frozenset({Feature.MIPMAPPED_ARRAY})}, {"ImageQueue"}),
        ({"features": frozenset({Feature.IMAGE})}, {"ImageQueue"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_list_without_its_declared_calls_is_refused(
    declared: dict[str, Any], missing: set[str]
) -> None:
    capabilities = Capabilities(**declared)
    assert set(broken(lambda: check_queue_implements(INFO, capabilities, BareQueue())).split(", ")) == missing


def test_full_driver_implements_its_declarations() -> None:
    device, driver = open_fake()
    check_implements(INFO, driver)
    check_queue_implements(INFO, ALL, FakeList(driver, 1))
    device.release()


def test_queue_that_is_refused_is_closed() -> None:
    class Queues(FakeDriver):
        def create_queue(self) -> Any:
            closed.append(BareQueue())
            return closed[-1]

        def borrow_queue(self, stream: object, in_order: bool) -> Any:
            return self.create_queue()

    closed: list[BareQueue] = []
    with Device(INFO, Queues()) as device:
        broken(device.create_command_list)
        broken(lambda: device.command_list(5))
    assert [each.closed for each in closed] == [1, 1]


def test_list_without_its_declared_calls_is_refused_when_made() -> None:
    class Lists(FakeDriver):
        def create_queue(self) -> Any:
            return BareQueue()

        def borrow_queue(self, stream: object, in_order: bool) -> Any:
            return BareQueue()

    with Device(INFO, Lists()) as device:
        assert broken(device.create_command_list) == "SemaphoreQueue"
        assert broken(lambda: device.command_list(5)) == "SemaphoreQueue"
