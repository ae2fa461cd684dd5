"""Images in external memory: mipmapped arrays and their levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from xsem.data.image_formats import FLAGS, FORMATS
from xsem.data.images import least_size, level_layout
from xsem.data.params import check_int
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.facade.dmabuf_images import check_drm_layout
from xsem.facade.resource import Resource
from xsem.runtime.device_state import DeviceState
from xsem.runtime.host_copies import copy_level
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.mappings import Mapping, Mappings
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.spi import Images, PlanarImages, Token
from xsem.types import DrmLayout, Feature, MemoryHandleType, MipmapDesc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xsem.facade.resource import Device

__all__ = ["ImageBytes", "MipmapLevel", "MipmappedArray", "map_mipmapped_array"]


class ImageBytes(NamedTuple):
    """The bytes that an image or a buffer certainly occupies in a memory."""

    # The driver can use more bytes for an image.

    memory: Lifetime   # the identity of the memory
    begin: int   # bytes from the first byte of the memory, as `end`
    end: int

    def overlaps(self, other: ImageBytes) -> bool:
        """Return whether the two ranges have a common byte."""
        return self.memory is other.memory and self.begin < other.end and other.begin < self.end


class MipmappedArray(Resource):
    """An image mapped onto external memory, made by `Memory.map_mipmapped_array`.

    Attributes
    ----------
    device : Device
        The device of the image.
    desc : MipmapDesc
        Layout of the image.

    Raises
    ------
    ReleasedError
        ``released``: the image or its device was released. Each method except `release` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    `host` has no images. On a device with `Feature.IMAGE`::

        desc = xsem.MipmapDesc(extent=(640, 480, 0), format="uint8", channels=4)
        with memory.map_mipmapped_array(desc) as image:
            pixels = image.level(0).read()      # shape (480, 640, 4)
    """

    def __init__(
        self, device: Device, lifetime: Lifetime, token: Token, desc: MipmapDesc, occupied: ImageBytes
    ) -> None:
        super().__init__(device, lifetime)
        self.desc = desc
        self._array = token
        self._bytes = occupied

    def level(self, index: int, plane: int = 0) -> MipmapLevel:
        """Return one level of the image (cuMipmappedArrayGetLevel), or one plane of the level (cuArrayGetPlane).

        Parameters
        ----------
        index : int
            Number of the level; 0 is the largest level.
        plane : int
            Number of the plane. ``"nv12"`` and ``"p010"``: 0 for luma; 1 for chroma, of half the width and height.
            Other formats: 0.

        Returns
        -------
        MipmapLevel
            The level. It is valid until the release of the image.

        Raises
        ------
        BadArgumentError
            ``bad_levels``: the image does not have this level; ``bad_plane``: the format does not have this plane;
            ``not_an_int``.
        """
        self._check()
        check_int("level", index, 0, self.desc.levels - 1, reason="bad_levels")
        planes = len(FORMATS[self.desc.format].planes)
        check_int("plane", plane, 0, planes - 1, reason="bad_plane")
        with self._lifetime.held(), self._device_state.calling():
            token = _images(self._device_state).mipmap_level(self._array, index)
            if planes > 1:
                planar = self._device_state.ability(PlanarImages, f"image_formats.{self.desc.format}")
                token = planar.image_plane(token, plane)
        return MipmapLevel(self, token, index, plane)

    def _token(self) -> Token:
        return self._array


class MipmapLevel:
    """One level of a `MipmappedArray`, made by `MipmappedArray.level`.

    Attributes
    ----------
    extent : tuple of int
        Width, height and depth in pixels.

    Raises
    ------
    ReleasedError
        ``released``: the image or its device was released. Each method can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method can raise it.

    Examples
    --------
    `host` has no images. On a device with `Feature.IMAGE`::

        level = image.level(0)
        level.write(255 - level.read())
    """

    def __init__(self, array: MipmappedArray, token: Token, index: int, plane: int = 0) -> None:
        self._layout = level_layout(array.desc, index, plane)
        self.extent: tuple[int, int, int] = self._layout.extent
        self._array = array
        self._level = token
        self._index = index

    @property
    def native_handle(self) -> int:
        """The vendor's handle of the level, as an int. The image keeps ownership.

        On CUDA the handle is a CUarray, for Warp's ``Texture2D(cuda_array=...)`` and for texture objects of
        cuTexObjectCreate, which kernels of CuPy take (``examples/cupy_texture.py``). The image must stay until the work
        with the handle is done: xsem does not know this work. On OpenCL the handle is a cl_mem, on Level Zero a
        ze_image_handle_t, and on Vulkan the VkImage of all levels.

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
            absent dimensions. Formats with fractions of 1: the integers. ``"unorm_10_10_10_2"``: one uint32 per pixel.
            Block-compressed formats: the bytes of the blocks, (…, rows of blocks, blocks per row, bytes per block).

        Raises
        ------
        WaitTimeoutError
            ``timeout``. The copy to a buffer of xsem is still pending. The image and the device stay usable.
        BadArgumentError
            ``bad_timeout``.
        """
        import numpy as np

        check_timeout(timeout_s)
        out = np.empty(self._layout.shape, self._layout.dtype)
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
        if source.shape != self._layout.shape:
            raise BadArgumentError(f"the level's shape is {self._layout.shape}, the array's {source.shape}",
                                   reason="shape_mismatch")
        if source.dtype != self._layout.dtype:
            raise BadArgumentError(f"the level's dtype is {self._layout.dtype}, the array's {source.dtype}",
                                   reason="dtype_mismatch")
        self._copy(source.data.cast("B"), timeout_s, "write")

    def _copy(self, data: memoryview, timeout_s: float | None, direction: Literal["read", "write"]) -> None:
        array = self._array
        array._check()
        with array._lifetime.held():
            copy_level(array.device._queues, array._lifetime, self._level, self._layout, data, timeout_s, direction)

    def _described(self) -> str:
        return f"level {self._index} of an image of {self._array.desc.channels} x {self._array.desc.format}"


def map_mipmapped_array(
    device: Device, memory: Token, memory_type: MemoryHandleType, allocation_size: int, memory_lifetime: Lifetime,
    mappings: Mappings, desc: MipmapDesc, *, overlap: bool, drm_layout: DrmLayout | None = None,
) -> MipmappedArray:
    """Map an image, as `Memory.map_mipmapped_array` describes."""
    device_state = device._device_state
    if not isinstance(desc, MipmapDesc):
        raise BadArgumentError(f"map_mipmapped_array takes a MipmapDesc, not {type(desc).__name__}",
                               reason="not_a_descriptor")
    _check_declared(device_state, desc)
    first = desc.offset
    if memory_type is MemoryHandleType.DMABUF_FD:
        check_drm_layout(device_state, desc, drm_layout, allocation_size)
        first = min(plane.offset for plane in drm_layout.planes) if drm_layout else 0
    if memory_type is MemoryHandleType.NVSCIBUF and desc.levels != 1:
        raise BadArgumentError("an image in NvSciBuf memory has one level", reason="bad_levels",
                               handle_type=memory_type)
    least = least_size(desc)
    if desc.offset + least > allocation_size:
        raise BadArgumentError(
            f"an image of at least {least} bytes at offset {desc.offset} reaches beyond the allocation of "
            f"{allocation_size}",
            reason="out_of_range", handle_type=memory_type,
        )
    driver = _images(device_state)
    mapping = Mapping(first, allocation_size if drm_layout else first + least)
    try:
        mappings.reserve(mapping, overlap)
        with device_state.making("mipmapped array", driver.release_array, memory_type, memory_lifetime) as making:
            array = making.call(driver.map_mipmapped_array, memory, desc)
            mapping.lifetime = lifetime = making.lifetime()
            return MipmappedArray(device, lifetime, array, desc,
                                  ImageBytes(memory_lifetime, desc.offset, desc.offset + least))
    except BaseException:
        mapping.given_up, mapping.lifetime = True, None
        raise


def _images(device_state: DeviceState) -> Images:
    return device_state.ability(Images, Feature.MIPMAPPED_ARRAY.value)


def _check_declared(device_state: DeviceState, desc: MipmapDesc) -> None:
    info, capabilities = device_state.info, device_state.capabilities
    if Feature.MIPMAPPED_ARRAY in capabilities.features or Feature.IMAGE not in capabilities.features:
        device_state.require(Feature.MIPMAPPED_ARRAY)
    elif desc.beyond_image:
        raise UnsupportedError(f"{info.id} maps no image with {desc.beyond_image}",
                               capability=Feature.MIPMAPPED_ARRAY.value, backend=info.backend)
    if desc.format not in capabilities.image_formats:
        supported = [name for name in FORMATS if name in capabilities.image_formats]
        raise _unmapped(device_state, f"image_formats.{desc.format}",
                        f"of the format {desc.format}; its formats: {', '.join(supported)}")
    for flag in desc.flags:
        if flag not in capabilities.image_flags:
            supported = [name for name in FLAGS if name in capabilities.image_flags] or ["none"]
            raise _unmapped(device_state, f"image_flags.{flag}",
                            f"with the flag {flag}; its flags: {', '.join(supported)}")


def _unmapped(device_state: DeviceState, capability: str, what: str) -> UnsupportedError:
    return UnsupportedError(f"{device_state.info.id} maps no image {what}", capability=capability,
                            backend=device_state.info.backend,
                            likely_causes=device_state.undeclared_causes(capability))
