"""Signals that are held back: checks that count, fail, or are blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from support.waiting import until

import xsem
from xsem.errors import UnsupportedError
from xsem.types import MemoryHandleType
from xsem_conformance.case import participant
from xsem_conformance.case.case_participant import CaseParticipant
from xsem_conformance.case.holding import held
from xsem_conformance.outcomes import BlockedError, BrokenError


class Participant:
    """Producer or consumer that records its calls. `busy` returns whether its work still runs."""

    name = "side"

    def __init__(self, *, early: bool = False, busy: Callable[[], bool] = lambda: True) -> None:
        self.early = early
        self.busy = busy
        self.told: list[str] = []

    def waits_early(self, type: str) -> bool:
        assert type == "opaque_fd"
        return self.early

    def occupy(self, commands: int, seconds: float) -> int:
        assert (commands, seconds > 0) == (7, True)
        self.told.append("work")
        return 9

    def reached(self, event: int) -> bool:
        assert event == 9   # the end of the work, and not of the list
        return not self.busy()


def hold(producer: Participant, consumer: Participant) -> Any:
    return held(cast("CaseParticipant", producer), cast("CaseParticipant", consumer), 7, "opaque_fd",
                lambda: producer.told.append("signal"))


def test_early_waiter_is_checked_before_the_signal() -> None:
    producer = Participant()
    with hold(producer, Participant(early=True)) as held_back:
        held_back.pending(lambda: False, "a wait")
        assert producer.told == []
        with pytest.raises(BrokenError, match="a wait was done before its signal"):
            held_back.pending(lambda: True, "a wait")
    assert producer.told == ["signal"]


def test_late_waiter_is_checked_during_the_work() -> None:
    producer = Participant()
    with hold(producer, Participant()) as held_back:
        assert producer.told == ["work", "signal"]
        held_back.pending(lambda: False, "a wait")
        with pytest.raises(BrokenError, match="a wait was done before its signal"):
            held_back.pending(lambda: True, "a wait")
    assert producer.told == ["work", "signal"]


def test_check_after_the_work_proves_nothing() -> None:
    with (hold(Participant(busy=lambda: False), Participant()) as held_back,
          pytest.raises(BlockedError, match="too soon")):
        held_back.pending(lambda: True, "a wait")   # the wait may be met by then


def test_check_counts_up_to_the_progress_of_the_work() -> None:
    answers = iter([True, True, False])
    with hold(Participant(busy=lambda: next(answers)), Participant()) as held_back:
        held_back.pending(lambda: False, "a wait")


def test_work_is_checked_after_the_wait() -> None:
    """Otherwise a wait that is met as the work ends would fail."""
    order: list[str] = []

    def done() -> bool:
        order.append("wait")
        return True

    def busy() -> bool:
        order.append("work")
        return False

    with hold(Participant(busy=busy), Participant()) as held_back, pytest.raises(BlockedError):
        held_back.pending(done, "a wait")
    assert order == ["wait", "work"]


def test_producer_without_work_blocks_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Participant()

    def occupy(_commands: int, _seconds: float) -> None:
        raise UnsupportedError("no fills here", capability="append_fill")

    monkeypatch.setattr(producer, "occupy", occupy)
    with pytest.raises(BlockedError, match="no fills here"), hold(producer, Participant()):
        pass
    assert producer.told == []


# ---- the work that delays the signal
@pytest.mark.parametrize("at_once", [False, True])
def test_copies_replace_a_fill_that_is_done_when_appended(
    monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    monkeypatch.setattr(participant, "_FILLED", 4096)
    done: list[str] = []

    class Watched(xsem.CommandList):
        def append_fill(self, *given: Any) -> None:  # type: ignore[override]
            super().append_fill(*given)
            done.append("fill")
            if at_once:
                self.synchronize(timeout_s=20)

        def append_copy(self, *given: Any) -> None:  # type: ignore[override]
            super().append_copy(*given)
            done.append("copy")

        def query(self) -> bool:
            return at_once   # the worker of host may be just as fast

    monkeypatch.setattr("xsem.facade.device.CommandList", Watched)
    with xsem.open_device("host") as exporter, xsem.open_device("host") as device:
        def lend(size: int) -> int:
            with exporter.create_memory(MemoryHandleType.OPAQUE_FD, size).export() as desc:
                return side.import_memory(desc)

        side = participant.LocalParticipant(device, lend)
        end = side.occupy(side.new_list(), 1e-4)
        until(lambda: side.reached(end))
        side.forget()
    assert done[-1] == ("copy" if at_once else "fill")
    assert done.count("fill") >= 10
