"""Information about devices, backends and pending work, as plain data."""

from __future__ import annotations

import enum
import uuid as _uuid
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from xsem.data.handle_types import MemoryHandleType, SemaphoreHandleType
from xsem.data.image_formats import PLAIN_FLAGS, PLAIN_FORMATS

__all__ = [
    "ROLES", "BackendInfo", "Capabilities", "DeviceInfo", "Feature", "HealthCheck", "PendingOp", "Role", "Signaller",
    "SignallerProcess",
]

Role: TypeAlias = Literal["sent", "received", "declared"]
"""What a process did with a semaphore."""

ROLES: Final[dict[Role, str]] = {
    "sent": "which sent the semaphore",
    "received": "which received the semaphore",
    "declared": "declared to signal the semaphore",
}
"""The roles in words."""


class Feature(str, enum.Enum):
    """Optional abilities of a device, declared in `Capabilities.features`.

    HOST_SIGNAL, HOST_WAIT and READ_VALUE tell nothing about portable timelines, which the host signals, waits for and
    reads on every device.
    """

    HOST_SIGNAL = "host_signal"
    """The host can signal a semaphore (`Semaphore.host_signal`)."""
    HOST_WAIT = "host_wait"
    """The host can wait for a semaphore (`Semaphore.host_wait`)."""
    READ_VALUE = "read_value"
    """The host can read the value of a timeline (`Semaphore.value`)."""
    MIPMAPPED_ARRAY = "mipmapped_array"
    """Memory can be mapped as an image of any extent, levels, layers and offset (`Memory.map_mipmapped_array`).

    `Capabilities.image_formats` and `Capabilities.image_flags` list the formats and flags.
    """
    IMAGE = "image"
    """A subset of MIPMAPPED_ARRAY: one level, offset 0, no cubemap and no colour attachment."""
    IMAGE_COPY = "image_copy"
    """A command list copies between images and buffers, and between images (`CommandList.append_copy`)."""
    RECORDING = "recording"
    """A command list can record appends for replay (`CommandList.record`)."""
    NATIVE_EVENTS = "native_events"
    """The device can borrow a framework's event (`Device.event`)."""
    MEMORY_SHARING = "memory_sharing"
    """The device can export an array that another library allocated (`Device.share`)."""
    MEMORY_CHUNKS = "memory_chunks"
    """The device imports memory of several allocations as one range (`MemoryDesc.chunks`)."""
    NATIVE_CONTEXT = "native_context"
    """`open_device` accepts the application's own context or device (``native=``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """Capabilities that a device declares.

    Each default is the weakest promise. A capability that a device does not declare is not supported.

    Attributes
    ----------
    semaphore_import, semaphore_export : frozenset of SemaphoreHandleType
        Handle types of the semaphores that the device can import and export.
    memory_import, memory_export : frozenset of MemoryHandleType
        Handle types of the memory that the device can import and export.
    features : frozenset of Feature
        Optional abilities.
    bridged : frozenset of SemaphoreHandleType
        Types of `semaphore_import` whose waits and signals a thread of xsem in this process passes on, because the
        device cannot wait on host memory itself. An append then takes effect up to a millisecond late, and only while
        this process runs.
    wait_before_signal : frozenset of SemaphoreHandleType
        Types whose wait can be appended before the matching signal is submitted on any device.
    resets_on_wait : bool
        A met wait resets a binary semaphore. If False, the exporter resets the semaphore, and the application calls
        `Semaphore.mark_reset` after each reset (Level Zero, semantics rule 7).
    append_never_blocks : bool
        An append never blocks the calling thread.
    release_never_blocks : bool
        A release of a semaphore, of memory or of a mapping never blocks the calling thread. If False, only xsem's
        releasing thread releases such objects. It does so only while no wait is pending on any list of the backend's
        devices. Reason: on an H200, cuMemFree and cuDestroyExternalSemaphore block behind any unmet wait, and block all
        threads.
    needs_handover : bool
        The application must name memory in ``acquire=`` and ``release=`` when the memory passes to another device or
        API.
    independent_lists : int
        Number n of lists from `Device.create_command_list` that can be used at once: with n - 1 lists blocked in a
        wait, the n-th still runs.
    max_pending : int or None
        Number of appends that the driver accepts behind an unmet wait before it blocks the caller; None: unknown.
        Events of an append do not count. Measured on an H200: 2,050 cuEventRecord or cuStreamWaitEvent calls behind an
        unmet wait returned at once.
    max_value_difference : int
        Largest allowed difference between a timeline value and the last value signalled here. For a portable timeline
        it is 2**63 - 1, on every device.
    image_formats, image_flags : frozenset of str
        Formats and flags of `MipmapDesc` that a device with images supports. The flags have the names of the fields of
        `MipmapDesc`. With Feature.IMAGE, cubemaps and colour attachments are not supported, also if listed here.
    drm_modifiers : frozenset of int
        DRM format modifiers of the dma-bufs that the device maps as images, for at least one format.

    Examples
    --------
    >>> declared = Capabilities(semaphore_import=frozenset({SemaphoreHandleType.SYNC_FD}), resets_on_wait=True)
    >>> declared.independent_lists, declared.max_pending
    (1, None)
    """

    semaphore_import: frozenset[SemaphoreHandleType] = frozenset()
    semaphore_export: frozenset[SemaphoreHandleType] = frozenset()
    memory_import: frozenset[MemoryHandleType] = frozenset()
    memory_export: frozenset[MemoryHandleType] = frozenset()
    features: frozenset[Feature] = frozenset()
    bridged: frozenset[SemaphoreHandleType] = frozenset()
    wait_before_signal: frozenset[SemaphoreHandleType] = frozenset()
    resets_on_wait: bool = False
    append_never_blocks: bool = False
    release_never_blocks: bool = False
    needs_handover: bool = False
    independent_lists: int = 1
    max_pending: int | None = None
    max_value_difference: int = 2**31 - 1
    image_formats: frozenset[str] = PLAIN_FORMATS
    image_flags: frozenset[str] = PLAIN_FLAGS
    drm_modifiers: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """Information about one device of one backend.

    Attributes
    ----------
    id : str
        Name of the device for `open_device`, for example ``"cuda:0"``.
    backend, index : str, int
        The two parts of `id`.
    name : str
        The driver's name for the device.
    uuid : uuid.UUID or None
        Device UUID: the same 16 bytes in every API. None if the device has no UUID (`host`) or the driver is too old.
    luid : bytes or None
        Locally unique identifier, eight bytes (Windows); None on other systems.
    driver_uuid : uuid.UUID or None
        UUID of the driver build; None if the driver does not report it.
    driver_version : str
        Version as the driver prints it; empty if unknown.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     device.info.backend, device.info.index
    ('host', 0)
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
    """Information about one backend plugin, loaded or not.

    Attributes
    ----------
    name : str
        Name of the backend; name of the plugin if the plugin failed to load.
    distribution : str
        Distribution that installed the plugin.
    spi_version : int or None
        Version of the driver interface that the plugin was written for; None if xsem could not read it.
    unavailable : str or None
        One line that says what to install or to set; None if the backend works.

    Examples
    --------
    >>> info = BackendInfo(name="acme", distribution="xsem-acme", spi_version=1, unavailable="install the Acme driver")
    >>> info.unavailable
    'install the Acme driver'
    """

    name: str
    distribution: str
    spi_version: int | None
    unavailable: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthCheck:
    """Result of one check of the machine for a backend: one line of ``xsem doctor``.

    Attributes
    ----------
    name : str
        Name of the checked item.
    ok : bool
        True if the item is as the backend needs it.
    detail : str
        The finding.
    remedy : str
        Instruction to the user for a failed check.
    causes : tuple of str
        Possible causes of a failed check, most likely first, without instructions.

    Examples
    --------
    >>> check = HealthCheck(name="libacme.so", ok=False, detail="not found", remedy="install the Acme driver")
    >>> check.ok
    False
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SignallerProcess:
    """A process that can signal a semaphore, as far as this process knows.

    Attributes
    ----------
    pid : int
        Number of the process.
    role : {"sent", "received", "declared"}
        The process sent the semaphore to this process, received it from this process, or was named by
        `Semaphore.signalled_by`.
    ended : bool
        The process had ended at the time of the report.

    Examples
    --------
    >>> from xsem.types import SignallerProcess
    >>> str(SignallerProcess(pid=4711, role="sent", ended=True))
    'process 4711, which sent the semaphore, has ended'
    """

    pid: int
    role: Literal["sent", "received", "declared"]
    ended: bool

    def __str__(self) -> str:
        return f"process {self.pid}, {ROLES[self.role]}{', has ended' if self.ended else ''}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signaller:
    """A possible signaller of a pending wait, as far as this process knows. `str` returns it in words.

    Attributes
    ----------
    kind : {"list", "exporter", "importer"}
        ``"list"``: a signal that meets the wait is pending on a command list of the device. ``"exporter"``: the
        semaphore is imported, so its exporter or another importer can signal it. ``"importer"``: the semaphore was
        exported, so an importer can signal it.
    command_list : str or None
        Name of the list; None for the other kinds.
    value : int or None
        Timeline value that the pending signal sets. None for a signal without a value, and for the other kinds.
    behind : bool
        The pending signal is behind the wait on the same list, so it cannot meet the wait.
    processes : tuple of SignallerProcess
        The known processes of the exporter or the importers.

    Examples
    --------
    >>> from xsem.types import Signaller
    >>> str(Signaller(kind="list", command_list="host:0/list-1", value=8))
    'host:0/list-1 (signal of 8 pending)'
    """

    kind: Literal["list", "exporter", "importer"]
    command_list: str | None = None
    value: int | None = None
    behind: bool = False
    processes: tuple[SignallerProcess, ...] = ()

    def __str__(self) -> str:
        if self.kind == "list":
            signal = "signal" if self.value is None else f"signal of {self.value}"
            return f"{self.command_list} ({signal} {'behind this very wait' if self.behind else 'pending'})"
        named = f" ({'; '.join(map(str, self.processes))})" if self.processes else ""
        if self.kind == "exporter":
            return f"the exporter{named}, or another importer of its handle"
        return f"an importer of the exported handle{named}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingOp:
    """Information about one pending operation: appended, and not known to be complete.

    Attributes
    ----------
    operation : str
        Kind of the operation.
    semaphore : str or None
        Type and label of the semaphore; None for an operation without a semaphore.
    value : int or None
        Timeline value that the wait needs or the signal sets; None for other operations.
    current_value : int or None
        Present value of the timeline; None if the device cannot read it or did not answer (`Device.watch`).
    last_signalled_here : int or None
        Last value that this semaphore object signalled, by an append or from the host; before that, the initial value.
        None if neither is known.
    command_list : str
        Name of the list that holds the operation; ``"host"`` for a wait of the host.
    age_s : float
        Seconds since the append.
    signallers : tuple of Signaller
        Possible signallers for the wait, as far as this process knows them.
    signal_first : bool
        The device takes the wait only after its signal was appended: a binary semaphore whose type is not in
        `Capabilities.wait_before_signal`.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     device.pending()
    ()
    """

    operation: Literal["wait", "signal", "work", "copy", "fill", "barrier"]
    semaphore: str | None
    value: int | None
    current_value: int | None
    last_signalled_here: int | None
    command_list: str
    age_s: float
    signallers: tuple[Signaller, ...]
    signal_first: bool = False

    @property
    def possible_signallers(self) -> tuple[str, ...]:
        """`signallers` in words."""
        return tuple(map(str, self.signallers))
