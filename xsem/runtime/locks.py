"""Locks that a caller does not wait for without a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from xsem.data.locks import Lock

__all__ = ["call_locked"]

_T = TypeVar("_T")


def call_locked(lock: Lock, timeout_s: float, act: Callable[[], _T], otherwise: _T) -> _T:
    """Return ``act()``, called under the lock; `otherwise` if the lock is not free within `timeout_s` seconds."""
    try:
        return act() if lock.acquire(timeout=timeout_s) else otherwise
    finally:
        # `with` has no limit. After Ctrl-C in `acquire`, only the lock knows whether it is held.
        try:  # noqa: SIM105
            lock.release()
        except RuntimeError:
            pass
