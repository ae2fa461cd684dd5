"""Bytes that both sides of a case know: each part of them differs from every other part."""

from __future__ import annotations

import numpy as np

__all__ = ["first_difference", "noise"]


def noise(size: int, seed: int) -> bytes:
    """Return `size` random bytes, the same ones for the same seed."""
    return np.random.default_rng(seed).bytes(size)


def first_difference(found: bytes, seed: int) -> int | None:
    """Return the offset of the first byte of `found` that is not the byte of `noise`; None if all are equal."""
    expected = noise(len(found), seed)
    if found == expected:
        return None
    return int(np.argmax(np.frombuffer(found, np.uint8) != np.frombuffer(expected, np.uint8)))
