"""The names of Windows' error codes, and the errors that tell them. The numbers were compared with winerror.h."""

from __future__ import annotations

import pytest

from xsem.errors import DriverError
from xsem.ipc.windows.calls import PipeError
from xsem.spi import windows_code_name, windows_error


@pytest.mark.parametrize(("code", "name"), [
    (5, "ERROR_ACCESS_DENIED"), (6, "ERROR_INVALID_HANDLE"), (109, "ERROR_BROKEN_PIPE"),
    (0xC0000022, "STATUS_ACCESS_DENIED"), (-0x3FFFFFDE, "STATUS_ACCESS_DENIED"),
    (0x80070005, "HRESULT_FROM_WIN32(ERROR_ACCESS_DENIED)"), (-0x7FF8FFFB, "HRESULT_FROM_WIN32(ERROR_ACCESS_DENIED)"),
    (0, None), (49999, None), (0xC000FFFF, None), (0x8007FFFF, None),
])
def test_code_has_its_name(code: int, name: str | None) -> None:
    assert windows_code_name(code) == name


@pytest.mark.parametrize("code", [4, 5, 6, 8, 164, 1450])
def test_error_of_a_pipe_tells_call_and_code(code: int) -> None:
    error = PipeError("ReadFile", code).error()
    assert (error.call, error.code, error.code_name) == ("ReadFile", code, windows_code_name(code))
    assert str(error).endswith(f"[ReadFile returned {windows_code_name(code)} ({code})]")


@pytest.mark.parametrize(("code", "reason"), [
    (4, "fd_limit"), (155, "fd_limit"), (164, "fd_limit"), (5, "system_call_failed"), (6, "closed_fd"),
    (8, "out_of_memory"), (14, "out_of_memory"), (1450, "out_of_memory"), (1455, "out_of_memory"),
])
def test_code_has_one_reason_for_every_call(code: int, reason: str) -> None:
    assert windows_error("DuplicateHandle", code).reason == reason
    assert PipeError("ReadFile", code).error().reason == reason


def test_ntstatus_is_shown_in_hexadecimal_digits() -> None:
    error = DriverError("No", reason="r", call="NtQueryEvent", code=0xC0000024,
                        code_name=windows_code_name(0xC0000024))
    assert str(error) == "No [NtQueryEvent returned STATUS_OBJECT_TYPE_MISMATCH (0xc0000024)]"
