"""Blocking copies of an image's levels to and from the host, on a list of the device's own that nobody else uses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from xsem_vulkan.gpu import Gpu
from xsem_vulkan.images import Level
from xsem_vulkan.lists import VulkanList
from xsem_vulkan.memory import host_memory

__all__ = ["LevelCopier"]

_SLICE_NS: Final = 50_000_000


class LevelCopier:
    """Made with the device; its list when it is first needed.

    Parameters
    ----------
    new_list : callable
        Makes the list. Where every queue is another list's, a copy waits behind that one's unmet waits.
    """

    def __init__(self, gpu: Gpu, new_list: Callable[[], VulkanList]) -> None:
        self._gpu = gpu
        self._new_list = new_list
        self._list: VulkanList | None = None
        self._lock = threading.Lock()

    def read(self, level: Level, out: memoryview) -> None:
        """Copy a level to the host, rows without padding."""
        self._copy(level, out, read=True)

    def write(self, level: Level, data: memoryview) -> None:
        """Copy rows without padding to a level."""
        self._copy(level, data, read=False)

    def _copy(self, level: Level, data: memoryview, *, read: bool) -> None:
        ffi = self._gpu.library.ffi
        with self._lock:
            if self._list is None:
                self._list = self._new_list()
            host = host_memory(self._gpu, level.size)
            pixels = ffi.buffer(ffi.cast("char *", host.address), level.size)
            if not read:
                pixels[:] = data
            # From here on the host memory is the list's: Ctrl-C in the wait leaves the copy pending, and it with it.
            point = self._list.append_level_copy(level, host, read=read)
            try:
                while not point.timeline.wait(point.value, _SLICE_NS):
                    pass
                if read:
                    data[:] = pixels
            finally:
                point.timeline.drop()

    def close(self) -> None:
        """Close the list; what is still pending makes the device one that is not destroyed."""
        if self._list is not None:
            self._list.close()
