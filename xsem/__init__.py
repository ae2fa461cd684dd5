"""xsem: external semaphores and memory for GPU compute, with one API for all vendors.

`open_device` opens a device. `xsem.ipc` sends descriptors between processes. Backends implement `xsem.spi`.
"""

from xsem import ipc
from xsem.data.peers import Peer
from xsem.data.streams import Stream, SupportsCudaStream, SupportsIntPtr, SupportsSyclAddress, SupportsSyclQueue
from xsem.errors import (
    BackendUnavailableError,
    BadArgumentError,
    BadHandleError,
    BusyError,
    DeviceLostError,
    DeviceNotFoundError,
    DriverError,
    EventNotAppendedError,
    ForkedError,
    OutOfMemoryError,
    ReleasedError,
    RingEndedError,
    UnsupportedError,
    WaitTimeoutError,
    WouldBlockError,
    WrongDeviceError,
    XsemError,
)
from xsem.facade.buffer import Buffer
from xsem.facade.command_list import CommandList
from xsem.facade.device import Device
from xsem.facade.discovery import backends, devices, open_device
from xsem.facade.event import Event
from xsem.facade.image import MipmapLevel, MipmappedArray
from xsem.facade.memory import Memory
from xsem.facade.negotiation import CommonTypes, negotiate
from xsem.facade.recording import Recording
from xsem.facade.semaphore import Semaphore
from xsem.facade.sharing import SharedArray
from xsem.facade.trace import Trace, trace
from xsem.ring import P010, Frame, FrameReader, FrameRing, Nv12
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S
from xsem.types import (
    INFINITE,
    BackendInfo,
    Capabilities,
    DeviceInfo,
    DrmLayout,
    DrmPlane,
    Feature,
    Handle,
    MemoryChunk,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    PendingOp,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
    Signaller,
    SignallerProcess,
    SignalParams,
    SupportsFileno,
    UUIDLike,
    WaitParams,
)

__version__ = "0.2.0"

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "INFINITE",
    "P010",
    "BackendInfo",
    "BackendUnavailableError",
    "BadArgumentError",
    "BadHandleError",
    "Buffer",
    "BusyError",
    "Capabilities",
    "CommandList",
    "CommonTypes",
    "Device",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceNotFoundError",
    "DriverError",
    "DrmLayout",
    "DrmPlane",
    "Event",
    "EventNotAppendedError",
    "Feature",
    "ForkedError",
    "Frame",
    "FrameReader",
    "FrameRing",
    "Handle",
    "Memory",
    "MemoryChunk",
    "MemoryDesc",
    "MemoryHandleType",
    "MipmapDesc",
    "MipmapLevel",
    "MipmappedArray",
    "Nv12",
    "OutOfMemoryError",
    "OwnedHandle",
    "Peer",
    "PendingOp",
    "Recording",
    "ReleasedError",
    "RingEndedError",
    "Semaphore",
    "SemaphoreDesc",
    "SemaphoreHandleType",
    "SemaphoreKind",
    "SharedArray",
    "SignalParams",
    "Signaller",
    "SignallerProcess",
    "Stream",
    "SupportsCudaStream",
    "SupportsFileno",
    "SupportsIntPtr",
    "SupportsSyclAddress",
    "SupportsSyclQueue",
    "Trace",
    "UUIDLike",
    "UnsupportedError",
    "WaitParams",
    "WaitTimeoutError",
    "WouldBlockError",
    "WrongDeviceError",
    "XsemError",
    "__version__",
    "backends",
    "devices",
    "ipc",
    "negotiate",
    "open_device",
    "trace",
]
