"""The Vulkan backend of xsem: queues of any Vulkan 1.2 driver, as exporter and as importer (docs/vulkan.md)."""

from __future__ import annotations

from xsem.spi import Register, hookimpl
from xsem_vulkan.backend import VulkanBackend
from xsem_vulkan.native import Native

__all__ = ["Native", "VulkanBackend", "xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend ``vulkan``. The first use of the backend loads cffi and the Vulkan loader."""
    register(VulkanBackend())
