"""The modules for one system that need no process of that system."""

from __future__ import annotations

import os
import signal

import pytest

from xsem_conformance.case.canaries import Canaries
from xsem_conformance.system import endings, handles, launching
from xsem_conformance.system.windows import statuses


@pytest.mark.parametrize(("status", "said"), [
    (3, "the process died: status 3"),
    (0xC0000005, "the process died: access violation (0xc0000005)"),
    (0xC0000005 - (1 << 32), "the process died: access violation (0xc0000005)"),
    (0xC0000142, "the process died: status 0xc0000142"),
])
def test_status_of_windows_has_words(status: int, said: str) -> None:
    assert statuses.death(status) == said


def test_status_of_posix_has_the_name_of_a_signal() -> None:
    assert endings.death(-signal.SIGSEGV) == "the process died: SIGSEGV"
    assert endings.death(3) == "the process died: status 3"


def test_canary_is_lost_when_another_owner_closes_its_number() -> None:
    with Canaries() as canaries:
        number = handles.null()
        os.close(number)
        assert canaries.plant(number)
        assert canaries.lost() == []
        os.close(number)
        assert canaries.lost() == [number]
        again = handles.null()
        assert again == number
        assert canaries.lost() == [number]
        os.close(again)


def test_output_is_read_without_a_move_of_its_position() -> None:
    with launching.Output() as output:
        output.file.write(b"first ")
        output.file.flush()
        assert (output.size(), output.read(0, 6)) == (6, b"first ")
        output.file.write(b"second")
        output.file.flush()
        assert output.read(6, 6) == b"second"


def test_answers_are_bytes_then_nothing_then_the_end() -> None:
    read, write = os.pipe()
    answers = launching.Answers(read)
    assert answers.receive(0.0) is None
    os.write(write, b"one")
    assert answers.receive(5.0) == b"one"
    os.close(write)
    assert answers.receive(5.0) == b""
    answers.close()
