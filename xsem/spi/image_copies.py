"""Copies of image levels and of regions of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from xsem.spi.queue import QueueDriver
from xsem.spi.tokens import Token

__all__ = ["LARGEST_ROW_PITCH", "ImageCopyQueue", "ImageQueue", "ImageRegion"]

LARGEST_ROW_PITCH: Final = 2**31 - 1
"""The largest row pitch of a copy, in bytes: CU_DEVICE_ATTRIBUTE_MAX_PITCH of each GPU. Other APIs take 32 bits."""


@dataclass(frozen=True, slots=True)
class ImageRegion:
    """A box of elements in some layers of an image level. The facade checks that the region lies in the level.

    Attributes
    ----------
    offset : tuple of int
        First element: x, y and z, in elements.
    extent : tuple of int
        Width, height and depth in elements, each at least 1. For an image with fewer dimensions, the others are 1.
    layer : int
        First layer; 0 for an image without layers.
    layers : int
        Number of layers, at least 1; 1 for an image without layers.
    """

    offset: tuple[int, int, int]
    extent: tuple[int, int, int]
    layer: int
    layers: int

    @property
    def slices(self) -> int:
        """Number of slices or layers: a region with a depth has one layer."""
        return self.extent[2] * self.layers


class ImageQueue(QueueDriver):
    """Copies between image levels and buffers. Declared by Feature.MIPMAPPED_ARRAY or Feature.IMAGE.

    Without Feature.IMAGE_COPY, each region is a whole level, each buffer is a host buffer, and rows and slices have no
    padding. A level is a token of `Images.mipmap_level` or of `PlanarImages.image_plane`. A buffer is a token of
    `Memory.map_buffer` or of `HostMemory.host_buffer`. In a buffer, the elements of a row are adjacent.
    """

    @abstractmethod
    def append_region_copy(
        self, level: Token, region: ImageRegion, buffer: Token, offset: int, row_pitch: int, slice_pitch: int,
        read: bool, wait_fences: Sequence[Token], want_fence: bool,
    ) -> Token | None:
        """Append a copy between a region of a level and a buffer. The bytes between the rows do not change.

        Parameters
        ----------
        level : Token
            The level.
        region : ImageRegion
            The elements of the level.
        buffer : Token
            The buffer.
        offset : int
            Bytes from the first byte of the buffer to the first element of the region. In the memory of the buffer, the
            position is a multiple of the size of an element.
        row_pitch : int
            Bytes from one row to the next in the buffer: at least one row of the region, at most `LARGEST_ROW_PITCH`,
            and a multiple of the size of an element.
        slice_pitch : int
            Bytes from one slice or layer to the next in the buffer: at least one slice of the region, and a multiple of
            `row_pitch`.
        read : bool
            True: copy the level to the buffer. False: copy the buffer to the level.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.

        Raises
        ------
        UnsupportedError
            The device cannot make such a copy. `capability` names the missing part, for example a row pitch.
        """


class ImageCopyQueue(ImageQueue):
    """Copies of regions, also to and from memory of the device, and between levels. Declared by Feature.IMAGE_COPY."""

    @abstractmethod
    def append_image_copy(
        self, dst: Token, dst_region: ImageRegion, src: Token, src_region: ImageRegion, wait_fences: Sequence[Token],
        want_fence: bool,
    ) -> Token | None:
        """Append a copy between two levels, or between two regions of one level that do not overlap.

        Parameters
        ----------
        dst, src : Token
            The levels. The sizes of their elements are equal; their formats can differ.
        dst_region, src_region : ImageRegion
            The elements of the levels. The two regions have the same extent and the same number of layers.
        wait_fences, want_fence
            As described in `QueueDriver`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.

        Raises
        ------
        UnsupportedError
            The device cannot make such a copy. `capability` names the missing part.
        """
