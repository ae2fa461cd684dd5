"""The backend ``host``: the CPU as a device. xsem ships it, and the tests of other devices use it.

Its semaphores and memory are file descriptors that any process can share. ``docs/host-objects.md`` defines them.

Examples
--------
>>> import xsem
>>> with xsem.open_device("host") as device:
...     device.info.id
'host:0'
"""

from __future__ import annotations

from xsem.spi import Register, hookimpl
from xsem_host.backend import HostBackend

__all__ = ["HostBackend", "xsem_register_backends"]


@hookimpl
def xsem_register_backends(register: Register) -> None:
    """Register the backend ``host``."""
    register(HostBackend())
