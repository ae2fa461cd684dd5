"""Faults in what a prepared call remembers. Prepared calls serve the second and later appends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from faults.base import List, a_list
from xsem.types import WaitParams


@a_list
class PreparedWaitKeepsItsValues(List):
    """A prepared wait keeps the values of its first call."""

    def prepare_wait(self, semaphores: Sequence[Any]) -> Callable[..., Any]:
        first: list[Any] = []

        def append(values: Any, wait_fences: Any, want_fence: bool) -> Any:
            first.append([values] if len(semaphores) == 1 and not isinstance(values, Sequence) else list(values))
            params = [WaitParams(value=each) for each in first[0]]
            return self.inner.append_wait(semaphores, params, wait_fences, (), want_fence)

        return append
