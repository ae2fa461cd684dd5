"""A signal that is held back: what counts as seen, what fails, and what is blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from xsem.errors import UnsupportedError
from xsem_conformance.bench import End
from xsem_conformance.holding import held
from xsem_conformance.outcomes import BlockedError, BrokenError


class Side:
    """A producer or a consumer that notes what it is told; `busy` answers whether its work goes on."""

    name = "side"

    def __init__(self, *, early: bool = False, busy: Callable[[], bool] = lambda: True) -> None:
        self.early = early
        self.busy = busy
        self.told: list[str] = []

    def waits_early(self, type: str) -> bool:
        assert type == "opaque_fd"
        return self.early

    def occupy(self, commands: int, seconds: float) -> None:
        assert (commands, seconds > 0) == (7, True)
        self.told.append("work")

    def done(self, commands: int) -> bool:
        return not self.busy()


def hold(producer: Side, consumer: Side) -> Any:
    return held(cast("End", producer), cast("End", consumer), 7, "opaque_fd", lambda: producer.told.append("signal"))


def test_early_waiter_is_looked_at_before_the_signal_is_made() -> None:
    producer = Side()
    with hold(producer, Side(early=True)) as held_back:
        held_back.pending(lambda: False, "a wait")
        assert producer.told == []
        with pytest.raises(BrokenError, match="a wait was done before its signal"):
            held_back.pending(lambda: True, "a wait")
    assert producer.told == ["signal"]


def test_late_waiter_is_looked_at_while_the_work_before_the_signal_goes_on() -> None:
    producer = Side()
    with hold(producer, Side()) as held_back:
        assert producer.told == ["work", "signal"]
        held_back.pending(lambda: False, "a wait")
        with pytest.raises(BrokenError, match="a wait was done before its signal"):
            held_back.pending(lambda: True, "a wait")
    assert producer.told == ["work", "signal"]


def test_look_after_the_work_says_nothing() -> None:
    with hold(Side(busy=lambda: False), Side()) as held_back, pytest.raises(BlockedError, match="too soon"):
        held_back.pending(lambda: True, "a wait")   # it may have been met by then


def test_look_counts_as_far_as_the_work_went() -> None:
    answers = iter([True, True, False])
    with hold(Side(busy=lambda: next(answers)), Side()) as held_back:
        held_back.pending(lambda: False, "a wait")


def test_work_is_looked_at_after_the_wait() -> None:
    """Else a wait that is met as the work ends would fail."""
    order: list[str] = []

    def done() -> bool:
        order.append("wait")
        return True

    def busy() -> bool:
        order.append("work")
        return False

    with hold(Side(busy=busy), Side()) as held_back, pytest.raises(BlockedError):
        held_back.pending(done, "a wait")
    assert order == ["wait", "work"]


def test_producer_without_work_blocks_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Side()

    def occupy(_commands: int, _seconds: float) -> None:
        raise UnsupportedError("no fills here", capability="append_fill")

    monkeypatch.setattr(producer, "occupy", occupy)
    with pytest.raises(BlockedError, match="no fills here"), hold(producer, Side()):
        pass
    assert producer.told == []
