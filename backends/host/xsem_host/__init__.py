"""The CPU as a device: the embedded default, and what other devices are tested against.

Its objects are real file descriptors that any process can share (docs/host-objects.md).
"""

from __future__ import annotations

from xsem.spi import Register, hookimpl
from xsem_host.backend import HostBackend

__all__ = ["HostBackend", "xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Offer the backend ``host``."""
    register(HostBackend())
