"""Semaphores: imported from another API, device or process, or created for export."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from time import perf_counter as now
from typing import TYPE_CHECKING

from xsem.data.handles import OwnedHandle, follow
from xsem.data.params import UINT64_MAX, check_bool, check_int, parse_index, parse_member
from xsem.data.peers import Peer
from xsem.data.signallers import SENT, Ended, Signallers, signallers_of
from xsem.data.streams import Stream
from xsem.data.uuids import UUIDLike
from xsem.errors import BadArgumentError, BusyError, UnsupportedError, WaitTimeoutError
from xsem.facade.awaiting import wait_until_done
from xsem.facade.resource import Resource
from xsem.portable import Timeline
from xsem.runtime.device_identity import check_identity, identity_for
from xsem.runtime.device_state import DeviceState
from xsem.runtime.diagnostics.host_waits import SemaphoreBlocker, host_wait
from xsem.runtime.diagnostics.pending_operations import host_wait_timeout
from xsem.runtime.diagnostics.pending_signals import queued_signal
from xsem.runtime.diagnostics.timeout_error import Abandoned
from xsem.runtime.handle_import import TOKEN, import_with_duplicate, refuse_imported
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.portable_timelines import LARGEST_DIFFERENCE, PortableTimeline, PortableTimelines
from xsem.runtime.queues.semaphore_changes import StateChanges
from xsem.runtime.semaphore_state import SemaphoreState, can_read, host_side, note_origin, origin_of, read_value
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, FOREVER_S, check_timeout
from xsem.runtime.tracing import tracing
from xsem.spi import SemaphoreExport, SemaphoreImport, Token
from xsem.types import Feature, MemoryDesc, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["Semaphore", "create_semaphore", "import_semaphore"]


class Semaphore(Resource):
    """A semaphore on one device, made by `Device.import_semaphore`, `Device.create_timeline` and their like.

    Attributes
    ----------
    device : Device
        The device of the semaphore.
    type : SemaphoreHandleType
        The handle type.
    kind : SemaphoreKind
        The meaning of signal and wait: binary, timeline, keyed mutex, NvSciSync or sync file.
    label : str
        Name given by the application. Errors and reports show its ``repr()``, without control characters.

    Raises
    ------
    ReleasedError
        ``released``: the semaphore or its device was released. Each method except `release` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     frames = device.create_timeline(label="frames")
    ...     with frames.export() as desc:
    ...         imported = device.import_semaphore(desc)
    ...     frames.host_signal(7)
    ...     imported.host_wait(7)
    ...     imported.value()
    7
    """

    def __init__(self, device: Device, state: SemaphoreState) -> None:
        super().__init__(device, state.lifetime)
        self.type: SemaphoreHandleType = state.type
        self.kind: SemaphoreKind = state.kind
        self.label: str = state.label
        self._state = state

    def export(
        self, *, for_device: Device | UUIDLike | None = None, read_only: bool = False
    ) -> SemaphoreDesc:
        """Export the semaphore as a descriptor with a new `OwnedHandle`.

        A sync file is made from an appended signal. The export consumes this signal, as a wait does: each signal serves
        one export or one wait. The handle of a sync file can be -1: the signal is already done. A driver may block
        until the signal is done.

        Parameters
        ----------
        for_device : Device or its UUID, optional
            The importing device. If another process opens this device, pass its UUID. Objects of `host` belong to no
            device, and their descriptor gets this UUID. The descriptor of a portable type gets none. A device-bound
            type of any other exporter needs the same physical device.
        read_only : bool
            Only for portable timelines on Linux: the file descriptor is open only for reading. Its importers can wait,
            and xsem refuses their signals (``only_waits``). It protects against errors, not against attacks: a process
            with the rights of this one can open the file again for writing.

        Returns
        -------
        SemaphoreDesc
            Descriptor with a new handle at each call. The caller owns the handle. `SemaphoreDesc.close` or the
            collection of the descriptor closes the handle.

        Raises
        ------
        UnsupportedError
            ``imported``: only the exporting process exports the semaphore; forward the received descriptor.
            ``unsupported``: the device does not export this type. ``not_portable``: `read_only`, and the semaphore is
            not a portable timeline, or the system is Windows.
        WrongDeviceError
            ``wrong_device``: `for_device` is another physical device.
        BadArgumentError
            ``bad_uuid``: `for_device` is neither a device nor a UUID. ``not_a_bool``.
        BadHandleError
            ``no_proc``: `read_only`, and /proc is not mounted.
        BusyError
            ``nothing_signalled``: for a sync file, no signal was appended since the last export or wait.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     frames = device.create_timeline()
        ...     with frames.export() as desc:               # to another process: xsem.ipc.send(sock, desc)
        ...         desc.type.value
        'timeline_semaphore_fd'
        """
        self._check()
        check_bool("read_only", read_only)
        device_state, state = self._device_state, self._state
        capability = f"semaphore.export.{state.type.value}"
        if state.imported:
            refuse_imported(state.described, capability, device_state.info.backend)
        if state.type not in device_state.capabilities.semaphore_export:
            device_state.unsupported(capability)
        device_uuid, driver_uuid = identity_for(device_state.info, for_device, state.type)
        with device_state.calling(state.type, self._lifetime):
            handle: OwnedHandle | None
            if read_only:
                handle = self._read_only_handle()
            elif state.page is not None:
                handle = state.page.duplicate()
            elif state.kind is SemaphoreKind.SYNC_FILE:
                handle = _export_signal(device_state.ability(SemaphoreExport, "semaphore.export"), state)
            else:
                handle = device_state.ability(SemaphoreExport, "semaphore.export").export_semaphore(state.token)
        state.exported = True
        if handle is not None:
            if not read_only:   # its holders signal nothing
                follow(handle, state.signallers)
            note_origin(handle, device_state, state)
        return SemaphoreDesc(type=state.type, handle=-1 if handle is None else handle, device_uuid=device_uuid,
                             driver_uuid=driver_uuid)

    def _read_only_handle(self) -> OwnedHandle:
        if self._state.page is None or sys.platform == "win32":
            raise self._not_portable("export(read_only=True)")
        return self._state.page.duplicate_read_only()

    def _not_portable(self, call: str) -> UnsupportedError:
        return UnsupportedError(f"{call} needs a portable timeline (HOST_TIMELINE_FD), not {self._state.described}",
                                capability=call, reason="not_portable", backend=self._device_state.info.backend)

    def mark_reset(self) -> None:
        """Declare that the exporter has reset a binary semaphore.

        If `Capabilities.resets_on_wait` is False, the call is needed between two waits (Level Zero, rule 7). On other
        devices, the call has no effect.
        """
        self._check()
        self._state.mark_reset()

    def value(self) -> int:
        """Read the present value of a timeline.

        Returns
        -------
        int
            0 … 2**64 - 1. For an abandoned timeline, the value before it was abandoned.

        Raises
        ------
        UnsupportedError
            The device cannot read the value.
        BadArgumentError
            ``not_a_timeline``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     device.create_timeline(7).value()
        7
        """
        self._check()
        self._require_value()
        self._check_timeline()
        with self._device_state.calling(held=self._lifetime):
            return read_value(self._device_state, self._state)

    def wait(self, value: int | None = None, *, stream: Stream) -> None:
        """Make later work of a stream wait for the semaphore. The host does not wait (`host_wait`).

        The call is short for ``device.command_list(stream).append_wait(semaphore, value)``. For events and hand-overs
        (`Capabilities.needs_handover`), use the list.

        Parameters
        ----------
        value : int, optional
            Smallest value of a timeline that ends the wait. Required for timelines, refused for other kinds.
        stream : object with ``__cuda_stream__``, ``int_ptr``, ``sycl_queue`` or ``addressof_ref``, or int
            A stream of torch, CuPy or cuda.core, a queue of pyopencl or dpctl, or a native handle.

        Raises
        ------
        BadArgumentError, WrongDeviceError, UnsupportedError, BusyError
            As for `Device.command_list` and `CommandList.append_wait`.

        Examples
        --------
        `host` has no streams. On CUDA, with the stream of torch::

            drawn.wait(5, stream=torch.cuda.current_stream())
        """
        self.device.command_list(stream).append_wait(self, value)

    def signal(self, value: int | None = None, *, stream: Stream) -> None:
        """Signal the semaphore when all earlier work of a stream is done. The host does not wait.

        The call is short for ``device.command_list(stream).append_signal(semaphore, value)``.

        Parameters
        ----------
        value : int, optional
            New value of a timeline, above the last value signalled here. Required for timelines, refused for other
            kinds.
        stream : object with ``__cuda_stream__``, ``int_ptr``, ``sycl_queue`` or ``addressof_ref``, or int
            As for `wait`.

        Raises
        ------
        BadArgumentError, WrongDeviceError, UnsupportedError, BusyError
            As for `Device.command_list` and `CommandList.append_signal`.

        Examples
        --------
        `host` has no streams. On CUDA, with the stream of torch::

            filtered.signal(5, stream=torch.cuda.current_stream())
        """
        self.device.command_list(stream).append_signal(self, value)

    def host_signal(self, value: int | None = None) -> None:
        """Signal the semaphore from the host, at once.

        Parameters
        ----------
        value : int, optional
            New value of a timeline, above the last value signalled here. Required for timelines, refused for other
            kinds.

        Raises
        ------
        UnsupportedError
            The host cannot signal semaphores of this device.
        BadArgumentError
            ``value_required``, ``value_not_allowed``, ``value_out_of_range``, ``not_an_int``; ``value_not_above_last``,
            ``value_difference``. ``only_waits``: the semaphore was imported from a handle of
            ``export(read_only=True)``.
        ReleasedError
            ``abandoned``: the timeline was abandoned (`abandon`).
        BusyError
            ``signal_pending``: a signal of this timeline, appended here, is pending. The lower value of the pending
            signal would be stored after the new value. VUID-VkSemaphoreSignalInfo-value-03259 of Vulkan forbids this
            order.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     frames = device.create_timeline()
        ...     frames.host_signal(1)
        ...     frames.value()
        1
        """
        self._check()
        device_state, state = self._device_state, self._state
        host = host_side(device_state, state, Feature.HOST_SIGNAL)
        state.check_can_signal()
        value = self._check_value(value)
        # One signal at a time: if two threads signal, the lower value must not be stored last.
        with device_state.calling(self.type, self._lifetime), state.host_order:
            changes, calling = StateChanges(), False
            try:
                previous = changes.signal(state, value, allow_rewind=False)
                if value is not None and previous is not None:
                    self._check_none_queued(value, previous)
                calling = True
                began = now()
                host.signal(value)
            except BaseException as error:
                # As in an append: a signal that Ctrl-C interrupts in the driver's call counts as made.
                if not calling or isinstance(error, Exception):
                    changes.take_back()
                raise
            changes.settle()
        if (note := tracing.note) is not None:
            note(("host signal", began, threading.get_native_id(), state, value))

    def host_wait(self, value: int | None = None, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Block the host until the semaphore is signalled, or its value is at least `value`.

        The wait resets a binary semaphore. Ctrl-C interrupts the wait.

        Parameters
        ----------
        value : int, optional
            Smallest value of a timeline that ends the wait. Required for timelines, refused for other kinds.
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        UnsupportedError
            The host cannot wait for semaphores of this device.
        BadArgumentError
            ``value_required``, ``value_not_allowed``, ``value_out_of_range``, ``not_an_int``, ``bad_timeout``.
        WaitTimeoutError
            ``timeout``. ``peer_ended``: every process that can signal the semaphore has ended, as far as xsem knows
            (docs/explanation/peers.md), and no signal that is pending in this process meets the wait. ``abandoned``:
            the timeline was abandoned before it had this value (`abandon`). The error has one `PendingOp` with the
            possible signallers.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     frames = device.create_timeline()
        ...     try:
        ...         frames.host_wait(1, timeout_s=0.01)
        ...     except xsem.WaitTimeoutError as error:
        ...         print(error.reason, error.pending[0].value)
        timeout 1
        """
        self._check()
        device_state, state = self._device_state, self._state
        host = host_side(device_state, state, Feature.HOST_WAIT)
        check_timeout(timeout_s)
        value = self._check_value(value)
        began = time.monotonic()
        with device_state.calling(held=self._lifetime):
            done, ended = host_wait(lambda slice_ns: host.wait(value, slice_ns),
                                    SemaphoreBlocker(self.device._queues, state, value), timeout_s)
        found = ended or _abandoned(state, value)
        if not done or found is not None:
            raise host_wait_timeout(self.device._queues, state, value, timeout_s, time.monotonic() - began, found)

    async def reached(self, value: int, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Wait in asyncio until the value of the timeline is at least `value`.

        Use the method as ``await semaphore.reached(7)``. A cancellation ends the wait. One thread of xsem polls the
        values for all waits of the device.

        The value of a portable timeline can be read on every device. If the device cannot read the values of its other
        timelines (CUDA, Level Zero), append the wait to a command list with a ``signal_event``, and await the event.

        Parameters
        ----------
        value : int
            Smallest value of the timeline that ends the wait.
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        UnsupportedError
            The device cannot read the value.
        BadArgumentError
            ``not_a_timeline``; ``value_required``, ``value_out_of_range``, ``not_an_int``, ``bad_timeout``.
        WaitTimeoutError
            ``timeout``, ``peer_ended``, ``abandoned``, as for `host_wait`.
        ReleasedError
            The semaphore or the device is released, also during the wait.
        DriverError
            The driver cannot read the value.

        Examples
        --------
        >>> import asyncio
        >>> import xsem
        >>> async def next_frame(frames):
        ...     await frames.reached(1)
        ...     return frames.value()
        >>> with xsem.open_device("host") as device:
        ...     frames = device.create_timeline()
        ...     frames.host_signal(1)                       # usually by another process
        ...     asyncio.run(next_frame(frames))
        1
        """
        self._check()
        device_state = self._device_state
        self._require_value()
        self._check_timeline()
        check_timeout(timeout_s)
        least = self._check_value(value)
        if least is None:   # never, for a timeline
            return
        import asyncio  # already loaded: the caller runs in an event loop

        queues, state, began = self.device._queues, self._state, time.monotonic()
        reached = _Reached(device_state, state, least)

        def failure(ended: Ended | Abandoned | None) -> WaitTimeoutError:
            return host_wait_timeout(queues, state, least, timeout_s, time.monotonic() - began, ended)

        def blocked() -> Exception | None:
            ended = _abandoned(state, least) or SemaphoreBlocker(queues, state, least).ended_peers()
            return None if ended is None else failure(ended)

        limit = asyncio.timeout(None if timeout_s is None else min(timeout_s, FOREVER_S))
        try:
            async with limit:
                await wait_until_done(device_state, reached, blocked)
        except TimeoutError:
            if not limit.expired():
                raise
            if not reached.done():   # a timeout of 0 leaves no time for the thread that polls
                raise failure(None) from None

    def abandon(self) -> None:
        """End all waits for a portable timeline that no process will signal any more, in all processes.

        Each process with a handle that is not read-only can abandon the timeline, for example after ``peer_ended``.
        Waits for values up to the last one pass as usual. The waits of the host for higher values raise
        WaitTimeoutError (``abandoned``). Those of the devices end as if they were met, so that no list stays blocked.
        The work behind such a wait runs without its data. Its list therefore fails: as soon as xsem sees the end of the
        wait, each append, `CommandList.query` and `CommandList.synchronize` of the list raises DriverError
        (``abandoned``), and so do the events behind the wait.

        An abandoned timeline cannot be used again: create a new one. `value` returns the last value. New signals, and
        appended waits for higher values, raise ReleasedError (``abandoned``). The handles keep their owners. A second
        call has no effect.

        If every process that can signal the timeline has ended, xsem abandons it itself: when a
        `CommandList.synchronize` or a wait for an `Event` raises ``peer_ended`` because of it, and when the waiting
        list or its device is released (docs/explanation/peers.md).

        Raises
        ------
        UnsupportedError
            ``not_portable``: the semaphore is not a portable timeline.
        BadArgumentError
            ``only_waits``, as for `host_signal`.
        BusyError
            ``signal_pending``: a signal of this timeline, appended here, is pending. Its value would be stored after
            this call.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     frames = device.create_semaphore(xsem.SemaphoreHandleType.HOST_TIMELINE_FD)
        ...     frames.host_signal(3)
        ...     frames.abandon()
        ...     frames.value()
        3
        """
        self._check()
        device_state, state = self._device_state, self._state
        if state.page is None:
            raise self._not_portable("abandon()")
        state.check_can_signal()
        with device_state.calling(self.type, self._lifetime), state.host_order:
            if state.last is not None:
                self._check_none_queued(state.last, state.last)
            state.page.abandon()
        for queue in self.device._queues.live():
            queue.note_abandoned(queue.last_seq)

    def signalled_by(self, *peers: Peer) -> None:
        """Declare the processes that signal the semaphore, in place of those that xsem has noted.

        xsem notes the process that sent the semaphore to this process, and the processes to which this process sent it.
        If these do not signal the semaphore, or others signal it too, call this method. When all declared processes
        have ended, a wait for the semaphore raises ``peer_ended``. The declaration is valid for all imports of the same
        handle in this process, until the next call.

        Parameters
        ----------
        *peers : Peer
            The processes, for example ``Peer.of(process.pid)``. Without arguments, the signallers are not known, and
            the end of no process ends a wait. This process, ``Peer.of(os.getpid())``, has the same effect.

        Raises
        ------
        BadArgumentError
            ``not_a_peer``.

        Examples
        --------
        >>> import os
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     frames = device.create_timeline(label="frames")
        ...     frames.signalled_by(xsem.Peer.of(os.getppid()))
        """
        self._check()
        for peer in peers:
            if not isinstance(peer, Peer):
                raise BadArgumentError(f"a Peer is needed, for example Peer.of(pid), not {type(peer).__name__}",
                                       reason="not_a_peer")
        self._state.signallers.say(peers)

    @property
    def native_handle(self) -> int:
        """The vendor's handle of the object, as an int. xsem keeps ownership.

        With it, the application can signal and export the semaphore without xsem, so that the end of no process ends a
        wait from then on. For a portable timeline on Linux, this holds until another process imports it.

        Raises
        ------
        UnsupportedError
            ``native_handle``: the object has no native handle.
        """
        handle = super().native_handle
        self._state.lent = True
        self._state.signallers.lose()
        return handle

    def _require_value(self) -> None:
        if not can_read(self._device_state, self._state):
            self._device_state.unsupported(Feature.READ_VALUE.value)

    def _check_timeline(self) -> None:
        if self.kind is not SemaphoreKind.TIMELINE:
            raise BadArgumentError(f"{self._state.described} has no value", reason="not_a_timeline",
                                   handle_type=self.type)

    def _check_none_queued(self, value: int, last: int) -> None:
        queued = queued_signal(self.device._queues, self._state, last)
        if queued is not None:
            name, lower = queued
            raise BusyError(
                f"a signal of {lower} on {name} is pending, and would be stored after {value}: wait for it first, or "
                "append this signal to that list", reason="signal_pending", handle_type=self.type,
            )

    def _check_value(self, value: int | None) -> int | None:
        if self.kind is SemaphoreKind.TIMELINE:
            if value is None:
                raise BadArgumentError(f"{self._state.described} is a timeline: pass the value to wait for or to "
                                       "signal, for example 1", reason="value_required", handle_type=self.type)
            with contextlib.suppress(TypeError):  # check_int then raises a better error
                value = parse_index(value)
            check_int("value", value, 0, UINT64_MAX, reason="value_out_of_range")
        elif value is not None:
            raise BadArgumentError(f"{self._state.described} is not a timeline: it takes no value",
                                   reason="value_not_allowed", handle_type=self.type)
        return value

    def _token(self) -> Token:
        return self._state.token

    def __repr__(self) -> str:
        released = " released" if self.released else ""
        return f"<Semaphore {self._state.described} on {self._device_state.info.id}{released}>"


class _Reached:
    """A value of a timeline, as the notifier watches it."""

    # The semaphore stands for a queue, and the value for a place in the queue: as long as the semaphore has not reached
    # a value, it has not reached a higher one. So the notifier reads only the semaphores' lowest values.

    def __init__(self, device_state: DeviceState, state: SemaphoreState, value: int) -> None:
        self._device_state = device_state
        self.queue = state
        self.seq = value

    def done(self) -> bool:
        """Return whether the semaphore has reached the value."""
        with self._device_state.calling(self.queue.type, self.queue.lifetime):
            return read_value(self._device_state, self.queue) >= self.seq


def _abandoned(state: SemaphoreState, value: int | None) -> Abandoned | None:
    """Return the last value of a timeline that was abandoned before it met a wait for `value`."""
    page = state.page
    return Abandoned(page.value) if page is not None and page.lost(value) else None


def import_semaphore(device: Device, device_state: DeviceState, desc: SemaphoreDesc, label: str) -> Semaphore:
    """Import a semaphore, as `Device.import_semaphore` describes."""
    _check_label(label)
    if not isinstance(desc, SemaphoreDesc):
        raise BadArgumentError(f"import_semaphore takes a SemaphoreDesc, not {type(desc).__name__}: {_remedy(desc)}",
                               reason="not_a_descriptor")
    if desc.type not in device_state.capabilities.semaphore_import:
        device_state.unsupported(f"semaphore.import.{desc.type.value}")
    check_identity(desc, device_state.info)
    origin = origin_of(desc.handle)
    if desc.type.portable:
        portable = PortableTimelines(device_state, desc.type)
        with device_state.making(_described(desc.type, label), portable.release, desc.type, token_of=TOKEN) as making:
            opened: PortableTimeline = making.call(import_with_duplicate, desc, portable.open).token
            return _wrap(device, device_state, desc.type, label, opened.token, making.lifetime(), imported=True,
                         initial_value=None, signallers=_signallers(desc, exported_here=origin is not None),
                         page=opened.page)
    driver = device_state.ability(SemaphoreImport, "semaphore.import")
    with device_state.making(_described(desc.type, label), driver.release_semaphore, desc.type,
                             token_of=TOKEN, may_block=driver.release_semaphore_blocks) as making:
        imported = making.call(import_with_duplicate, desc, driver.import_semaphore)
        made = _wrap(device, device_state, desc.type, label, imported.token, making.lifetime(), imported=True,
                     initial_value=None, signallers=_signallers(desc, exported_here=origin is not None))
        made._state.origin = origin
        return made


def _export_signal(driver: SemaphoreExport, state: SemaphoreState) -> OwnedHandle | None:
    """Export the signal of a sync file, which uses the signal up."""
    state.claim_use()
    try:
        handle = driver.export_semaphore(state.token)
    except BaseException:
        state.take_back()
        raise
    state.settle()
    return handle


def _signallers(desc: SemaphoreDesc, *, exported_here: bool) -> Signallers:
    """Return the other processes that can signal an import."""
    known = signallers_of(desc.handle) if desc.peer is not None or exported_here else None
    signallers = known or Signallers(exported_here=False)
    if desc.peer is not None:
        signallers.add(desc.peer, SENT)
    elif not exported_here and not desc.type.portable:   # a page shows its holders
        signallers.lose()
    return signallers


def _remedy(given: object) -> str:
    if isinstance(given, Semaphore):
        return "semaphore.export(for_device=device) makes one"
    if isinstance(given, MemoryDesc):
        return "import_memory takes a MemoryDesc"
    return "SemaphoreDesc.timeline_fd(fd, device_uuid=…) and opaque_fd (binary) describe a file descriptor"


def create_semaphore(
    device: Device, device_state: DeviceState, type: SemaphoreHandleType | str, initial_value: int, label: str
) -> Semaphore:
    """Create a semaphore, as `Device.create_semaphore` describes."""
    _check_label(label)
    type = parse_member("type", type, SemaphoreHandleType, reason="bad_type")
    if type not in device_state.capabilities.semaphore_export:
        device_state.unsupported(f"semaphore.export.{type.value}")
    check_int("initial_value", initial_value, 0, UINT64_MAX, reason="value_out_of_range")
    timeline = type.kind is SemaphoreKind.TIMELINE
    if initial_value and not timeline:
        raise BadArgumentError(f"a {type.value} semaphore is not a timeline: it takes no initial value",
                               reason="value_not_allowed", handle_type=type)
    if type.portable:
        portable = PortableTimelines(device_state, type)
        with device_state.making(_described(type, label), portable.release, type) as making:
            made = making.call(portable.create, initial_value)
            return _wrap(device, device_state, type, label, made.token, making.lifetime(), imported=False,
                         initial_value=initial_value, signallers=Signallers(exported_here=True), page=made.page)
    driver = device_state.ability(SemaphoreExport, "semaphore.export")
    with device_state.making(_described(type, label), driver.release_semaphore, type) as making:
        token = making.call(driver.create_semaphore, type, initial_value)
        return _wrap(device, device_state, type, label, token, making.lifetime(), imported=False,
                     initial_value=initial_value if timeline else None, signallers=Signallers(exported_here=True))


def _check_label(label: object) -> None:
    # Any text is accepted: errors and reports show its repr(), which escapes control characters.
    if not isinstance(label, str):
        raise BadArgumentError(f"label must be a str, not {type(label).__name__}", reason="bad_label")


def _described(type: SemaphoreHandleType, label: str) -> str:
    return f"semaphore {label!r}" if label else f"{type.value} semaphore"


def _wrap(
    device: Device, device_state: DeviceState, type: SemaphoreHandleType, label: str, token: Token, lifetime: Lifetime,
    *, imported: bool, initial_value: int | None, signallers: Signallers, page: Timeline | None = None,
) -> Semaphore:
    limit = device_state.capabilities.max_value_difference
    state = SemaphoreState(type, label, token, lifetime, imported=imported, initial_value=initial_value,
                           lock=device_state.values_lock, signallers=signallers, page=page,
                           limit=limit if page is None else LARGEST_DIFFERENCE)
    state.signal_first = (state.kind is SemaphoreKind.BINARY
                          and type not in device_state.capabilities.wait_before_signal)
    signallers.add_user(device._queues, state)
    return Semaphore(device, state)

