"""Events: the end of one appended operation, for the host, other lists and asyncio."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from xsem.data.signallers import Ended
from xsem.errors import BadArgumentError, BusyError, EventNotAppendedError, WaitTimeoutError, WrongDeviceError
from xsem.facade.awaiting import wait_until_done
from xsem.facade.resource import DeviceObject
from xsem.runtime.device_state import DeviceState
from xsem.runtime.diagnostics.host_waits import QueueBlocker, host_wait
from xsem.runtime.diagnostics.pending_operations import queue_pending
from xsem.runtime.diagnostics.timeout_error import timeout_error
from xsem.runtime.queues.operations import Fence
from xsem.runtime.timeouts import DEFAULT_TIMEOUT_S, check_timeout
from xsem.runtime.wrapper_lifetime import WrapperLifetime
from xsem.spi import Token

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["Event", "check_event", "fences_of"]


class Event(DeviceObject):
    """The end of one appended operation.

    `Device.create_event` makes an unbound event. An append with the event as ``signal_event`` binds the event to this
    operation. `reset` unbinds the event. `Device.event` borrows an event of another library. A borrowed event is
    already bound. A wait uses the binding at the time of its append. ``await event`` waits in asyncio.

    Attributes
    ----------
    device : Device
        The device of the event.

    Raises
    ------
    ReleasedError
        ``released``: the event or its device was released. Each method except `release` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    >>> import xsem
    >>> with xsem.open_device("host") as device:
    ...     commands = device.create_command_list()
    ...     event = device.create_event()
    ...     commands.append_barrier(signal_event=event)
    ...     event.wait(timeout_s=10)
    ...     event.query()
    True
    """

    def __init__(self, device: Device, fence: Fence | None = None) -> None:
        self._foreign = fence is not None
        self._fence = fence
        self._claimed: object = None   # the append that is about to bind the event
        super().__init__(device, WrapperLifetime("event", device._device_state.lifetime))

    def query(self) -> bool:
        """Query whether the operation is done. This method never blocks.

        Returns
        -------
        bool
            True if the operation is done.

        Raises
        ------
        EventNotAppendedError
            ``event_not_appended``.
        DriverError
            The operation can never be done, because earlier work of its list failed.
        BusyError
            ``capturing``: the operation was captured or recorded, not executed.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     drawn, event = device.create_timeline(), device.create_event()
        ...     device.create_command_list().append_wait(drawn, 1, signal_event=event)
        ...     event.query()
        ...     drawn.host_signal(1)
        False
        """
        fence = self._running()
        with self._device_state.calling():
            done = fence.done()
        self._reached(done, fence)
        return done

    def wait(self, *, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> None:
        """Block the host until the operation is done.

        Ctrl-C interrupts the wait.

        Parameters
        ----------
        timeout_s : float or None
            Seconds; None: no limit.

        Raises
        ------
        WaitTimeoutError
            ``timeout``, with the pending operations of the same list up to this operation. ``peer_ended``, as for
            `CommandList.synchronize`.
        EventNotAppendedError
            ``event_not_appended``.
        DriverError
            The operation can never be done, because earlier work of its list failed.
        BusyError
            ``capturing``, as for `query`.
        BadArgumentError
            ``bad_timeout``.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     event = device.create_event()
        ...     device.create_command_list().append_barrier(signal_event=event)
        ...     event.wait(timeout_s=10)
        """
        check_timeout(timeout_s)
        fence = self._running()
        blocker = self._blocker(fence)
        with self._lifetime.held(), self._device_state.calling():
            done, ended = host_wait(fence.wait, blocker, timeout_s)
        self._reached(done, fence)
        if not done:
            error = self._not_done(fence, timeout_s, ended)
            if ended is not None:
                blocker.give_up()
            raise error

    def reset(self) -> None:
        """Unbind the event.

        Appended waits and added callbacks keep their operation. A borrowed event cannot be bound again.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     event, commands = device.create_event(), device.create_command_list()
        ...     for frame in range(3):
        ...         commands.append_barrier(signal_event=event)
        ...         event.wait()
        ...         event.reset()
        """
        self._check()
        # An append in progress binds the event after this call.
        self._fence = None

    def release(self) -> None:
        """Release the event. Appended waits and added callbacks keep their operation.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     event = device.create_event()
        ...     event.release()
        ...     event.released
        True
        """
        super().release()
        self._fence = None

    def add_done_callback(self, callback: Callable[[Event], object]) -> None:
        """Request one call of ``callback(event)`` when the currently bound operation is done or has failed.

        The callback runs on a thread of xsem soon after the end of the operation, and must not block. An exception in
        the callback, also SystemExit, is logged and does not affect other callbacks. If the system refuses a thread, a
        warning to the logger ``"xsem"`` says so. Later calls on the device then try again.

        Parameters
        ----------
        callback : callable
            Function of the application. Its parameter is this event.

        Raises
        ------
        EventNotAppendedError
            ``event_not_appended``.
        BusyError
            ``capturing``, as for `query`.
        BadArgumentError
            ``not_callable``.

        Examples
        --------
        >>> import threading
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     event, told = device.create_event(), threading.Event()
        ...     device.create_command_list().append_barrier(signal_event=event)
        ...     event.add_done_callback(lambda event: told.set())
        ...     told.wait(10)
        True
        """
        if not callable(callback):
            raise BadArgumentError(f"callback must be callable, not {type(callback).__name__}", reason="not_callable")
        self._device_state.notifier.add(self._running(), lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the operation in asyncio.

        A cancellation ends the wait, but not the work. The wait has no limit of its own. ``asyncio.timeout`` limits it.

        Returns
        -------
        Generator
            For ``await``. The result of ``await event`` is None.

        Raises
        ------
        EventNotAppendedError, DriverError, BusyError, ReleasedError
            As for `wait`. ReleasedError is also raised if the device is released during the wait.
        WaitTimeoutError
            ``peer_ended``, as for `wait`.
        """
        fence = self._running()
        blocker = self._blocker(fence)

        def blocked() -> Exception | None:
            ended = blocker.ended_peers()
            return None if ended is None else self._not_done(fence, None, ended)

        try:
            yield from wait_until_done(self._device_state, fence, blocked)
        except WaitTimeoutError:
            blocker.give_up()
            raise

    def _blocker(self, fence: Fence) -> QueueBlocker:
        return QueueBlocker(self.device._queues, fence.queue, fence.seq)

    def _not_done(self, fence: Fence, timeout_s: float | None, ended: Ended | None) -> WaitTimeoutError:
        pending = [] if fence.queue is None else queue_pending(self.device._queues, fence.queue, fence.seq)
        return timeout_error(self._device_state, "the event's operation", timeout_s, pending, ended)

    def _bound(self) -> Fence:
        self._check()
        fence = self._fence
        if fence is None:
            raise _not_appended()
        return fence

    def _running(self) -> Fence:
        fence = self._bound()
        fence.check_running()
        return fence

    def _claim(self, by: object) -> None:
        """Claim the event for an append. Of two concurrent appends, one is refused before the driver's call."""
        self._lifetime.check()
        if self._foreign:
            raise BadArgumentError("a borrowed event cannot be a signal_event: use an event of create_event()",
                                   reason="foreign_event")
        with self._device_state.values_lock:
            if self._fence is not None or self._claimed is not None:
                raise BusyError("the event is already bound to an operation; reset() unbinds it", reason="event_bound")
            self._claimed = by

    def _bind(self, by: object, fence: Fence | None) -> None:
        """End a claim, if the append has it, with the fence of the operation; None: nothing was appended."""
        if self._claimed is by:
            self._fence = fence
            self._claimed = None

    def _reached(self, done: bool, fence: Fence) -> None:
        if done and fence.queue is not None:
            fence.queue.reached(fence.seq)

    def _token(self) -> Token:
        return self._bound().token


def _not_appended() -> EventNotAppendedError:
    return EventNotAppendedError(
        "the event is not bound to an operation: no append had it as signal_event since it was created or reset",
        reason="event_not_appended",
    )


def fences_of(device_state: DeviceState, events: Sequence[Event]) -> Sequence[Fence]:
    """Return the present fence of each event."""
    if type(events) is not list and type(events) is not tuple and not isinstance(events, Sequence):
        raise BadArgumentError(f"a sequence of xsem Events is needed, not {type(events).__name__}",
                               reason="not_an_event")
    fences = []
    for event in events:
        check_event(device_state, event)
        event._lifetime.check()
        fence = event._fence
        if fence is None:
            raise _not_appended()
        fences.append(fence)
    return fences


def check_event(device_state: DeviceState, event: object) -> None:
    """Refuse an object that is not an event of this device."""
    if not isinstance(event, Event):
        raise BadArgumentError(f"an xsem Event is needed, not {type(event).__name__}; device.event() borrows an "
                               "event of a framework", reason="not_an_event")
    if event._device_state is not device_state:
        raise WrongDeviceError(
            "the event belongs to another device", expected=device_state.info.id, actual=event._device_state.info.id,
            reason="wrong_device", backend=device_state.info.backend,
        )
