"""The driver interface. A backend uses this module, xsem.types and xsem.errors, and no other module of xsem.

A backend contains no policy. The facade checks arguments and capabilities before it calls a driver. The facade also
owns object lifetimes, timeouts, diagnosis and all handles. `docs/authoring-a-backend.md` describes how to write a
backend.

Abilities
    `Backend`, `DeviceDriver` and `QueueDriver` are the core. Each further ability is a class with at most five required
    methods. A driver inherits the classes of its declared capabilities.
Tokens
    A token is a value of the backend's choice, for example an int or an object. The facade stores the token, passes it
    back, and never reads its content.
Fences
    A fence is the token of one completion. An append with ``want_fence=True`` returns a fence.
    `DeviceDriver.query_fence` queries the fence, `DeviceDriver.wait_fence` waits for the fence, and
    `DeviceDriver.release_fence` releases the fence. A fence can outlive its queue: these calls, and appends to other
    queues, may use the fence after `QueueDriver.close`.
Once
    The facade calls each release and each close exactly once. Afterwards it makes no call with the object.
Threads
    `QueueDriver.callers` names the threads that may call a queue. Any thread may make any call of a device at any time.
    The facade makes no call in a forked child, from a finalizer, or at interpreter exit.
Blocking
    `DeviceDriver.wait_fence`, `HostSemaphore.host_wait` and `DeviceDriver.close` may block. The releases of semaphores,
    memory, mappings, images and host buffers may block unless `Capabilities.release_never_blocks` is declared. An
    append may block unless `Capabilities.append_never_blocks` is declared. No other call may block.
Errors
    A driver raises classes of xsem.errors with ``call``, ``code`` and ``code_name``. The facade adds ``backend``.
    A failure of earlier work is a `DriverError` with ``from_earlier_work=True``. After such a failure, the facade
    counts all appended work of the queue as ended: it can release the objects of this work and close the queue.
"""

from __future__ import annotations

from xsem.data.file_descriptors import DriverFd, duplicate_fd, fd_limit_error, free_fds, same_open_file
from xsem.data.handles import own
from xsem.data.images import LevelLayout, level_layout
from xsem.data.locks import Lock
from xsem.data.windows.codes import windows_code_name, windows_error
from xsem.spi.append_path import compiled
from xsem.spi.backend import Backend, failed_check
from xsem.spi.borrowed import BorrowedEvents, BorrowedQueues, queue_handle
from xsem.spi.callers import Callers
from xsem.spi.device import DeviceDriver
from xsem.spi.image_copies import LARGEST_ROW_PITCH, ImageCopyQueue, ImageQueue, ImageRegion
from xsem.spi.imports import HandleState, Imported, ImportFailure
from xsem.spi.libraries import loaded_library
from xsem.spi.memory import (
    ChunkImport,
    HostMemory,
    HostMemoryImport,
    Images,
    Memory,
    MemoryExport,
    MemoryImport,
    MemorySharing,
    PlanarImages,
)
from xsem.spi.process_end import skip_exit_handlers
from xsem.spi.queue import (
    CopyQueue,
    CudaStreamQueue,
    NativeAppend,
    PreparedCall,
    QueueCalls,
    QueueDriver,
    RecordingQueue,
    SemaphoreQueue,
)
from xsem.spi.registration import SPI_OLDEST, SPI_VERSION, Register, hookimpl
from xsem.spi.registration import xsem_register_backends as xsem_register_backends
from xsem.spi.semaphores import (
    HostFences,
    HostSemaphore,
    HostTimelines,
    NvSciSync,
    SemaphoreExport,
    SemaphoreImport,
    Semaphores,
)
from xsem.spi.suite_hooks import NativeArray, NativeEvent, NativeQueue, SuiteHooks
from xsem.spi.tokens import Token

__all__ = [
    "LARGEST_ROW_PITCH",
    "SPI_OLDEST",
    "SPI_VERSION",
    "Backend",
    "BorrowedEvents",
    "BorrowedQueues",
    "Callers",
    "ChunkImport",
    "CopyQueue",
    "CudaStreamQueue",
    "DeviceDriver",
    "DriverFd",
    "HandleState",
    "HostFences",
    "HostMemory",
    "HostMemoryImport",
    "HostSemaphore",
    "HostTimelines",
    "ImageCopyQueue",
    "ImageQueue",
    "ImageRegion",
    "Images",
    "ImportFailure",
    "Imported",
    "LevelLayout",
    "Lock",
    "Memory",
    "MemoryExport",
    "MemoryImport",
    "MemorySharing",
    "NativeAppend",
    "NativeArray",
    "NativeEvent",
    "NativeQueue",
    "NvSciSync",
    "PlanarImages",
    "PreparedCall",
    "QueueCalls",
    "QueueDriver",
    "RecordingQueue",
    "Register",
    "SemaphoreExport",
    "SemaphoreImport",
    "SemaphoreQueue",
    "Semaphores",
    "SuiteHooks",
    "Token",
    "compiled",
    "duplicate_fd",
    "failed_check",
    "fd_limit_error",
    "free_fds",
    "hookimpl",
    "level_layout",
    "loaded_library",
    "own",
    "queue_handle",
    "same_open_file",
    "skip_exit_handlers",
    "windows_code_name",
    "windows_error",
]
