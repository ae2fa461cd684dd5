"""Buffers: mapped ranges of memory as arrays, without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xsem.data.layout import DType, Layout, parse_dtype, parse_layout
from xsem.data.params import UINT64_MAX, check_int
from xsem.errors import BadArgumentError
from xsem.facade.dlpack import HostArray, make_capsule
from xsem.facade.resource import Resource
from xsem.runtime.copies import copy_from_device, copy_to_device
from xsem.runtime.lifetime import Lease, Lifetime
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.spi import Token

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["Buffer"]

_CPU = 1
_CUDA = 2


class Buffer(Resource):
    """A range of device memory, with shape, strides and dtype; made by `Memory.map_buffer` or `Device.host_buffer`.

    Exporting an array (`numpy`, ``from_dlpack``, ``asarray``) copies nothing and orders nothing: only a command list
    does. An array keeps the buffer's memory mapped as long as it lives, also after `release`.

    Attributes
    ----------
    device : Device
    address : int
        Device address of the first element.
    size : int
        Bytes of the range.
    shape : tuple of int
    strides : tuple of int
        Bytes.
    dtype : str
        A NumPy name, or ``"bfloat16"``.
    """

    def __init__(
        self, device: Device, lifetime: Lifetime, token: Token, address: int, size: int, layout: Layout, dtype: DType,
        *, host: bool,
    ) -> None:
        super().__init__(device, lifetime)
        self.address = address
        self.size = size
        self.shape: tuple[int, ...] = layout.shape
        self.strides: tuple[int, ...] = layout.strides
        self.dtype: str = dtype.name
        self._mapping = token
        self._layout = layout
        self._dtype = dtype
        self._host = host
        self._dlpack_device: tuple[int, int] = (_CPU, 0) if host else self._device_state.driver.dlpack_device()
        self._lease: Lease | None = None

    def view(
        self, shape: Sequence[int], dtype: Any, *, offset: int = 0, strides: Sequence[int] | None = None
    ) -> Buffer:
        """Another shape and dtype over a part of the same mapping, from `offset` bytes on; its `size` is what it needs.

        Releasing a view leaves this buffer alone; this buffer's mapping lives until its views are released.

        Raises
        ------
        BadArgumentError
            ``out_of_range``: it would reach beyond `size`.
        """
        self._check()
        check_int("offset", offset, 0, UINT64_MAX, reason="out_of_range")
        element = parse_dtype(dtype)
        layout = parse_layout(shape, strides, element.itemsize)
        if offset + layout.extent > self.size:
            raise BadArgumentError(
                f"offset {offset} and {layout.extent} bytes reach beyond the buffer's {self.size}",
                reason="out_of_range",
            )
        lifetime = self._device_state.new_lifetime("buffer view", _nothing, parent=self._lifetime)
        return Buffer(self.device, lifetime, self._mapping, self.address + offset, layout.extent,
                      layout, element, host=self._host)

    def numpy(self) -> Any:
        """A NumPy array over the same memory, without a copy.

        Raises
        ------
        BufferError
            The host cannot reach the memory, or NumPy has no such dtype.
        """
        import numpy as np

        lifetime = self._checked()
        if not self._host:
            raise BufferError(f"the host cannot reach memory of {self._device_state.info.id}; use copy_to_host()")
        typestr = self._typestr()
        lease = Lease(lifetime, self._device_state.releaser)
        return np.asarray(HostArray(self.address, self.shape, self.strides, typestr, lease))

    def copy_to_host(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> Any:
        """A new NumPy array with the contents; blocks the host.

        It is ordered after nothing: wait for the work that writes the buffer first.

        Raises
        ------
        WaitTimeoutError
            ``timeout``.
        BufferError
            NumPy has no such dtype.
        """
        import numpy as np

        check_timeout(timeout_s)
        lifetime = self._checked()
        typestr = self._typestr()
        if self._host:
            return self.numpy().copy()
        data = copy_from_device(self.device._queues, lifetime, self.address, self._layout.extent, timeout_s)
        return np.ndarray(self.shape, dtype=typestr, buffer=data, strides=self.strides).copy()

    def copy_from_host(self, array: object, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Write an array of this shape (converted to this dtype where that loses nothing); blocks the host.

        Raises
        ------
        BadArgumentError
            ``shape_mismatch``, ``dtype_mismatch``.
        WaitTimeoutError
            ``timeout``; the copy is still pending.
        BufferError
            NumPy has no such dtype.
        """
        import numpy as np

        check_timeout(timeout_s)
        lifetime = self._checked()
        source = np.asarray(array)
        if source.shape != self.shape:
            raise BadArgumentError(f"the buffer's shape is {self.shape}, the array's {source.shape}",
                                   reason="shape_mismatch")
        if not np.can_cast(source.dtype, self._typestr(), "safe"):
            raise BadArgumentError(f"{source.dtype} does not fit into {self.dtype}", reason="dtype_mismatch")
        if self._host:
            self.numpy()[...] = source
            return
        contiguous = self._layout.contiguous(self._dtype.itemsize)
        # Bytes between the rows are not ours to change: they are read first and written back as they were.
        data = (bytearray(self._layout.extent) if contiguous
                else copy_from_device(self.device._queues, lifetime, self.address, self._layout.extent, timeout_s))
        np.ndarray(self.shape, dtype=self._typestr(), buffer=data, strides=self.strides)[...] = source
        copy_to_device(self.device._queues, lifetime, self.address, data, timeout_s)

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule: ``torch.from_dlpack(buffer)``, ``cupy.from_dlpack(buffer)``, ``numpy.from_dlpack(buffer)``.

        `stream` is ignored: exporting orders nothing. A capsule of version 1.0 if the consumer says that it can.

        Raises
        ------
        BufferError
            A copy or another device was asked for; strides are not whole elements, or the address is not aligned.
        """
        lifetime = self._checked()
        if copy:
            raise BufferError("a buffer is exported without a copy; use copy_to_host()")
        if dl_device is not None and tuple(dl_device) != self._dlpack_device:
            raise BufferError(f"the buffer is on DLPack device {self._dlpack_device}, not {tuple(dl_device)}")
        return make_capsule(
            self.address, self._dlpack_device, self._dtype, self.shape, self.strides,
            Lease(lifetime, self._device_state.releaser), versioned=max_version is not None and max_version[0] >= 1,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack device type and number."""
        self._check()
        return self._dlpack_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3, for ``cupy.asarray`` and Numba; the consumer keeps this object alive. AttributeError off CUDA."""
        if self._dlpack_device[0] != _CUDA:
            raise AttributeError("__cuda_array_interface__")
        return {**self._interface(), "version": 3, "stream": None}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Version 3, for ``numpy.asarray``; the consumer keeps this object alive. AttributeError off the host."""
        if not self._host:
            raise AttributeError("__array_interface__")
        return self._interface() | {"version": 3}

    def _interface(self) -> dict[str, Any]:
        lifetime = self._checked()
        typestr = self._typestr()
        if self._lease is None:
            # The consumer holds this very object: the mapping must outlive release() until the object is collected.
            self._lease = Lease(lifetime, self._device_state.releaser)
        return {"shape": self.shape, "typestr": typestr, "data": (self.address, False), "strides": self.strides}

    def _typestr(self) -> str:
        if not self._dtype.typestr:
            raise BufferError(f"NumPy has no {self.dtype}; view the buffer as uint16")
        return self._dtype.typestr

    def _checked(self) -> Lifetime:
        self._check()
        return self._lifetime

    def _token(self) -> Token:
        return self._mapping

    def __repr__(self) -> str:
        return f"<Buffer {self.dtype}{list(self.shape)} at {self.address:#x} on {self._device_state.info.id}>"


def buffer_layout(
    size: int | None, room: int, shape: Sequence[int] | None, dtype: Any, strides: Sequence[int] | None
) -> tuple[int, Layout, DType]:
    """Size in bytes, layout and dtype of a mapping that may be at most `room` bytes.

    Without a size it is what the shape needs, or all the room; without a shape it is one dimension of whole elements.
    """
    element = parse_dtype(dtype)
    if size is not None:
        check_int("size", size, 1, UINT64_MAX, reason="bad_size")
    if shape is None:
        if strides is not None:
            raise BadArgumentError("strides need a shape", reason="bad_strides")
        size = room if size is None else size
        if size % element.itemsize:
            raise BadArgumentError(f"{size} bytes are not whole elements of {element.name}", reason="bad_size")
        layout = parse_layout((size // element.itemsize,), None, element.itemsize)
    else:
        layout = parse_layout(shape, strides, element.itemsize)
        size = layout.extent if size is None else size
        if layout.extent > size:
            raise BadArgumentError(
                f"shape {layout.shape} of {element.name} with strides {layout.strides} needs {layout.extent} bytes, "
                f"more than size {size} ({math.prod(layout.shape)} elements)",
                reason="out_of_range",
            )
    if size > room:
        raise BadArgumentError(f"offset + size reaches {size - room} bytes beyond the allocation",
                               reason="out_of_range")
    return size, layout, element


def _nothing() -> None:
    """A view has nothing to unmap."""
