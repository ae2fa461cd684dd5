"""Arrays of other libraries: their address, layout and element type."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from xsem.data.layout import DType, Layout, dlpack_dtype, parse_dtype, parse_layout
from xsem.data.params import UINT64_MAX, check_int
from xsem.errors import BadArgumentError, XsemError
from xsem.facade.dlpack import pair_of_ints, read_capsule

__all__ = ["ForeignArray", "describe_array"]

_HOST: Final = (1, 3)   # kDLCPU, kDLCUDAHost


class ForeignArray(NamedTuple):
    """An array of another library."""

    address: int   # of the first element
    layout: Layout
    dtype: DType
    device: tuple[int, int] | None   # DLPack's device; None: the array does not tell it
    owner: object   # keeps the memory of the array allocated
    read_only: bool = False   # the library of the array says so


def describe_array(array: Any, size: int | None) -> ForeignArray:
    """Describe an array by ``__cuda_array_interface__`` or DLPack, or a range by its address and size in bytes."""
    if isinstance(array, int):
        return _range(array, size)
    if size is not None:
        raise BadArgumentError("size= is for an address; an array has its own size", reason="bad_size")
    try:
        interface = _asked(array, "__cuda_array_interface__")
        if interface is not None:
            return _by_interface(array, interface)
    except BadArgumentError as error:
        # The interface has no bfloat16: an array raises, or gives a type that NumPy does not have.
        if error.reason not in ("bad_dtype", "array_refused") or not hasattr(array, "__dlpack__"):
            raise
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _by_dlpack(array)
    if hasattr(array, "__array_interface__"):
        raise _host_array(array)
    raise BadArgumentError(
        f"{type(array).__name__} has neither __cuda_array_interface__ nor __dlpack__, and is not an address",
        reason="not_an_array")


def _range(address: int, size: int | None) -> ForeignArray:
    check_int("the address", address, 1, UINT64_MAX, reason="null_address")
    check_int("size", 0 if size is None else size, 1, UINT64_MAX, reason="bad_size")
    dtype = parse_dtype("uint8")
    return ForeignArray(address, parse_layout((size or 0,), None, dtype.itemsize), dtype, None, None)


def _by_interface(array: Any, interface: Any) -> ForeignArray:
    try:
        (address, read_only), shape, typestr = interface["data"], interface["shape"], interface["typestr"]
        strides, mask, read_only = interface.get("strides"), interface.get("mask"), bool(read_only)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise BadArgumentError(f"__cuda_array_interface__ of {type(array).__name__} is incomplete: {error!r}",
                               reason="array_refused") from error
    if mask is not None:
        raise BadArgumentError("a masked array has two allocations; share its data and its mask one by one",
                               reason="masked_array")
    return _described(array, address, shape, strides, parse_dtype(typestr), None, read_only)


def _by_dlpack(array: Any) -> ForeignArray:
    device = _asked(array, "__dlpack_device__", call=True)
    try:
        on_host = device is not None and pair_of_ints("__dlpack_device__", device)[0] in _HOST
    except BadArgumentError as error:
        raise BadArgumentError(f"{type(array).__name__}: {error}", reason="array_refused") from error
    if on_host:
        raise _host_array(array)
    try:
        # Only a versioned capsule says that an array is read-only. Libraries before DLPack 1.0 lack the argument.
        capsule = _asked(array, "__dlpack__", call=True, max_version=(1, 0))
    except BadArgumentError as error:
        if not isinstance(error.__cause__, TypeError):
            raise
        capsule = _asked(array, "__dlpack__", call=True)
    try:
        found = read_capsule(capsule)
    except BufferError as error:
        raise BadArgumentError(f"__dlpack__ of {type(array).__name__}: {error}", reason="array_refused") from error
    dtype = dlpack_dtype(*found.dtype)
    strides = None if found.strides is None else tuple(step * dtype.itemsize for step in found.strides)
    return _described((array, capsule), found.address, found.shape, strides, dtype, found.device, found.read_only)


def _described(
    owner: object, address: int, shape: Any, strides: Any, dtype: DType, device: tuple[int, int] | None,
    read_only: bool,
) -> ForeignArray:
    layout = parse_layout(shape, strides, dtype.itemsize)
    check_int("the address of the array", address, 1, UINT64_MAX, reason="null_address")
    return ForeignArray(address, layout, dtype, device, owner, read_only)


def _asked(array: Any, name: str, *, call: bool = False, **arguments: Any) -> Any:
    """Return an attribute of the array, or the result of a method. The array's errors become `BadArgumentError`."""
    try:
        value = getattr(array, name)
        return value(**arguments) if call else value
    except AttributeError:
        return None
    except XsemError:
        raise
    except Exception as error:   # torch for a tensor that needs a gradient, JAX for a deleted array
        raise BadArgumentError(f"{type(array).__name__} does not give its {name}: {error}",
                               reason="array_refused") from error


def _host_array(array: Any) -> BadArgumentError:
    return BadArgumentError(
        f"{type(array).__name__} is in host memory, which a GPU does not export: create_memory() and a copy share it",
        reason="host_array")
