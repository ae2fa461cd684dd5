"""What xsem tells about devices, backends and pending work: plain data, no behaviour."""

from __future__ import annotations

import enum
import uuid as _uuid
from dataclasses import dataclass
from typing import Literal

from xsem.data.handle_types import MemoryHandleType, SemaphoreHandleType

__all__ = ["BackendInfo", "Capabilities", "DeviceInfo", "Feature", "HealthCheck", "PendingOp"]


class Feature(str, enum.Enum):
    """Optional abilities of a device, declared in `Capabilities.features`."""

    HOST_SIGNAL = "host_signal"
    HOST_WAIT = "host_wait"
    READ_VALUE = "read_value"
    MIPMAPPED_ARRAY = "mipmapped_array"
    IMAGE = "image"
    """Of images those of one level at the memory's start, no cubemaps or colour attachments: a part of the former."""
    RECORDING = "recording"
    NATIVE_EVENTS = "native_events"
    NATIVE_CONTEXT = "native_context"


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a device promises. Every default is the weakest promise; what is not declared is not supported.

    Attributes
    ----------
    semaphore_import, semaphore_export : frozenset of SemaphoreHandleType
        Handle types the device takes and gives.
    memory_import, memory_export : frozenset of MemoryHandleType
        Likewise for memory.
    features : frozenset of Feature
        Optional abilities.
    wait_before_signal : frozenset of SemaphoreHandleType
        Types whose wait may be appended before the matching signal has been submitted anywhere.
    resets_on_wait : bool
        A satisfied wait resets a binary semaphore. Where False, `Semaphore.mark_reset` must say that the exporter
        did (Level Zero, semantics rule 7).
    append_never_blocks : bool
        No append ever holds the calling thread.
    release_never_blocks : bool
        No release of a semaphore, of memory or of a mapping ever holds the calling thread. Where False, they are
        released on xsem's own thread alone, and only while no wait is pending on any list of the backend's devices
        (on an H200 cuMemFree and cuDestroyExternalSemaphore block behind any unmet wait, and hold all threads).
    needs_handover : bool
        Memory must be named in ``acquire=`` and ``release=`` when it changes hands.
    independent_lists : int
        Of so many of the device's own lists all but one may wait, and the last one still makes progress.
    max_pending : int or None
        Appends behind an unmet wait before the driver holds the caller; None: not known. Events in their lists do not
        count (measured on an H200: 2,050 cuEventRecord or cuStreamWaitEvent behind an unmet wait returned at once).
    max_value_difference : int
        Largest allowed distance of a timeline value from the last known one.
    """

    semaphore_import: frozenset[SemaphoreHandleType] = frozenset()
    semaphore_export: frozenset[SemaphoreHandleType] = frozenset()
    memory_import: frozenset[MemoryHandleType] = frozenset()
    memory_export: frozenset[MemoryHandleType] = frozenset()
    features: frozenset[Feature] = frozenset()
    wait_before_signal: frozenset[SemaphoreHandleType] = frozenset()
    resets_on_wait: bool = False
    append_never_blocks: bool = False
    release_never_blocks: bool = False
    needs_handover: bool = False
    independent_lists: int = 1
    max_pending: int | None = None
    max_value_difference: int = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """One device of one backend.

    Attributes
    ----------
    id : str
        What `open_device` takes: ``"cuda:0"``.
    backend, index : str, int
        The two parts of `id`.
    name : str
        The driver's name for the device.
    uuid : uuid.UUID or None
        The same 16 bytes in every API of that device; None where the device has none (`host`) or the driver is too old.
    luid : bytes or None
        Eight bytes, Windows.
    driver_uuid : uuid.UUID or None
        Identifies the driver build where it can be asked.
    driver_version : str
        As the driver prints it; empty where unknown.
    """

    id: str
    backend: str
    index: int
    name: str
    uuid: _uuid.UUID | None = None
    luid: bytes | None = None
    driver_uuid: _uuid.UUID | None = None
    driver_version: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendInfo:
    """One plugin, loaded or not.

    `unavailable` is None where the backend works; otherwise one line that says what to install or set.
    `spi_version` is None where the plugin could not be loaded far enough to know.
    """

    name: str
    distribution: str
    spi_version: int | None
    unavailable: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthCheck:
    """One line of ``xsem doctor``: what a backend needs from the machine.

    Attributes
    ----------
    name : str
        Name of the checked item.
    ok : bool
        Whether the item is as the backend needs it.
    detail : str
        The finding.
    remedy : str
        Instruction to the user for a failed check.
    causes : tuple of str
        Possible causes of a failed check, most likely first; not instructions.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingOp:
    """One operation that has been appended and is not known to be done.

    Attributes
    ----------
    operation : str
        What was appended.
    semaphore : str or None
        The semaphore's type and label; None for operations without one.
    value : int or None
        Timeline value wanted (wait) or to be set (signal).
    current_value : int or None
        The timeline's value now; None where the device cannot read it, or did not answer (`Device.watch`).
    last_signalled_here : int or None
        The last value appended or set as a signal through this very object.
    command_list : str
        Which list holds it; ``"host"`` for a wait of the host itself.
    age_s : float
        Seconds since it was appended.
    possible_signallers : tuple of str
        Who could satisfy the wait, as far as this process can know.
    """

    operation: Literal["wait", "signal", "work", "copy", "fill", "barrier"]
    semaphore: str | None
    value: int | None
    current_value: int | None
    last_signalled_here: int | None
    command_list: str
    age_s: float
    possible_signallers: tuple[str, ...]
