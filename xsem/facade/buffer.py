"""Buffers: mapped ranges of memory as arrays, without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xsem.data.layout import DType, Layout, parse_dtype, parse_layout
from xsem.data.params import UINT64_MAX, check_bool, check_int
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.facade.dlpack import HostArray, check_aligned, exchange_api, make_capsule, pair_of_ints
from xsem.facade.resource import Resource
from xsem.runtime.host_copies import copy_from_device, copy_to_device
from xsem.runtime.lifetime import Lease, Lifetime
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.spi import Token

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsem.facade.resource import Device

__all__ = ["HOST_DEVICE", "Buffer", "BufferRange", "buffer_layout"]

HOST_DEVICE: Final = (1, 0)
"""The DLPack device of host memory: kDLCPU."""
_CUDA: Final = 2


class BufferRange(NamedTuple):
    """The position of a buffer: in the driver's mapping, and in the memory."""

    token: Token   # the mapping or the host buffer
    address: int | None   # of the first byte of the buffer; None: the API has no addresses
    offset: int   # bytes from the first byte of the mapping
    memory: Lifetime   # the identity of the memory
    memory_offset: int   # bytes from the first byte of the memory

    def at(self, offset: int) -> BufferRange:
        """Return the position of a view that begins `offset` bytes after this position."""
        return BufferRange(self.token, None if self.address is None else self.address + offset, self.offset + offset,
                           self.memory, self.memory_offset + offset)

    def overlaps(self, other: BufferRange, size: int) -> bool:
        """Return whether `size` bytes at this position and `size` bytes at `other` overlap."""
        if self.memory is other.memory and abs(self.memory_offset - other.memory_offset) < size:
            return True
        return (self.address is not None and other.address is not None
                and abs(self.address - other.address) < size)


class Buffer(Resource):
    """A range of device memory with shape, strides and dtype.

    `Memory.map_buffer` and `Device.host_buffer` make buffers. The export of an array (`numpy`, ``from_dlpack``,
    ``asarray``) copies nothing and orders nothing: only a command list orders work. An array keeps the memory of the
    buffer mapped until the array is collected, also after `release`.

    Attributes
    ----------
    device : Device
        The device of the buffer.
    size : int
        Size of the range in bytes.
    shape : tuple of int
        Number of elements in each dimension.
    strides : tuple of int
        Bytes from one element to the next, for each dimension.
    dtype : str
        A NumPy name, or ``"bfloat16"``.

    Raises
    ------
    ReleasedError
        ``released``: the buffer or its device was released. Each method except `release` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
    ...     buffer = memory.map_buffer(shape=(2, 3), dtype="int32")
    ...     buffer.numpy()[:] = [[1, 2, 3], [4, 5, 6]]
    ...     buffer.view((3,), "int32", offset=12).copy_to_host().tolist()
    [4, 5, 6]
    """

    def __init__(
        self, device: Device, lifetime: Lifetime, place: BufferRange, size: int, layout: Layout, dtype: DType,
        *, dlpack_device: tuple[int, int] | None,
    ) -> None:
        super().__init__(device, lifetime)
        self.size = size
        self.shape: tuple[int, ...] = layout.shape
        self.strides: tuple[int, ...] = layout.strides
        self.dtype: str = dtype.name
        self._place = place
        self._layout = layout
        self._dtype = dtype
        self._dlpack_device = dlpack_device
        self._host = dlpack_device is not None and dlpack_device[0] == HOST_DEVICE[0]
        self._lease: Lease | None = None

    @property
    def address(self) -> int:
        """Device address of the first element. For a host buffer: its host address.

        Raises
        ------
        UnsupportedError
            The API has no addresses for mapped memory, for example Vulkan or OpenCL.
        """
        if self._place.address is None:
            raise UnsupportedError(f"mapped memory of {self._device_state.info.id} has no address",
                                   capability="address", backend=self._device_state.info.backend)
        return self._place.address

    def view(
        self, shape: Sequence[int], dtype: Any, *, offset: int = 0, strides: Sequence[int] | None = None
    ) -> Buffer:
        """Return a buffer with another shape and dtype over a part of the same mapping.

        The release of a view does not release this buffer. The mapping of this buffer stays until all its views are
        released.

        Parameters
        ----------
        shape : sequence of int
            Number of elements in each dimension.
        dtype : str or dtype
            As for `Memory.map_buffer`.
        offset : int
            Bytes from the start of this buffer to the first element.
        strides : sequence of int, optional
            Bytes. Default: rows without padding.

        Returns
        -------
        Buffer
            The view. Its `size` is the number of bytes that `shape` and `strides` need.

        Raises
        ------
        BadArgumentError
            ``out_of_range``: the view ends beyond `size`; ``bad_shape``, ``bad_strides``, ``bad_dtype``,
            ``not_an_int``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     buffer = device.create_memory("OPAQUE_FD", 4096).map_buffer()
        ...     buffer.view((4, 4), "float32", offset=1024).size
        64
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
        return Buffer(self.device, lifetime, self._place.at(offset), layout.extent, layout, element,
                      dlpack_device=self._dlpack_device)

    def numpy(self) -> NDArray[Any]:
        """Export the buffer as a NumPy array over the same memory, without a copy.

        Returns
        -------
        numpy.ndarray
            Writable array. The memory stays mapped until the array is collected.

        Raises
        ------
        BufferError
            The host cannot access the memory, or NumPy has no such dtype. `copy_to_host` copies the memory instead.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     buffer = device.create_memory("OPAQUE_FD", 4096).map_buffer(shape=(2, 3))
        ...     buffer.numpy()[1] = 5
        ...     buffer.numpy().tolist()
        [[0, 0, 0], [5, 5, 5]]
        """
        import numpy as np

        lifetime = self._checked()
        if not self._host:
            raise BufferError(f"the host cannot access memory of {self._device_state.info.id}; use copy_to_host()")
        typestr = self._typestr()
        lease = Lease(lifetime)
        return np.asarray(HostArray(self.address, self.shape, self.strides, typestr, lease))

    def __buffer__(self, flags: int, /) -> memoryview:
        """Export the buffer by Python's buffer protocol (PEP 688), without a copy.

        The callers are ``memoryview(buffer)``, ``bytes(buffer)``, ``file.write(buffer)`` and the like, on Python 3.12
        and newer. On Python 3.11, pass ``buffer.numpy().data``, the same memoryview, to them.

        Parameters
        ----------
        flags : int
            Ignored. Python itself refuses a request that the memory does not meet, for example for contiguous bytes.

        Returns
        -------
        memoryview
            Writable view with the shape, strides and format of the buffer. The memory stays mapped until the view is
            released or collected.

        Raises
        ------
        BufferError
            As for `numpy`.
        """
        return self.numpy().data

    def copy_to_host(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> NDArray[Any]:
        """Copy the contents to a new NumPy array. The call blocks the host.

        The copy does not wait for other work. First wait for the work that writes the buffer.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Returns
        -------
        numpy.ndarray
            New array with the shape and dtype of the buffer. The caller owns the array.

        Raises
        ------
        WaitTimeoutError
            ``timeout``. The copy to a staging buffer of xsem is still pending.
        UnsupportedError
            The device has no copies or no host buffers.
        BufferError
            NumPy has no such dtype.
        BadArgumentError
            ``bad_timeout``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     buffer = device.create_memory("OPAQUE_FD", 4096).map_buffer(shape=(2, 3))
        ...     buffer.copy_to_host().tolist()
        [[0, 0, 0], [0, 0, 0]]
        """
        import numpy as np

        check_timeout(timeout_s)
        lifetime = self._checked()
        typestr = self._typestr()
        if self._host:
            return self.numpy().copy()
        place = self._place
        data = copy_from_device(
            self.device._queues, lifetime, place.token, place.offset, self._layout.extent, timeout_s)
        return np.ndarray(self.shape, dtype=typestr, buffer=data, strides=self.strides).copy()

    def copy_from_host(self, array: object, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Write an array into the buffer. The call blocks the host.

        Parameters
        ----------
        array : array_like
            Array of the same shape, borrowed for the call. xsem converts the array to the dtype of the buffer if the
            conversion is lossless.
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        BadArgumentError
            ``shape_mismatch``, ``dtype_mismatch``, ``bad_timeout``.
        WaitTimeoutError
            ``timeout``. The copy is still pending, and takes effect later.
        UnsupportedError
            The device has no copies or no host buffers.
        BufferError
            NumPy has no such dtype.

        Examples
        --------
        >>> import numpy as np
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     buffer = device.create_memory("OPAQUE_FD", 4096).map_buffer(shape=(3,), dtype="float32")
        ...     buffer.copy_from_host(np.array([1, 2, 3], "uint8"))     # the conversion is lossless
        ...     buffer.copy_to_host().tolist()
        [1.0, 2.0, 3.0]
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
        # The bytes between the rows must not change: they are read first and written back.
        data = (bytearray(self._layout.extent) if contiguous
                else copy_from_device(self.device._queues, lifetime, self._place.token, self._place.offset,
                                      self._layout.extent, timeout_s))
        np.ndarray(self.shape, dtype=self._typestr(), buffer=data, strides=self.strides)[...] = source
        copy_to_device(self.device._queues, lifetime, self._place.token, self._place.offset, data, timeout_s)

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:
        """Export the buffer as a DLPack capsule, without a copy.

        The callers are ``torch.from_dlpack(buffer)``, ``cupy.from_dlpack(buffer)`` and ``numpy.from_dlpack(buffer)``.

        Parameters
        ----------
        stream : int or None
            Ignored, because the export orders nothing.
        max_version : tuple of int, optional
            Newest DLPack version of the consumer. From (1, 0) on, the capsule is versioned (1.0).
        dl_device : tuple of int, optional
            DLPack device that the consumer needs. It must be the device of the buffer.
        copy : bool, optional
            True is refused.

        Returns
        -------
        capsule
            Capsule. The memory stays mapped until the consumer's array is collected.

        Raises
        ------
        BadArgumentError
            ``bad_dlpack``: `max_version` or `dl_device` is not a pair of ints. ``not_a_bool``.
        BufferError
            The buffer has no address or no DLPack device. The consumer requests a copy or another device. A stride is
            not a whole number of elements, or the address is not aligned.
        """
        version = (0, 0) if max_version is None else pair_of_ints("max_version", max_version)
        wanted = None if dl_device is None else pair_of_ints("dl_device", dl_device)
        if copy is not None:
            check_bool("copy", copy)
        address, device, dtype, layout, lease = self._exported()
        if copy:
            raise BufferError("the export of a buffer cannot make a copy; use copy_to_host()")
        if wanted is not None and wanted != device:
            raise BufferError(f"the buffer is on DLPack device {device}, not {wanted}")
        return make_capsule(address, device, dtype, layout.shape, layout.strides, lease, versioned=version[0] >= 1)

    def _exported(self) -> tuple[int, tuple[int, int], DType, Layout, Lease]:
        """Return what DLPack needs of this buffer. The lease keeps the memory mapped."""
        lifetime = self._checked()
        device = self.__dlpack_device__()
        if self._place.address is None:
            raise BufferError(f"memory of {self._device_state.info.id} has no address, and an array needs an "
                              "address; use copy_to_host()")
        return self._place.address, device, self._dtype, self._layout, Lease(lifetime)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device.

        Returns
        -------
        tuple of int
            DLPack device type and device number.

        Raises
        ------
        BufferError
            DLPack has no type for the device.
        """
        self._check()
        if self._dlpack_device is None:
            raise BufferError(f"DLPack has no type for {self._device_state.info.id}; use copy_to_host()")
        return self._dlpack_device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA array interface, version 3, for ``cupy.asarray`` and Numba.

        The consumer keeps this object alive.

        Raises
        ------
        AttributeError
            The buffer is not on a CUDA device.
        BufferError
            NumPy has no such dtype. The address or a stride is not aligned for the dtype.
        """
        if self._dlpack_device is None or self._dlpack_device[0] != _CUDA:
            raise AttributeError("__cuda_array_interface__")
        check_aligned(self.address, self._dtype, self.shape, self.strides)
        return {**self._interface(), "version": 3, "stream": None}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Array interface, version 3, for ``numpy.asarray``.

        The consumer keeps this object alive.

        Raises
        ------
        AttributeError
            The host cannot access the memory.
        BufferError
            NumPy has no such dtype.
        """
        if not self._host:
            raise AttributeError("__array_interface__")
        return self._interface() | {"version": 3}

    def _interface(self) -> dict[str, Any]:
        lifetime = self._checked()
        typestr = self._typestr()
        if self._lease is None:
            # The consumer refers to this object: the mapping must outlive release() until the object is collected.
            self._lease = Lease(lifetime)
        return {"shape": self.shape, "typestr": typestr, "data": (self.address, False), "strides": self.strides}

    def _typestr(self) -> str:
        if not self._dtype.typestr:
            raise BufferError(f"NumPy has no {self.dtype}; view the buffer as uint16")
        return self._dtype.typestr

    def _checked(self) -> Lifetime:
        self._check()
        return self._lifetime

    @property
    def native_handle(self) -> int:
        """The vendor's handle of the buffer, as an int, where the API has one. xsem keeps ownership.

        Raises
        ------
        UnsupportedError
            ``native_handle``: the buffer has no native handle, or is a view that begins after the start of the mapping,
            whose handle would be taken for its own.
        """
        if self._place.offset:
            raise UnsupportedError(f"this view begins {self._place.offset} bytes after the start of its mapping, and "
                                   "only the mapping has a handle: use that, with the offset", reason="native_handle",
                                   capability="native_handle", backend=self._device_state.info.backend)
        return super().native_handle

    def _token(self) -> Token:
        return self._place.token

    def __repr__(self) -> str:
        place = self._place
        where = f"offset {place.offset}" if place.address is None else f"{place.address:#x}"
        return f"<Buffer {self.dtype}{list(self.shape)} at {where} on {self._device_state.info.id}>"


_exchange = exchange_api(Buffer._exported)
if _exchange is not None:
    Buffer.__dlpack_c_exchange_api__ = _exchange  # type: ignore[attr-defined]


def buffer_layout(
    size: int | None, shape: Sequence[int] | None, dtype: Any, strides: Sequence[int] | None, *, offset: int,
    allocated: int,
) -> tuple[int, Layout, DType]:
    """Return the size in bytes, layout and dtype of a mapping at an offset of an allocation."""
    # Without a size, the mapping has the bytes that the shape needs, or all bytes. Without a shape, it has one
    # dimension of whole elements.
    element = parse_dtype(dtype)
    if size is not None:
        check_int("size", size, 1, UINT64_MAX, reason="bad_size")
    if shape is None:
        if strides is not None:
            raise BadArgumentError("strides need a shape", reason="bad_strides")
        size = allocated - offset if size is None else size
        if size % element.itemsize:
            raise BadArgumentError(
                f"{size} bytes from offset {offset} on are not a whole number of {element.name}, {element.itemsize} "
                "bytes each: pass a shape, or another size", reason="bad_size")
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
    if offset + size > allocated:
        raise BadArgumentError(
            f"the buffer reaches {offset + size - allocated} bytes beyond the allocation: offset {offset}, size {size} "
            f"(shape {layout.shape} of {element.name}), allocation {allocated} bytes", reason="out_of_range")
    return size, layout, element


def _nothing() -> None:
    """Unmap nothing: the buffer from `Memory.map_buffer` or `Device.host_buffer` owns the mapping, not its view."""
