"""Memory: imported from another API, device or process, or created for export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xsem import spi
from xsem.data.drm import LINEAR, modifier_name
from xsem.data.params import UINT64_MAX, check_bool, check_int, parse_member
from xsem.data.uuids import UUIDLike
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.facade.buffer import Buffer, BufferRange, buffer_layout
from xsem.facade.image import MipmappedArray, map_mipmapped_array
from xsem.facade.resource import Resource
from xsem.portable import SharedMemory
from xsem.runtime.device_identity import check_identity, identity_for
from xsem.runtime.device_state import FIRST, DeviceState
from xsem.runtime.handle_import import TOKEN, import_chunks, import_with_duplicate, refuse_imported
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.mappings import Mapping, Mappings
from xsem.runtime.portable_memories import PortableMemories, PortableMemory
from xsem.spi import ChunkImport, MemoryExport, MemoryImport, Token
from xsem.types import (
    DrmLayout,
    Feature,
    MemoryChunk,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
)

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["Memory", "create_memory", "import_memory"]


class Memory(Resource):
    """External memory on one device, made by `Device.import_memory` or `Device.create_memory`.

    Mappings and arrays over mappings keep the memory. xsem frees the memory after all of them.

    Attributes
    ----------
    device : Device
        The device of the memory.
    type : MemoryHandleType
        The handle type.
    allocation_size : int
        Size of the whole allocation in bytes.

    Raises
    ------
    ReleasedError
        ``released``: the memory or its device was released. Each method except `release` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     memory = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4096)
    ...     memory.map_buffer(shape=(2, 3), dtype="int32").numpy()[:] = 5
    ...     with memory.export() as desc:
    ...         imported = device.import_memory(desc)
    ...     imported.map_buffer(shape=(2, 3), dtype="int32").numpy().tolist()
    [[5, 5, 5], [5, 5, 5]]
    """

    def __init__(
        self, device: Device, lifetime: Lifetime, token: Token, type: MemoryHandleType, size: int, *, imported: bool,
        dedicated: bool, drm_layout: DrmLayout | None = None, shared: SharedMemory | None = None,
    ) -> None:
        super().__init__(device, lifetime)
        self.type = type
        self.allocation_size = size
        self._memory = token
        self._imported = imported
        self._shared = shared   # of created portable memory, for its export
        self._dedicated = dedicated
        self._drm_layout = drm_layout
        self._mappings = Mappings(self._device_state.releaser.lock)

    def export(self, *, for_device: Device | UUIDLike | None = None) -> MemoryDesc:
        """Export the memory as a descriptor with a new `OwnedHandle`.

        Parameters
        ----------
        for_device : Device or its UUID, optional
            The importing device, as in `Semaphore.export`.

        Returns
        -------
        MemoryDesc
            Descriptor with a new handle at each call. The caller owns the handle. `MemoryDesc.close` or the collection
            of the descriptor closes the handle.

        Raises
        ------
        UnsupportedError
            ``imported``: only the exporting process exports the memory; forward the received descriptor.
            ``unsupported``: the device does not export this type.
        WrongDeviceError
            ``wrong_device``: `for_device` is another physical device.
        BadArgumentError
            ``bad_uuid``: `for_device` is neither a device nor a UUID.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     memory = device.create_memory("OPAQUE_FD", 4096)
        ...     with memory.export() as desc:               # to another process: xsem.ipc.send(sock, desc)
        ...         desc.allocation_size
        4096
        """
        self._check()
        device_state = self._device_state
        capability = f"memory.export.{self.type.value}"
        if self._imported:
            refuse_imported(f"{self.type.value} memory", capability, device_state.info.backend)
        if self.type not in device_state.capabilities.memory_export:
            device_state.unsupported(capability)
        device_uuid, driver_uuid = identity_for(device_state.info, for_device, self.type)
        with device_state.calling(self.type, self._lifetime):
            handle, chunks = self._handles()
        return MemoryDesc(type=self.type, allocation_size=self.allocation_size, handle=handle, chunks=chunks,
                          dedicated=self._dedicated, device_uuid=device_uuid, driver_uuid=driver_uuid)

    def _handles(self) -> tuple[OwnedHandle | None, Sequence[MemoryChunk]]:
        """Export the handle of the memory, or the handles of its chunks."""
        if self._shared is not None:
            return self._shared.duplicate(), ()
        return self._device_state.ability(MemoryExport, "memory.export").export_memory(self._memory), ()

    def map_buffer(
        self, offset: int = 0, size: int | None = None, *, shape: Sequence[int] | None = None, dtype: Any = "uint8",
        strides: Sequence[int] | None = None, overlap: bool = False,
    ) -> Buffer:
        """Map a range of the memory as an array (cuExternalMemoryGetMappedBuffer).

        Parameters
        ----------
        offset : int
            Bytes from the start of the memory to the first element. An offset that is not aligned for the dtype is
            permitted, because copies and NumPy take such a buffer. The exports to GPU libraries, ``__dlpack__`` and
            ``__cuda_array_interface__``, refuse the buffer with BufferError.
        size : int, optional
            Size of the range in bytes. Default: the bytes that `shape` needs, or all bytes from `offset` to the end.
        shape : sequence of int, optional
            Default: one dimension.
        dtype : str or dtype
            NumPy name or dtype, torch dtype, or ``"bfloat16"``.
        strides : sequence of int, optional
            Bytes from one element to the next, for each dimension, such as the exporter's row pitch. Strides need a
            `shape`. Default: rows without padding.
        overlap : bool
            Permit a range that overlaps a mapping in use. A write through one of two overlapping mappings is not
            necessarily visible through the other. A `Buffer.view` does not have this limit. On CUDA, all accesses of
            kernels to the common bytes must be volatile.

        Returns
        -------
        Buffer
            The mapping. Its `release` does not release the memory.

        Raises
        ------
        BadArgumentError
            ``out_of_range``: the range ends beyond the allocation; ``bad_offset``, ``bad_size``, ``bad_shape``,
            ``bad_strides``, ``bad_dtype``, ``not_an_int``, ``not_a_bool``; ``overlap``.
        UnsupportedError
            The device cannot map buffers.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     memory = device.create_memory("OPAQUE_FD", 4096)
        ...     header = memory.map_buffer(size=256)
        ...     rows = memory.map_buffer(256, shape=(2, 3), dtype="float32", strides=(64, 4))    # the rows are padded
        ...     rows.numpy()[:] = 0.5
        ...     rows.size
        76
        """
        self._check()
        device_state = self._device_state
        check_bool("overlap", overlap)
        check_int("offset", offset, 0, UINT64_MAX, reason="bad_offset")
        if offset >= self.allocation_size:
            raise BadArgumentError(f"offset {offset} is beyond the allocation of {self.allocation_size} bytes",
                                   reason="out_of_range")
        size, layout, element = buffer_layout(size, shape, dtype, strides, offset=offset,
                                              allocated=self.allocation_size)
        driver = device_state.ability(spi.Memory, "map_buffer")
        dlpack_device = driver.dlpack_device()
        mapping = Mapping(offset, offset + size)
        try:
            self._mappings.reserve(mapping, overlap)
            with device_state.making("buffer", driver.unmap_buffer, self.type, self._lifetime, FIRST) as making:
                token, address = making.call(driver.map_buffer, self._memory, offset, size)
                mapping.lifetime = lifetime = making.lifetime()
                place = BufferRange(token, address, 0, self._lifetime, offset)
                return Buffer(self.device, lifetime, place, size, layout, element, dlpack_device=dlpack_device)
        except BaseException:
            mapping.given_up, mapping.lifetime = True, None
            raise

    def map_mipmapped_array(self, desc: MipmapDesc, *, overlap: bool = False) -> MipmappedArray:
        """Map an image (cuExternalMemoryGetMappedMipmappedArray).

        Parameters
        ----------
        desc : MipmapDesc
            Layout of the image.
        overlap : bool
            Permit an image over bytes of a buffer or of another image in use. Only the driver knows the full size of an
            image. xsem therefore checks only the bytes of the elements, from the offset on. The image can occupy more
            bytes.

        Returns
        -------
        MipmappedArray
            The mapping. Its `release` does not release the memory.

        Raises
        ------
        BadArgumentError
            ``not_a_descriptor``; ``mipmap_of_dmabuf``: a dma-buf without a `DrmLayout`; ``bad_plane``, ``bad_pitch``,
            ``bad_fourcc``, ``bad_extent``, ``bad_offset``, ``bad_layers``: the image does not fit the layout;
            ``bad_levels``: NvSciBuf memory has one level; ``out_of_range``; ``not_a_bool``; ``overlap``.
        UnsupportedError
            The device does not declare images. A device with only `Feature.IMAGE` also refuses more than one level, an
            offset, a cubemap and a colour attachment.

        Examples
        --------
        `host` has no images. On a device with `Feature.IMAGE`::

            image = memory.map_mipmapped_array(xsem.MipmapDesc(extent=(640, 480, 0), format="uint8", channels=4))
        """
        self._check()
        check_bool("overlap", overlap)
        return map_mipmapped_array(self.device, self._memory, self.type, self.allocation_size, self._lifetime,
                                   self._mappings, desc, overlap=overlap, drm_layout=self._drm_layout)

    def _token(self) -> Token:
        return self._memory

    def __repr__(self) -> str:
        return f"<Memory {self.type.value} of {self.allocation_size} bytes on {self._device_state.info.id}>"


def import_memory(device: Device, device_state: DeviceState, desc: MemoryDesc) -> Memory:
    """Import memory, as `Device.import_memory` describes."""
    if not isinstance(desc, MemoryDesc):
        raise BadArgumentError(f"import_memory takes a MemoryDesc, not {type(desc).__name__}: {_remedy(desc)}",
                               reason="not_a_descriptor")
    if desc.type not in device_state.capabilities.memory_import:
        device_state.unsupported(f"memory.import.{desc.type.value}")
    if desc.chunks:
        _check_chunks(device_state, desc)
    check_identity(desc, device_state.info)
    _check_modifier(device_state, desc)
    if desc.type.portable:
        portable = PortableMemories(device_state, desc.type)
        with device_state.making(f"{desc.type.value} memory", portable.release, desc.type, token_of=TOKEN) as making:
            opened: PortableMemory = making.call(import_with_duplicate, desc, portable.open).token
            return Memory(device, making.lifetime(), opened.token, desc.type, desc.allocation_size, imported=True,
                          dedicated=False)
    driver = device_state.ability(MemoryImport, "memory.import")
    with device_state.making(f"{desc.type.value} memory", driver.release_memory, desc.type,
                             token_of=TOKEN) as making:
        if desc.chunks:
            importer = device_state.ability(ChunkImport, "memory_chunks").import_chunks
            imported = making.call(import_chunks, desc, importer)
        else:
            imported = making.call(import_with_duplicate, desc, driver.import_memory)
        return Memory(device, making.lifetime(), imported.token, desc.type, desc.allocation_size, imported=True,
                      dedicated=desc.dedicated, drm_layout=desc.drm_layout)


def _check_chunks(device_state: DeviceState, desc: MemoryDesc) -> None:
    """Refuse memory of several allocations on a device that imports one."""
    if Feature.MEMORY_CHUNKS not in device_state.capabilities.features:
        dmabuf = (", or ask its exporter for a dma-buf (share(…, type=MemoryHandleType.DMABUF_FD))"
                  if MemoryHandleType.DMABUF_FD in device_state.capabilities.memory_import else "")
        raise UnsupportedError(
            f"the memory consists of {len(desc.chunks)} allocations, and {device_state.info.id} imports only one: "
            f"share an array that lies inside one allocation, copy it into memory of create_memory(){dmabuf}",
            capability=Feature.MEMORY_CHUNKS.value, reason="several_allocations", backend=device_state.info.backend,
            handle_type=desc.type)


def _remedy(given: object) -> str:
    if isinstance(given, Memory):
        return "memory.export(for_device=device) makes one"
    if isinstance(given, SemaphoreDesc):
        return "import_semaphore takes a SemaphoreDesc"
    return "MemoryDesc.opaque_fd(fd, allocation_size=…, device_uuid=…) describes a file descriptor"


def _check_modifier(device_state: DeviceState, desc: MemoryDesc) -> None:
    """Refuse a tiled dma-buf on a device that does not know the tiles. Every device reads the rows of a linear one."""
    if desc.drm_layout is None or desc.drm_layout.modifier == LINEAR:
        return
    known = device_state.capabilities.drm_modifiers
    if desc.drm_layout.modifier not in known:
        names = ", ".join(modifier_name(each) for each in sorted(known | {LINEAR}))
        raise UnsupportedError(
            f"{device_state.info.id} imports no dma-buf with the DRM format modifier "
            f"{modifier_name(desc.drm_layout.modifier)}; its modifiers: {names}", capability="drm_modifiers",
            backend=device_state.info.backend, handle_type=desc.type)


def create_memory(
    device: Device, device_state: DeviceState, type: MemoryHandleType | str, size: int, dedicated: bool
) -> Memory:
    """Allocate memory, as `Device.create_memory` describes."""
    type = parse_member("type", type, MemoryHandleType, reason="bad_type")
    if type not in device_state.capabilities.memory_export:
        device_state.unsupported(f"memory.export.{type.value}")
    check_int("size", size, 1, UINT64_MAX, reason="bad_size")
    check_bool("dedicated", dedicated)
    if type.portable:
        portable = PortableMemories(device_state, type)
        with device_state.making(f"{type.value} memory", portable.release, type) as making:
            made = making.call(portable.create, size)
            return Memory(device, making.lifetime(), made.token, type, made.memory.size, imported=False,
                          dedicated=dedicated, shared=made.memory)
    driver = device_state.ability(MemoryExport, "memory.export")
    with device_state.making(f"{type.value} memory", driver.release_memory, type, token_of=FIRST) as making:
        token, allocated = making.call(driver.create_memory, type, size, dedicated)
        return Memory(device, making.lifetime(), token, type, allocated, imported=False,
                      dedicated=dedicated)
