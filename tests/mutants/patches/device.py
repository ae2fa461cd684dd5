"""Faults in contexts, in errors, and in the properties of the backend."""

from __future__ import annotations

import dataclasses
from typing import Any

import xsem_cuda.backend as backend
from patches.base import instead, patch
from xsem.types import Capabilities
from xsem_cuda import fences as _fences
from xsem_cuda import results as _call
from xsem_cuda.context import Context


@patch
def not_ready_is_an_error() -> None:
    """A query of pending work counts as a failure."""
    @instead(_fences, "call")
    def call(before: Any, function: Any, *args: Any) -> Any:
        result = before(function, *args)
        if result is _call.NOT_READY:
            raise _call._from_code(function.__name__, 999, "CUDA_ERROR_UNKNOWN")
        return result


@patch
def context_not_entered() -> None:
    """Calls use the current context of the thread."""
    @instead(Context, "__enter__")
    def enter(before: Any, self: Any) -> None:
        return None

    @instead(Context, "__exit__")
    def leave(before: Any, self: Any, *exc: Any) -> None:
        return None


@patch
def nothing_declared() -> None:
    """The device declares nothing."""
    @instead(backend, "capabilities_of")
    def capabilities_of(before: Any, *args: Any) -> Capabilities:
        return Capabilities()


def _declaring(**fields: Any) -> None:
    @instead(backend, "capabilities_of")
    def capabilities_of(before: Any, *args: Any) -> Capabilities:
        return dataclasses.replace(before(*args), **fields)


@patch
def more_pending_declared() -> None:
    """The declared number of operations behind an unmet wait is too high."""
    _declaring(max_pending=5000)


@patch
def never_blocks_declared() -> None:
    """Appends are declared never to block."""
    _declaring(append_never_blocks=True, max_pending=None)
