"""Abilities of a device with memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xsem.spi.imports import Imported
from xsem.spi.tokens import Token
from xsem.types import MemoryDesc, MemoryHandleType, MipmapDesc, OwnedHandle

__all__ = ["HostMemory", "Images", "Memory", "MemoryExport", "MemoryImport"]


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
            Device address of the first byte. None if the API has no addresses.
        """

    @abstractmethod
    def unmap_buffer(self, buffer: Token) -> None:
        """Release a mapping of `map_buffer`. Called once, before the release of the memory. This method may block."""

    @abstractmethod
    def release_memory(self, memory: Token) -> None:
        """Release imported or created memory. Called once, after all its mappings. This method may block."""

    def dlpack_device(self) -> tuple[int, int] | None:
        """Return the DLPack device type and id of mapped buffers.

        With device type 1 (CPU), the host accesses mapped buffers directly.

        Returns
        -------
        tuple of (int, int), or None
            None, the default: DLPack has no type for this device. Without addresses (`map_buffer`), the facade exports
            no DLPack arrays.
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
            Description of the memory, checked by the facade.
        handle : OwnedHandle or None
            As for `SemaphoreImport.import_semaphore`.

        Returns
        -------
        Imported
            The memory, and the state of the duplicate. The facade releases the memory with `release_memory`.

        Raises
        ------
        ImportFailure
            The import failed. After any other exception, the state of the duplicate is unknown.
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
            Whether to make a dedicated allocation.

        Returns
        -------
        Token
            The memory. The facade releases it with `release_memory`.
        int
            Allocated size in bytes.
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
            A new handle at each call, owned by the caller.
        """


class Images(ABC):
    """Images on memory. Declared by Feature.MIPMAPPED_ARRAY.

    Feature.IMAGE declares only images of one level at the start of the memory.
    """

    @abstractmethod
    def map_mipmapped_array(self, memory: Token, desc: MipmapDesc) -> Token:
        """Map an image onto the memory.

        Parameters
        ----------
        memory : Token
            Imported or created memory.
        desc : MipmapDesc
            Layout of the image, checked by the facade.

        Returns
        -------
        Token
            The image. The facade releases it with `release_array`.
        """

    @abstractmethod
    def mipmap_level(self, array: Token, level: int) -> Token:
        """Return one level of an image, for `ImageQueue.append_level_copy`.

        Parameters
        ----------
        array : Token
            An image of `map_mipmapped_array`.
        level : int
            Number of the level, from 0.

        Returns
        -------
        Token
            The level. It lives as long as the image and has no release method.
        """

    @abstractmethod
    def release_array(self, array: Token) -> None:
        """Release an image of `map_mipmapped_array`. Called once. This method may block."""


class HostMemory(ABC):
    """Page-locked host memory. Needed for blocking copies, and for images."""

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
        """

    @abstractmethod
    def release_host_buffer(self, buffer: Token) -> None:
        """Release a host buffer of `host_buffer`. Called once. This method may block."""
