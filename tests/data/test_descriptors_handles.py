"""Descriptors take exactly the handles and names that their handle type allows."""

from __future__ import annotations

from typing import Any

import pytest
from support.descriptors import ALL, FD, KMT, NT, NVSCI, error_of, make, named
from support.fixtures import new_handle

from xsem.errors import BadArgumentError, BadHandleError
from xsem.types import MemoryHandleType, OsHandleKind, SemaphoreHandleType

S = SemaphoreHandleType


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


@pytest.mark.parametrize("member", KMT, ids=named)
def test_kmt_handle_of_more_than_32_bits_is_refused(member: SemaphoreHandleType | MemoryHandleType) -> None:
    for handle in (2**32, 2**32 + 0x40, 2**40, 2**63, 2**64 - 2**31 - 1, -(2**31) - 1, -(2**40)):
        error = error_of(member, handle=handle)
        assert (type(error), error.reason, error.handle_type) == (BadHandleError, "handle_out_of_range", member)
        assert "32 bits" in error.message
    for handle in (1, 2**31, 2**32 - 1, -(2**31), 2**64 - 2**31):   # the last two are 0x80000000, extended by its sign
        assert make(member, handle=handle).handle == handle


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
    with new_handle() as owned:
        if member.os_handle_kind in (OsHandleKind.FD, OsHandleKind.NT):
            assert make(member, handle=owned).handle is owned
        else:
            error = error_of(member, handle=owned)
            assert type(error) is BadArgumentError
            assert error.reason == "not_an_int"
        assert not owned.closed
