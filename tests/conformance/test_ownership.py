"""The comparison of open files in the check of XSEM-OWN-006."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from xsem_conformance.outcomes import BrokenError, Case
from xsem_conformance.suite import ownership

Round = Callable[..., None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Round], None]:
    """Return a function that runs the check with another round."""
    context: Any = SimpleNamespace(patience_s=0.1, let_go=lambda: None)

    def run_(work: Round) -> None:
        monkeypatch.setattr(ownership, "_semaphore_once", work)
        ownership.imports_and_releases_leave_nothing(context, Case("XSEM-OWN-006", "opaque_fd", kind="semaphore"))

    return run_


@pytest.fixture
def files() -> Iterator[list[int]]:
    """Return numbers that a test opens. They are closed at its end."""
    opened = [os.memfd_create("of another owner")]
    yield opened
    for each in opened:
        os.close(each)


def test_release_that_is_late_by_a_round_is_not_a_lost_file(run: Callable[[Round], None], files: list[int]) -> None:
    late: list[int] = files

    def once(*_: object) -> None:
        late.append(os.memfd_create("of the object"))
        if len(late) > 2:
            os.close(late.pop(1))

    run(once)


def test_round_that_replaces_the_file_of_another_owner_is_found(
    run: Callable[[Round], None], files: list[int]
) -> None:
    rounds: list[None] = []

    def once(*_: object) -> None:
        rounds.append(None)
        if len(rounds) == 20:
            os.close(files[0])
            files[0] = os.memfd_create("of the driver")   # the same number

    with pytest.raises(BrokenError, match=f"{files[0]}.*are closed or other files"):
        run(once)
