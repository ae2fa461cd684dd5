"""Bytes that both sides of a case know: each part of them differs from every other part."""

from __future__ import annotations

import random

__all__ = ["first_difference", "noise"]


def noise(size: int, seed: int) -> bytes:
    """Return `size` random bytes, the same ones for the same seed."""
    return random.Random(seed).randbytes(size)   # noqa: S311 - not for cryptography


def first_difference(found: bytes, seed: int) -> int | None:
    """Return the offset of the first byte of `found` that is not the byte of `noise`; None if all are equal."""
    expected = noise(len(found), seed)
    if found == expected:
        return None
    return next(at for at, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
