"""Recordings: work appended once and replayed with new timeline values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from xsem.data.params import UINT64_MAX, check_int
from xsem.errors import BadArgumentError, BusyError, WrongDeviceError, XsemError
from xsem.facade.resource import Resource
from xsem.facade.semaphore import Semaphore
from xsem.runtime.forks import generation
from xsem.runtime.lifetime import Lease
from xsem.runtime.queues.queue import Queue, RecordedAppends
from xsem.runtime.queues.replay import Replay
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import RecordingQueue, Token
from xsem.types import Feature, SemaphoreKind

if TYPE_CHECKING:
    from xsem.facade.resource import Device

__all__ = ["Recording"]


class Recording(Resource):
    """Appends that are checked once and replayed, made by `CommandList.record`.

    The recording contains the appends inside ``with commands.record() as recording:``. The end of the block ends the
    recording and keeps it for replays. `release` frees the recording. A recording keeps the objects that it uses. If
    such an object is released earlier, xsem frees the object after the recording. If an exception leaves the block, the
    recording is released.

    Attributes
    ----------
    device : Device
        The device of the recording.

    Raises
    ------
    ReleasedError
        ``released``: the recording or its device was released. Each method except `release` can raise it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``. Each method except `release` can raise it.

    Examples
    --------
    `host` has no recordings. On a device with `Feature.RECORDING`::

        with commands.record() as recording:
            commands.append_wait(drawn, 1)
            commands.append_signal(filtered, 1)
        for frame in range(1, 101):
            recording.replay({drawn: frame, filtered: frame})
    """

    def __init__(self, device: Device, queue: Queue, check_stopped: Callable[[], None]) -> None:
        self._queue = queue
        self._driver = device._device_state.ability(RecordingQueue, Feature.RECORDING.value, queue.driver)
        self._check_stopped = check_stopped
        self._recorded: list[Token] = []
        # The queue has it from `__enter__` to `_end`, also if an interrupt prevents `__exit__`.
        self._appends = RecordedAppends()
        self._block: Lease | None = None   # keeps the recording to the end of its block, also if the device is released
        # To free a recording is a call on the list, so it waits for the list's lock.
        super().__init__(device, device._device_state.new_lifetime("recording", self._free, parent=queue.lifetime,
                                                                   on_thread=True))

    def __enter__(self) -> Self:
        self._check()
        self._check_stopped()
        queue = self._queue
        # The list stays open until the recording has ended, also if it is released inside the block.
        try:
            with queue.lock:
                if queue.state.recording is not None or self._recorded:
                    raise BusyError("a recording is made once, and only one at a time on a list", reason="recording")
                self._block = self._lifetime.held()
                queue.lifetime.hold(self._appends)
                queue.state.recording = self._appends
                try:
                    self._driver.begin_recording()
                except Exception:
                    queue.state.recording = None
                    queue.lifetime.unhold(self._appends)
                    self._block.end()
                    raise
        except XsemError as error:
            self._device_state.annotate_error(error)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if generation() != self._device_state.generation:
            return  # a child of a fork inside the block: the parent ends the recording, and an error propagates
        try:
            self._end()
        except XsemError as error:
            self._device_state.annotate_error(error)
            # An error of the block itself takes precedence: it says more than the failure to end the recording.
            if exc[0] is None:
                raise
        finally:
            if self._block is not None:
                self._block.end()
            if exc[0] is not None:
                self.release()

    def _end(self) -> None:
        """End the recording, at most once. Then the list executes its appends again."""
        queue = self._queue
        try:
            with queue.lock:
                if queue.state.recording is self._appends:
                    try:
                        self._recorded.append(self._driver.end_recording())
                    except Exception:
                        queue.state.recording = None
                        raise
                    # Not after Ctrl-C in that call: the driver may still record, so the list can only be released.
                    queue.state.recording = None
        finally:
            queue.lifetime.unhold(self._appends)

    def replay(self, values: Mapping[Semaphore, int | tuple[int, int]] | None = None) -> None:
        """Append the recorded work once more.

        Parameters
        ----------
        values : mapping of Semaphore to int or (int, int)
            New values of timelines in the recording: one value for waits and signals, or (wait value, signal value).
            All waits for a timeline take its wait value, and all signals take its signal value. A timeline that is not
            in the mapping keeps its recorded values.

        Raises
        ------
        BusyError
            ``recording``: the recording is not complete, or another one is in progress on the list.
        BadArgumentError
            ``not_a_semaphore``, ``not_a_timeline``, ``not_an_int``, ``value_out_of_range``. ``value_not_above_last``: a
            value to signal, new or recorded, is not above the last value signalled here. ``value_difference``.
            ``not_recorded``: the recording does not use the timeline.
        WouldBlockError, ReleasedError, WrongDeviceError, DriverError
            As for an append. After each of these errors, nothing was appended.
        """
        self._check()
        self._check_stopped()
        if not self._recorded or self._queue.state.recording is not None:
            raise BusyError("the recording is not complete: append inside its `with` block first", reason="recording")
        if values is not None and not isinstance(values, Mapping):
            raise BadArgumentError("values is a mapping of Semaphore to its value, for example {frames: 5}, not "
                                   f"{type(values).__name__}", reason="not_a_semaphore")
        triples: list[tuple[Token, int, int]] = []
        lifetimes = [self._lifetime]
        waits = self._targets("wait")
        signals, rewinds = self._targets("signal"), self._rewinds()
        for semaphore, value in (values or {}).items():
            self._check_semaphore(semaphore)
            wait, signal = value if isinstance(value, tuple) and len(value) == 2 else (value, value)
            check_int("wait value", wait, 0, UINT64_MAX, reason="value_out_of_range")
            check_int("signal value", signal, 0, UINT64_MAX, reason="value_out_of_range")
            state = semaphore._state
            if state not in waits and state not in signals:
                raise BadArgumentError(f"the recording neither waits for {state.described} nor signals it",
                                       reason="not_recorded", handle_type=state.type)
            triples.append((state.token, wait, signal))
            lifetimes.append(semaphore._lifetime)
            if state in waits:
                waits[state] = wait
            if state in signals:
                signals[state] = signal
                rewinds.discard(state)

        queue = self._queue
        queue.append(Replay(
            self._driver, self._recorded[0], triples, waits, signals, rewinds, lifetimes=lifetimes,
            may_wait=any(op.kept or op.operation == "wait" for op in self._appends.operations),
        ))

    def _targets(self, operation: str) -> dict[SemaphoreState, int | None]:
        """Return the semaphores that the recording waits for or signals, with the last recorded value of each."""
        return {state: value for op in self._appends.operations if op.operation == operation
                for state, value in op.targets}

    def _rewinds(self) -> set[SemaphoreState]:
        """Return the timelines whose recorded signal may be below the last value."""
        return {state for op in self._appends.operations if op.operation == "signal" and op.rewinds
                for state, _ in op.targets}

    def _check_semaphore(self, semaphore: Semaphore) -> None:
        if not isinstance(semaphore, Semaphore):
            raise BadArgumentError(f"the keys of values are Semaphores, not {type(semaphore).__name__}",
                                   reason="not_a_semaphore")
        if semaphore._device_state is not self._device_state:
            raise WrongDeviceError("the semaphore belongs to another device", expected=self._device_state.info.id,
                                   actual=semaphore._device_state.info.id, reason="wrong_device")
        semaphore._lifetime.check()
        if semaphore.kind is not SemaphoreKind.TIMELINE:
            raise BadArgumentError("only timelines take values in a replay", reason="not_a_timeline")

    def _free(self) -> None:
        try:
            self._end()
            if self._recorded:
                with self._queue.lock:
                    self._driver.release_recording(self._recorded[0])
        finally:
            self._appends.release()

    def _token(self) -> Token:
        return self._recorded[0] if self._recorded else None
