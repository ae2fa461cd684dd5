"""Polls of a condition: until it is met, or as long as it must not be met."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from xsem_conformance.outcomes import Symptom, expect

__all__ = ["PATIENCE_S", "SETTLE_S", "never", "none_of", "soon"]

PATIENCE_S: Final = 10.0
"""Seconds until an expected result counts as missing; only a failure takes that long."""
SETTLE_S: Final = 0.05
"""Seconds of observation for an event that must not happen. A slow device may pass wrongly, but never fails wrongly."""


def soon(met: Callable[[], object], otherwise: str, timeout_s: float = PATIENCE_S,
         symptom: Symptom | None = Symptom.NOT_DONE) -> None:
    """Wait until `met` returns true; fail with `otherwise` and the symptom after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not met():
        expect(time.monotonic() < deadline, otherwise, symptom)
        time.sleep(0.001)


def never(met: Callable[[], object], otherwise: str) -> None:
    """Check for `SETTLE_S` that `met` stays false; fail with `otherwise` when it returns true."""
    none_of((met, otherwise))


def none_of(*conditions: tuple[Callable[[], object], str]) -> None:
    """Check for `SETTLE_S` that all conditions stay false. A condition that returns true fails with its text."""
    # Several conditions share the time. The check polls, because a backend may mark the end of a list only during a
    # query.
    deadline = time.monotonic() + SETTLE_S
    while conditions and time.monotonic() < deadline:
        for met, otherwise in conditions:
            expect(not met(), otherwise)
        time.sleep(SETTLE_S / 10)
