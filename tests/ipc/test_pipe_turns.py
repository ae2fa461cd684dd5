"""The turns of calls for one direction of a pipe of Windows, which need no pipe."""

from __future__ import annotations

import pytest

from xsem.errors import WaitTimeoutError
from xsem.ipc.windows.deadlines import Deadline, Turn, Turns


def test_first_call_transfers_and_the_others_follow_in_their_order() -> None:
    turns: Turns = {}
    first, second, third = (Turn(turns, Deadline(None), "another thread sends") for _ in range(3))
    assert [each.take() > 0 for each in (first, second, third)] == [False, True, True]
    assert [each.take() > 0 for each in (third, second, first)] == [True, True, False]   # a call keeps its place
    turns.pop(first, None)
    assert [each.take() > 0 for each in (third, second)] == [True, False]


def test_call_that_gave_up_holds_no_place() -> None:
    turns: Turns = {}
    first, second, third = (Turn(turns, Deadline(0), "another thread sends") for _ in range(3))
    first.wait()
    for late in (second, third):
        with pytest.raises(WaitTimeoutError, match="another thread sends for 0 s"):
            late.wait()
    turns.pop(second, None)
    turns.pop(second, None)   # a second end has no effect
    turns.pop(first, None)
    third.wait()
