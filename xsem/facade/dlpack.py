"""DLPack capsules over any memory: versioned (1.0) and legacy.

A compiled xsem makes capsules directly, and has the C exchange interface of DLPack 1.3 (`xsem.facade.dlpack_native`).
Without the compiled part, NumPy makes the capsule from an array over the address. This module then writes the device
and bfloat16 into the capsule, because NumPy does not support them. A deleter in Python is not suitable. Consumers drop
a refused capsule while an error is set, and a ctypes callback would clear this error. Consumers also call the deleter
on any thread, with or without the interpreter's lock, until the process ends. NumPy's deleter is C code that supports
all these cases.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from xsem.data.layout import DType, Layout
from xsem.spi import compiled

if compiled():
    from xsem.facade import dlpack_native as _native  # type: ignore[attr-defined]
else:
    _native = None

__all__ = ["HostArray", "exchange_api", "make_capsule"]


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

# All modules share the functions that are attributes of ctypes.pythonapi, with their declared types. So these two come
# from prototypes of their own. A private copy of pythonapi is not possible: on Windows PyDLL(None) is a TypeError.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


class HostArray:
    """Base object of a NumPy array: the array interface, and the lease that keeps the memory mapped."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str, lease: object
    ) -> None:
        self.__array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "strides": strides, "version": 3,
        }
        self._lease = lease


def make_capsule(
    address: int, device: tuple[int, int], dtype: DType, shape: tuple[int, ...], strides_bytes: tuple[int, ...],
    lease: object, *, versioned: bool,
) -> Any:
    """Make a capsule over memory that `lease` keeps mapped.

    Without the compiled part, NumPy makes the capsule. NumPy before 2.1 makes only legacy capsules.

    Raises
    ------
    BufferError
        A stride is not a whole number of elements: DLPack counts in elements. Or the address is not aligned: consumers
        of DLPack assume alignment, and a misaligned access on a GPU is a fault that breaks the context.
    """
    strides = _in_elements(address, dtype, shape, strides_bytes)
    if _native is not None:
        return _native.managed_capsule(address, device, (dtype.dlpack_code, dtype.itemsize * 8), shape, strides, lease,
                                       versioned=versioned)
    import numpy as np

    # The code never reads or writes the array, because the address can be that of a device.
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
    """Return the capsule for ``__dlpack_c_exchange_api__``; None without the compiled part.

    Parameters
    ----------
    describe : callable
        Returns address, DLPack device, element type, layout and lease of a buffer, or raises BufferError.
    """
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
    """Return the strides in elements, or refuse what DLPack cannot describe."""
    steps = [stride for length, stride in zip(shape, strides_bytes, strict=True) if length > 1]
    if any(stride % dtype.itemsize for stride in steps):
        raise BufferError(f"DLPack counts strides in elements; {strides_bytes} are not multiples of {dtype.itemsize}")
    if address % dtype.alignment:
        raise BufferError(f"the address {address:#x} is not aligned for {dtype.name}; view the buffer as uint8")
    return tuple(stride // dtype.itemsize for stride in strides_bytes)


def _numpy_is_versioned(np: Any) -> bool:
    major, minor = np.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 1)
