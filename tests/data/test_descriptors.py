"""A descriptor checks the size, the device and the driver of its handle type, and is equal by its fields."""

from __future__ import annotations

import dataclasses
import os
import pickle
import socket
import sys
import uuid
from typing import Any

import pytest
from support.descriptors import ALL, FD, KMT, NT, NVSCI, error_of, make, named

from xsem.errors import BadArgumentError
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

S = SemaphoreHandleType
M = MemoryHandleType
ONE = uuid.UUID("a1b2c3d4-0000-4000-8000-0123456789ab")
TWO = uuid.UUID("b1b2c3d4-0000-4000-8000-0123456789ab")


# ---- type and size
@pytest.mark.parametrize(
    ("desc", "value"),
    [(SemaphoreDesc, "opaque"), (SemaphoreDesc, M.OPAQUE_FD), (SemaphoreDesc, 1), (SemaphoreDesc, None),
     (SemaphoreDesc, "DMABUF_FD"), (MemoryDesc, "Opaque_FD"), (MemoryDesc, S.OPAQUE_FD), (MemoryDesc, 1),
     (MemoryDesc, None), (MemoryDesc, "")],
)
def test_the_type_is_the_enums_own_member(desc: Any, value: object) -> None:
    size = {"allocation_size": 1} if desc is MemoryDesc else {}
    with pytest.raises(BadArgumentError) as caught:
        desc(type=value, handle=1, **size)
    assert caught.value.reason == "bad_type"
    assert all(name in str(caught.value) for name in (M if desc is MemoryDesc else S).__members__)


@pytest.mark.parametrize("member", [*S, *M], ids=named)
def test_the_type_can_be_given_by_its_name(member: Any) -> None:
    desc: Any = SemaphoreDesc if isinstance(member, S) else MemoryDesc
    size = {"allocation_size": 1} if desc is MemoryDesc else {}
    made = [desc(type=each, handle=1, **size) for each in (member, member.name, member.value)]
    assert made[0] == made[1] == made[2]
    assert all(each.type is member for each in made)


@pytest.mark.parametrize("member", M, ids=named)
@pytest.mark.parametrize(
    ("size", "reason"),
    [(0, "bad_size"), (-1, "bad_size"), (2**64, "bad_size"), (True, "not_an_int"), (4096.0, "not_an_int"),
     ("4096", "not_an_int"), (None, "not_an_int")],
)
def test_memory_has_a_size(member: MemoryHandleType, size: Any, reason: str) -> None:
    error = error_of(member, handle=1, allocation_size=size)
    assert type(error) is BadArgumentError
    assert error.reason == reason


def test_memory_must_say_its_size() -> None:
    with pytest.raises(TypeError, match="allocation_size"):
        MemoryDesc(type=M.OPAQUE_FD, handle=1)  # type: ignore[call-arg]
    largest = make(M.OPAQUE_FD, handle=1, allocation_size=2**64 - 1)
    assert isinstance(largest, MemoryDesc)
    assert largest.allocation_size == 2**64 - 1


@pytest.mark.parametrize("member", M, ids=named)
def test_dedicated_is_set_for_d3d_and_refused_for_dmabuf(member: MemoryHandleType) -> None:
    by_default = make(member, handle=1)
    assert isinstance(by_default, MemoryDesc)
    assert by_default.dedicated is (member in (M.D3D12_RESOURCE, M.D3D11_RESOURCE, M.D3D11_RESOURCE_KMT))
    if member is M.DMABUF_FD:
        error = error_of(member, handle=1, dedicated=True)
        assert type(error) is BadArgumentError
        assert error.reason == "dedicated_dmabuf"
        assert error.handle_type is member
    else:
        told = make(member, handle=1, dedicated=True)
        assert isinstance(told, MemoryDesc)
        assert told.dedicated is True


# ---- device and driver
@pytest.mark.parametrize("member", [S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_WIN32, M.OPAQUE_FD, M.DMABUF_FD], ids=named)
@pytest.mark.parametrize("field", ["device_uuid", "driver_uuid"])
@pytest.mark.parametrize("form", [ONE, ONE.bytes, str(ONE), f"GPU-{ONE}"], ids=["UUID", "bytes", "text", "GPU-"])
def test_every_form_of_a_uuid_becomes_a_uuid_object(
    member: SemaphoreHandleType | MemoryHandleType, field: str, form: uuid.UUID | bytes | str
) -> None:
    assert getattr(make(member, handle=1, **{field: form}), field) == ONE
    assert type(getattr(make(member, handle=1, **{field: form}), field)) is uuid.UUID


@pytest.mark.parametrize("member", [S.OPAQUE_FD, M.OPAQUE_FD], ids=named)
@pytest.mark.parametrize("field", ["device_uuid", "driver_uuid"])
@pytest.mark.parametrize("value", ["cuda:0", b"short", 0, True])
def test_bad_uuid_is_refused(member: SemaphoreHandleType | MemoryHandleType, field: str, value: Any) -> None:
    error = error_of(member, handle=1, **{field: value})
    assert type(error) is BadArgumentError
    assert error.reason == "bad_uuid"
    assert field in str(error)


# ---- constructors
def constructor(member: SemaphoreHandleType | MemoryHandleType) -> Any:
    owner = SemaphoreDesc if isinstance(member, SemaphoreHandleType) else MemoryDesc
    return getattr(owner, member.value.replace("timeline_semaphore_", "timeline_"))


def needed(member: SemaphoreHandleType | MemoryHandleType) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if isinstance(member, MemoryHandleType):
        fields["allocation_size"] = 8192
    if member.device_bound:
        fields["device_uuid"] = str(ONE)
    return fields


@pytest.mark.parametrize("member", ALL, ids=named)
def test_every_member_has_a_constructor_of_its_name(member: SemaphoreHandleType | MemoryHandleType) -> None:
    desc = constructor(member)(5, **needed(member))
    assert desc.type is member
    assert desc.handle == 5
    assert desc.name is None
    assert desc.device_uuid == (ONE if member.device_bound else None)
    assert desc.driver_uuid is None
    if isinstance(member, MemoryHandleType):
        assert desc.allocation_size == 8192
        assert desc.dedicated is member.dedicated


@pytest.mark.parametrize("member", NT, ids=named)
def test_constructors_of_nt_types_take_a_name(member: SemaphoreHandleType | MemoryHandleType) -> None:
    desc = constructor(member)(name="Local\\frames", **needed(member))
    assert (desc.handle, desc.name) == (None, "Local\\frames")
    with pytest.raises(BadArgumentError) as caught:
        constructor(member)(**needed(member))
    assert caught.value.reason == "handle_xor_name"


@pytest.mark.parametrize("member", [*FD, *KMT, *NVSCI], ids=named)
def test_constructors_of_other_types_take_no_name(member: SemaphoreHandleType | MemoryHandleType) -> None:
    with pytest.raises(TypeError, match="name"):
        constructor(member)(5, name="Local\\frames", **needed(member))


@pytest.mark.parametrize("member", [member for member in ALL if member.device_bound], ids=named)
def test_constructors_of_device_bound_types_need_device_uuid(
    member: SemaphoreHandleType | MemoryHandleType,
) -> None:
    fields = needed(member)
    del fields["device_uuid"]
    with pytest.raises(TypeError, match="device_uuid"):
        constructor(member)(5, **fields)
    # None says explicitly that the device is unknown.
    assert constructor(member)(5, device_uuid=None, **fields).device_uuid is None
    both = constructor(member)(5, device_uuid=ONE, driver_uuid=TWO.bytes, **fields)
    assert (both.device_uuid, both.driver_uuid) == (ONE, TWO)


@pytest.mark.parametrize("member", ALL, ids=named)
def test_only_types_of_windows_take_a_luid(member: SemaphoreHandleType | MemoryHandleType) -> None:
    luid = b"\xf4\3\1\0\0\0\0\0"
    if member.portable or member not in (*NT, *KMT):
        with pytest.raises(BadArgumentError) as caught:
            make(member, handle=5, device_luid=luid)
        assert caught.value.reason == "luid_not_allowed"
        return
    assert make(member, handle=5, device_luid=bytearray(luid)).device_luid == luid
    for bad in (luid[:7], luid + b"\0", "12345678", 8, memoryview(luid)):
        with pytest.raises(BadArgumentError) as caught:
            make(member, handle=5, device_luid=bad)
        assert caught.value.reason == "bad_luid"
    if not member.device_bound:
        assert constructor(member)(5, device_luid=luid, **needed(member)).device_luid == luid


@pytest.mark.parametrize("member", [member for member in M if member.device_bound], ids=named)
def test_constructors_of_opaque_memory_take_dedicated(member: MemoryHandleType) -> None:
    assert constructor(member)(5, dedicated=True, **needed(member)).dedicated is True


# ---- equality, ownership, pickling
@pytest.mark.parametrize("member", ALL, ids=named)
def test_a_descriptor_is_frozen_and_equal_by_its_fields(member: SemaphoreHandleType | MemoryHandleType) -> None:
    desc = make(member, handle=5)
    for field in dataclasses.fields(desc):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(desc, field.name, None)
    assert desc == make(member, handle=5)
    assert hash(desc) == hash(make(member, handle=5))
    assert desc != make(member, handle=6)
    assert dataclasses.replace(desc, handle=6) == make(member, handle=6)


def test_replace_checks_again() -> None:
    desc = MemoryDesc.opaque_fd(5, allocation_size=1, device_uuid=None)
    with pytest.raises(BadArgumentError) as caught:
        dataclasses.replace(desc, allocation_size=0)
    assert caught.value.reason == "bad_size"


def test_a_semaphore_and_a_memory_descriptor_are_never_equal() -> None:
    semaphore: object = SemaphoreDesc.opaque_fd(5, device_uuid=None)
    assert semaphore != MemoryDesc.opaque_fd(5, allocation_size=1, device_uuid=None)


@pytest.mark.skipif(sys.platform == "win32", reason="an OwnedHandle owns NT handles on Windows")
@pytest.mark.parametrize("member", FD, ids=named)
@pytest.mark.parametrize("closing", ["close", "with", "with and an exception"])
def test_close_closes_only_owned_handles(
    member: SemaphoreHandleType | MemoryHandleType, closing: str
) -> None:
    borrowed, other = socket.socketpair()
    number = os.open(os.devnull, os.O_RDONLY)
    owned = OwnedHandle(os.open(os.devnull, os.O_RDONLY))
    owned_number = owned.fileno()
    with borrowed, other:
        for handle in (borrowed, number, owned):
            desc = make(member, handle=handle)
            if closing == "close":
                desc.close()
            elif closing == "with":
                with desc as entered:
                    assert entered is desc
            else:
                with pytest.raises(ZeroDivisionError), desc:
                    raise ZeroDivisionError
            assert owned.closed is (handle is owned)
        make(member, handle=owned).close()
        os.fstat(borrowed.fileno())
        os.fstat(number)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(owned_number)
        os.close(number)


@pytest.mark.parametrize("member", [*NT, *KMT, *NVSCI], ids=named)
def test_close_does_not_close_numbers(member: SemaphoreHandleType | MemoryHandleType) -> None:
    # On POSIX, closing a number that is not an fd could close this file.
    number = os.open(os.devnull, os.O_RDONLY)
    make(member, handle=number).close()
    os.fstat(number)
    os.close(number)


@pytest.mark.parametrize("member", ALL, ids=named)
def test_a_descriptor_is_pickled_only_by_multiprocessing(
    member: SemaphoreHandleType | MemoryHandleType,
) -> None:
    # At any other time the number would name another file in the receiving process.
    with pytest.raises(BadArgumentError) as caught:
        pickle.dumps(make(member, handle=5))
    assert caught.value.reason == "pickled_outside_multiprocessing"
