"""A descriptor checks the size, the device and the driver of its handle type, and is equal by its fields."""

from __future__ import annotations

import dataclasses
import os
import pickle
import socket
import uuid
from typing import Any

import numpy as np
import pytest

from xsem.errors import BadArgumentError, BadHandleError, XsemError
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OsHandleKind,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)

S = SemaphoreHandleType
M = MemoryHandleType
ONE = uuid.UUID("a1b2c3d4-0000-4000-8000-0123456789ab")
TWO = uuid.UUID("b1b2c3d4-0000-4000-8000-0123456789ab")

ALL: list[SemaphoreHandleType | MemoryHandleType] = [*S, *M]
FD = [member for member in ALL if member.os_handle_kind is OsHandleKind.FD]
NT = [member for member in ALL if member.os_handle_kind is OsHandleKind.NT]
KMT = [member for member in ALL if member.os_handle_kind is OsHandleKind.KMT]
NVSCI = [member for member in ALL if member.os_handle_kind is OsHandleKind.NVSCI]


def named(member: SemaphoreHandleType | MemoryHandleType) -> str:
    return f"{type(member).__name__.removesuffix('HandleType')}-{member.name}"


def make(member: SemaphoreHandleType | MemoryHandleType, **fields: Any) -> SemaphoreDesc | MemoryDesc:
    if isinstance(member, SemaphoreHandleType):
        return SemaphoreDesc(type=member, **fields)
    return MemoryDesc(type=member, **{"allocation_size": 4096, **fields})


def error_of(member: SemaphoreHandleType | MemoryHandleType, **fields: Any) -> XsemError:
    with pytest.raises(XsemError) as caught:
        make(member, **fields)
    return caught.value


class WithFileno:
    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number


# ---- handle or name
@pytest.mark.parametrize("member", [*NT, *KMT, *NVSCI], ids=named)
@pytest.mark.parametrize("handle", [1, 0xC0000042, 2**64 - 8])
def test_int_is_accepted_as_handle_of_other_kinds(member: SemaphoreHandleType | MemoryHandleType, handle: int) -> None:
    desc = make(member, handle=handle)
    assert desc.handle == handle
    assert desc.name is None


@pytest.mark.parametrize("member", FD, ids=named)
@pytest.mark.parametrize("number", [0, 1, 5, 2**31])
def test_int_is_accepted_as_fd_without_a_check(
    member: SemaphoreHandleType | MemoryHandleType, number: int
) -> None:
    assert make(member, handle=number).handle == number


@pytest.mark.parametrize("member", NT, ids=named)
def test_nt_types_take_a_name_in_place_of_a_handle(member: SemaphoreHandleType | MemoryHandleType) -> None:
    desc = make(member, name="Local\\frames")
    assert desc.name == "Local\\frames"
    assert desc.handle is None


@pytest.mark.parametrize("member", NT, ids=named)
@pytest.mark.parametrize("fields", [{}, {"handle": 1, "name": "Local\\frames"}], ids=["neither", "both"])
def test_nt_types_take_exactly_one_of_name_and_handle(
    member: SemaphoreHandleType | MemoryHandleType, fields: dict[str, Any]
) -> None:
    error = error_of(member, **fields)
    assert type(error) is BadArgumentError
    assert error.reason == "handle_xor_name"
    assert error.handle_type is member


@pytest.mark.parametrize("member", [*FD, *KMT, *NVSCI], ids=named)
@pytest.mark.parametrize("fields", [{}, {"handle": 1}], ids=["alone", "beside a handle"])
def test_no_other_type_takes_a_name(member: SemaphoreHandleType | MemoryHandleType, fields: dict[str, Any]) -> None:
    error = error_of(member, name="Local\\frames", **fields)
    assert type(error) is BadArgumentError
    assert error.reason == "name_not_allowed"
    assert error.handle_type is member


@pytest.mark.parametrize("member", NT, ids=named)
@pytest.mark.parametrize("name", ["", "a\0b", b"Local", 5, True, "\ud800", "a\udfffb", "\udc00\ud800"])
def test_a_name_is_text_that_windows_can_take(member: SemaphoreHandleType | MemoryHandleType, name: Any) -> None:
    error = error_of(member, name=name)
    assert type(error) is BadArgumentError
    assert error.reason == "bad_name"


@pytest.mark.parametrize("member", [*FD, *KMT, *NVSCI], ids=named)
def test_a_handle_is_needed(member: SemaphoreHandleType | MemoryHandleType) -> None:
    error = error_of(member)
    assert type(error) is BadHandleError
    assert error.reason == "no_handle"
    assert error.handle_type is member


@pytest.mark.parametrize("member", [*NT, *KMT, *NVSCI], ids=named)
def test_a_null_handle_is_refused(member: SemaphoreHandleType | MemoryHandleType) -> None:
    error = error_of(member, handle=0)
    assert type(error) is BadHandleError
    assert error.reason == "null_handle"
    assert error.handle_type is member


@pytest.mark.parametrize("member", NT, ids=named)
def test_a_name_may_have_any_character_of_unicode(member: SemaphoreHandleType | MemoryHandleType) -> None:
    assert make(member, name="Local\\\U0001f5bc bild").name == "Local\\\U0001f5bc bild"


@pytest.mark.parametrize("member", [*NT, *KMT], ids=named)
@pytest.mark.parametrize("handle", [-1, 2**64 - 1])
def test_invalid_handle_value_of_windows_is_refused(
    member: SemaphoreHandleType | MemoryHandleType, handle: int
) -> None:
    error = error_of(member, handle=handle)
    assert (type(error), error.reason, error.handle_type) == (BadHandleError, "null_handle", member)
    assert "INVALID_HANDLE_VALUE" in error.message


@pytest.mark.parametrize("member", NT, ids=named)
@pytest.mark.parametrize("handle", [-2, -6, 2**64 - 2, 2**64 - 6])
def test_pseudo_handles_of_windows_are_refused(member: SemaphoreHandleType | MemoryHandleType, handle: int) -> None:
    error = error_of(member, handle=handle)
    assert (type(error), error.reason, error.handle_type) == (BadHandleError, "pseudo_handle", member)


@pytest.mark.parametrize("member", NT, ids=named)
@pytest.mark.parametrize("handle", [-7, 2**64 - 7, 2**63, 2**63 - 1, -(2**63), 4])
def test_any_other_64_bits_may_be_an_nt_handle(member: SemaphoreHandleType | MemoryHandleType, handle: int) -> None:
    assert make(member, handle=handle).handle == handle


@pytest.mark.parametrize(
    ("member", "handle"),
    [(member, 2**64) for member in [*NT, *KMT, *NVSCI]]
    + [(member, -(2**63) - 1) for member in [*NT, *KMT]]
    + [(member, -1) for member in NVSCI],
)
def test_handle_wider_than_a_pointer_is_refused(member: SemaphoreHandleType | MemoryHandleType, handle: int) -> None:
    # ctypes would truncate it to 64 bits without an error, and the driver would follow the rest.
    error = error_of(member, handle=handle)
    assert type(error) is BadHandleError
    assert error.reason == "handle_out_of_range"


@pytest.mark.parametrize("member", [*NT, *KMT], ids=named)
def test_a_windows_handle_in_a_signed_int_is_taken(member: SemaphoreHandleType | MemoryHandleType) -> None:
    assert make(member, handle=-0x3FFFFFBE).handle == -0x3FFFFFBE


@pytest.mark.parametrize("member", ALL, ids=named)
@pytest.mark.parametrize("handle", [True, False])
def test_bool_is_refused_as_handle(member: SemaphoreHandleType | MemoryHandleType, handle: bool) -> None:
    error = error_of(member, handle=handle)
    assert type(error) is BadArgumentError
    assert error.reason == "not_an_int"


# ---- file descriptors
@pytest.mark.parametrize("member", FD, ids=named)
@pytest.mark.parametrize("number", [-1, -2, -(2**31)])
def test_negative_fd_is_refused_except_for_a_signalled_sync_file(
    member: SemaphoreHandleType | MemoryHandleType, number: int
) -> None:
    if member is S.SYNC_FD and number == -1:
        assert make(member, handle=-1).handle == -1
        return
    error = error_of(member, handle=number)
    assert type(error) is BadHandleError
    assert error.reason == "negative_fd"
    assert error.handle_type is member


@pytest.mark.parametrize("member", FD, ids=named)
def test_an_fd_may_be_an_object_with_fileno(member: SemaphoreHandleType | MemoryHandleType) -> None:
    holder = WithFileno(7)
    assert make(member, handle=holder).handle is holder


@pytest.mark.parametrize("member", FD, ids=named)
@pytest.mark.parametrize("handle", ["3", 3.0, b"3", object])
def test_other_objects_are_refused_as_fd(member: SemaphoreHandleType | MemoryHandleType, handle: Any) -> None:
    error = error_of(member, handle=handle)
    assert type(error) is BadArgumentError
    assert error.reason == "not_a_handle"
    assert error.handle_type is member


@pytest.mark.parametrize("member", [*NT, *KMT, *NVSCI], ids=named)
@pytest.mark.parametrize("handle", [WithFileno(7), "3", 3.0])
def test_types_without_fd_refuse_a_file(member: SemaphoreHandleType | MemoryHandleType, handle: Any) -> None:
    error = error_of(member, handle=handle)
    assert type(error) is BadArgumentError
    assert error.reason == "not_an_int"


@pytest.mark.parametrize("member", ALL, ids=named)
def test_only_fd_and_nt_types_take_an_owned_handle(member: SemaphoreHandleType | MemoryHandleType) -> None:
    # A KMT handle holds no reference, and an NvSci object is an address, so neither can be closed.
    with OwnedHandle(os.open(os.devnull, os.O_RDONLY)) as owned:
        if member.os_handle_kind in (OsHandleKind.FD, OsHandleKind.NT):
            assert make(member, handle=owned).handle is owned
        else:
            error = error_of(member, handle=owned)
            assert type(error) is BadArgumentError
            assert error.reason == "not_an_int"
        assert not owned.closed


# ---- type and size
@pytest.mark.parametrize(
    ("desc", "value"),
    [(SemaphoreDesc, "opaque_fd"), (SemaphoreDesc, M.OPAQUE_FD), (SemaphoreDesc, 1), (SemaphoreDesc, None),
     (MemoryDesc, "opaque_fd"), (MemoryDesc, S.OPAQUE_FD), (MemoryDesc, 1), (MemoryDesc, None)],
)
def test_the_type_is_the_enums_own_member(desc: Any, value: object) -> None:
    size = {"allocation_size": 1} if desc is MemoryDesc else {}
    with pytest.raises(BadArgumentError) as caught:
        desc(type=value, handle=1, **size)
    assert caught.value.reason == "bad_type"


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
def test_a_descriptor_is_pickled_only_while_a_process_is_spawned(
    member: SemaphoreHandleType | MemoryHandleType,
) -> None:
    # At any other time the number would name another file in the receiving process.
    with pytest.raises(BadArgumentError) as caught:
        pickle.dumps(make(member, handle=5))
    assert caught.value.reason == "pickled_outside_spawn"


# ---- images
def image(**fields: Any) -> MipmapDesc:
    return MipmapDesc(**{"extent": (64, 32, 0), "format": "uint8", "channels": 4, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"extent": (1, 0, 0)},
        {"extent": (64, 0, 0)},
        {"extent": (64, 64, 64), "levels": 7},
        {"extent": (64, 0, 0), "layers": 3},
        {"extent": (64, 32, 0), "layers": 2048},
        {"extent": (64, 64, 0), "layers": 6, "cubemap": True},
        {"extent": (64, 64, 0), "layers": 12, "cubemap": True, "levels": 7},
        {"channels": 1},
        {"channels": 2},
        {"offset": 2**64 - 1},
        {"surface_load_store": True, "color_attachment": True},
    ],
    ids=str,
)
def test_every_shape_that_cuda_knows_is_taken(fields: dict[str, Any]) -> None:
    desc = image(**fields)
    for field, value in fields.items():
        assert getattr(desc, field) == value


@pytest.mark.parametrize("component", ["uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32"])
def test_formats_are_those_of_cuarray_format(component: str) -> None:
    assert image(format=component).format == component


@pytest.mark.parametrize("component", ["float64", "uint64", "int64", "bool", "bfloat16", "complex64", "u1", "", 1])
def test_other_formats_are_refused(component: Any) -> None:
    with pytest.raises(BadArgumentError) as caught:
        image(format=component)
    assert caught.value.reason == "bad_format"


@pytest.mark.parametrize("component", [np.dtype("uint8"), np.uint8, np.array(["uint8"]), None, b"uint8"])
def test_format_is_a_name_not_a_dtype(component: Any) -> None:
    # np.dtype("uint8") equals "uint8", but a table with names as keys does not contain it.
    with pytest.raises(BadArgumentError) as caught:
        image(format=component)
    assert caught.value.reason == "bad_format"


# ---- wrong types, in every field
TAKEN: dict[type, tuple[dict[str, Any], dict[str, tuple[type, ...]]]] = {
    SemaphoreDesc: (
        {"type": S.OPAQUE_FD, "handle": 5},
        {"type": (S,), "handle": (int,), "name": (type(None),), "device_uuid": (uuid.UUID, type(None)),
         "driver_uuid": (uuid.UUID, type(None))}),
    MemoryDesc: (
        {"type": M.OPAQUE_FD, "handle": 5, "allocation_size": 4096},
        {"type": (M,), "allocation_size": (int,), "handle": (int,), "name": (type(None),), "dedicated": (bool,),
         "device_uuid": (uuid.UUID, type(None)), "driver_uuid": (uuid.UUID, type(None))}),
    MipmapDesc: (
        {"extent": (8, 8, 0), "format": "uint8", "channels": 4},
        {"extent": (tuple,), "format": (str,), "channels": (int,), "levels": (int,), "layers": (int,),
         "offset": (int,), "cubemap": (bool,), "surface_load_store": (bool,), "color_attachment": (bool,)}),
    SignalParams: (
        {}, {"value": (int, type(None)), "key": (int, type(None)), "nvscisync_fence": (int, type(None)),
             "skip_nvscibuf_memsync": (bool,), "allow_rewind": (bool,)}),
    WaitParams: (
        {}, {"value": (int, type(None)), "key": (int, type(None)), "timeout_ms": (int, type(None)),
             "nvscisync_fence": (int, type(None)), "skip_nvscibuf_memsync": (bool,)}),
}
ODD: list[Any] = [None, True, False, 0, 1, -1, 2**70, 1.0, 2.5, float("nan"), "", "1", "False", "uint8", "a\0b",
                  "\ud800", b"", b"x", [], {}, (1, 2, 3), object(), int, np.int64(4), np.uint8(2), np.bool_(True),
                  np.float32(1), np.dtype("uint8"), np.uint8, np.array(3), np.array([1, 2, 3]),
                  S.OPAQUE_FD, M.OPAQUE_FD]


def test_fields_of_all_dataclasses_are_covered() -> None:
    for made, (_, fields) in TAKEN.items():
        assert {field.name for field in dataclasses.fields(made)} == set(fields)


@pytest.mark.parametrize(("made", "field"), [(made, field) for made in TAKEN for field in TAKEN[made][1]])
def test_field_holds_its_type_or_is_refused(made: Any, field: str) -> None:
    right, types = TAKEN[made][0], TAKEN[made][1][field]
    for value in ODD:
        try:
            desc = made(**{**right, field: value})
        except XsemError:
            continue
        assert type(getattr(desc, field)) in types, value


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_length_of_an_extent_is_an_int_or_is_refused(place: int) -> None:
    for value in ODD:
        extent: list[Any] = [8, 8, 0]
        extent[place] = value
        try:
            desc = image(extent=extent)
        except XsemError:
            continue
        assert type(desc.extent[place]) is int, value


@pytest.mark.parametrize("value", [0, 1, None, "False", np.bool_(True)])
def test_flag_is_a_bool(value: Any) -> None:
    for make_one in (
        lambda: image(cubemap=value), lambda: SignalParams(allow_rewind=value),
        lambda: WaitParams(skip_nvscibuf_memsync=value), lambda: make(M.OPAQUE_FD, handle=5, dedicated=value),
    ):
        with pytest.raises(BadArgumentError) as caught:
            make_one()
        assert caught.value.reason == "not_a_bool"


@pytest.mark.parametrize(
    ("extent", "most"),
    [((1, 0, 0), 1), ((2, 0, 0), 2), ((3, 0, 0), 2), ((63, 1, 0), 6), ((64, 1, 0), 7), ((1, 64, 0), 7), ((1, 1, 65), 7),
     ((16384, 16384, 0), 15)],
)
def test_levels_end_at_one_element(extent: tuple[int, int, int], most: int) -> None:
    # 1 + floor(log2(max(width, height, depth))): cuMipmappedArrayCreate clamps to it and would give fewer levels.
    assert image(extent=extent, levels=most).levels == most
    with pytest.raises(BadArgumentError) as caught:
        image(extent=extent, levels=most + 1)
    assert caught.value.reason == "bad_levels"


def test_layers_add_no_levels() -> None:
    with pytest.raises(BadArgumentError) as caught:
        image(extent=(4, 4, 0), layers=64, levels=4)
    assert caught.value.reason == "bad_levels"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"extent": (0, 0, 0)}, "bad_extent"),
        ({"extent": (-1, 1, 0)}, "bad_extent"),
        ({"extent": (4, -1, 0)}, "bad_extent"),
        ({"extent": (4, 4, -1)}, "bad_extent"),
        ({"extent": (4, 0, 4)}, "bad_extent"),
        ({"extent": (4, 4)}, "bad_extent"),
        ({"extent": (4, 4, 0, 0)}, "bad_extent"),
        ({"extent": 4}, "bad_extent"),
        ({"extent": None}, "bad_extent"),
        ({"extent": (4.0, 4, 0)}, "not_an_int"),
        ({"extent": (True, 4, 0)}, "not_an_int"),
        ({"channels": 0}, "bad_channels"),
        ({"channels": 3}, "bad_channels"),
        ({"channels": 8}, "bad_channels"),
        ({"channels": True}, "not_an_int"),
        ({"channels": 4.0}, "not_an_int"),
        ({"levels": 0}, "bad_levels"),
        ({"levels": True}, "not_an_int"),
        ({"layers": -1}, "bad_layers"),
        ({"layers": 2**32}, "bad_layers"),
        ({"layers": True}, "not_an_int"),
        ({"extent": (4, 4, 4), "layers": 2}, "bad_layers"),
        ({"offset": -1}, "bad_offset"),
        ({"offset": 2**64}, "bad_offset"),
        ({"offset": False}, "not_an_int"),
        ({"cubemap": True}, "bad_layers"),
        ({"extent": (64, 64, 0), "cubemap": True}, "bad_layers"),
        ({"extent": (64, 64, 0), "cubemap": True, "layers": 5}, "bad_layers"),
        ({"extent": (64, 64, 0), "cubemap": True, "layers": 7}, "bad_layers"),
        ({"extent": (64, 32, 0), "cubemap": True, "layers": 6}, "bad_layers"),
        ({"extent": (64, 64, 64), "cubemap": True, "layers": 6}, "bad_layers"),
    ],
    ids=str,
)
def test_images_that_cuda_would_refuse_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        image(**fields)
    assert caught.value.reason == reason


def test_an_extent_in_a_list_becomes_a_tuple() -> None:
    desc = image(extent=[8, 4, 0])
    assert desc.extent == (8, 4, 0)
    assert hash(desc) == hash(image(extent=(8, 4, 0)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        desc.levels = 2  # type: ignore[misc]
