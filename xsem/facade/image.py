"""Images in external memory: mipmapped arrays and their levels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from xsem.data.layout import parse_dtype
from xsem.data.params import check_int
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.facade.resource import Resource
from xsem.runtime.device_state import DeviceState
from xsem.runtime.host_copies import copy_level
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.mappings import Mapping, Mappings
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.spi import Images, Token
from xsem.types import Feature, MemoryHandleType, MipmapDesc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsem.facade.resource import Device

__all__ = ["MipmapLevel", "MipmappedArray", "map_mipmapped_array"]


class MipmappedArray(Resource):
    """An image mapped onto external memory, made by `Memory.map_mipmapped_array`.

    Attributes
    ----------
    device : Device
        The device of the image.
    desc : MipmapDesc
        Layout of the image.

    Examples
    --------
    `host` has no images. On a device with `Feature.IMAGE`::

        desc = xsem.MipmapDesc(extent=(640, 480, 0), format="uint8", channels=4)
        with memory.map_mipmapped_array(desc) as image:
            pixels = image.level(0).read()      # shape (480, 640, 4)
    """

    def __init__(self, device: Device, lifetime: Lifetime, token: Token, desc: MipmapDesc) -> None:
        super().__init__(device, lifetime)
        self.desc = desc
        self._array = token

    def level(self, index: int) -> MipmapLevel:
        """Return one level of the image (cuMipmappedArrayGetLevel).

        Parameters
        ----------
        index : int
            Number of the level; 0 is the largest level.

        Returns
        -------
        MipmapLevel
            The level. It is valid until the release of the image.

        Raises
        ------
        BadArgumentError
            ``bad_levels``: the image does not have this level; ``not_an_int``.
        """
        self._check()
        check_int("level", index, 0, self.desc.levels - 1, reason="bad_levels")
        with self._lifetime.held(), self._device_state.calling():
            token = _images(self._device_state).mipmap_level(self._array, index)
        return MipmapLevel(self, token, index)

    def _token(self) -> Token:
        return self._array


class MipmapLevel:
    """One level of a `MipmappedArray`, made by `MipmappedArray.level`.

    Attributes
    ----------
    extent : tuple of int
        Width, height and depth in elements.

    Examples
    --------
    `host` has no images. On a device with `Feature.IMAGE`::

        level = image.level(0)
        level.write(255 - level.read())
    """

    def __init__(self, array: MipmappedArray, token: Token, index: int) -> None:
        width, height, depth = (max(1, length >> index) if length else 0 for length in array.desc.extent)
        self.extent: tuple[int, int, int] = (width, height, depth)
        self._array = array
        self._level = token

    @property
    def native_handle(self) -> int:
        """The vendor's handle of the level, as an int. The image keeps ownership.

        On CUDA, the handle is a cudaArray_t: the `cuda_array` of Warp's ``Texture2D``, and the source of a texture
        object of CuPy (``examples/cupy_texture.py``).

        Raises
        ------
        UnsupportedError
            The level has no native handle.
        """
        self._array._check()
        return self._array._device_state.driver.native_handle(self._level)

    def read(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> NDArray[Any]:
        """Copy the level to a new NumPy array. The call blocks the host.

        Ctrl-C interrupts the wait.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Returns
        -------
        numpy.ndarray
            Array of the image's component type. Its shape is (layers or depth, height, width, channels), without the
            absent dimensions.

        Raises
        ------
        WaitTimeoutError
            ``timeout``. The copy to a buffer of xsem is still pending. The image and the device stay usable.
        BadArgumentError
            ``bad_timeout``.
        """
        import numpy as np

        check_timeout(timeout_s)
        out = np.empty(self._shape(), self._dtype())
        self._copy(out.data.cast("B"), timeout_s, "read")
        return out

    def write(self, array: object, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Write an array into the level. The call blocks the host.

        Ctrl-C interrupts the wait.

        Parameters
        ----------
        array : array_like
            Array of the shape that `read` returns and of the image's component type, borrowed for the call.
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        WaitTimeoutError
            ``timeout``. The copy is still pending, and takes effect later. Its source is a copy of the array.
        BadArgumentError
            ``shape_mismatch``, ``dtype_mismatch``, ``bad_timeout``.
        """
        import numpy as np

        check_timeout(timeout_s)
        self._array._check()
        source = np.ascontiguousarray(array)
        if source.shape != self._shape():
            raise BadArgumentError(f"the level's shape is {self._shape()}, the array's {source.shape}",
                                   reason="shape_mismatch")
        if source.dtype != self._dtype():
            raise BadArgumentError(f"the level's dtype is {self._dtype()}, the array's {source.dtype}",
                                   reason="dtype_mismatch")
        self._copy(source.data.cast("B"), timeout_s, "write")

    def _copy(self, data: memoryview, timeout_s: float | None, direction: Literal["read", "write"]) -> None:
        array = self._array
        array._check()
        with array._lifetime.held():
            copy_level(array.device._queues, array._lifetime, self._level, data, timeout_s, direction)

    def _shape(self) -> tuple[int, ...]:
        width, height, depth = self.extent
        lengths = (self._array.desc.layers or depth, height, width, self._array.desc.channels)
        return tuple(length for length in lengths if length)

    def _dtype(self) -> str:
        return parse_dtype(self._array.desc.format).name


def map_mipmapped_array(
    device: Device, memory: Token, memory_type: MemoryHandleType, allocation_size: int, memory_lifetime: Lifetime,
    mappings: Mappings, desc: MipmapDesc, *, overlap: bool,
) -> MipmappedArray:
    """Map an image, as `Memory.map_mipmapped_array` describes."""
    device_state = device._device_state
    if not isinstance(desc, MipmapDesc):
        raise BadArgumentError(f"map_mipmapped_array takes a MipmapDesc, not {type(desc).__name__}",
                               reason="not_a_descriptor")
    _check_declared(device_state, desc)
    if memory_type is MemoryHandleType.DMABUF_FD:
        raise BadArgumentError("a dma-buf cannot be mapped as a mipmapped array", reason="mipmap_of_dmabuf",
                               handle_type=memory_type)
    if memory_type is MemoryHandleType.NVSCIBUF and desc.levels != 1:
        raise BadArgumentError("an image in NvSciBuf memory has one level", reason="bad_levels",
                               handle_type=memory_type)
    least = _least_bytes(desc)
    if desc.offset + least > allocation_size:
        raise BadArgumentError(
            f"an image of at least {least} bytes at offset {desc.offset} reaches beyond the allocation of "
            f"{allocation_size}",
            reason="out_of_range", handle_type=memory_type,
        )
    driver = _images(device_state)
    mapping = Mapping(desc.offset, desc.offset + least)
    try:
        mappings.reserve(mapping, overlap)
        with device_state.making("mipmapped array", driver.release_array, memory_type, memory_lifetime) as making:
            array = making.call(driver.map_mipmapped_array, memory, desc)
            mapping.lifetime = lifetime = making.lifetime()
            return MipmappedArray(device, lifetime, array, desc)
    except BaseException:
        mapping.given_up, mapping.lifetime = True, None
        raise


def _images(device_state: DeviceState) -> Images:
    return device_state.ability(Images, Feature.MIPMAPPED_ARRAY.value)


def _check_declared(device_state: DeviceState, desc: MipmapDesc) -> None:
    features = device_state.capabilities.features
    if Feature.MIPMAPPED_ARRAY in features or Feature.IMAGE not in features:
        device_state.require(Feature.MIPMAPPED_ARRAY)
        return
    if desc.beyond_image:
        raise UnsupportedError(f"{device_state.info.id} maps no image with {desc.beyond_image}",
                               capability=Feature.MIPMAPPED_ARRAY.value, backend=device_state.info.backend)


def _least_bytes(desc: MipmapDesc) -> int:
    """Return the bytes of all elements: the smallest size of the image for any tiling.

    Only the driver knows the full size.
    """
    element = desc.channels * parse_dtype(desc.format).itemsize
    return sum(element * max(1, desc.layers) * math.prod(max(1, length >> level) for length in desc.extent)
               for level in range(desc.levels))
