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
from xsem.plugins import check_implements, check_list_implements, check_native_implements
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
        return BareList()

    def query_fence(self, fence: object) -> bool:
        return True

    def release_fence(self, fence: object) -> None: ...
    def close(self) -> None: ...


class BareList(spi.QueueDriver):
    identity = 1

    def append_barrier(self, wait_fences: Sequence[object], want_fence: bool) -> object:
        return 1 if want_fence else None

    def close(self) -> None: ...


SEMAPHORE = frozenset({SemaphoreHandleType.OPAQUE_FD})
MEMORY = frozenset({MemoryHandleType.OPAQUE_FD})


@pytest.mark.parametrize(
    ("declared", "missing"),
    [
        ({"semaphore_import": SEMAPHORE}, {"import_semaphore", "release_semaphore"}),
        ({"semaphore_export": SEMAPHORE}, {"create_semaphore", "export_semaphore", "release_semaphore"}),
        ({"memory_import": MEMORY}, {"import_memory", "map_buffer", "unmap_buffer", "release_memory"}),
        ({"memory_export": MEMORY}, {"create_memory", "export_memory", "map_buffer", "unmap_buffer", "release_memory"}),
        ({"features": frozenset({Feature.HOST_SIGNAL})}, {"host_signal"}),
        ({"features": frozenset({Feature.HOST_WAIT})}, {"host_wait"}),
        ({"features": frozenset({Feature.READ_VALUE})}, {"semaphore_value"}),
        ({"features": frozenset({Feature.NATIVE_EVENTS})}, {"borrow_event"}),
        ({"features": frozenset({Feature.MIPMAPPED_ARRAY})},
         {"map_mipmapped_array", "mipmap_level", "release_array", "host_buffer", "release_host_buffer"}),
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
    missing |= set(broken(lambda: check_list_implements(INFO, every, BareList())).split(", "))
    missing |= set(broken(lambda: check_native_implements(INFO, Acme(), every)).split(", "))
    for feature in Feature:
        alone = Capabilities(features=frozenset({feature}))
        checks: list[Callable[[], object]] = [
            lambda alone=alone: check_implements(INFO, Bare(alone)),  # type: ignore[misc]
            lambda alone=alone: check_list_implements(INFO, alone, BareList()),  # type: ignore[misc]
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
        ({"semaphore_import": SEMAPHORE}, {"append_wait", "append_signal"}),
        ({"semaphore_export": SEMAPHORE}, {"append_wait", "append_signal"}),
        ({"features": frozenset({Feature.RECORDING})},
         {"begin_recording", "end_recording", "replay", "release_recording"}),
        ({"features": frozenset({Feature.MIPMAPPED_ARRAY})}, {"append_level_copy"}),
        ({"features": frozenset({Feature.IMAGE})}, {"append_level_copy"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_list_without_its_declared_calls_is_refused(
    declared: dict[str, Any], missing: set[str]
) -> None:
    capabilities = Capabilities(**declared)
    assert set(broken(lambda: check_list_implements(INFO, capabilities, BareList())).split(", ")) == missing


def test_full_driver_implements_its_declarations() -> None:
    device, driver = open_fake()
    check_implements(INFO, driver)
    check_list_implements(INFO, ALL, FakeList(driver, 1))
    device.release()


def test_error_of_a_partial_driver_names_the_missing_calls() -> None:
    class Half(FakeDriver):
        unmap_buffer = spi.DeviceDriver.unmap_buffer

    assert broken(lambda: Device(INFO, Half())) == "unmap_buffer"


def test_list_without_its_declared_calls_is_refused_when_made() -> None:
    class Lists(FakeDriver):
        def create_queue(self) -> Any:
            return BareList()

        def borrow_queue(self, stream: object, in_order: bool) -> Any:
            return BareList()

    with Device(INFO, Lists()) as device:
        assert broken(device.create_command_list) == "append_wait, append_signal"
        assert broken(lambda: device.command_list(5)) == "append_wait, append_signal"
