"""Test `Device.companion_exporter`: the Vulkan device of the same GPU."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from support.fake_backend import FakeDriver
from support.waiting import until

import xsem
from xsem import spi
from xsem.errors import BackendUnavailableError, DeviceNotFoundError, UnsupportedError
from xsem.facade import discovery
from xsem.plugins import Loaded, Registry
from xsem.types import Capabilities, DeviceInfo, Feature

UUIDS = (uuid.UUID(int=1), uuid.UUID(int=2))


class Vulkan(spi.Backend):
    name: ClassVar[str] = "vulkan"
    spi_version: ClassVar[int] = 2

    def __init__(self, *uuids: uuid.UUID | None, error: Exception | None = None) -> None:
        self.uuids = uuids
        self.error = error
        self.opened: list[FakeDriver] = []

    def devices(self) -> Sequence[DeviceInfo]:
        return [DeviceInfo(id=f"vulkan:{index}", backend="vulkan", index=index, name="GPU", uuid=each)
                for index, each in enumerate(self.uuids)]

    def open(self, index: int) -> FakeDriver:
        if self.error is not None:
            raise self.error
        self.opened.append(FakeDriver(Capabilities()))
        return self.opened[-1]


def device_with(monkeypatch: pytest.MonkeyPatch, vulkan: Vulkan | None, own: uuid.UUID | None) -> xsem.Device:
    found = Registry()
    if vulkan is not None:
        found.backends["vulkan"] = Loaded(vulkan, "test 1", "vulkan")
    monkeypatch.setattr(discovery, "registry", lambda: found)
    info = DeviceInfo(id="acme:0", backend="acme", index=0, name="GPU", uuid=own)
    return xsem.Device(info, FakeDriver(Capabilities()))


def test_device_of_the_same_uuid_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    vulkan = Vulkan(None, UUIDS[1], UUIDS[0])
    with device_with(monkeypatch, vulkan, UUIDS[0]) as device:
        with device.companion_exporter() as one, device.companion_exporter() as other:
            assert one.info.id == other.info.id == "vulkan:2"
            assert one is not other
        until(lambda: [driver.log.count(("close",)) for driver in vulkan.opened] == [1, 1])
        assert not device.released


@pytest.mark.parametrize(("uuids", "reason"), [
    ((UUIDS[1], None), "no_such_device"), ((), "no_device"), ((UUIDS[0], UUIDS[0]), "ambiguous_device")])
def test_missing_or_ambiguous_gpu_is_refused(
    monkeypatch: pytest.MonkeyPatch, uuids: Any, reason: str
) -> None:
    with device_with(monkeypatch, Vulkan(*uuids), UUIDS[0]) as device:
        with pytest.raises(DeviceNotFoundError) as caught:
            device.companion_exporter()
        assert (caught.value.reason, caught.value.backend) == (reason, "vulkan")
        assert len(caught.value.candidates) == len(uuids)


def test_missing_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with device_with(monkeypatch, None, UUIDS[0]) as device:
        with pytest.raises(BackendUnavailableError) as caught:
            device.companion_exporter()
        assert caught.value.reason == "unknown_backend"


def test_device_without_uuid_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with device_with(monkeypatch, Vulkan(UUIDS[0]), None) as device:
        with pytest.raises(UnsupportedError) as caught:
            device.companion_exporter()
        assert caught.value.reason == "no_uuid"


def test_error_of_the_backend_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    vulkan = Vulkan(UUIDS[0], error=xsem.BusyError("in use", reason="busy"))
    with device_with(monkeypatch, vulkan, UUIDS[0]) as device:
        with pytest.raises(xsem.BusyError) as caught:
            device.companion_exporter()
        assert caught.value.backend == "vulkan"


def test_driver_that_breaks_its_promise_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Vulkan):
        def open(self, index: int) -> FakeDriver:
            driver = super().open(index)
            driver._capabilities = dataclasses.replace(
                driver.capabilities, features=driver.capabilities.features | {Feature.MEMORY_CHUNKS})
            return driver

    vulkan = Broken(UUIDS[0])
    with device_with(monkeypatch, vulkan, UUIDS[0]) as device:
        with pytest.raises(BackendUnavailableError):
            device.companion_exporter()
        assert vulkan.opened[0].log.count(("close",)) == 1


def test_released_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_with(monkeypatch, Vulkan(UUIDS[0]), UUIDS[0])
    device.release()
    with pytest.raises(xsem.ReleasedError):
        device.companion_exporter()


