"""Arrays that their library calls read-only: xsem shares them only if the application says that importers only read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.fake_backend import ALL, INFO, FakeDriver
from support.fixtures import refused
from support.system_types import MEMORY

from xsem.facade.device import Device
from xsem.types import Feature


class Interface:
    def __init__(self, read_only: bool) -> None:
        self.__cuda_array_interface__ = {
            "data": (0x1000, read_only), "shape": (4,), "typestr": "|u1", "strides": None, "version": 3}


class Old:
    """An array of a library before DLPack 1.0: its capsules cannot say that an array is read-only."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self) -> Any:
        return self._array.__dlpack__()


class New(Old):
    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
        if np.lib.NumpyVersion(np.__version__) < "2.1.0":
            pytest.skip("NumPy before 2.1 has no DLPack 1.0")
        return self._array.__dlpack__(max_version=max_version)


class Broken(New):
    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
        raise RuntimeError("deleted")


def bytes_of(*, writable: bool) -> np.ndarray[Any, Any]:
    array = np.zeros(8, np.uint8)
    array.flags.writeable = writable
    return array


@pytest.fixture
def device() -> Iterator[Device]:
    driver = FakeDriver(dataclasses.replace(ALL, features=ALL.features | {Feature.MEMORY_SHARING}))
    driver.dlpack = (1, 0)   # NumPy's arrays stand for arrays of the device
    with Device(INFO, driver) as opened:
        yield opened


@pytest.fixture(autouse=True)
def host_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsem.facade.foreign_arrays._HOST", ())


@pytest.mark.parametrize("array", [Interface(True), New(bytes_of(writable=False))], ids=["interface", "DLPack"])
def test_read_only_array_is_shared_only_for_readers(device: Device, array: Any) -> None:
    error = refused(lambda: device.share(array, type=MEMORY), "read_only_array")
    assert "read_only=True" in str(error)
    device.share(array, type=MEMORY, read_only=True).release()


@pytest.mark.parametrize("array", [Interface(False), New(bytes_of(writable=True)), Old(bytes_of(writable=True))],
                         ids=["interface", "DLPack", "DLPack before 1.0"])
def test_writable_array_is_shared_in_both_ways(device: Device, array: Any) -> None:
    for read_only in (False, True):
        device.share(array, type=MEMORY, read_only=read_only).release()


def test_refusal_of_the_library_itself_is_named(device: Device) -> None:
    error = refused(lambda: device.share(Broken(bytes_of(writable=True)), type=MEMORY), "array_refused")
    assert "deleted" in str(error)
