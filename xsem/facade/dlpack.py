"""DLPack capsules over any memory, for DLPack 1.0 and in the legacy form.

With the compiled part, `xsem.facade.dlpack_native` makes the capsules, and also has the C exchange interface of DLPack
1.3. Without the compiled part, NumPy makes the capsule from an array over the address. This module then writes the
device and the element type into the capsule, because NumPy supports neither other devices nor bfloat16.

A deleter in Python is not suitable. Consumers drop a refused capsule while an error is set, and a ctypes callback would
clear this error. Consumers also call the deleter on any thread, with or without the GIL, until the process ends. The
deleter of NumPy is C code and supports all these cases.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from xsem.data.layout import DType, Layout
from xsem.errors import BadArgumentError
from xsem.runtime.compiled import load

__all__ = ["CapsuleTensor", "HostArray", "check_aligned", "exchange_api", "make_capsule", "pair_of_ints",
           "read_capsule"]

_native: Final[Any] = load("xsem.facade.dlpack_native")


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class CapsuleTensor(NamedTuple):
    """The tensor of a DLPack capsule of another library."""

    address: int   # of the first element
    device: tuple[int, int]   # DLPack's device type and device id
    dtype: tuple[int, int, int]   # DLPack's type code, bits and lanes
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None   # in elements; None: rows without padding
    read_only: bool   # only a versioned capsule can say so


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_LEGACY: Final = b"dltensor"
_VERSIONED: Final = b"dltensor_versioned"
_READ_ONLY: Final = 1

# All modules share the attributes of ctypes.pythonapi with the declared types of these functions. These two functions
# therefore have prototypes of their own. A private copy of pythonapi is not possible: PyDLL(None) raises a TypeError on
# Windows.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


class HostArray:
    """Base object of a NumPy array: the array interface, and the lease of the mapping."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str, lease: object
    ) -> None:
        self.__array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "strides": strides, "version": 3,
        }
        self._lease = lease


def read_capsule(capsule: Any) -> CapsuleTensor:
    """Read the tensor of a capsule."""
    # The capsule stays unconsumed, and the caller keeps it as long as the tensor.
    read_only = False
    if _is_valid(capsule, _VERSIONED):
        managed = _ManagedVersioned.from_address(_pointer(capsule, _VERSIONED))
        tensor, read_only = managed.tensor, bool(managed.flags & _READ_ONLY)
    elif _is_valid(capsule, _LEGACY):
        tensor = _Managed.from_address(_pointer(capsule, _LEGACY)).tensor
    else:
        raise BufferError(f"{type(capsule).__name__} is not an unconsumed DLPack capsule")
    count = tensor.ndim
    shape, strides = (
        None if address is None else tuple((ctypes.c_int64 * count).from_address(address))
        for address in (tensor.shape, tensor.strides))
    return CapsuleTensor((tensor.data or 0) + tensor.byte_offset,
                         (tensor.device.device_type, tensor.device.device_id),
                         (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes), shape or (), strides, read_only)


def make_capsule(
    address: int, device: tuple[int, int], dtype: DType, shape: tuple[int, ...], strides_bytes: tuple[int, ...],
    lease: object, *, versioned: bool,
) -> Any:
    """Make a capsule over memory. The capsule keeps `lease`, and `lease` keeps the memory mapped."""
    # Without the compiled part, NumPy makes the capsule. NumPy before 2.1 makes only legacy capsules.
    strides = _in_elements(address, dtype, shape, strides_bytes)
    if _native is not None:
        return _native.managed_capsule(address, device, (dtype.dlpack_code, dtype.itemsize * 8), shape, strides, lease,
                                       versioned=versioned)
    import numpy as np

    # The code never reads or writes the array, because the address can belong to a device.
    array: Any = np.asarray(HostArray(address, shape, strides_bytes, dtype.typestr or f"<u{dtype.itemsize}", lease))
    capsule = array.__dlpack__(max_version=(1, 0)) if versioned and _numpy_is_versioned(np) else array.__dlpack__()
    if _is_valid(capsule, _VERSIONED):
        tensor = _ManagedVersioned.from_address(_pointer(capsule, _VERSIONED)).tensor
    else:
        tensor = _Managed.from_address(_pointer(capsule, _LEGACY)).tensor
    tensor.device = _Device(*device)
    tensor.dtype = _DataType(dtype.dlpack_code, dtype.itemsize * 8, 1)
    return capsule


def exchange_api(describe: Callable[[Any], tuple[int, tuple[int, int], DType, Layout, object]]) -> Any:
    """Return the capsule for ``__dlpack_c_exchange_api__``, or None without the compiled part."""
    # `describe` returns address, DLPack device, element type, layout and lease of a buffer, or raises BufferError.
    if _native is None:
        return None

    def exported(buffer: Any) -> tuple[object, ...]:
        address, device, dtype, layout, lease = describe(buffer)
        strides = _in_elements(address, dtype, layout.shape, layout.strides)
        return address, device, (dtype.dlpack_code, dtype.itemsize * 8), layout.shape, strides, lease

    _native.exporter(exported)
    return _native.EXCHANGE


def _in_elements(
    address: int, dtype: DType, shape: tuple[int, ...], strides_bytes: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the strides in elements. Refuse partial elements and a misaligned address."""
    steps = [stride for length, stride in zip(shape, strides_bytes, strict=True) if length > 1]
    if any(stride % dtype.itemsize for stride in steps):
        raise BufferError(f"DLPack counts strides in elements; {strides_bytes} are not multiples of {dtype.itemsize}")
    check_aligned(address, dtype, shape, strides_bytes)
    return tuple(stride // dtype.itemsize for stride in strides_bytes)


def pair_of_ints(what: str, value: Any) -> tuple[int, int]:
    """Return a version or a device of DLPack as a tuple."""
    try:
        first, second = map(operator.index, value)
    except (TypeError, ValueError) as error:
        raise BadArgumentError(f"{what} is a pair of ints, for example (1, 0), not {value!r}",
                               reason="bad_dlpack") from error
    return first, second


def check_aligned(address: int, dtype: DType, shape: tuple[int, ...], strides_bytes: tuple[int, ...]) -> None:
    """Refuse a misaligned element."""
    # Consumers of DLPack assume alignment, and a kernel that accesses a misaligned element makes the context of the GPU
    # unusable.
    steps = [stride for length, stride in zip(shape, strides_bytes, strict=True) if length > 1]
    if any(each % dtype.alignment for each in (address, *steps)):
        raise BufferError(f"the address {address:#x} with strides {strides_bytes} is not aligned for {dtype.name}; map "
                          "or view these bytes as uint8")


def _numpy_is_versioned(np: Any) -> bool:
    major, minor = np.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 1)
