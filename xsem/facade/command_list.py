"""Command lists: append waits, signals and work to a device, in order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from xsem.data.params import UINT64_MAX
from xsem.errors import BadArgumentError, BusyError, DriverError, ReleasedError, XsemError
from xsem.facade.arguments import (
    batch,
    check_can_signal,
    check_memories,
    check_same_device,
    checked_params,
    shortest_period,
)
from xsem.facade.buffer import Buffer
from xsem.facade.current_stream import current_stream
from xsem.facade.event import Event, check_event, fences_of
from xsem.facade.image import MipmapLevel
from xsem.facade.image_copies import CopyRegion, image_copy
from xsem.facade.memory import Memory
from xsem.facade.recording import Recording
from xsem.facade.resource import DeviceObject
from xsem.facade.semaphore import Semaphore
from xsem.runtime.diagnostics.host_waits import QueueBlocker, host_wait
from xsem.runtime.diagnostics.pending_operations import queue_pending
from xsem.runtime.diagnostics.timeout_error import timeout_error
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.queues.operations import Append, DriverCall, Work
from xsem.runtime.queues.prepared_append import PreparedAppend, prepared_append
from xsem.runtime.queues.queue import Queue, StreamUse
from xsem.runtime.quick import quick_append, quick_barrier
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.runtime.wrapper_lifetime import WrapperLifetime
from xsem.spi import CopyQueue, CudaStreamQueue, Token
from xsem.types import Feature, SignalParams, WaitParams

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["CommandList"]

_NONE: Final[tuple[()]] = ()  # the default of events and memory: an append recognizes this object by identity


class CommandList(DeviceObject):
    """An in-order queue of a device.

    `Device.create_command_list` creates a list, and `Device.command_list` borrows a stream. Any thread may append. When
    an append returns, the operation has reached the driver, in program order. xsem checks everything before it calls
    the driver: an append takes effect completely or not at all.

    Attributes
    ----------
    device : Device
        The device of the list.

    Raises
    ------
    ReleasedError
        ``released``: the list or its device was released. Each method except `release` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     drawn = device.create_timeline()
    ...     shown = device.create_timeline()
    ...     commands = device.create_command_list()
    ...     commands.append_wait(drawn, 1)
    ...     commands.append_signal(shown, 1)
    ...     commands.query()
    ...     drawn.host_signal(1)
    ...     commands.synchronize()
    ...     shown.value()
    False
    1
    """

    def __init__(self, device: Device, queue: Queue, use: StreamUse | None = None) -> None:
        # All wrappers of a borrowed stream share one queue, so the release of a wrapper must not end the queue.
        super().__init__(device, queue.lifetime if use is None else WrapperLifetime(queue.name, queue.lifetime))
        self._queue = queue
        self._stream_use = use   # keeps the queue of a borrowed stream in the table
        self._stopped: DriverError | None = None  # set if work that ran at once raised

    # ---- semaphores
    @overload
    def append_wait(
        self, semaphores: Semaphore, params: int | WaitParams | None = None, *, wait_events: Sequence[Event] = (),
        signal_event: Event | None = None, acquire: Sequence[Memory] = (),
    ) -> None: ...
    @overload
    def append_wait(
        self, semaphores: Sequence[Semaphore], params: Sequence[int | WaitParams | None], *,
        wait_events: Sequence[Event] = (), signal_event: Event | None = None, acquire: Sequence[Memory] = (),
    ) -> None: ...
    def append_wait(
        self, semaphores: Semaphore | Sequence[Semaphore],
        params: int | WaitParams | Sequence[int | WaitParams | None] | None = None, *,
        wait_events: Sequence[Event] = (), signal_event: Event | None = None, acquire: Sequence[Memory] = (),
    ) -> None:
        """Make later work in this list wait for semaphores.

        cuWaitExternalSemaphoresAsync; zeCommandListAppendWaitExternalSemaphoreExt (rule 2: events first, then
        semaphores; rule 4: the host is not blocked).

        Parameters
        ----------
        semaphores : Semaphore or sequence of Semaphore
            One semaphore, or several semaphores, none twice. Later work waits for all of them.
        params : int, WaitParams, None, or a sequence of these
            One parameter for one semaphore. For a sequence of semaphores, a sequence of the same length: xsem does not
            broadcast. Timelines take an int or ``WaitParams(value=)``: later work waits until the value of the
            semaphore is at least this value. Binary semaphores and sync files take None. If
            `Capabilities.resets_on_wait` is True, a met wait resets a binary semaphore. Keyed mutexes take
            ``WaitParams(key=)``, also with ``timeout_ms``. NvSciSync takes ``WaitParams(nvscisync_fence=)``.
        wait_events : sequence of Event
            The wait begins when the operations of these events are done.
        signal_event : Event, optional
            Unbound event. The append binds it to this operation.
        acquire : sequence of Memory
            Memory that the device takes over after the wait. Needed if `Capabilities.needs_handover` is True.

        Raises
        ------
        BadArgumentError
            ``value_required`` and the like, ``params_mismatch``, ``empty_batch``, ``duplicate_semaphore`` and others.
            If one member of a batch is bad, nothing is appended.
        WouldBlockError
            ``would_block``: the driver would block this thread.
        EventNotAppendedError
            ``event_not_appended``: an event of `wait_events` is unbound.
        BusyError
            ``event_bound``: `signal_event` is bound already. ``not_reset``; ``sync_file_used``, ``nothing_signalled``.
        ReleasedError, WrongDeviceError
            The list or an argument is released, or an argument belongs to another device. ``abandoned``: the timeline
            was abandoned before it had the value (`Semaphore.abandon`).
        DriverError
            The driver refused the append, or earlier work of the list failed.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     drawn, copied = device.create_timeline(), device.create_timeline()
        ...     commands = device.create_command_list()
        ...     commands.append_wait(drawn, 1)                          # returns at once
        ...     commands.append_wait([drawn, copied], [2, 1])           # later work waits for both
        ...     drawn.host_signal(2)
        ...     copied.host_signal(1)
        ...     commands.synchronize()
        """
        if quick_append is None or not quick_append(self._queue.prepared.waits, semaphores, params, self._lifetime,
                                                    wait_events, signal_event, acquire, self._stopped):
            self._append_semaphores(self._find("wait", semaphores), params, wait_events, signal_event, acquire)

    @overload
    def append_signal(
        self, semaphores: Semaphore, params: int | SignalParams | None = None, *, wait_events: Sequence[Event] = (),
        signal_event: Event | None = None, release: Sequence[Memory] = (),
    ) -> None: ...
    @overload
    def append_signal(
        self, semaphores: Sequence[Semaphore], params: Sequence[int | SignalParams | None], *,
        wait_events: Sequence[Event] = (), signal_event: Event | None = None, release: Sequence[Memory] = (),
    ) -> None: ...
    def append_signal(
        self, semaphores: Semaphore | Sequence[Semaphore],
        params: int | SignalParams | Sequence[int | SignalParams | None] | None = None, *,
        wait_events: Sequence[Event] = (), signal_event: Event | None = None, release: Sequence[Memory] = (),
    ) -> None:
        """Signal semaphores when all earlier work in this list is done.

        cuSignalExternalSemaphoresAsync; zeCommandListAppendSignalExternalSemaphoreExt (rule 1).

        Parameters
        ----------
        semaphores : Semaphore or sequence of Semaphore
            As for `append_wait`.
        params : int, SignalParams, None, or a sequence of these
            As for `append_wait`, with `SignalParams`. The value of a timeline must be above the last value signalled
            here. ``SignalParams(allow_rewind=True)`` permits any other value. ``SignalParams(key=)`` releases a keyed
            mutex.
        wait_events : sequence of Event
            The signal also waits for the operations of these events.
        signal_event : Event, optional
            As for `append_wait`.
        release : sequence of Memory
            Memory that the device hands over before the signal.

        Raises
        ------
        BadArgumentError
            ``value_not_above_last``, ``value_difference``, ``signal_of_sync_file``, ``only_waits`` and others. If one
            member of a batch is bad, nothing is appended.
        BusyError
            ``event_bound``: `signal_event` is bound already. ``signalled_already``.
        WouldBlockError, EventNotAppendedError, ReleasedError, WrongDeviceError, DriverError
            As for `append_wait`.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     done, commands = device.create_timeline(), device.create_command_list()
        ...     commands.append_signal(done, 1)                         # returns at once
        ...     done.host_wait(1)
        """
        if quick_append is None or not quick_append(self._queue.prepared.signals, semaphores, params, self._lifetime,
                                                    wait_events, signal_event, release, self._stopped):
            self._append_semaphores(self._find("signal", semaphores), params, wait_events, signal_event, release)

    # ---- work
    def append_work(self, work: Callable[[], object]) -> None:
        """Append the application's own work, in order.

        On a native queue, the call runs `work` at once on this thread. The function must only enqueue, and only on this
        stream. On `host`, the worker thread of the list calls `work` in its turn. A function that reads or writes
        arrays of the host, for example of NumPy, is therefore right only on `host`. On every device, `append_copy` and
        `append_fill` are right, and such code after `synchronize`. `append_barrier` adds events before or after the
        work.

        An exception in `work` stops the list. On a native queue, this call raises the exception. From then on, every
        append, `query` and `synchronize` raises DriverError (``work_failed``). Later work is not executed. Signals that
        depend on this work are not made.

        Parameters
        ----------
        work : callable
            Function without parameters. Its result is ignored.

        Raises
        ------
        BadArgumentError
            ``not_callable``.
        WouldBlockError, ReleasedError, DriverError
            As for `append_wait`.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     drawn, commands = device.create_timeline(), device.create_command_list()
        ...     seen = []
        ...     commands.append_wait(drawn, 1)
        ...     commands.append_work(lambda: seen.append(drawn.value()))    # host only
        ...     drawn.host_signal(1)
        ...     commands.synchronize()
        ...     seen
        [1]

        On a GPU, the function enqueues a kernel, for example of torch::

            view = torch.from_dlpack(buffer)
            commands = device.command_list(torch.cuda.current_stream())
            commands.append_wait(frames, 1)
            commands.append_work(lambda: view.mul_(2))     # or without append_work: the same stream, the same order
            commands.append_signal(frames, 2)
        """
        self._check()
        if not callable(work):
            raise BadArgumentError(f"append_work takes a callable, not {type(work).__name__}", reason="not_callable")
        self._check_stopped()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)
                raise

        queue = self._queue
        try:
            # The hold is needed because the work itself may release the list.
            with queue.lifetime.held():
                queue.append(Work(queue.driver, run), None, self._lifetime)
        except BaseException as error:
            if failed and failed[0] is error:
                failure = DriverError(f"work appended to {self._queue.name} raised {type(error).__name__}: {error}",
                                      reason="work_failed", from_earlier_work=True,
                                      backend=self._device_state.info.backend)
                failure.__cause__ = error
                self._stopped = failure
            raise

    def append_barrier(self, *, wait_events: Sequence[Event] = (), signal_event: Event | None = None) -> None:
        """Make later work wait for events, and bind an event to the end of all earlier work.

        Parameters
        ----------
        wait_events : sequence of Event
            Later work waits for the operations of these events.
        signal_event : Event, optional
            Unbound event. The append binds it to the end of all earlier work and of `wait_events`.

        Raises
        ------
        BadArgumentError
            ``not_an_event``, ``foreign_event``.
        WouldBlockError, EventNotAppendedError, BusyError, ReleasedError, WrongDeviceError, DriverError
            As for `append_wait`.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     first, second = device.create_command_list(), device.create_command_list()
        ...     event = device.create_event()
        ...     first.append_barrier(signal_event=event)
        ...     second.append_barrier(wait_events=[event])              # later work of `second` waits for `first`
        ...     second.synchronize()
        """
        if quick_barrier is None or not quick_barrier(self._queue.quick, self._lifetime, wait_events, signal_event,
                                                      self._stopped):
            self._append(self._queue.barrier, None, wait_events, signal_event)

    def append_copy(
        self, dst: Buffer | MipmapLevel, src: Buffer | MipmapLevel, *, offset: Sequence[int] | None = None,
        extent: Sequence[int] | None = None, layer: int | None = None, layers: int | None = None,
        src_offset: Sequence[int] | None = None, src_layer: int | None = None, row_pitch: int | None = None,
        slice_pitch: int | None = None, wait_events: Sequence[Event] = (), signal_event: Event | None = None,
    ) -> None:
        """Copy between buffers, between a buffer and a level of an image, or between levels (cuMemcpy3DAsync).

        Between two buffers, the copy takes all bytes, and the buffers have the same size. No parameter of a region is
        permitted. A copy with a level takes a region and needs `Feature.IMAGE_COPY`. The region has the order of
        images, (x, y, z) and (width, height, depth) in pixels. An array in C order has the reverse order: its shape is
        (layers or depth, height, width, channels), as for `MipmapLevel.read`.

        A region of a block-compressed format has whole blocks of 4 x 4 pixels: its offset, width and height are
        multiples of 4. Only a region that ends with the level can have another width or height. In the buffer, an
        element is then a block: the shape is (layers, rows of blocks, blocks per row, bytes per block).

        A buffer with one dimension holds the rows of the region from its first byte on, without padding. It can be
        larger than the region. A buffer with more dimensions has the shape of the region, and its strides give the
        pitches. The dimension of the channels can be part of the element type, and a dimension of length 1 can be
        absent. With `row_pitch` or `slice_pitch`, xsem ignores the shape of the buffer.

        A copy converts nothing: it copies the bytes of the elements.

        Parameters
        ----------
        dst, src : Buffer or MipmapLevel
            Buffers are mappings of this device's memory, or page-locked host memory (`Device.host_buffer`). A copy with
            ordinary host memory would block the host behind an unmet wait. An image stays mapped until the copy is
            done.
        offset : sequence of int, optional
            First pixel of the region in the level, (x, y, z). Between two levels: in `dst`. Default: (0, 0, 0).
        extent : sequence of int, optional
            Width, height and depth of the region in pixels. For a dimension that the level lacks, 0 and 1 are
            permitted. Default: from `offset` to the end of the level.
        layer : int, optional
            First layer of the region. Between two levels: in `dst`. Default: layer 0.
        layers : int, optional
            Number of layers. Default: one layer with `layer`, all layers without `layer`.
        src_offset, src_layer : optional
            Between two levels: first pixel and first layer in `src`. Defaults: `offset` and `layer`.
        row_pitch : int, optional
            Bytes from one row to the next in the buffer: a multiple of the size of an element, at least the bytes of a
            row of the region. Default: see above.
        slice_pitch : int, optional
            Bytes from one slice or layer to the next in the buffer, a multiple of `row_pitch`. Default: the rows of the
            region.
        wait_events : sequence of Event
            The copy begins when the operations of these events are done.
        signal_event : Event, optional
            As for `append_wait`.

        Raises
        ------
        BadArgumentError
            ``not_a_buffer``: an argument is neither a Buffer nor a MipmapLevel. ``overlap``: the two ranges, regions or
            images overlap. ``size_mismatch``: the sizes of the buffers or of the regions differ. ``out_of_range``: the
            region reaches beyond the level or the buffer. ``shape_mismatch``, ``bad_strides``: the buffer does not have
            the shape of the region. ``format_mismatch``: the elements of the levels differ in size. ``bad_pitch``,
            ``bad_offset``, ``bad_extent``, ``bad_layers``, ``not_an_int``. ``not_an_image``: a parameter describes a
            level, but the argument is a buffer.
        UnsupportedError
            The device has no copies, or no copies of images. Or the device cannot make this copy: the error names the
            missing part.
        WouldBlockError, EventNotAppendedError, BusyError, ReleasedError, WrongDeviceError, DriverError
            As for `append_wait`.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     buffer = device.create_memory("OPAQUE_FD", 4096).map_buffer()
        ...     staging, commands = device.host_buffer(4096), device.create_command_list()
        ...     commands.append_fill(buffer, bytes([7]))
        ...     commands.append_copy(staging, buffer)
        ...     commands.synchronize()
        ...     staging.numpy()[0].item()
        7

        `host` has no images. On a device with `Feature.IMAGE_COPY`::

            level = image.level(0)                                        # 640 x 480 elements of 4 x uint8
            pixels = memory.map_buffer(shape=(480, 640, 4), dtype="uint8")
            commands.append_copy(pixels, level)                           # the whole level
            corner = device.host_buffer(64 * 32 * 4)
            commands.append_copy(corner, level, offset=(576, 448, 0), extent=(64, 32, 0))
            commands.append_copy(level, level, extent=(64, 32, 0), src_offset=(64, 0, 0))
        """
        self._check()
        region = CopyRegion(offset, extent, layer, layers, src_offset, src_layer, row_pitch, slice_pitch)
        if isinstance(dst, MipmapLevel) or isinstance(src, MipmapLevel):
            for end in (dst, src):
                if isinstance(end, MipmapLevel):
                    check_same_device(self._device_state, end._array, "image")
                else:
                    self._buffer(end)
            call = image_copy(self._device_state, self._queue.driver, dst, src, region)
        else:
            call = self._buffer_copy(dst, src, region)
        self._append(call, None, wait_events, signal_event)

    def append_fill(
        self, dst: Buffer, pattern: bytes, *, wait_events: Sequence[Event] = (), signal_event: Event | None = None
    ) -> None:
        """Fill a buffer with a repeated pattern.

        Parameters
        ----------
        dst : Buffer
            As for `append_copy`.
        pattern : bytes
            Pattern to repeat. One zero byte clears the buffer.
        wait_events : sequence of Event
            The fill begins when the operations of these events are done.
        signal_event : Event, optional
            As for `append_wait`.

        Raises
        ------
        BadArgumentError
            ``bad_pattern``: the pattern is empty, its length does not divide the size of the buffer, or the device does
            not support it; ``not_a_buffer``.
        UnsupportedError
            The device cannot fill buffers.
        WouldBlockError, EventNotAppendedError, BusyError, ReleasedError, WrongDeviceError, DriverError
            As for `append_wait`.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     buffer = device.create_memory("OPAQUE_FD", 4096).map_buffer()
        ...     commands = device.create_command_list()
        ...     commands.append_fill(buffer, bytes([1, 2]))
        ...     commands.synchronize()
        ...     buffer.copy_to_host()[:4].tolist()
        [1, 2, 1, 2]
        """
        self._check()
        lifetime = self._buffer(dst)
        if not isinstance(pattern, bytes | bytearray) or not pattern or dst.size % len(pattern):
            raise BadArgumentError(f"the pattern must be bytes whose length divides {dst.size}, not {pattern!r}",
                                   reason="bad_pattern")
        driver = self._device_state.ability(CopyQueue, "append_fill", self._queue.driver)
        place = dst._place
        self._append(DriverCall("fill", driver.append_fill,
                                (place.token, place.offset, shortest_period(bytes(pattern)), dst.size), (lifetime,)),
                     None, wait_events, signal_event)

    # ---- streams of frameworks
    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the version of the CUDA stream protocol, 0, and the CUstream.

        Libraries with this protocol take the list as a stream, for example ``cuda.core.Stream.from_handle`` or Warp.
        The list, or the owner of a borrowed stream, keeps ownership of the stream. Keep the list while another library
        uses the stream. After the first call, xsem expects that the application can capture the stream into a graph.

        Returns
        -------
        tuple of int
            0 and the handle. For the legacy default stream, the handle is 1 (CU_STREAM_LEGACY).

        Raises
        ------
        UnsupportedError
            ``unsupported``: the list is not a CUDA stream.
        BadArgumentError
            ``per_thread_stream``: another thread has borrowed its per-thread default stream.
        """
        return 0, self._cuda_stream()[0]

    def as_current(self) -> AbstractContextManager[CommandList]:
        """Make the stream of this list the current stream of torch and CuPy, for a ``with`` block on this thread.

        The block affects torch and CuPy if the process has imported them before the block. xsem imports neither. The
        end of the block restores the earlier streams and the earlier current device, also after an exception. Work of
        the frameworks in the block has its place in the order of the list: between the appends before and after it.
        The end of the block appends an operation, so `query`, `synchronize` and events include this work.

        The block applies to a thread, not to a task: an ``await`` in the block would let other tasks use the stream. If
        the list owns its stream, keep the list while arrays exist that a framework allocated in the block: the
        allocators of torch and CuPy remember the stream of each allocation.

        Returns
        -------
        context manager
            Its value is this list.

        Raises
        ------
        UnsupportedError
            ``unsupported``: the list is not a CUDA stream. ``no_framework``: the process has imported neither torch nor
            CuPy with CUDA.
        BadArgumentError
            ``per_thread_stream``, as for ``__cuda_stream__``.
        WouldBlockError, ReleasedError, DriverError
            As for `append_work`. The end of the block can raise them, too.

        Examples
        --------
        `host` has no streams. On CUDA, with torch::

            commands.append_wait(drawn, 1)
            with commands.as_current():
                tensor.mul_(2)
            commands.append_signal(filtered, 1)
        """
        return _current(self, *self._cuda_stream())

    # ---- completion
    def query(self) -> bool:
        """Query whether everything appended so far is done. This method never blocks.

        Returns
        -------
        bool
            True if all operations are done.

        Raises
        ------
        DriverError
            Earlier work failed.
        BusyError
            ``capturing``: the list is being captured or recorded. Captured work does not run.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     drawn, commands = device.create_timeline(), device.create_command_list()
        ...     commands.append_wait(drawn, 1)
        ...     commands.query()
        ...     drawn.host_signal(1)
        False
        """
        self._check()
        queue = self._queue
        queue.enter()
        target = queue.appended()
        queue.ensure_marker(target)
        queue.poll()
        self._check_stopped()
        if queue.done_seq >= target:
            return True
        if queue.captured():
            raise BusyError(f"{queue.name} is being captured: captured work does not run", reason="capturing")
        return False

    def synchronize(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Block the host until everything appended so far is done.

        Ctrl-C interrupts the wait.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        WaitTimeoutError
            ``timeout``, with the pending operations. If xsem can identify the blocked operation, it comes first. The
            work stays pending. ``peer_ended``: the list waits for a semaphore, every process that can signal it has
            ended (docs/explanation/peers.md), and no signal that is pending in this process meets the wait. xsem then
            abandons a portable timeline (`Semaphore.abandon`), so that the list ends, and the next call raises
            DriverError.
        DriverError
            Earlier work failed. ``abandoned``: a wait of the list ended because its timeline was abandoned.
        BusyError
            ``in_append``: the call comes from a signal handler that interrupted an append to this list. ``capturing``.
        BadArgumentError
            ``bad_timeout``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     drawn, commands = device.create_timeline(), device.create_command_list()
        ...     commands.append_wait(drawn, 1)
        ...     try:
        ...         commands.synchronize(timeout_s=0.01)
        ...     except xsem.WaitTimeoutError as error:
        ...         print(error.reason, error.pending[0].value)
        ...     drawn.host_signal(1)
        timeout 1
        """
        check_timeout(timeout_s)
        self._check()
        self._check_stopped()
        queue = self._queue
        with self._lifetime.held(), self._device_state.calling():
            target = queue.appended()
            blocker = QueueBlocker(self.device._queues, queue, target)
            done, ended = host_wait(lambda slice_ns: queue.wait(target, slice_ns), blocker, timeout_s)
        self._check_stopped()
        if not done:
            error = timeout_error(self._device_state, queue.name, timeout_s,
                                  queue_pending(self.device._queues, queue, target), ended)
            if ended is not None:
                blocker.give_up()
            raise error
        self._device_state.releaser.wake()

    def record(self) -> Recording:
        """Record appends without executing them.

        Enter the recording with ``with commands.record() as recording:``, append inside the block, and call
        `Recording.replay` after the block.

        Returns
        -------
        Recording
            The recording. Its ``with`` block begins and ends it.

        Raises
        ------
        UnsupportedError
            The device does not declare recording.

        Examples
        --------
        `host` has no recordings. On a device with `Feature.RECORDING`::

            with commands.record() as recording:
                commands.append_wait(drawn, 1)
                commands.append_signal(filtered, 1)
            recording.replay({drawn: 2, filtered: 2})
        """
        self._check()
        self._device_state.require(Feature.RECORDING)
        return Recording(self.device, self._queue, self._check_stopped)

    # ---- inside
    def _find(
        self, operation: Literal["wait", "signal"], semaphores: Semaphore | Sequence[Semaphore]
    ) -> PreparedAppend:
        """Return the prepared append of these semaphores. The first append checks them and creates it."""
        cache = self._queue.prepared
        if type(semaphores) is Semaphore:
            semaphore = semaphores
            found = (cache.waits if operation == "wait" else cache.signals).get(semaphore._state)
        else:
            found = cache.find_batch(operation, semaphores)
        if found is not None:
            return found
        self._check()
        states = [each._state for each in batch(self._device_state, semaphores, f"append_{operation}")]
        if operation == "signal":
            for state in states:
                check_can_signal(state)
        append = prepared_append(self._queue, operation, states, batch=not isinstance(semaphores, Semaphore))
        cache.add(append)
        return append

    def _append_semaphores(
        self, append: PreparedAppend, params: Any, wait_events: Sequence[Event] = _NONE,
        signal_event: Event | None = None, memories: Sequence[Memory] = _NONE,
    ) -> None:
        quick = None if memories is _NONE else append.quick   # `quick_append` has refused the rest
        usual = append.takes_int and type(params) is int and 0 <= params <= UINT64_MAX
        if not usual and not (params is None and append.takes_none):
            params, quick = checked_params(append, params), append.quick
        if wait_events is _NONE and signal_event is None and memories is _NONE and self._stopped is None and (
                quick is None):
            self._queue.append(append, params, self._lifetime)
        else:
            self._append(append, params, wait_events, signal_event, memories, quick)

    def _append(
        self, append: Append, params: Any, wait_events: Sequence[Event], signal_event: Event | None,
        memories: Sequence[Memory] = _NONE, quick: Any = None,
    ) -> None:
        if self._stopped is not None:
            self._check_stopped()
        queue, device_state = self._queue, self._device_state
        kept = fences_of(device_state, wait_events) if wait_events is not _NONE else ()
        lifetimes: Sequence[Lifetime] = ()
        tokens: Sequence[Token] = ()
        if memories is not _NONE:
            lifetimes, tokens = check_memories(device_state, memories)
        if quick is not None and not tokens and quick.append(
                params, self._lifetime, wait_events, signal_event, lifetimes):
            return
        if signal_event is None:
            queue.append(append, params, self._lifetime, kept, lifetimes, tokens)
            return
        check_event(device_state, signal_event)
        fence, by = None, object()
        try:
            signal_event._claim(by)
            fence = queue.append(append, params, self._lifetime, kept, lifetimes, tokens, True)
        finally:
            signal_event._bind(by, fence)

    def _check_stopped(self) -> None:
        self._lifetime.check()
        self._queue.raise_failure()
        if self._stopped is not None:
            raise copy.copy(self._stopped) from self._stopped.__cause__

    def _buffer_copy(self, dst: Buffer, src: Buffer, region: CopyRegion) -> DriverCall:
        target, source = self._buffer(dst), self._buffer(src)
        region.refuse_for_buffers()
        if dst.size != src.size:
            raise BadArgumentError(f"the buffers' sizes differ: {dst.size} and {src.size} bytes",
                                   reason="size_mismatch")
        to, out_of = dst._place, src._place
        if to.overlaps(out_of, dst.size):
            raise BadArgumentError("the two buffers overlap", reason="overlap")
        driver = self._device_state.ability(CopyQueue, "append_copy", self._queue.driver)
        return DriverCall("copy", driver.append_copy, (to.token, to.offset, out_of.token, out_of.offset, dst.size),
                          (target, source))

    def _cuda_stream(self) -> tuple[int, int]:
        self._check()
        queue = self._queue
        driver = self._device_state.ability(CudaStreamQueue, "cuda_stream", queue.driver)
        with queue.lifetime.held(), self._device_state.calling():
            found = driver.cuda_stream()
        # From here on, the application can capture the stream.
        queue.state.exposed = True
        return found

    def _buffer(self, buffer: Buffer) -> Lifetime:
        if not isinstance(buffer, Buffer):
            raise BadArgumentError(f"an xsem Buffer is needed, not {type(buffer).__name__}; host memory comes from "
                                   "device.host_buffer()", reason="not_a_buffer")
        check_same_device(self._device_state, buffer, "buffer")
        return buffer._lifetime

    @property
    def native_handle(self) -> int:
        """The native stream or queue.

        The list owns the stream that it created. The application owns a borrowed stream. After the first read of this
        property, xsem expects that the application can capture the stream into a graph.

        Raises
        ------
        UnsupportedError
            ``native_handle``: the queue has no native handle.
        """
        self._check()
        handle = self._queue.driver.native_handle
        if handle is None:
            self._device_state.unsupported("native_handle")
        # From here on, the application can capture the stream.
        self._queue.state.exposed = True
        return handle

    def __repr__(self) -> str:
        return f"<CommandList {self._queue.name}>"


@contextmanager
def _current(commands: CommandList, handle: int, ordinal: int) -> Iterator[CommandList]:
    """Make the stream of a list the current stream, as `CommandList.as_current` describes."""
    commands._check_stopped()
    queue = commands._queue
    entered = False
    # The hold is needed because the block may release the list.
    with queue.lifetime.held():
        try:
            with current_stream(handle, ordinal):
                entered = True
                yield commands
        except BaseException:
            if entered:
                with suppress(XsemError):   # the exception of the block is more important
                    queue.append(Work(queue.driver, _nothing), None, queue.lifetime)
            raise
        with suppress(ReleasedError):   # the block has released the list
            queue.append(Work(queue.driver, _nothing), None, queue.lifetime)


def _nothing() -> None:
    """Stand for the work of frameworks, which is on the stream already."""
