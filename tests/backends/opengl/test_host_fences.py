"""Fences of the host for OpenGL, with an exporter and a driver that note their calls."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from xsem.types import OwnedHandle
from xsem_opengl import host_fences
from xsem_opengl.host_fences import HostFences

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the backend runs on Linux")


class Exporter:
    """Timelines as numbers."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}
        self.closed = False

    def create_semaphore(self, type: object, value: int) -> int:
        self.values[len(self.values)] = value
        return len(self.values) - 1

    def export_semaphore(self, there: int) -> OwnedHandle:
        return OwnedHandle(os.open(os.devnull, os.O_RDONLY))

    def host_signal(self, there: int, value: int) -> None:
        assert self.values[there] < value
        self.values[there] = value

    def semaphore_value(self, there: int) -> int:
        return self.values[there]

    def release_semaphore(self, there: int) -> None:
        del self.values[there]

    def close(self) -> None:
        self.closed = True


def test_a_fence_has_a_value_that_no_other_unreleased_fence_has(monkeypatch: pytest.MonkeyPatch) -> None:
    imports: list[int] = []

    def import_and_take(gl: object, file: OwnedHandle, *, timeline: bool) -> int:
        imports.append(file.detach())
        return len(imports)

    monkeypatch.setattr(host_fences, "import_and_take", import_and_take)
    monkeypatch.setattr(host_fences, "delete", lambda gl, call, name: None)
    worker: Any = SimpleNamespace(call=lambda function, *arguments: function(*arguments))
    exporter = Exporter()
    fences = HostFences(SimpleNamespace(), worker, lambda: exporter)
    first, second = fences.create(), fences.create()
    fences.reach(second)
    assert (fences.is_reached(first), fences.is_reached(second)) == (False, True)
    fences.release(second)
    third = fences.create()
    assert (fences.is_reached(first), fences.is_reached(third)) == (False, False)
    fences.reach(first)
    fences.reach(third)
    assert fences.is_reached(first)
    assert fences.is_reached(third)
    assert len(imports) == 2
    for fd in imports:
        os.close(fd)   # which the driver would have
    fences.release(first)
    fences.release(third)
    fences.close()
    assert (exporter.values, exporter.closed) == ({}, True)
