"""Abilities of a device with memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from xsem.portable import SharedMemory
from xsem.spi.imports import Imported
from xsem.spi.tokens import Token
from xsem.types import MemoryChunk, MemoryDesc, MemoryHandleType, MipmapDesc, OwnedHandle

__all__ = [
    "ChunkImport", "HostMemory", "HostMemoryImport", "Images", "Memory", "MemoryExport", "MemoryImport",
    "MemorySharing", "PlanarImages",
]


class Memory(ABC):
    """The common part of `MemoryImport` and `MemoryExport`: mappings, and the release."""

    @abstractmethod
    def map_buffer(self, memory: Token, offset: int, size: int) -> tuple[Token, int | None]:
        """Map a range of the memory.

        Parameters
        ----------
        memory : Token
            Imported or created memory.
        offset, size : int
            Range in bytes, inside the allocation.

        Returns
        -------
        Token
            The mapping, for the copies and fills of `CopyQueue`. The facade releases it with `unmap_buffer`.
        int or None
            Device address of the first byte. None: the API has no addresses.

        Raises
        ------
        BadArgumentError
            The device cannot map this range, for example because `offset` is inside a page.
        """

    @abstractmethod
    def unmap_buffer(self, buffer: Token) -> None:
        """Release a mapping of `map_buffer`. Called once, when no appended work uses the mapping any more.

        This method may block unless `Capabilities.release_never_blocks` is declared.

        Parameters
        ----------
        buffer : Token
            The mapping.
        """

    @abstractmethod
    def release_memory(self, memory: Token) -> None:
        """Release imported or created memory. Called once, after the release of all its mappings and images.

        This method may block unless `Capabilities.release_never_blocks` is declared.

        Parameters
        ----------
        memory : Token
            The memory.
        """

    def dlpack_device(self) -> tuple[int, int] | None:
        """Return the DLPack device type and device id of mapped buffers. They are constant for the life of the driver.

        The facade exports arrays only of buffers with an address (`map_buffer`). For device type 1 (kDLCPU), the
        address is a host address, and the facade copies without the driver.

        Returns
        -------
        tuple of (int, int), or None
            None: DLPack has no type for this device. Default: None.
        """
        return None


class MemoryImport(Memory):
    """Import of memory. Declared by `Capabilities.memory_import`."""

    @abstractmethod
    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Imported:
        """Import memory of a type in `Capabilities.memory_import`.

        Parameters
        ----------
        desc : MemoryDesc
            Description of the memory. The facade has checked the description.
        handle : OwnedHandle or None
            As for `SemaphoreImport.import_semaphore`.

        Returns
        -------
        Imported
            The memory, and the state of the duplicate. The facade releases the memory with `release_memory`.

        Raises
        ------
        ImportFailure
            As for `SemaphoreImport.import_semaphore`. A `BadArgumentError` (``bad_size``): the device does not import
            `desc.allocation_size` bytes.
        """


class HostMemoryImport(Memory):
    """Portable memory. Declared by HOST_MEMORY_FD or HOST_MEMORY_WIN32 in `Capabilities.memory_import`.

    xsem creates, exports and checks the memory.
    """

    @abstractmethod
    def import_host_memory(self, memory: SharedMemory) -> Token:
        """Take portable memory into use.

        Parameters
        ----------
        memory : SharedMemory
            The memory. ``memory.map(0)`` maps it, with an ``address`` that stays valid until ``memory.unmap()``, and
            its `size` is a number of whole pages. It stays open until `release_memory` has returned.

        Returns
        -------
        Token
            The memory, for `map_buffer`. The facade releases it with `release_memory`.
        """


class ChunkImport(MemoryImport):
    """Import of memory of several allocations as one range. Declared by Feature.MEMORY_CHUNKS."""

    @abstractmethod
    def import_chunks(self, desc: MemoryDesc, handles: Sequence[OwnedHandle]) -> Imported:
        """Import the allocations of `desc.chunks` and map them to one range, in their order.

        Parameters
        ----------
        desc : MemoryDesc
            Description of the memory, with at least two chunks. The facade has checked that their sizes add up to
            `allocation_size`. It has not compared a size with its allocation.
        handles : sequence of OwnedHandle
            A duplicate of the handle of each chunk, as for `SemaphoreImport.import_semaphore`.

        Returns
        -------
        Imported
            The memory, and the state of every duplicate. `map_buffer` takes a range over several chunks. The facade
            releases the memory with `release_memory`.

        Raises
        ------
        ImportFailure
            As for `SemaphoreImport.import_semaphore`. The state is that of every duplicate: "unknown" if they differ.
            Nothing stays imported. A `BadArgumentError` (``bad_size``): the size of a chunk is not that of its
            allocation.
        """


class MemoryExport(Memory):
    """Memory that the device allocates and exports. Declared by `Capabilities.memory_export`."""

    @abstractmethod
    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[Token, int]:
        """Create exportable memory of at least `size` bytes.

        Parameters
        ----------
        type : MemoryHandleType
            A type in `Capabilities.memory_export`.
        size : int
            Smallest size in bytes.
        dedicated : bool
            True: make a dedicated allocation.

        Returns
        -------
        Token
            The memory. The facade releases it with `release_memory`.
        int
            Allocated size in bytes, at least `size`.

        Raises
        ------
        OutOfMemoryError
            ``out_of_memory``.
        UnsupportedError
            The device cannot export such an allocation, for example because it exports only dedicated memory.
        """

    @abstractmethod
    def export_memory(self, memory: Token) -> OwnedHandle:
        """Export memory of `create_memory`.

        Parameters
        ----------
        memory : Token
            Memory of `create_memory`.

        Returns
        -------
        OwnedHandle
            A new handle at each call, which programs that the process starts do not inherit (close-on-exec). The caller
            owns the handle.
        """


class MemorySharing(MemoryExport):
    """Export of memory that another library allocated. Declared by Feature.MEMORY_SHARING."""

    def export_chunks(self, memory: Token) -> Sequence[MemoryChunk]:
        """Export memory of `share_memory` that consists of several allocations.

        Parameters
        ----------
        memory : Token
            Memory of `share_memory`.

        Returns
        -------
        sequence of MemoryChunk
            The allocations in the order of their addresses, with new handles at each call. The caller owns the handles.
            Empty: the memory is one allocation, which `export_memory` exports. Default: empty.
        """
        return ()

    @abstractmethod
    def share_memory(
        self, type: MemoryHandleType, address: int, size: int, owner: object
    ) -> tuple[Token, int, int]:
        """Make existing device memory exportable, without a copy.

        Parameters
        ----------
        type : MemoryHandleType
            A type in `Capabilities.memory_export`.
        address, size : int
            Range of the device memory, in bytes.
        owner : object
            Keeps the memory allocated. The driver keeps a reference until `release_memory`, and none afterwards.

        Returns
        -------
        Token
            The memory, for `export_memory` and `map_buffer`. The facade releases it with `release_memory`.
        int
            Size in bytes of the exported memory. It can contain more than the range.
        int
            Bytes from the start of the exported memory to `address`.

        Raises
        ------
        UnsupportedError
            ``not_shareable``: the device cannot export the memory of the range; ``several_allocations``: the range
            spans several allocations, and the device does not export each of them. The message names a remedy.
        BadArgumentError
            ``not_device_memory``, ``host_array``, ``managed_memory``, ``out_of_range``.
        WrongDeviceError
            ``wrong_device``: the memory is memory of another device.
        """


class Images(ABC):
    """Images on memory. Declared by Feature.MIPMAPPED_ARRAY or Feature.IMAGE.

    Feature.IMAGE declares only images of one level at the start of the memory. A device with images also needs
    `HostMemory`, and its queues need `ImageQueue`.
    """

    @abstractmethod
    def map_mipmapped_array(self, memory: Token, desc: MipmapDesc) -> Token:
        """Map an image onto the memory.

        Parameters
        ----------
        memory : Token
            Imported or created memory.
        desc : MipmapDesc
            Layout of the image. The facade has checked the layout, and the least size of the image.

        Returns
        -------
        Token
            The image. The facade releases it with `release_array`.

        Raises
        ------
        UnsupportedError
            The device does not support such an image in this memory.
        BadArgumentError
            ``bad_offset``: the device does not support the offset. ``out_of_range``: the image ends beyond the memory.
        """

    @abstractmethod
    def mipmap_level(self, array: Token, level: int) -> Token:
        """Return one level of an image, for `ImageQueue.append_region_copy`.

        Parameters
        ----------
        array : Token
            An image of `map_mipmapped_array`.
        level : int
            Number of the level, from 0.

        Returns
        -------
        Token
            The level. It is valid until `release_array`, and has no release of its own.

        Raises
        ------
        BadArgumentError
            ``bad_levels``: the image does not have this level. The facade refuses such a level before this call. The
            conformance suite also calls the driver directly.
        """

    @abstractmethod
    def release_array(self, array: Token) -> None:
        """Release an image of `map_mipmapped_array`. Called once, when no appended work uses the image any more.

        This method may block unless `Capabilities.release_never_blocks` is declared.

        Parameters
        ----------
        array : Token
            The image.
        """


class PlanarImages(Images):
    """Images of several planes. Declared by ``"nv12"`` or ``"p010"`` in `Capabilities.image_formats`."""

    @abstractmethod
    def image_plane(self, level: Token, plane: int) -> Token:
        """Return one plane of a level, for `ImageQueue.append_region_copy`.

        The facade calls this method for every level of such an image, and never copies the level itself.

        Parameters
        ----------
        level : Token
            The level of `mipmap_level`.
        plane : int
            Number of the plane: 0 for luma, 1 for chroma.

        Returns
        -------
        Token
            The plane. It is valid until `release_array`, and has no release of its own.

        Raises
        ------
        BadArgumentError
            ``bad_plane``: the format does not have this plane. The facade refuses such a plane before this call. The
            conformance suite also calls the driver directly.
        """


class HostMemory(ABC):
    """Page-locked host memory, for `Device.host_buffer`, for blocking copies and for images.

    No capability declares this ability: the driver of the device inherits the class. A device with images needs it.
    """

    @abstractmethod
    def host_buffer(self, size: int) -> tuple[Token, int]:
        """Allocate page-locked host memory for appended copies.

        Parameters
        ----------
        size : int
            Size in bytes.

        Returns
        -------
        Token
            The host buffer, for the copies and fills of `CopyQueue`. The facade releases it with `release_host_buffer`.
        int
            Host address of the first byte.

        Raises
        ------
        OutOfMemoryError
            ``out_of_memory``.
        """

    @abstractmethod
    def release_host_buffer(self, buffer: Token) -> None:
        """Release a host buffer of `host_buffer`. Called once, when no appended work uses the buffer any more.

        This method may block unless `Capabilities.release_never_blocks` is declared.

        Parameters
        ----------
        buffer : Token
            The host buffer.
        """
