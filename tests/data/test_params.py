"""Parameters of signals and waits: type and range checks at construction."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from xsem.errors import BadArgumentError
from xsem.types import INFINITE, SignalParams, WaitParams

MAX = 2**64 - 1


@pytest.mark.parametrize("params", [SignalParams, WaitParams])
@pytest.mark.parametrize(
    ("field", "value"),
    [("value", 0), ("value", MAX), ("key", 0), ("key", MAX), ("nvscisync_fence", 1), ("nvscisync_fence", MAX)],
)
def test_ends_of_each_range_are_accepted(params: Any, field: str, value: int) -> None:
    assert getattr(params(**{field: value}), field) == value


@pytest.mark.parametrize("params", [SignalParams, WaitParams])
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("value", -1, "value_out_of_range"),
        ("value", MAX + 1, "value_out_of_range"),
        ("key", -1, "key_out_of_range"),
        ("key", MAX + 1, "key_out_of_range"),
        ("nvscisync_fence", 0, "null_fence"),
        ("nvscisync_fence", -1, "null_fence"),
        ("nvscisync_fence", MAX + 1, "null_fence"),
    ],
)
def test_value_beyond_the_range_is_refused(params: Any, field: str, value: int, reason: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        params(**{field: value})
    assert caught.value.reason == reason
    assert str(value) in str(caught.value)


@pytest.mark.parametrize("params", [SignalParams, WaitParams])
@pytest.mark.parametrize("field", ["value", "key", "nvscisync_fence"])
@pytest.mark.parametrize("value", [True, False, 1.0, "1", b"1", (1,)])
def test_non_int_is_refused(params: Any, field: str, value: object) -> None:
    with pytest.raises(BadArgumentError) as caught:
        params(**{field: value})
    assert caught.value.reason == "not_an_int"
    assert field in str(caught.value)


@pytest.mark.parametrize("timeout_ms", [None, 0, 1, 2**32 - 2, INFINITE])
def test_timeout_of_a_keyed_mutex_is_32_bits(timeout_ms: int | None) -> None:
    assert WaitParams(timeout_ms=timeout_ms).timeout_ms == timeout_ms


@pytest.mark.parametrize(
    ("timeout_ms", "reason"),
    [(-1, "timeout_out_of_range"), (2**32, "timeout_out_of_range"), (1.5, "not_an_int"), (True, "not_an_int")],
)
def test_timeout_beyond_32_bits_is_refused(timeout_ms: Any, reason: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        WaitParams(timeout_ms=timeout_ms)
    assert caught.value.reason == reason


def test_infinite_is_the_number_of_windows() -> None:
    assert INFINITE == 0xFFFFFFFF


def test_a_signal_has_no_timeout() -> None:
    with pytest.raises(TypeError, match="timeout_ms"):
        SignalParams(timeout_ms=1)  # type: ignore[call-arg]


def test_nothing_is_positional() -> None:
    with pytest.raises(TypeError):
        SignalParams(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        WaitParams(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("params", [SignalParams(value=3, allow_rewind=True), WaitParams(key=1, timeout_ms=5)])
def test_params_are_frozen_equal_and_picklable(params: SignalParams | WaitParams) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.value = 7  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        params.valeu = 7  # type: ignore[union-attr]
    again = pickle.loads(pickle.dumps(params))
    assert again == params
    assert hash(again) == hash(params)


def test_every_field_is_unset_by_default() -> None:
    assert dataclasses.asdict(SignalParams()) == {
        "value": None, "key": None, "nvscisync_fence": None, "skip_nvscibuf_memsync": False, "allow_rewind": False,
    }
    assert dataclasses.asdict(WaitParams()) == {
        "value": None, "key": None, "timeout_ms": None, "nvscisync_fence": None, "skip_nvscibuf_memsync": False,
    }
