"""Cost of the calls in a frame of an application: events, borrowed streams, parameters, handovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final, Self, TypeAlias

from bench.rig import MEMORY, Rig, Shared, check
from bench.timing import Series, interleaved
from bench.ways import REUSED, XSEM
from xsem.types import SemaphoreHandleType, SignalParams

__all__ = ["BARRIER", "BINARY", "EVENT", "LABELS", "NEW_EVENT", "STREAM", "WAIT_EVENT", "Scene", "measure"]

Step: TypeAlias = Callable[[int], object]
"""One frame. The argument is a value above all earlier values of the timelines."""

EVENT: Final = "signal with an event"
NEW_EVENT: Final = "signal with a new event"
WAIT_EVENT: Final = "wait for an event"
BARRIER: Final = "barrier with an event"
STREAM: Final = "command_list(stream), wait, signal"
PARAMETERS: Final = "signal with SignalParams"
BINARY: Final = "binary signal and wait"
HANDOVER: Final = "signal that hands over memory"
LABELS: Final = (EVENT, NEW_EVENT, WAIT_EVENT, BARRIER, STREAM, PARAMETERS, BINARY, HANDOVER)


class _Stream:
    """A stream object of the application, with ``__cuda_stream__`` as in torch and CuPy."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def measure(rig: Rig) -> Iterator[Series]:
    """Measure each kind of frame with xsem, and with reused parameters of cuda.bindings."""
    calls, repetitions = (20, 3) if rig.quick else (200, 41)
    with Scene(rig) as scene:
        for label in LABELS:
            steps = scene.steps(label)
            asked = {name: partial(_repetition, rig, scene, step, calls) for name, step in steps.items()}
            yield Series("frame", label, 1, "us", interleaved(asked, repetitions), repetitions)


class Scene:
    """The objects of the measured frames."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._shared = Shared(rig)
        self._memory = rig.exporter.create_memory(MEMORY, 1 << 16)
        with self._memory.export(for_device=rig.device) as desc:
            self._imported = rig.device.import_memory(desc)
        self._there = rig.exporter.create_semaphore(SemaphoreHandleType.OPAQUE_FD)
        with self._there.export(for_device=rig.device) as desc:
            self._binary = rig.device.import_semaphore(desc)
        self._made: list[Any] = []   # new events; `tidy` destroys them after each repetition
        self._events: list[Any] = []
        # The stream is never destroyed: the device keeps the queue of a borrowed stream and still uses the stream.
        self._own_stream = check(rig.driver.cuStreamCreate(rig.driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._rig.settle()
        self.tidy()
        for event in self._events:
            check(self._rig.driver.cuEventDestroy(event))
        for each in (self._binary, self._there, self._imported, self._memory, self._shared):
            each.release()

    def tidy(self) -> None:
        """Destroy the new events of a repetition."""
        check(self._rig.driver.cuStreamSynchronize(self._own_stream))
        while self._made:
            check(self._rig.driver.cuEventDestroy(self._made.pop()))

    def steps(self, label: str) -> dict[str, Step]:
        """Return the frame of cuda.bindings and the frame of xsem."""
        bindings, ours = {
            EVENT: self._with_event, NEW_EVENT: self._with_new_event, WAIT_EVENT: self._waiting, BARRIER: self._barrier,
            STREAM: self._on_stream, PARAMETERS: self._with_params, BINARY: self._on_binary,
            HANDOVER: self._handing_over,
        }[label]()
        return {REUSED: bindings, XSEM: ours}

    # ---- parts of the frames of cuda.bindings
    def native(self, what: str, handle: int, stream: Any = None) -> Step:
        """Return a signal or a wait of cuda.bindings with reused parameters."""
        driver = self._rig.driver
        stream = self._rig.stream if stream is None else stream
        kind = what.upper()
        params = getattr(driver, f"CUDA_EXTERNAL_SEMAPHORE_{kind}_PARAMS")()
        call = getattr(driver, f"cu{what.capitalize()}ExternalSemaphoresAsync")
        fence, natives, batch = params.params.fence, [driver.CUexternalSemaphore(handle)], [params]

        def step(value: int) -> None:
            fence.value = value
            code, = call(natives, batch, 1, stream)
            if code != 0:
                raise RuntimeError(code)

        return step

    def _event(self) -> Any:
        return check(self._rig.driver.cuEventCreate(self._rig.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))

    def _kept_event(self) -> Any:
        self._events.append(self._event())
        return self._events[-1]

    # ---- the frames
    def _with_event(self) -> tuple[Step, Step]:
        signal, record, stream = self.native("signal", self._handle), self._rig.driver.cuEventRecord, self._rig.stream
        native, event = self._kept_event(), self._rig.device.create_event()
        append, semaphore = self._rig.commands.append_signal, self._shared.here

        def bindings(value: int) -> None:
            signal(value)
            check(record(native, stream))

        def ours(value: int) -> None:
            event.reset()
            append(semaphore, value, signal_event=event)

        return bindings, ours

    def _with_new_event(self) -> tuple[Step, Step]:
        signal, driver, stream = self.native("signal", self._handle), self._rig.driver, self._rig.stream
        device, append, semaphore = self._rig.device, self._rig.commands.append_signal, self._shared.here

        def bindings(value: int) -> None:
            event = self._event()
            signal(value)
            check(driver.cuEventRecord(event, stream))
            self._made.append(event)

        def ours(value: int) -> None:
            append(semaphore, value, signal_event=device.create_event())

        return bindings, ours

    def _waiting(self) -> tuple[Step, Step]:
        driver, stream, native = self._rig.driver, self._rig.stream, self._kept_event()
        check(driver.cuEventRecord(native, stream))
        event = self._rig.device.create_event()
        append = self._rig.commands.append_barrier
        append(signal_event=event)
        return (lambda _: check(driver.cuStreamWaitEvent(stream, native, 0)), lambda _: append(wait_events=[event]))

    def _barrier(self) -> tuple[Step, Step]:
        record, stream, native = self._rig.driver.cuEventRecord, self._rig.stream, self._kept_event()
        event, append = self._rig.device.create_event(), self._rig.commands.append_barrier

        def ours(_value: int) -> None:
            event.reset()
            append(signal_event=event)

        return (lambda _: check(record(native, stream))), ours

    def _on_stream(self) -> tuple[Step, Step]:
        own = self._own_stream
        wait, signal = self.native("wait", self._handle, own), self.native("signal", self._handle, own)
        device, semaphore = self._rig.device, self._shared.here
        stream = _Stream(int(own))

        def bindings(value: int) -> None:
            wait(0)
            signal(value)

        def ours(value: int) -> None:
            commands = device.command_list(stream)
            commands.append_wait(semaphore, 0)
            commands.append_signal(semaphore, value)

        return bindings, ours

    def _with_params(self) -> tuple[Step, Step]:
        append, semaphore = self._rig.commands.append_signal, self._shared.here
        return self.native("signal", self._handle), lambda value: append(semaphore, SignalParams(value=value))

    def _on_binary(self) -> tuple[Step, Step]:
        handle, commands, semaphore = self._binary.native_handle, self._rig.commands, self._binary
        wait, signal = self.native("wait", handle), self.native("signal", handle)

        def bindings(_value: int) -> None:
            signal(0)
            wait(0)

        def ours(_value: int) -> None:
            commands.append_signal(semaphore)
            commands.append_wait(semaphore)

        return bindings, ours

    def _handing_over(self) -> tuple[Step, Step]:
        append, semaphore, memory = self._rig.commands.append_signal, self._shared.here, self._imported
        return self.native("signal", self._handle), lambda value: append(semaphore, value, release=[memory])

    @property
    def _handle(self) -> int:
        return self._shared.here.native_handle


def _repetition(rig: Rig, scene: Scene, step: Step, calls: int) -> float:
    """Run one repetition, and return the microseconds per frame."""
    first = rig.values(calls)
    began = perf_counter()
    for value in range(first, first + calls):
        step(value)
    seconds = perf_counter() - began
    rig.settle()
    scene.tidy()
    return seconds / calls * 1e6
