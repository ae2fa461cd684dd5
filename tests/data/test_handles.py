"""OwnedHandle: one owner and one close, with many threads and with the garbage collector."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.open_files import is_open

import xsem.data.handles
from xsem.data.handles import own
from xsem.errors import BadArgumentError, BadHandleError, ReleasedError
from xsem.types import OwnedHandle

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="file descriptors need POSIX")


def new_fd() -> int:
    return os.open(os.devnull, os.O_RDONLY)


@pytest.fixture
def closes(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """The number of closes of each fd by a handle."""
    counted: Counter[int] = Counter()
    really = xsem.data.handles.close_number

    def close_number(number: int) -> None:
        counted[number] += 1
        really(number)

    monkeypatch.setattr(xsem.data.handles, "close_number", close_number)
    return counted


def all_at_once(count: int, act: Callable[[], object]) -> list[object]:
    """Return the results or errors of `act` on `count` threads that start together."""
    barrier = threading.Barrier(count)
    results: list[object] = []

    def run() -> None:
        barrier.wait()
        try:
            results.append(act())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_handle_owns_from_construction_until_close(closes: Counter[int]) -> None:
    number = new_fd()
    handle = OwnedHandle(number)
    assert handle.fileno() == number
    assert not handle.closed
    assert repr(handle) == f"<OwnedHandle {number}>"
    handle.close()
    assert handle.closed
    assert repr(handle) == "<OwnedHandle closed>"
    assert closes == {number: 1}
    assert not is_open(number)


def test_with_block_closes_handle_when_body_raises(closes: Counter[int]) -> None:
    number = new_fd()
    with pytest.raises(ZeroDivisionError), OwnedHandle(number):
        raise ZeroDivisionError
    assert closes == {number: 1}
    assert not is_open(number)


def test_collected_handle_closes(closes: Counter[int]) -> None:
    number = new_fd()
    handle: OwnedHandle | None = OwnedHandle(number)
    handle = None
    assert handle is None
    assert closes == {number: 1}
    assert not is_open(number)


def test_handle_collected_in_a_cycle_closes(closes: Counter[int]) -> None:
    number = new_fd()
    cycle: list[Any] = [OwnedHandle(number)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert closes == {number: 1}
    assert not is_open(number)


def test_second_close_does_not_close_a_reused_number(closes: Counter[int]) -> None:
    number = new_fd()
    handle = OwnedHandle(number)
    handle.close()
    reused = os.dup(0) if is_open(0) else new_fd()
    if reused != number:
        os.dup2(reused, number)
        os.close(reused)
    handle.close()
    del handle
    assert closes == {number: 1}
    assert is_open(number)
    os.close(number)


def test_detached_handle_belongs_to_the_caller(closes: Counter[int]) -> None:
    handle = OwnedHandle(new_fd())
    number = handle.detach()
    assert handle.closed
    handle.close()
    del handle
    assert not closes
    assert is_open(number)
    os.close(number)


@pytest.mark.parametrize("way", ["close", "detach"])
def test_closed_or_detached_handle_has_no_number(way: str) -> None:
    handle = OwnedHandle(new_fd())
    if way == "close":
        handle.close()
    else:
        os.close(handle.detach())
    for call in (handle.fileno, handle.detach):
        with pytest.raises(ReleasedError) as caught:
            call()
        assert caught.value.reason == "handle_closed"
    handle.close()


@pytest.mark.timeout(30)
def test_many_threads_close_handle_once(closes: Counter[int]) -> None:
    for _ in range(100):
        number = new_fd()
        handle = OwnedHandle(number)
        assert all_at_once(4, handle.close) == [None] * 4
        assert closes.pop(number) == 1
    assert not closes


@pytest.mark.timeout(30)
def test_one_of_many_threads_detaches_handle(closes: Counter[int]) -> None:
    for _ in range(100):
        number = new_fd()
        handle = OwnedHandle(number)
        results = all_at_once(4, handle.detach)
        assert results.count(number) == 1
        assert sum(isinstance(result, ReleasedError) for result in results) == 3
        assert is_open(number)
        os.close(number)
    assert not closes


@pytest.mark.timeout(30)
def test_exactly_one_of_close_and_detach_wins(closes: Counter[int]) -> None:
    for _ in range(100):
        number = new_fd()
        handle = OwnedHandle(number)
        turn = iter((handle.close, handle.detach, handle.close, handle.detach))
        results = all_at_once(4, lambda turn=turn: next(turn)())  # type: ignore[misc]
        won = results.count(number)
        assert won + closes.pop(number, 0) == 1
        assert is_open(number) == bool(won)
        if won:
            os.close(number)


@pytest.mark.parametrize("way", ["close", "with", "collected"])
def test_number_closed_by_other_code_is_logged_as_warning(way: str, caplog: pytest.LogCaptureFixture) -> None:
    handle: OwnedHandle | None = OwnedHandle(new_fd())
    assert handle is not None
    number = handle.fileno()
    os.close(number)
    if way == "close":
        handle.close()
        assert handle.closed
    elif way == "with":
        with handle:
            pass
    handle = None   # an error in a finalizer fails the test
    [record] = caplog.records
    assert (record.name, record.levelname) == ("xsem", "WARNING")
    assert str(number) in record.getMessage()
    assert "other code has closed it" in record.getMessage()


def test_result_of_a_call_is_owned() -> None:
    with own(os.open, os.devnull, os.O_RDONLY) as handle:
        assert is_open(handle.fileno())
        with own(os.dup, handle.fileno()) as other:
            assert other.fileno() != handle.fileno()
    with pytest.raises(FileNotFoundError):
        own(os.open, "/no/such/file", os.O_RDONLY)


@pytest.mark.parametrize(
    ("number", "error", "reason"),
    [
        (-1, BadHandleError, "negative_fd"),
        (-(2**40), BadHandleError, "negative_fd"),
        (2**20, BadHandleError, "closed_fd"),
        (2**31, BadHandleError, "closed_fd"),
        (2**70, BadHandleError, "closed_fd"),
        (True, BadArgumentError, "not_an_int"),
        (1.0, BadArgumentError, "not_an_int"),
        ("1", BadArgumentError, "not_an_int"),
        (None, BadArgumentError, "not_an_int"),
    ],
)
def test_bad_number_is_refused(number: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error) as caught:
        OwnedHandle(number)
    assert caught.value.reason == reason  # type: ignore[attr-defined]


def test_zero_is_a_number_like_any_other(closes: Counter[int]) -> None:
    assert OwnedHandle(0).detach() == 0
    assert not closes


def test_a_number_that_is_not_open_is_refused() -> None:
    number = new_fd()
    os.close(number)
    with pytest.raises(BadHandleError) as caught:
        OwnedHandle(number)
    assert caught.value.reason == "closed_fd"


def test_a_handle_that_was_refused_closes_nothing(closes: Counter[int]) -> None:
    # True == 1 is an open fd: the incomplete object must not close standard output.
    with pytest.raises(BadArgumentError):
        OwnedHandle(True)
    gc.collect()
    assert not closes


def test_handle_cannot_be_pickled_or_copied(closes: Counter[int]) -> None:
    with OwnedHandle(new_fd()) as handle:
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(BadArgumentError) as caught:
                way(handle)
            assert caught.value.reason == "handle_pickled"
        number = handle.fileno()
    assert closes == {number: 1}


def test_handle_is_not_inherited_by_default() -> None:
    number = new_fd()
    with OwnedHandle(number):
        assert not os.get_inheritable(number)
