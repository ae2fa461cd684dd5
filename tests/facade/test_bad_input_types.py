"""An import refuses handle types and devices that do not match, before the driver call."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest
from support.bad_input import Counted, importing
from support.descriptors import OF_SYSTEM, named
from support.fake_backend import FakeDriver, open_fake
from support.fixtures import refused
from support.open_files import close, holding, new_number, untouched
from support.system_types import BINARY, MEMORY, TIMELINE, binary, binary_of, memory_of

import xsem
from xsem.errors import BackendUnavailableError, DeviceNotFoundError, UnsupportedError, WrongDeviceError
from xsem.facade.device import Device
from xsem.types import DeviceInfo, MemoryDesc, MemoryHandleType, OsHandleKind, SemaphoreDesc, SemaphoreHandleType

S = SemaphoreHandleType
M = MemoryHandleType
ONE = uuid.UUID("a1b2c3d4-0000-4000-8000-0123456789ab")
TWO = uuid.UUID("b1b2c3d4-0000-4000-8000-0123456789ab")


# ---- types that the device does not declare
@pytest.mark.parametrize("member", [*S, *M], ids=named)
def test_a_type_that_host_does_not_declare_is_unsupported(
    device: Device, member: SemaphoreHandleType | MemoryHandleType
) -> None:
    if member in (BINARY, TIMELINE) or (member in OF_SYSTEM and member.portable):   # MEMORY equals BINARY
        return
    kind = "semaphore" if isinstance(member, SemaphoreHandleType) else "memory"
    number = new_number()
    with untouched(number):
        error = refused(importing(device, member, number), "unsupported", UnsupportedError)
    assert isinstance(error, UnsupportedError)
    assert error.capability == f"{kind}.import.{member.value}"
    assert error.backend == "host"
    close(number)
    create: Any = device.create_semaphore if kind == "semaphore" else lambda member: device.create_memory(member, 4096)
    error = refused(lambda: create(member), "unsupported", UnsupportedError)
    assert isinstance(error, UnsupportedError)
    assert error.capability == f"{kind}.export.{member.value}"


def test_import_is_unsupported_when_nothing_is_declared() -> None:
    device, driver = open_fake(xsem.Capabilities())
    number = new_number()
    with device, untouched(number):
        for member in OF_SYSTEM:
            refused(importing(device, member, number), "unsupported", UnsupportedError)
    assert not driver.seen_handles
    close(number)


@pytest.mark.parametrize("member", OF_SYSTEM, ids=named)
def test_refusal_of_an_undeclared_type_names_the_causes_that_the_driver_knows(
    member: SemaphoreHandleType | MemoryHandleType
) -> None:
    device, driver = open_fake(xsem.Capabilities())
    kind = "semaphore" if isinstance(member, SemaphoreHandleType) else "memory"
    driver.undeclared_causes = {f"{kind}.import.{member.value}": ("the moon is full",),
                                f"{kind}.export.{member.value}": ("the moon is new",)}
    number = new_number()
    create: Any = device.create_semaphore if kind == "semaphore" else lambda member: device.create_memory(member, 4096)
    with device, untouched(number):
        error = refused(importing(device, member, number), "unsupported", UnsupportedError)
        assert error.likely_causes == ("the moon is full",)
        error = refused(lambda: create(member), "unsupported", UnsupportedError)
        assert error.likely_causes == ("the moon is new",)
    close(number)


@pytest.mark.parametrize("wrong", [None, 5, "desc", object, {"type": S.OPAQUE_FD}], ids=repr)
def test_non_descriptor_is_refused(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.import_semaphore(wrong), "not_a_descriptor")
    refused(lambda: counted.import_memory(wrong), "not_a_descriptor")


def test_each_import_takes_its_own_descriptor(counted: Counted) -> None:
    number = new_number()
    semaphore = binary_of(number, device_uuid=None)
    memory = memory_of(number, 1)
    with untouched(number):
        refused(lambda: counted.import_semaphore(memory), "not_a_descriptor")
        refused(lambda: counted.import_memory(semaphore), "not_a_descriptor")
    close(number)


@pytest.mark.parametrize("wrong", ["opaque", "DMABUF_FD", None, 1, S, M.OPAQUE_FD], ids=repr)
def test_create_semaphore_takes_a_member_of_the_enum(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.create_semaphore(wrong), "bad_type")


@pytest.mark.parametrize("wrong", ["opaque", "SYNC_FD", None, 1, M, S.OPAQUE_FD], ids=repr)
def test_create_memory_takes_a_member_of_the_enum(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.create_memory(wrong, 4096), "bad_type")


@pytest.mark.parametrize("wrong", [None, 0, 1, "False"])
def test_create_memory_takes_a_bool_for_dedicated(counted: Counted, wrong: Any) -> None:
    refused(lambda: counted.create_memory(MEMORY, 4096, dedicated=wrong), "not_a_bool")


# ---- devices
def test_open_device_refuses_unknown_backends_and_devices() -> None:
    refused(lambda: xsem.open_device("nonesuch"), "unknown_backend", BackendUnavailableError)
    refused(lambda: xsem.open_device("nonesuch:0"), "unknown_backend", BackendUnavailableError)
    error = refused(lambda: xsem.open_device("host:1"), "no_such_device", DeviceNotFoundError)
    assert isinstance(error, DeviceNotFoundError)
    assert [info.id for info in error.candidates] == ["host:0"]
    refused(lambda: xsem.open_device("host", uuid=ONE), "no_such_device", DeviceNotFoundError)
    refused(lambda: xsem.open_device("host", luid=b"12345678"), "no_such_device", DeviceNotFoundError)


# ---- device identity
def fake_with_uuids(info_uuid: uuid.UUID | None, driver_uuid: uuid.UUID | None = None) -> tuple[Device, FakeDriver]:
    info = DeviceInfo(id="fake:0", backend="fake", index=0, name="fake", uuid=info_uuid, driver_uuid=driver_uuid)
    return open_fake(info=info)


@pytest.mark.parametrize("member", [each for each in (*S, *M) if not each.portable], ids=named)
@pytest.mark.parametrize("info_uuid", [TWO, None], ids=["another", "none"])
def test_device_bound_import_from_another_device_is_refused(
    member: SemaphoreHandleType | MemoryHandleType, info_uuid: uuid.UUID | None
) -> None:
    device, driver = fake_with_uuids(info_uuid)
    number = holding(b"x") if member in OF_SYSTEM else 0x40
    desc: Any = (
        SemaphoreDesc(type=member, handle=number, device_uuid=ONE)
        if isinstance(member, SemaphoreHandleType)
        else MemoryDesc(type=member, handle=number, device_uuid=ONE, allocation_size=1)
    )
    act: Any = device.import_semaphore if isinstance(member, SemaphoreHandleType) else device.import_memory
    with device:
        # dma-bufs, sync files and NvSci objects may come from any device; a Direct3D object is of one adapter
        if member.device_bound or member.os_handle_kind in (OsHandleKind.NT, OsHandleKind.KMT):
            with untouched(*([number] if member in OF_SYSTEM else [])):
                error = refused(lambda: act(desc), "wrong_device", WrongDeviceError)
            assert isinstance(error, WrongDeviceError)
            assert error.expected == str(ONE)
            assert "fake:0" in error.actual
            assert str(TWO if info_uuid else "no UUID") in error.actual
            assert error.handle_type is member
            assert error.backend == "fake"
            assert not driver.log
        else:
            act(desc).release()
    if member in OF_SYSTEM:
        close(number)


@pytest.mark.parametrize(
    "member", [each for each in (*S, *M)
               if each.os_handle_kind in (OsHandleKind.NT, OsHandleKind.KMT) and not each.portable], ids=named
)
@pytest.mark.parametrize("luid", [b"\xf4\3\1\0\0\0\0\1", None], ids=["another", "none"])
def test_import_from_another_adapter_is_refused(
    member: SemaphoreHandleType | MemoryHandleType, luid: bytes | None
) -> None:
    wanted = b"\xf4\3\1\0\0\0\0\0"   # equal up to the last byte: the bytes after a zero count
    info = DeviceInfo(id="fake:0", backend="fake", index=0, name="fake", luid=luid)
    device, driver = open_fake(info=info)
    number = holding(b"x") if member in OF_SYSTEM else 0x40
    desc: Any = (
        SemaphoreDesc(type=member, handle=number, device_luid=wanted)
        if isinstance(member, SemaphoreHandleType)
        else MemoryDesc(type=member, handle=number, allocation_size=1, device_luid=wanted)
    )
    act: Any = device.import_semaphore if isinstance(member, SemaphoreHandleType) else device.import_memory
    with device:
        error = refused(lambda: act(desc), "wrong_device", WrongDeviceError)
        assert isinstance(error, WrongDeviceError)
        assert (error.expected, error.handle_type, error.backend) == (wanted.hex(), member, "fake")
        assert (luid.hex() if luid else "no LUID") in error.actual
        assert not driver.log
    same, _ = open_fake(info=dataclasses.replace(info, luid=wanted))
    with same:
        (same.import_semaphore if isinstance(member, SemaphoreHandleType) else same.import_memory)(desc).release()
    if member in OF_SYSTEM:
        close(number)


def test_matching_or_missing_device_uuid_is_accepted() -> None:
    number = new_number()
    for info_uuid, desc_uuid in ((ONE, ONE), (ONE, None), (None, None)):
        device, _ = fake_with_uuids(info_uuid)
        with device, untouched(number):
            device.import_semaphore(binary_of(number, device_uuid=desc_uuid)).release()
    close(number)


def test_import_from_another_driver_is_refused_when_both_known() -> None:
    number = new_number()
    desc = binary_of(number, device_uuid=ONE, driver_uuid=ONE)
    device, _ = fake_with_uuids(ONE, TWO)
    with device, untouched(number):
        error = refused(lambda: device.import_semaphore(desc), "wrong_driver", WrongDeviceError)
        assert isinstance(error, WrongDeviceError)
        assert (error.expected, error.actual) == (str(ONE), str(TWO))
    for driver_uuid in (ONE, None):
        device, _ = fake_with_uuids(ONE, driver_uuid)
        with device, untouched(number):
            device.import_semaphore(desc).release()
    close(number)


def test_host_refuses_a_descriptor_of_a_gpu(device: Device) -> None:
    number = new_number()
    with untouched(number):
        desc = binary_of(number, device_uuid=ONE)
        refused(lambda: device.import_semaphore(desc), "wrong_device", WrongDeviceError)
    close(number)


def test_portable_object_of_another_device_is_accepted(device: Device) -> None:
    [timeline] = [each for each in device.capabilities.semaphore_export if each.portable]
    [memory] = [each for each in device.capabilities.memory_export if each.portable]
    with device.create_semaphore(timeline).export() as one, device.create_memory(memory, 1).export() as two:
        device.import_semaphore(dataclasses.replace(one, device_uuid=ONE, driver_uuid=TWO))
        device.import_memory(dataclasses.replace(two, device_uuid=ONE, driver_uuid=TWO))


def test_export_for_another_device_is_refused_except_from_host(device: Device) -> None:
    here, _ = fake_with_uuids(ONE)
    there, _ = fake_with_uuids(TWO)
    with here, there:
        for made in (binary(here), here.create_memory(MEMORY, 1)):
            error = refused(lambda made=made: made.export(for_device=there), "wrong_device", WrongDeviceError)  # type: ignore[misc]
            assert isinstance(error, WrongDeviceError)
            assert (str(ONE) in error.expected, str(TWO) in error.actual) == (True, True)
        for made in (binary(device), device.create_memory(MEMORY, 1)):
            with made.export(for_device=there) as desc:
                assert (desc.device_uuid, desc.driver_uuid) == (TWO, None)
            with made.export() as desc:
                assert (desc.device_uuid, desc.driver_uuid) == (None, None)
