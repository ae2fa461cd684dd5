"""Faults in the prepared calls, which serve the second and later appends, and in the first append alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from faults.base import List, a_list
from xsem.types import SignalParams, WaitParams


def _each(semaphores: Sequence[Any], values: Any) -> list[Any]:
    return [values] if len(semaphores) == 1 and not isinstance(values, Sequence) else list(values)


class Prepared(List):
    """A list with prepared calls that append as `append_wait` and `append_signal` do."""

    def append_prepared_wait(self, semaphores: Any, params: Any, wait_fences: Any, want_fence: bool) -> Any:
        return self.inner.append_wait(semaphores, params, wait_fences, (), want_fence)

    def append_prepared_signal(self, semaphores: Any, params: Any, wait_fences: Any, want_fence: bool) -> Any:
        return self.inner.append_signal(semaphores, params, wait_fences, (), want_fence)

    def prepare_wait(self, semaphores: Sequence[Any]) -> Callable[..., Any]:
        return lambda values, wait_fences, want_fence: self.append_prepared_wait(
            semaphores, [WaitParams(value=each) for each in _each(semaphores, values)], wait_fences, want_fence)

    def prepare_signal(self, semaphores: Sequence[Any]) -> Callable[..., Any]:
        return lambda values, wait_fences, want_fence: self.append_prepared_signal(
            semaphores, [SignalParams(value=each) for each in _each(semaphores, values)], wait_fences, want_fence)


@a_list
class PreparedWaitIgnored(Prepared):
    """A prepared wait appends nothing but its fence."""

    def append_prepared_wait(self, semaphores: Any, params: Any, wait_fences: Any, want_fence: bool) -> Any:
        return self.inner.append_barrier(wait_fences, want_fence)


@a_list
class PreparedSignalLost(Prepared):
    """A prepared signal appends nothing but its fence."""

    def append_prepared_signal(self, semaphores: Any, params: Any, wait_fences: Any, want_fence: bool) -> Any:
        return self.inner.append_barrier(wait_fences, want_fence)


def _kept(call: Callable[..., Any]) -> Callable[..., Any]:
    first: list[Any] = []

    def append(values: Any, wait_fences: Any, want_fence: bool) -> Any:
        first.append(values)
        return call(first[0], wait_fences, want_fence)

    return append


@a_list
class PreparedWaitKeepsItsValues(Prepared):
    """A prepared wait keeps the values of its first call."""

    def prepare_wait(self, semaphores: Sequence[Any]) -> Callable[..., Any]:
        return _kept(super().prepare_wait(semaphores))


@a_list
class PreparedBatchesReversed(Prepared):
    """A prepared signal gives the values of a batch to the wrong semaphores."""

    def append_prepared_signal(self, semaphores: Any, params: Any, wait_fences: Any, want_fence: bool) -> Any:
        return self.inner.append_signal(semaphores, params[::-1], wait_fences, (), want_fence)


@a_list
class PreparedWaitIgnoresEvents(Prepared):
    """A prepared wait does not wait for its events."""

    def append_prepared_wait(self, semaphores: Any, params: Any, wait_fences: Any, want_fence: bool) -> Any:
        return self.inner.append_wait(semaphores, params, (), (), want_fence)


@a_list
class PreparedSignalIgnoresEvents(Prepared):
    """A prepared signal does not wait for its events."""

    def append_prepared_signal(self, semaphores: Any, params: Any, wait_fences: Any, want_fence: bool) -> Any:
        return self.inner.append_signal(semaphores, params, (), (), want_fence)


def _low(params: Any) -> list[Any]:
    return [each if each.value is None else dataclasses.replace(each, value=each.value & 0xFFFFFFFF) for each in params]


@a_list
class FirstWaitOf32Bits(Prepared):
    """The first wait of a list for a semaphore sees the low 32 bits of its value. Prepared waits see all bits."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_wait(semaphores, _low(params), wait_fences, acquire, want_fence)


@a_list
class FirstSignalOf32Bits(Prepared):
    """The first signal of a list sets the low 32 bits of its value. Prepared signals set all bits."""

    def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
        return self.inner.append_signal(semaphores, _low(params), wait_fences, release, want_fence)
