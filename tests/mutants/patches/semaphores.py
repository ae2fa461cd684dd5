"""Faults in the parameter structs of signals and waits."""

from __future__ import annotations

import dataclasses
from typing import Any

from patches.base import instead, patch
from xsem_cuda.queue import StreamQueue
from xsem_cuda.semaphores import Batches


def _unwritten(batches: Any, semaphores: Any) -> tuple[list[Any], list[Any]]:
    count = len(semaphores)
    return [each.native for each in semaphores], batches._by_count.get(count) or batches._grow(count)


def _with_value(param: Any, value: int) -> Any:
    return param if param.value is None else dataclasses.replace(param, value=value)


@patch
def value_not_written() -> None:
    """The struct of a signal or wait keeps its old value."""
    @instead(Batches, "fill")
    def fill(before: Any, self: Any, semaphores: Any, params: Any) -> Any:
        return _unwritten(self, semaphores)


@patch
def values_of_a_batch_not_written() -> None:
    """The structs of a batch of two or more keep their old values."""
    @instead(Batches, "fill")
    def fill(before: Any, self: Any, semaphores: Any, params: Any) -> Any:
        return before(self, semaphores, params) if len(semaphores) == 1 else _unwritten(self, semaphores)


@patch
def value_of_32_bits() -> None:
    """Waits get only the low 32 bits of their value."""
    @instead(StreamQueue, "append_wait")
    def append_wait(before: Any, self: Any, semaphores: Any, params: Any, *rest: Any) -> Any:
        low = [each if each.value is None else _with_value(each, each.value & 0xFFFFFFFF) for each in params]
        return before(self, semaphores, low, *rest)

    @instead(StreamQueue, "prepare_wait")
    def prepare_wait(before: Any, self: Any, semaphores: Any) -> Any:
        call = before(self, semaphores)
        if call is None:
            return None

        def low(values: Any, *rest: Any) -> Any:
            cut = values & 0xFFFFFFFF if isinstance(values, int) else values
            return call(cut, *rest)

        return low


@patch
def value_one_more() -> None:
    """Signals set one more than requested."""
    @instead(StreamQueue, "append_signal")
    def append_signal(before: Any, self: Any, semaphores: Any, params: Any, *rest: Any) -> Any:
        more = [each if each.value in (None, 2**64 - 1) else _with_value(each, each.value + 1) for each in params]
        return before(self, semaphores, more, *rest)


@patch
def values_reversed() -> None:
    """The values of a batch are written in reverse order."""
    @instead(Batches, "fill")
    def fill(before: Any, self: Any, semaphores: Any, params: Any) -> Any:
        return before(self, semaphores, list(params)[::-1])


@patch
def one_struct_for_all() -> None:
    """All semaphores of a batch share one struct, so that the last one's value counts."""
    @instead(Batches, "fill")
    def fill(before: Any, self: Any, semaphores: Any, params: Any) -> Any:
        natives, structs = before(self, semaphores, params)
        return natives, [structs[-1]] * len(natives)


@patch
def one_semaphore_of_a_batch() -> None:
    """A batch names its first semaphore each time."""
    @instead(Batches, "fill")
    def fill(before: Any, self: Any, semaphores: Any, params: Any) -> Any:
        natives, structs = before(self, semaphores, params)
        return natives[:1] * len(natives), structs


@patch
def count_of_one() -> None:
    """The driver gets only the first semaphore of a batch."""
    @instead(Batches, "fill")
    def fill(before: Any, self: Any, semaphores: Any, params: Any) -> Any:
        natives, structs = before(self, semaphores, params)
        return natives[:1], structs[:1]


@patch
def signal_and_wait_swapped() -> None:
    """A signal calls the driver's wait, and a wait its signal."""
    @instead(StreamQueue, "__init__")
    def init(before: Any, self: Any, *args: Any, **named: Any) -> None:
        before(self, *args, **named)
        self._signal, self._wait = self._wait, self._signal
