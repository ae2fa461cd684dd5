"""All types that applications and backends share, in one place; backends import them from here."""

from xsem.data.descriptors import MemoryDesc, MipmapDesc, SemaphoreDesc
from xsem.data.handle_types import Carrier, Kind, MemoryHandleType, SemaphoreHandleType
from xsem.data.handles import Handle, OwnedHandle, SupportsFileno
from xsem.data.info import BackendInfo, Capabilities, Check, DeviceInfo, Feature, PendingOp
from xsem.data.params import INFINITE, SignalParams, WaitParams
from xsem.data.uuids import UUIDLike

__all__ = [
    "INFINITE",
    "BackendInfo",
    "Capabilities",
    "Carrier",
    "Check",
    "DeviceInfo",
    "Feature",
    "Handle",
    "Kind",
    "MemoryDesc",
    "MemoryHandleType",
    "MipmapDesc",
    "OwnedHandle",
    "PendingOp",
    "SemaphoreDesc",
    "SemaphoreHandleType",
    "SignalParams",
    "SupportsFileno",
    "UUIDLike",
    "WaitParams",
]
