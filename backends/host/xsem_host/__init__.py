"""The backend ``host``: the CPU as a device, which the tests of other devices use."""

from __future__ import annotations

from xsem.spi import Register, hookimpl
from xsem_host.backend import HostBackend

__all__ = ["HostBackend", "xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend ``host``."""
    register(HostBackend())
