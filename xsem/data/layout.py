"""Shapes, strides and dtypes of buffers. For the names of dtypes, the module does not import NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from xsem.data.params import parse_index
from xsem.errors import BadArgumentError

__all__ = ["DType", "Layout", "dlpack_dtype", "parse_dtype", "parse_layout"]


_COMPLEX: Final = 5


class DType(NamedTuple):
    """Element type: name, size in bytes, array-interface string (empty if NumPy lacks the type), DLPack code."""

    name: str
    itemsize: int
    typestr: str
    dlpack_code: int

    @property
    def alignment(self) -> int:
        """Required alignment of an address in bytes. For a complex number, it is the size of one of its two floats."""
        return self.itemsize // 2 if self.dlpack_code == _COMPLEX else self.itemsize


# DLPack codes: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool.
_DTYPES: Final = {
    dtype.name: dtype
    for dtype in (
        DType("bool", 1, "|b1", 6),
        DType("uint8", 1, "|u1", 1),
        DType("uint16", 2, "<u2", 1),
        DType("uint32", 4, "<u4", 1),
        DType("uint64", 8, "<u8", 1),
        DType("int8", 1, "|i1", 0),
        DType("int16", 2, "<i2", 0),
        DType("int32", 4, "<i4", 0),
        DType("int64", 8, "<i8", 0),
        DType("float16", 2, "<f2", 2),
        DType("bfloat16", 2, "", 4),
        DType("float32", 4, "<f4", 2),
        DType("float64", 8, "<f8", 2),
        DType("complex64", 8, "<c8", 5),
        DType("complex128", 16, "<c16", 5),
    )
}


_MOST: Final = 2**63 - 1  # DLPack and NumPy count in signed 64 bits


class Layout(NamedTuple):
    """Shape, strides in bytes, and bytes from the first element to the end of the last one."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    extent: int

    def contiguous(self, itemsize: int) -> bool:
        """Return whether the elements have no gaps, with the last index fastest."""
        expected = itemsize
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != expected:
                return False
            expected *= length
        return True


def parse_dtype(dtype: Any) -> DType:
    """Return the element type of a name, a NumPy or torch dtype, or an array-interface string."""
    name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    found = _DTYPES.get(name)
    if found is None and dtype is not None:  # None is float64 to NumPy
        import numpy as np

        try:
            asked = np.dtype(dtype)
            found = _DTYPES.get(asked.name) if asked.isnative else None
        except Exception:  # its parser raises whatever comes: TypeError, ValueError, SyntaxError, warnings
            found = None
    if found is None:
        raise BadArgumentError(f"dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}", reason="bad_dtype")
    return found


def dlpack_dtype(code: int, bits: int, lanes: int) -> DType:
    """Return the element type of DLPack's type code, bits and lanes."""
    for dtype in _DTYPES.values():
        if (dtype.dlpack_code, dtype.itemsize * 8, 1) == (code, bits, lanes):
            return dtype
    raise BadArgumentError(f"dtype must be one of {', '.join(_DTYPES)}, not DLPack's type {code} of {bits} bits and "
                           f"{lanes} lanes", reason="bad_dtype")


def parse_layout(shape: Sequence[int], strides: Sequence[int] | None, itemsize: int) -> Layout:
    """Return the layout of a shape and strides in bytes. Without strides, rows have no padding."""
    lengths = _ints("shape", shape, reason="bad_shape")
    if min(lengths, default=1) < 1:
        raise BadArgumentError(f"shape must be positive, not {lengths}", reason="bad_shape")
    # Also where strides of 0 make it need few bytes: no array library counts further.
    size = itemsize * math.prod(lengths)
    if size > _MOST:
        raise BadArgumentError(f"shape {lengths} has more elements than can be counted", reason="bad_shape")
    if strides is None:
        steps, step = [], size
        for length in lengths:
            step //= length
            steps.append(step)
        return Layout(lengths, tuple(steps), size)
    given = _ints("strides", strides, reason="bad_strides")
    if len(given) != len(lengths):
        raise BadArgumentError(f"{len(lengths)} dimensions need as many strides, not {len(given)}",
                               reason="bad_strides")
    if any(not 0 <= step <= _MOST for step in given):
        raise BadArgumentError(f"strides are bytes, 0 … 2**63 - 1, not {given}", reason="bad_strides")
    extent = itemsize + sum((length - 1) * step for length, step in zip(lengths, given, strict=True))
    return Layout(lengths, given, extent)


def _ints(what: str, values: Sequence[int], *, reason: str) -> tuple[int, ...]:
    try:
        return tuple(map(parse_index, values))
    except TypeError:
        raise BadArgumentError(f"{what} must be a sequence of ints, not {values!r}", reason=reason) from None
