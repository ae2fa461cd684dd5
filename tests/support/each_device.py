"""Run a test on the device of each backend: on its stand-in, beside a device that exports to it.

    @on_each("host", "cuda", "vulkan")
    def test_something(name: str) -> None:
        with sides(name) as at: ...

    @on_each("cuda", "levelzero", levelzero={"SIMZE_IMAGES": "1"})      # with settings of a stand-in
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import pytest

import xsem
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S, Pair
from support.levelzero_sim import on_level_zero
from support.opencl_sim import on_opencl
from support.stand_in import _GROUP, DEADLINE_S
from support.vulkan_sim import use_swiftshader
from xsem.types import Feature, SemaphoreHandleType, SemaphoreKind

__all__ = ["EVERY", "Sides", "on_each", "sides"]

EVERY = ("host", "cuda", "levelzero", "opencl", "vulkan")
# The others run in the process of the test: host needs no driver, and SwiftShader is found when it is needed.
_STAND_INS: Mapping[str, Any] = {"cuda": on_stand_in, "levelzero": on_level_zero, "opencl": on_opencl}

F = TypeVar("F", bound=Callable[..., Any])


class _Groups(frozenset[str]):
    """The groups of a test: the process of each of them keeps the test, and runs only its own parameter."""

    __hash__ = frozenset.__hash__

    def __eq__(self, other: object) -> bool:
        return other in self


def on_each(*names: str, **settings: Mapping[str, str]) -> Callable[[F], F]:
    """Return a decorator that gives the test each name as its parameter `name`, on the stand-in of that backend."""

    def decorate(function: F) -> F:
        there = {name: _STAND_INS[name](**settings.get(name, {}))(function) for name in names if name in _STAND_INS}
        groups = {name: run.stand_in_group for name, run in there.items()}

        @functools.wraps(function)
        def test(name: str, **more: Any) -> None:
            if os.environ.get(_GROUP) in (None, groups.get(name)):
                there.get(name, function)(name=name, **more)

        test.stand_in_group = _Groups(groups.values())  # type: ignore[attr-defined]
        for mark in (pytest.mark.usefixtures("stand_in_groups"), pytest.mark.timeout(DEADLINE_S + 10),
                     pytest.mark.parametrize("name", names)):
            test = mark(test)
        return test  # type: ignore[return-value]

    return decorate


class Sides(Pair):
    """The exporter and the importing device, with the calls that differ between exporters. `usual` is a timeline if the
    device imports timelines."""

    def __init__(self, exporter: xsem.Device, here: xsem.Device) -> None:
        imports = here.capabilities.semaphore_import
        timeline, binary = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, SemaphoreHandleType.OPAQUE_FD
        super().__init__(exporter, here, timeline if timeline in imports else binary)
        signals_by_itself = Feature.HOST_SIGNAL in exporter.capabilities.features
        self._list = None if signals_by_itself else exporter.create_command_list()

    def value(self, value: int) -> int | None:
        """Return the value for a semaphore of the usual type."""
        return value if self.usual.kind is SemaphoreKind.TIMELINE else None

    def signal(self, there: xsem.Semaphore, value: int) -> None:
        """Signal as the exporter."""
        if self._list is None:
            there.host_signal(self.value(value))
        else:
            self._list.append_signal(there, self.value(value))

    def wait(self, there: xsem.Semaphore, value: int) -> None:
        """Wait as the exporter."""
        if self._list is None:
            there.host_wait(self.value(value), timeout_s=BOUND_S)
        else:
            self._list.append_wait(there, self.value(value))
            self._list.synchronize(timeout_s=BOUND_S)

    def handover(self, memory: xsem.Memory) -> list[xsem.Memory]:
        """Return what a wait acquires and a signal releases: nothing, if the device needs no handover."""
        return [memory] if self.here.capabilities.needs_handover else []


@contextmanager
def sides(name: str) -> Iterator[Sides]:
    """Open the first device of the backend, beside a host device, or a second Vulkan device, that exports to it."""
    with ExitStack() as opened:
        if name == "vulkan":
            use_swiftshader(opened.enter_context(pytest.MonkeyPatch.context()))
        exporter = opened.enter_context(xsem.open_device("vulkan:0" if name == "vulkan" else "host"))
        yield Sides(exporter, opened.enter_context(xsem.open_device(f"{name}:0")))
