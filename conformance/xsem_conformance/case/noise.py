"""Bytes that both sides of a case can compute. Each part of the bytes differs from every other part."""

from __future__ import annotations

import numpy as np

__all__ = ["first_difference", "noise"]


def noise(size: int, seed: int) -> bytes:
    """Return `size` random bytes. The same seed gives the same bytes."""
    return np.random.default_rng(seed).bytes(size)


def first_difference(found: bytes, seed: int) -> int | None:
    """Return the offset of the first byte of `found` that differs from `noise`; None if all bytes are equal."""
    expected = noise(len(found), seed)
    if found == expected:
        return None
    return next(at for at, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
