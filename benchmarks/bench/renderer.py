"""Cost of a wait that is outstanding while the exporter, as a renderer, submits and works."""

# ``--load FILE`` replaces the work: FILE is a Python program with a function ``load(device, exporter)`` that returns a
# `Load`, for example with a renderer and a model of its own.

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from time import perf_counter
from typing import Any, Final

import xsem
from bench.rig import MEMORY, TIMELINE, Rig
from bench.timing import Series, interleaved

__all__ = ["AFTER", "ALONE", "BEFORE", "FRAME", "HOST", "Load", "measure"]

FRAME: Final = "frame of a renderer, read by the device"
ALONE: Final = "the frame alone"
HOST: Final = "the host waits"
AFTER: Final = "the GPU waits, append_wait after the frame"
BEFORE: Final = "the GPU waits, append_wait before the frame"
_COPIES: Final = 24


@dataclass(frozen=True)
class Load:
    """The work of one frame."""

    render: Callable[[int], object]   # submits a frame that ends with a signal of this value on the timeline
    host_wait: Callable[[int], object]   # returns when the frame with this value is drawn
    # The timeline, imported by the device. The first value is 1, and each frame has the next one.
    drawn: xsem.Semaphore
    commands: xsem.CommandList   # the list on which the device waits
    compute: Callable[[], object]   # appends the work of the device behind the wait
    keep: object = field(default=None, repr=False)   # anything that must live as long as the load


def measure(rig: Rig) -> Iterator[Series]:
    """Measure microseconds per frame, until the device has read the frame."""
    frames, repetitions = (2, 3) if rig.quick else (20, 11)
    if rig.load is None:
        load = _copies(rig.device, rig.exporter, 1 << 16 if rig.quick else 1 << 26)
    else:
        load = runpy.run_path(rig.load)["load"](rig.device, rig.exporter)
    values = count(1)
    asked: dict[str, Callable[[], float]] = {
        name: partial(_frames, load, values, frames, step)
        for name, step in ((ALONE, _alone), (HOST, _host), (AFTER, _after), (BEFORE, _before))
    }
    yield Series("renderer", FRAME, 1, "us", interleaved(asked, repetitions), repetitions)


def _frames(load: Load, values: Iterator[int], frames: int, step: Callable[[Load, int], None]) -> float:
    began = perf_counter()
    for value in islice(values, frames):
        step(load, value)
    return (perf_counter() - began) / frames * 1e6


def _alone(load: Load, value: int) -> None:
    load.render(value)
    load.host_wait(value)


def _host(load: Load, value: int) -> None:
    load.render(value)
    load.host_wait(value)
    load.compute()
    load.commands.synchronize()


def _after(load: Load, value: int) -> None:
    load.render(value)
    load.commands.append_wait(load.drawn, value)
    load.compute()
    load.commands.synchronize()


def _before(load: Load, value: int) -> None:
    load.commands.append_wait(load.drawn, value)
    load.compute()
    load.render(value)
    load.commands.synchronize()


def _copies(device: xsem.Device, exporter: xsem.Device, size: int) -> Load:
    """Return a frame of 24 copies of the exporter, of which the device reads one sixteenth."""
    there = exporter.create_semaphore(TIMELINE)
    with there.export(for_device=device) as desc:
        drawn = device.import_semaphore(desc)
    shared = exporter.create_memory(MEMORY, size)
    own = exporter.create_memory(MEMORY, size)
    with shared.export(for_device=device) as exported:
        imported = device.import_memory(exported)
    read = imported.map_buffer(0, size // 16)
    result = device.host_buffer(size // 16)
    target, source = shared.map_buffer(), own.map_buffer()
    rendered, commands = exporter.create_command_list(), device.create_command_list()

    def render(value: int) -> None:
        for _ in range(_COPIES):
            rendered.append_copy(target, source)
        rendered.append_signal(there, value)

    held: tuple[Any, ...] = (shared, own, imported, read, result)
    return Load(render, there.host_wait, drawn, commands, lambda: commands.append_copy(result, read), held)
