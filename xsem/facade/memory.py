"""Memory: imported from another API, device or process, or created here for export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xsem.data.params import UINT64_MAX, check_bool, check_int
from xsem.data.uuids import UUIDLike
from xsem.errors import BadArgumentError
from xsem.facade.buffer import Buffer, buffer_layout
from xsem.facade.image import MipmappedArray, map_mipmapped_array
from xsem.facade.resource import Resource
from xsem.runtime.device_identity import check_identity, identity_for
from xsem.runtime.device_state import DeviceState
from xsem.runtime.handle_import import import_with_duplicate
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.mappings import Mappings
from xsem.spi import Token
from xsem.types import MemoryDesc, MemoryHandleType, MipmapDesc

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["Memory", "create_memory", "import_memory"]


class Memory(Resource):
    """External memory on one device; made by `Device.import_memory` or `Device.create_memory`.

    Attributes
    ----------
    device : Device
    type : MemoryHandleType
    allocation_size : int
        Bytes of the whole allocation.
    """

    def __init__(
        self, device: Device, lifetime: Lifetime, token: Token, type: MemoryHandleType, size: int, *, imported: bool,
        dedicated: bool,
    ) -> None:
        super().__init__(device, lifetime)
        self.type = type
        self.allocation_size = size
        self._memory = token
        self._imported = imported
        self._dedicated = dedicated
        self._mappings = Mappings(self._device_state.releaser.lock)

    def export(self, *, for_device: Device | UUIDLike | None = None) -> MemoryDesc:
        """A descriptor with a fresh `OwnedHandle`, each time; see `Semaphore.export`."""
        self._check()
        device_state = self._device_state
        if self._imported or self.type not in device_state.capabilities.memory_export:
            device_state.unsupported(f"memory.export.{self.type.value}")
        device_uuid, driver_uuid = identity_for(device_state.info, for_device, device_bound=self.type.device_bound)
        with self._lifetime.held(), device_state.calling(self.type):
            handle = device_state.driver.export_memory(self._memory)
        return MemoryDesc(type=self.type, allocation_size=self.allocation_size, handle=handle,
                          dedicated=self._dedicated, device_uuid=device_uuid, driver_uuid=driver_uuid)

    def map_buffer(
        self, offset: int = 0, size: int | None = None, *, shape: Sequence[int] | None = None, dtype: Any = "uint8",
        strides: Sequence[int] | None = None, overlap: bool = False,
    ) -> Buffer:
        """Map a range of the memory (cuExternalMemoryGetMappedBuffer).

        Parameters
        ----------
        offset, size : int
            Bytes. Without `size`: what `shape` needs, or all the rest.
        shape : sequence of int, optional
            Without it: one dimension.
        dtype : str or dtype
            NumPy name or dtype, torch dtype, or ``"bfloat16"``.
        strides : sequence of int, optional
            Bytes, as the exporter's row pitch; without them rows lie without padding.
        overlap : bool
            Permit a range that overlaps a mapping in use. A write through one of two overlapping mappings need not be
            visible through the other; `Buffer.view` of one mapping is the better way. On CUDA, all
            accesses of kernels to the common bytes must be volatile.

        Raises
        ------
        BadArgumentError
            ``out_of_range``: beyond the allocation; ``bad_size``, ``bad_shape``, ``bad_strides``, ``bad_dtype``;
            ``overlap``.
        """
        self._check()
        device_state = self._device_state
        check_int("offset", offset, 0, UINT64_MAX, reason="bad_offset")
        if offset >= self.allocation_size:
            raise BadArgumentError(f"offset {offset} is beyond the allocation of {self.allocation_size} bytes",
                                   reason="out_of_range")
        size, layout, element = buffer_layout(size, self.allocation_size - offset, shape, dtype, strides)
        host = device_state.driver.dlpack_device()[0] == 1
        with (self._mappings.reserved(offset, offset + size, overlap=overlap) as mapping, self._lifetime.held(),
              device_state.calling(self.type),
              device_state.making("buffer", lambda driver, made: driver.unmap_buffer(made[0]),
                                  self._lifetime) as making):
            token, address = making.call(device_state.driver.map_buffer, self._memory, offset, size)
            mapping.lifetime = lifetime = making.lifetime()
            return Buffer(self.device, lifetime, token, address, size, layout, element, host=host)

    def map_mipmapped_array(self, desc: MipmapDesc, *, overlap: bool = False) -> MipmappedArray:
        """Map an image (cuExternalMemoryGetMappedMipmappedArray).

        Parameters
        ----------
        desc : MipmapDesc
        overlap : bool
            Permit an image over bytes of a buffer or of another image in use. How many bytes an image has is the
            driver's to know: those of its elements are looked at, from the offset on, and it may have more.

        Raises
        ------
        BadArgumentError
            ``mipmap_of_dmabuf``; ``bad_levels``: NvSciBuf memory has one level; ``out_of_range``; ``overlap``.
        UnsupportedError
            The device does not declare mipmapped arrays; where it declares images alone: more than one level, an
            offset, a cubemap or a colour attachment.
        """
        self._check()
        return map_mipmapped_array(self.device, self._memory, self.type, self.allocation_size, self._lifetime,
                                   self._mappings, desc, overlap=overlap)

    def _token(self) -> Token:
        return self._memory

    def __repr__(self) -> str:
        return f"<Memory {self.type.value} of {self.allocation_size} bytes on {self._device_state.info.id}>"


def import_memory(device: Device, device_state: DeviceState, desc: MemoryDesc) -> Memory:
    """The facade's half of `Device.import_memory`."""
    if not isinstance(desc, MemoryDesc):
        raise BadArgumentError(f"import_memory takes a MemoryDesc, not {type(desc).__name__}",
                               reason="not_a_descriptor")
    if desc.type not in device_state.capabilities.memory_import:
        device_state.unsupported(f"memory.import.{desc.type.value}")
    check_identity(desc, device_state.info)
    driver = device_state.driver
    with device_state.calling(desc.type), device_state.making(
            f"{desc.type.value} memory", lambda driver, token: driver.release_memory(token)) as making:
        token = import_with_duplicate(desc, driver.import_memory, making.made)
        return Memory(device, making.lifetime(), token, desc.type, desc.allocation_size, imported=True,
                      dedicated=desc.dedicated)


def create_memory(
    device: Device, device_state: DeviceState, type: MemoryHandleType, size: int, dedicated: bool
) -> Memory:
    """The facade's half of `Device.create_memory`."""
    if not isinstance(type, MemoryHandleType):
        raise BadArgumentError(f"type must be a MemoryHandleType, not {type!r}", reason="bad_type")
    if type not in device_state.capabilities.memory_export:
        device_state.unsupported(f"memory.export.{type.value}")
    check_int("size", size, 1, UINT64_MAX, reason="bad_size")
    check_bool("dedicated", dedicated)
    driver = device_state.driver
    with device_state.calling(type), device_state.making(
            f"{type.value} memory", lambda driver, made: driver.release_memory(made[0])) as making:
        token, allocated = making.call(driver.create_memory, type, size, dedicated)
        return Memory(device, making.lifetime(), token, type, allocated, imported=False,
                      dedicated=dedicated)
