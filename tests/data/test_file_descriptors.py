"""Test the number of file descriptors that the process can still open."""

from __future__ import annotations

import os
import sys

import pytest
from support.open_files import few_more_files

from xsem.spi import free_fds

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
