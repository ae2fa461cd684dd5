"""DLPack capsules made from Python: versioned (1.0) and legacy.

The memory behind a capsule lives as long as its consumer: the tensor's structures and the lease on the buffer stay in a
table until the consumer calls the deleter, or the capsule's destructor finds it unconsumed.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from xsem.layout import DType

__all__ = ["make_capsule"]


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
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_LEGACY: Final = b"dltensor"
_VERSIONED: Final = b"dltensor_versioned"

_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
# The destructor sees a capsule without references: as an object it would come back to life.
_is_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

# Address of the managed tensor -> what it needs: structures, shape and strides arrays, lease.
_live: dict[int, tuple[Any, ...]] = {}


# A consumer may outlive this module at interpreter exit: what the callbacks use is bound as defaults, and the callback
# objects are never freed (below); a call of a freed one is a crash.
def _delete(address: int, _live: dict[int, tuple[Any, ...]] = _live) -> None:
    _live.pop(address, None)


def _destroy(
    capsule: int, _live: dict[int, tuple[Any, ...]] = _live, _is_valid: Any = _is_valid, _pointer: Any = _pointer,
    names: tuple[bytes, ...] = (_LEGACY, _VERSIONED),
) -> None:
    for name in names:
        if _is_valid(capsule, name):  # a consumer would have renamed it
            _live.pop(_pointer(capsule, name), None)


_delete_callback = _Deleter(_delete)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_destroy_callback = _Destructor(_destroy)
for _kept in (_delete_callback, _destroy_callback, _live, _LEGACY, _VERSIONED):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))


def make_capsule(
    address: int, device: tuple[int, int], dtype: DType, shape: tuple[int, ...], strides_bytes: tuple[int, ...],
    lease: object, *, versioned: bool,
) -> Any:
    """A capsule over memory that `lease` keeps alive.

    Raises
    ------
    BufferError
        A stride is not a whole number of elements: DLPack counts in elements.
    """
    if any(stride % dtype.itemsize for stride in strides_bytes):
        raise BufferError(f"DLPack counts strides in elements; {strides_bytes} are not multiples of {dtype.itemsize}")
    ndim = len(shape)
    array = ctypes.c_int64 * ndim
    shape_array = array(*shape)
    strides_array = array(*(stride // dtype.itemsize for stride in strides_bytes))
    managed: _Managed | _ManagedVersioned = _ManagedVersioned() if versioned else _Managed()
    if isinstance(managed, _ManagedVersioned):
        managed.major, managed.minor = 1, 0
    managed.deleter = _delete_callback
    tensor = managed.tensor
    tensor.data = address
    tensor.device = _Device(*device)
    tensor.ndim = ndim
    tensor.dtype = _DataType(dtype.dlpack_code, dtype.itemsize * 8, 1)
    tensor.shape = ctypes.cast(shape_array, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides_array, ctypes.POINTER(ctypes.c_int64))
    where = ctypes.addressof(managed)
    _live[where] = (managed, shape_array, strides_array, lease)
    try:
        return _new(where, _VERSIONED if versioned else _LEGACY, ctypes.cast(_destroy_callback, ctypes.c_void_p))
    except BaseException:
        del _live[where]
        raise
