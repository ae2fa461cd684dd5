"""Test the number of file descriptors that the process can still open."""

from __future__ import annotations

import os
import sys

import pytest
from support.open_files import few_more_files

from xsem.errors import BusyError
from xsem.spi import fd_limit_error, free_fds

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="file descriptors need POSIX")


@pytest.mark.parametrize("left", [0, 1, 2, 17])
def test_free_file_descriptors_are_those_that_can_be_opened(left: int) -> None:
    opened: list[int] = []
    with few_more_files(left):
        found = [free_fds()]
        try:
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            found.append(free_fds())
        finally:
            for each in opened:
                os.close(each)
    assert (found, len(opened)) == ([left, 0], left)


def test_number_is_unknown_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_path: str) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", missing)
    assert free_fds() is None
    assert fd_limit_error("acmeOpen", 2**31) is None


@pytest.mark.parametrize(("left", "opens"), [(0, 1), (20, 32)])
def test_error_of_the_limit_exists_only_without_room(left: int, opens: int) -> None:
    with few_more_files(left):
        error = fd_limit_error("acmeOpen", opens, call="acmeOpen", code=3)
    assert isinstance(error, BusyError)
    assert (error.reason, error.call, error.code) == ("fd_limit", "acmeOpen", 3)
    assert f"acmeOpen failed, and the process can open only {left} more files" in error.message
    with few_more_files(opens):
        assert fd_limit_error("acmeOpen", opens) is None
