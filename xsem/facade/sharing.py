"""Arrays that exist already, as exportable memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xsem.data.layout import Layout
from xsem.data.params import check_bool, parse_member
from xsem.errors import BadArgumentError, UnsupportedError, WrongDeviceError
from xsem.facade.buffer import Buffer
from xsem.facade.foreign_arrays import ForeignArray, describe_array
from xsem.facade.memory import Memory
from xsem.runtime.device_state import FIRST, DeviceState
from xsem.runtime.lifetime import Lifetime
from xsem.spi import MemorySharing, Token
from xsem.types import Feature, MemoryChunk, MemoryHandleType, OwnedHandle

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["SharedArray", "share_array"]


class SharedArray(Memory):
    """Memory of an array of another library, made by `Device.share`. Nothing is copied.

    The export and all importers see the whole allocation of the array, which can contain other arrays. The array lies
    at `offset`. An array can span several allocations (torch with expandable segments: above 20 MiB). `export` then
    returns a descriptor with `MemoryDesc.chunks`, which devices with `Feature.MEMORY_CHUNKS` import as one range.

    Attributes
    ----------
    offset : int
        Bytes from the start of the memory to the first element of the array.
    size : int
        Bytes from the first element to the end of the last element.
    shape : tuple of int
        Number of elements in each dimension.
    strides : tuple of int
        Bytes from one element to the next, for each dimension.
    dtype : str
        A NumPy name, or ``"bfloat16"``.
    """

    def __init__(
        self, device: Device, lifetime: Lifetime, token: Token, type: MemoryHandleType, allocated: int, offset: int,
        found: ForeignArray,
    ) -> None:
        super().__init__(device, lifetime, token, type, allocated, imported=False, dedicated=False)
        self.offset = offset
        self._layout: Layout = found.layout
        self.size: int = found.layout.extent
        self.shape: tuple[int, ...] = found.layout.shape
        self.strides: tuple[int, ...] = found.layout.strides
        self.dtype: str = found.dtype.name

    def buffer(self) -> Buffer:
        """Map the array, for command lists and as an array of xsem.

        Returns
        -------
        Buffer
            A mapping with the shape, the strides and the dtype of the array, at the address of the array.

        Raises
        ------
        BadArgumentError
            ``overlap``: an earlier mapping of these bytes is in use.
        UnsupportedError
            The device cannot map buffers.
        """
        return self.map_buffer(self.offset, self.size, shape=self.shape, dtype=self.dtype, strides=self.strides)

    def _handles(self) -> tuple[OwnedHandle | None, Sequence[MemoryChunk]]:
        chunks = self._device_state.ability(MemorySharing, Feature.MEMORY_SHARING.value).export_chunks(self._memory)
        return (None, chunks) if chunks else super()._handles()

    def __repr__(self) -> str:
        return (f"<SharedArray {self.dtype} {self.shape} at byte {self.offset} of {self.type.value} memory on "
                f"{self._device_state.info.id}>")


def share_array(
    device: Device, device_state: DeviceState, array: Any, type: MemoryHandleType | str | None, size: int | None,
    *, read_only: bool,
) -> SharedArray:
    """Share an array, as `Device.share` describes."""
    if type is None:
        both = (MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD)
        type = next((each for each in both if each in device_state.capabilities.memory_export), both[0])
    type = parse_member("type", type, MemoryHandleType, reason="bad_type")
    device_state.require(Feature.MEMORY_SHARING)
    if type not in device_state.capabilities.memory_export:
        device_state.unsupported(f"memory.export.{type.value}")
    if type.portable:
        raise UnsupportedError(
            f"an array of {device_state.info.id} is not portable memory: create memory of this type and copy",
            capability=Feature.MEMORY_SHARING.value, reason="not_shareable", backend=device_state.info.backend,
            handle_type=type)
    driver = device_state.ability(MemorySharing, Feature.MEMORY_SHARING.value)
    check_bool("read_only", read_only)
    found = describe_array(array, size)
    if found.read_only and not read_only:
        raise BadArgumentError(
            f"{array.__class__.__name__} is read-only, and its importers could write to it: share a writable copy, or "
            "pass read_only=True if each importer only reads", reason="read_only_array")
    here = driver.dlpack_device()
    if found.device is not None and found.device != here:
        raise WrongDeviceError(
            f"the array is on DLPack device {found.device}, and {device_state.info.id} is {here}", expected=str(here),
            actual=str(found.device), reason="wrong_device", backend=device_state.info.backend)
    with device_state.making(f"shared {type.value} memory", driver.release_memory, type, token_of=FIRST) as making:
        token, allocated, offset = making.call(
            driver.share_memory, type, found.address, found.layout.extent, found.owner)
        return SharedArray(device, making.lifetime(), token, type, allocated, offset, found)
