"""Types that applications and backends share. Backends import them from this module."""

from xsem.data.drm import DrmLayout, DrmPlane
from xsem.data.handle_types import MemoryHandleType, OsHandleKind, SemaphoreHandleType, SemaphoreKind
from xsem.data.handles import Handle, OwnedHandle, SupportsFileno
from xsem.data.images import MipmapDesc
from xsem.data.info import (
    BackendInfo,
    Capabilities,
    DeviceInfo,
    Feature,
    HealthCheck,
    PendingOp,
    Signaller,
    SignallerProcess,
)
from xsem.data.memory_chunks import MemoryChunk
from xsem.data.memory_desc import MemoryDesc
from xsem.data.params import INFINITE, SignalParams, WaitParams
from xsem.data.semaphore_desc import SemaphoreDesc
from xsem.data.uuids import UUIDLike

__all__ = [
    "INFINITE",
    "BackendInfo",
    "Capabilities",
    "DeviceInfo",
    "DrmLayout",
    "DrmPlane",
    "Feature",
    "Handle",
    "HealthCheck",
    "MemoryChunk",
    "MemoryDesc",
    "MemoryHandleType",
    "MipmapDesc",
    "OsHandleKind",
    "OwnedHandle",
    "PendingOp",
    "SemaphoreDesc",
    "SemaphoreHandleType",
    "SemaphoreKind",
    "SignalParams",
    "Signaller",
    "SignallerProcess",
    "SupportsFileno",
    "UUIDLike",
    "WaitParams",
]
