"""Test memory that a Level Zero device creates, exports and shares, on the simulated driver."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_void_p
from typing import Any, Self

import numpy as np
import pytest
from support.levelzero_facade import BOUND_S, PAGE, driver_of, own
from support.levelzero_sim import on_level_zero

import xsem
from xsem.types import MemoryHandleType
from xsem_levelzero import ze
from xsem_levelzero.backend import LevelZeroBackend

OPAQUE, DMABUF = MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD
LARGE = 128 << 10   # bytes; the driver's pool has smaller allocations only
INTEL = {"SIMZE_MODE": "intel", "SIMZE_GUARD": "1"}


def library() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["ZE_ENABLE_ALT_DRIVERS"].split(",")[0])


@contextmanager
def failing(before: bytes) -> Iterator[None]:
    library().simze_fail(before, None)
    try:
        yield
    finally:
        library().simze_fail(None, None)


def fds() -> list[str]:
    return sorted(each for each in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{each}"))


def until_freed(device: xsem.Device) -> None:
    deadline = time.monotonic() + BOUND_S
    while device.releasing():
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.002)


def write(memory: xsem.Memory, data: np.ndarray[Any, Any], offset: int = 0) -> None:
    with memory.map_buffer(offset, data.nbytes) as buffer:
        buffer.copy_from_host(data, timeout_s=BOUND_S)


def read(memory: xsem.Memory, count: int, offset: int = 0) -> list[int]:
    with memory.map_buffer(offset, count) as buffer:
        values: list[int] = buffer.copy_to_host(timeout_s=BOUND_S).tolist()
        return values


class Application:
    """Memory of an application in the context of an open device, by the loader. `with` frees the memory."""

    def __init__(self, device: xsem.Device) -> None:
        self.core = driver_of(device)._core
        self.made: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for address in tuple(self.made):
            self.free(address)

    def allocate(self, size: int, *, exportable: int = 0, device: int | None = None) -> int:
        desc = ze.DeviceMemAllocDesc.made(pNext=ze.ExportDesc.made(flags=exportable) if exportable else None)
        made: int = self.core.loader.make("zeMemAllocDevice", self.core.context, byref(desc), size, 0,
                                          self.core.device if device is None else device)
        self.made.append(made)
        return made

    def allocate_shared(self, size: int) -> int:
        made = c_void_p()
        desc, host = ze.DeviceMemAllocDesc.made(), ze.HostMemAllocDesc.made()
        function = ctypes.CDLL("libze_loader.so.1").zeMemAllocShared
        assert function(c_void_p(self.core.context), byref(desc), byref(host), ctypes.c_size_t(size),
                        ctypes.c_size_t(0), c_void_p(self.core.device), byref(made)) == 0
        self.made.append(made.value or 0)
        return self.made[-1]

    def free(self, address: int) -> None:
        self.made.remove(address)
        self.core.loader.do("zeMemFree", self.core.context, address)


# ---- created memory
@on_level_zero(**INTEL)
def test_both_sides_see_each_others_bytes_in_both_types_of_intel() -> None:
    with xsem.open_device("levelzero:0") as device:
        assert own(device.capabilities.memory_export) == {OPAQUE, DMABUF}
        for type in (OPAQUE, DMABUF):
            created = device.create_memory(type, 3 * PAGE - 1)
            assert created.allocation_size == 3 * PAGE
            with created.export() as desc:
                assert (desc.type, desc.allocation_size, desc.device_uuid) == (type, 3 * PAGE, device.info.uuid)
                imported = device.import_memory(desc)
            for here, there, offset in ((created, imported, 3 * PAGE - 64), (imported, created, PAGE + 5)):
                write(here, np.arange(64, dtype=np.uint8), offset)
                assert read(there, 64, offset) == list(range(64))


def exports_are_independent_and_nothing_stays_open(closer: str) -> None:
    with xsem.open_device("levelzero:0") as device:
        backend = xsem.plugins.registry().get("levelzero")
        assert backend.details(0)["exports_closed_by"] == closer
        before = fds()
        for _ in range(2):
            created = device.create_memory(OPAQUE, PAGE)
            write(created, np.full(16, 7, np.uint8))
            first, second, third = created.export(), created.export(), created.export()
            numbers = {each.handle.fileno() for each in (first, second, third)}   # type: ignore[union-attr]
            assert len(numbers) == 3
            first.close()
            created.release()
            until_freed(device)
            for desc in (second, third):
                with desc, device.import_memory(desc) as imported:
                    assert read(imported, 16) == [7] * 16
                until_freed(device)
        assert fds() == before


@on_level_zero(SIMZE_EXPORT_FD="caller")
def test_exports_are_independent_and_nothing_stays_open() -> None:
    exports_are_independent_and_nothing_stays_open("caller")


@on_level_zero(SIMZE_EXPORT_FD="driver")
def test_exports_are_independent_when_the_driver_keeps_one_fd() -> None:
    exports_are_independent_and_nothing_stays_open("driver")


@on_level_zero(SIMZE_TILES="1")
def test_memory_of_several_tiles_is_refused_and_freed() -> None:
    with xsem.open_device("levelzero:0") as device:
        before = fds()
        with pytest.raises(xsem.UnsupportedError, match="65536 of 131072 bytes") as caught:
            device.create_memory(OPAQUE, LARGE)
        assert caught.value.reason == "several_allocations"
        assert fds() == before
        device.create_memory(OPAQUE, PAGE).export().close()


# ---- the declaration
def undeclared(reason: str) -> None:
    with xsem.open_device("levelzero:0") as device:
        assert not own(device.capabilities.memory_export)
        assert xsem.Feature.MEMORY_SHARING not in device.capabilities.features
        with pytest.raises(xsem.UnsupportedError, match=r"memory\.export"):
            device.create_memory(OPAQUE, PAGE)
        with pytest.raises(xsem.UnsupportedError, match="memory_sharing"):
            device.share(PAGE, size=PAGE)
    found = subprocess.run([sys.executable, "-m", "xsem", "devices", "--json"], capture_output=True, text=True,
                           check=True, timeout=60).stdout
    details, = (each["details"] for each in json.loads(found)["devices"] if each["backend"] == "levelzero")
    assert details["refused_exports"] == reason
    assert details["exports_closed_by"] == ""


@on_level_zero(SIMZE_EXPORT_TYPES="0")
def test_driver_without_exports_declares_none() -> None:
    undeclared("")


@on_level_zero(SIMZE_FAIL="zeMemGetAllocProperties:0x78000003")
def test_type_whose_export_fails_is_not_declared() -> None:
    undeclared("opaque_fd: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE")


@on_level_zero(SIMZE_FAIL="zeMemAllocDevice:0x7800000d")
def test_type_whose_allocation_fails_is_not_declared() -> None:
    undeclared("opaque_fd: ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION")


@on_level_zero(SIMZE_MEMORY_TYPES="3", SIMZE_EXPORT_TYPES="2")
def test_only_the_types_of_the_driver_are_declared() -> None:
    with xsem.open_device("levelzero:0") as device:
        assert own(device.capabilities.memory_export) == {DMABUF}
        assert device.create_memory(DMABUF, PAGE).export().type is DMABUF


@on_level_zero
@pytest.mark.parametrize("failure", [b"zeMemAllocDevice:0x70000003", b"zeMemGetAllocProperties:0x70000002"])
def test_probe_without_memory_is_not_remembered(failure: bytes) -> None:
    backend = LevelZeroBackend()
    backend.devices()   # starts the driver
    with failing(failure):
        driver = backend.open(0)
        assert not own(driver.capabilities.memory_export)
        driver.close()
    driver = backend.open(0)
    assert own(driver.capabilities.memory_export) == {OPAQUE}
    driver.close()


@on_level_zero
def test_creation_without_an_fd_for_its_export_says_so() -> None:
    with xsem.open_device("levelzero:0") as device:
        created = device.create_memory(OPAQUE, PAGE)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, limit[1]))
        spare: list[int] = []
        try:
            with pytest.raises(OSError):   # noqa: PT011  # EMFILE
                while True:
                    spare.append(os.open(os.devnull, os.O_RDONLY))
            os.close(spare.pop())   # for the memory; not for its export
            with pytest.raises(xsem.BusyError) as caught:
                device.create_memory(OPAQUE, PAGE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            for each in spare:
                os.close(each)
        assert caught.value.reason == "fd_limit"
        created.export().close()


# ---- shared memory
def shared_array_shows_its_bytes(type: MemoryHandleType, exportable: int) -> None:
    with xsem.open_device("levelzero:0") as device, Application(device) as application:
        address = application.allocate(LARGE, exportable=exportable)
        shared = device.share(address + 4096, size=64, type=type)
        assert shared.offset == 4096
        with shared.export() as desc:
            assert desc.allocation_size == LARGE
            imported = device.import_memory(desc)
        write(imported, np.arange(64, dtype=np.uint8), 4096)
        shared.release()
        until_freed(device)
        assert read(imported, 64, 4096) == list(range(64))
        application.free(address)   # fails if the release has freed it


@on_level_zero(SIMZE_GUARD="1")
def test_exportable_memory_of_the_application_is_shared() -> None:
    shared_array_shows_its_bytes(OPAQUE, 1)


@on_level_zero(**INTEL)
def test_intel_shares_any_allocation_outside_the_pool() -> None:
    shared_array_shows_its_bytes(DMABUF, 0)


@on_level_zero
def test_owner_is_kept_until_the_release() -> None:
    import weakref

    with xsem.open_device("levelzero:0") as device:
        created = device.create_memory(OPAQUE, PAGE)
        buffer = created.map_buffer(256, 64)
        shared = device.share(buffer)
        assert shared.offset == 256
        owner = weakref.ref(buffer)
        del buffer
        gc.collect()
        assert owner() is not None
        shared.release()
        until_freed(device)
        gc.collect()
        assert owner() is None


def refused(device: xsem.Device, error: type[xsem.XsemError], reason: str, address: int, size: int = 64) -> str:
    with pytest.raises(error) as caught:
        device.share(address, size=size)
    assert caught.value.reason == reason
    return str(caught.value)


@on_level_zero
def test_memory_that_was_not_made_exportable_is_refused_with_the_remedy() -> None:
    with xsem.open_device("levelzero:0") as device, Application(device) as application:
        address = application.allocate(LARGE)
        assert "ze_external_memory_export_desc_t" in refused(device, xsem.UnsupportedError, "not_shareable", address)


@on_level_zero(SIMZE_MODE="intel")
def test_memory_of_the_drivers_pool_is_refused() -> None:
    with xsem.open_device("levelzero:0") as device, Application(device) as application:
        chunks = [application.allocate(PAGE) for _ in range(3)]
        for address in chunks:   # also the first: its fd contains the memory of the others
            assert "pool" in refused(device, xsem.UnsupportedError, "not_shareable", address)
        exportable = application.allocate(PAGE, exportable=3)
        device.share(exportable, size=64).release()


def memory_is_shared(*, any_memory: bool) -> None:
    with xsem.open_device("levelzero:0") as device, Application(device) as application:
        for exportable in (0, 3):   # no function of the driver tells the flag
            address = application.allocate(LARGE, exportable=exportable)
            if any_memory:
                device.share(address, size=64).release()
            else:
                assert "create_memory" in refused(device, xsem.UnsupportedError, "may_be_compressed", address)
        created = device.create_memory(OPAQUE, LARGE)
        write(created, np.arange(64, dtype=np.uint8))
        with device.share(created.map_buffer(0, 64)).export() as desc, device.import_memory(desc) as imported:
            assert read(imported, 64) == list(range(64))
        address = created.map_buffer().address
        created.release()
        until_freed(device)
        refused(device, xsem.BadArgumentError, "not_device_memory", address)


@on_level_zero(**INTEL, SIMZE_IP_VERSION="20.1")
def test_battlemage_shares_created_memory_only_because_other_memory_may_be_compressed() -> None:
    memory_is_shared(any_memory=False)


@on_level_zero(**INTEL, SIMZE_IP_VERSION="30.0")
def test_panther_lake_shares_created_memory_only_because_other_memory_may_be_compressed() -> None:
    memory_is_shared(any_memory=False)


@on_level_zero(**INTEL, SIMZE_IP_VERSION="20.4")
def test_lunar_lake_compresses_no_memory() -> None:
    memory_is_shared(any_memory=True)


@on_level_zero(SIMZE_MODE="intel", SIMZE_EXPORT_TYPES="2", SIMZE_MEMORY_TYPES="2")
def test_type_of_shared_memory_is_the_first_that_the_device_exports() -> None:
    with xsem.open_device("levelzero:0") as device:
        assert device.share(device.create_memory(DMABUF, PAGE).map_buffer()).export().type is DMABUF


@on_level_zero(SIMZE_TILES="1")
def test_array_beyond_one_tile_is_refused() -> None:
    with xsem.open_device("levelzero:0") as device, Application(device) as application:
        address = application.allocate(LARGE, exportable=1)
        device.share(address, size=LARGE // 2).release()
        refused(device, xsem.UnsupportedError, "several_allocations", address, LARGE // 2 + 1)


@on_level_zero(SIMZE_DEVICES="2")
def test_other_addresses_are_refused_by_name() -> None:
    with (xsem.open_device("levelzero:0") as device, xsem.open_device("levelzero:1") as other,
          Application(device) as application):
        address = application.allocate(LARGE, exportable=1)
        refused(device, xsem.BadArgumentError, "out_of_range", address + LARGE - 32)
        foreign = application.allocate(LARGE, exportable=1, device=driver_of(other)._core.device)
        refused(device, xsem.WrongDeviceError, "wrong_device", foreign)
        refused(device, xsem.BadArgumentError, "managed_memory", application.allocate_shared(PAGE))
        host, _ = driver_of(device).host_buffer(PAGE)
        refused(device, xsem.BadArgumentError, "host_array", host)
        driver_of(device).release_host_buffer(host)
        application.free(address)
        message = refused(device, xsem.BadArgumentError, "not_device_memory", address)
        assert "native=" in message
