"""Shapes, strides and dtypes of buffers, checked against NumPy's own arithmetic."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.numpy_bools import IndexedBool

from xsem.data.layout import Layout, parse_dtype, parse_layout
from xsem.errors import BadArgumentError

# Name, bytes, alignment, array-interface string, DLPack code (dlpack.h: kDLInt 0 … kDLBool 6).
DTYPES = {
    "bool": (1, 1, "|b1", 6),
    "uint8": (1, 1, "|u1", 1),
    "uint16": (2, 2, "<u2", 1),
    "uint32": (4, 4, "<u4", 1),
    "uint64": (8, 8, "<u8", 1),
    "int8": (1, 1, "|i1", 0),
    "int16": (2, 2, "<i2", 0),
    "int32": (4, 4, "<i4", 0),
    "int64": (8, 8, "<i8", 0),
    "float16": (2, 2, "<f2", 2),
    "bfloat16": (2, 2, "", 4),
    "float32": (4, 4, "<f4", 2),
    "float64": (8, 8, "<f8", 2),
    "complex64": (8, 4, "<c8", 5),
    "complex128": (16, 8, "<c16", 5),
}


class TorchDType:
    """A dtype with the text of a torch dtype."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype_has_its_size_string_and_code(name: str) -> None:
    dtype = parse_dtype(name)
    itemsize, alignment, typestr, code = DTYPES[name]
    assert (dtype.name, dtype.itemsize, dtype.alignment) == (name, itemsize, alignment)
    assert (dtype.typestr, dtype.dlpack_code) == (typestr, code)
    assert parse_dtype(TorchDType(name)) == dtype
    if name != "bfloat16":
        own = np.dtype(name)
        assert own.str == typestr
        assert own.itemsize == itemsize
        assert own.alignment == alignment
        for form in (own, own.type, own.str, own.char, own.newbyteorder("=")):
            assert parse_dtype(form) == dtype


@pytest.mark.parametrize(
    ("form", "name"),
    [(float, "float64"), (bool, "bool"), (complex, "complex128"), ("f4", "float32"), ("float", "float64")],
)
def test_other_numpy_forms_of_a_dtype_are_accepted(form: Any, name: str) -> None:
    assert parse_dtype(form).name == name


# On Windows, a long double is a float64.
_LONG_DOUBLES = ["longdouble", np.dtype("longdouble")] if np.dtype("longdouble").itemsize > 8 else []


@pytest.mark.parametrize(
    "form",
    ["", "uint7", "torch.float32x", "f3", ">f4", ">i2", np.dtype(">f8"), "U4", "S4", "O", object, "M8[ns]", "f4,f4",
     "(2,)f4", "(2,", "f4,", "V8", {"names": ["a"]}, {"names": ["a"], "formats": ["f4"]}, [("a", "f4")], None, 5, 4.0,
     [], (), *_LONG_DOUBLES, TorchDType("qint8"), b"f4x"],
    ids=lambda form: repr(form)[:30],
)
def test_unsupported_dtype_is_refused(form: Any) -> None:
    with pytest.raises(BadArgumentError) as caught:
        parse_dtype(form)
    assert caught.value.reason == "bad_dtype"
    assert "float32" in str(caught.value)


def test_a_name_needs_no_numpy() -> None:
    code = (
        "import sys; from xsem.data.layout import parse_dtype\n"
        "class T:\n    def __str__(self): return 'torch.bfloat16'\n"
        "assert parse_dtype(T()) == parse_dtype('bfloat16')\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "False\n"


# ---- layouts
shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@given(shapes, st.sampled_from([1, 2, 4, 8, 16]))
def test_without_strides_rows_lie_without_padding(shape: tuple[int, ...], itemsize: int) -> None:
    layout = parse_layout(shape, None, itemsize)
    array = np.empty(shape, f"V{itemsize}")
    assert layout == Layout(shape, array.strides, array.nbytes)
    assert layout.contiguous(itemsize)


@given(shapes.flatmap(lambda shape: st.tuples(
    st.just(shape), st.tuples(*[st.integers(0, 40) for _ in shape]), st.sampled_from([1, 2, 4, 8])
)))
def test_extent_with_strides_ends_at_the_last_element(
    case: tuple[tuple[int, ...], tuple[int, ...], int],
) -> None:
    shape, strides, itemsize = case
    layout = parse_layout(shape, strides, itemsize)
    assert (layout.shape, layout.strides) == (shape, strides)
    ends = [sum(i * s for i, s in zip(index, strides, strict=True)) + itemsize for index in np.ndindex(*shape)]
    assert layout.extent == max(ends)
    array = np.ndarray(shape, f"V{itemsize}", bytearray(layout.extent), strides=strides)
    assert layout.contiguous(itemsize) == array.flags.c_contiguous


def test_a_row_pitch_pads_all_rows_but_the_last() -> None:
    assert parse_layout((3, 4, 4), (256, 4, 1), 1).extent == 2 * 256 + 16
    assert not parse_layout((3, 4, 4), (256, 4, 1), 1).contiguous(1)


def test_a_scalar_is_one_element() -> None:
    assert parse_layout((), None, 8) == Layout((), (), 8)
    assert parse_layout((), (), 8).contiguous(8)


def test_sequences_of_other_ints_are_taken() -> None:
    shape: Any = np.array([2, 3])
    layout = parse_layout(shape, [np.int64(12), 4], 4)  # type: ignore[list-item]
    assert layout == Layout((2, 3), (12, 4), 24)
    assert all(type(each) is int for each in (*layout.shape, *layout.strides))


@pytest.mark.parametrize(
    "shape",
    [(0,), (2, 0), (-1,), (2, -1), 5, None, "23", (2.0,), ("2",), (None,), ((2,),), (True, 2), (IndexedBool(), 2),
     (2**63,), (2**70,), (2**32, 2**32), (2**62, 2)],
    ids=repr,
)
def test_bad_shape_is_refused(shape: Any) -> None:
    for strides in (None, tuple(0 for _ in shape) if isinstance(shape, tuple) else None):
        with pytest.raises(BadArgumentError) as caught:
            parse_layout(shape, strides, 1)
        assert caught.value.reason == "bad_shape"


def test_the_largest_shape_is_counted_in_bytes() -> None:
    assert parse_layout((2**63 - 1,), (0,), 1).extent == 1
    with pytest.raises(BadArgumentError) as caught:
        parse_layout((2**62,), (0,), 2)
    assert caught.value.reason == "bad_shape"


@pytest.mark.parametrize(
    "strides",
    [(), (4,), (4, 4, 4), (-4, 4), (4, -1), (4.0, 4), ("4", 4), 4, "44", (None, 4), (True, 4), (2**63, 4), (4, 2**70)],
    ids=repr,
)
def test_bad_strides_are_refused(strides: Any) -> None:
    with pytest.raises(BadArgumentError) as caught:
        parse_layout((2, 3), strides, 4)
    assert caught.value.reason == "bad_strides"
