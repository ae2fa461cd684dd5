"""The comparison of open files in the check of XSEM-OWN-006."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from xsem_conformance.outcomes import BrokenError, Case
from xsem_conformance.suite import ownership

Round = Callable[..., None]


PATIENCE_S = 0.1


@pytest.fixture
def context() -> Any:
    return SimpleNamespace(patience_s=PATIENCE_S, let_go=lambda _limit_s=None: None, object_of=lambda _case: None,
                           exported=lambda *_: contextlib.nullcontext())


@pytest.fixture
def run(context: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Round], None]:
    """Return a function that runs the check with a given round."""

    def run_(work: Round) -> None:
        monkeypatch.setattr(ownership, "_semaphore_once", work)
        monkeypatch.setattr(ownership, "_import_again", lambda *_: None)
        ownership.imports_and_releases_leave_nothing(context, Case("XSEM-OWN-006", "opaque_fd", kind="semaphore"))

    return run_


@pytest.fixture
def files() -> Iterator[list[int]]:
    """Return a list of open file descriptors. The fixture closes them at the end of the test."""
    opened = [os.memfd_create("of another owner")]
    yield opened
    for each in opened:
        os.close(each)


def test_late_free_is_not_reported_as_a_closed_file(
    context: Any, run: Callable[[Round], None], files: list[int]
) -> None:
    def once(*_: object) -> None:
        files.append(os.memfd_create("of the object"))
        if len(files) > 2:
            os.close(files.pop(1))

    def let_go(limit_s: float = PATIENCE_S) -> None:
        if limit_s > PATIENCE_S:   # on a busy machine, the free takes longer than the patience
            while len(files) > 1:
                os.close(files.pop())

    context.let_go = let_go
    run(once)


def test_replaced_file_of_another_owner_is_reported(
    run: Callable[[Round], None], files: list[int]
) -> None:
    rounds: list[None] = []

    def once(*_: object) -> None:
        rounds.append(None)
        if len(rounds) == 20:
            made = os.memfd_create("of the driver")
            os.dup2(made, files[0])
            os.close(made)

    with pytest.raises(BrokenError, match=f"{files[0]}.*are closed or other files"):
        run(once)
