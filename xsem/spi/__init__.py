"""The driver interface: everything that a backend uses of xsem, together with xsem.types and xsem.errors.

A backend contains no policy. The facade checks arguments before it calls a driver. The facade also owns object
lifetimes, timeouts, diagnosis and the application's handles. `docs/authoring-a-backend.md` describes how to write a
backend.

Tokens
    A token is a value of the backend's choice, for example an int or an object. The facade stores a token and passes it
    back, and never reads its content.
Fences
    A fence is the token of one completion. An append with ``want_fence=True`` returns a fence. `DeviceDriver.query_fence`
    queries it, `DeviceDriver.wait_fence` waits for it, and `DeviceDriver.release_fence` releases it.
Threads
    The facade serialises the calls on one `QueueDriver`. Any thread may make any other call at any time. The
    facade makes no call in a forked child.
Blocking
    `DeviceDriver.wait_fence` and `DeviceDriver.host_wait` may block. The releases of semaphores, memory, mappings and host
    buffers may block unless `Capabilities.release_never_blocks` is declared. An append may block unless
    `Capabilities.append_never_blocks` is declared. No other call may block.
Errors
    A driver raises classes of xsem.errors with ``call``, ``code`` and ``code_name``. The facade adds ``backend``.
    A failure of earlier work is a `DriverError` with ``from_earlier_work=True``.
"""

from __future__ import annotations

from xsem.data.file_descriptors import DriverFd, duplicate_fd, same_open_file
from xsem.data.handles import own
from xsem.spi.backend import Backend, failed_check
from xsem.spi.device import DeviceDriver
from xsem.spi.imports import Fate, ImportFailure
from xsem.spi.queue import PreparedCall, QueueDriver
from xsem.spi.registration import SPI_OLDEST, SPI_VERSION, Register, hookimpl
from xsem.spi.registration import xsem_register_backends as xsem_register_backends
from xsem.spi.tokens import Token

__all__ = [
    "SPI_OLDEST",
    "SPI_VERSION",
    "Backend",
    "DeviceDriver",
    "DriverFd",
    "Fate",
    "ImportFailure",
    "PreparedCall",
    "QueueDriver",
    "Register",
    "Token",
    "duplicate_fd",
    "failed_check",
    "hookimpl",
    "own",
    "same_open_file",
]
