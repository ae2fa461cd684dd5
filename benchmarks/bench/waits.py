"""Cost of waits: a frame whose wait is the device's or the host's, and copies beside pending waits of other lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final

import xsem
from bench.rig import MEMORY, Rig, Shared
from bench.timing import Series, interleaved

__all__ = ["BESIDE", "FRAME", "NONE_PENDING", "ON_DEVICE", "ON_HOST", "PENDING", "SIX_PENDING", "measure"]

FRAME: Final = "frame of the exporter, filtered"
ON_DEVICE: Final = "append_wait"
ON_HOST: Final = "host_wait of the exporter"
BESIDE: Final = "copies beside pending waits"
NONE_PENDING: Final = "no wait pending"
SIX_PENDING: Final = "6 waits pending"
PENDING: Final = 6


def measure(rig: Rig) -> Iterator[Series]:
    """Measure microseconds per frame, and per copy of the device's memory."""
    size, frames, copies, repetitions = (1 << 16, 5, 2, 3) if rig.quick else (1 << 22, 100, 100, 21)
    exported = [rig.exporter.create_memory(MEMORY, size) for _ in "12"]
    mapped = []
    for each in exported:
        with each.export(for_device=rig.device) as desc:
            mapped.append(rig.device.import_memory(desc).map_buffer())
    timelines = rig.shared(PENDING)
    lists = [rig.device.create_command_list() for _ in range(PENDING)]
    rendered = rig.exporter.create_command_list()
    frame: dict[str, Callable[[], float]] = {
        name: partial(_frames, rig, rendered, timelines[0], mapped, frames, on_host=on_host)
        for name, on_host in ((ON_DEVICE, False), (ON_HOST, True))
    }
    yield Series("waits", FRAME, 1, "us", interleaved(frame, repetitions), repetitions)
    beside: dict[str, Callable[[], float]] = {
        name: partial(_copies, rig, lists, timelines, mapped, copies, pending=pending)
        for name, pending in ((NONE_PENDING, False), (SIX_PENDING, True))
    }
    yield Series("waits", BESIDE, PENDING, "us", interleaved(beside, repetitions), repetitions)
    held: tuple[Any, ...] = (*lists, rendered, *mapped, *exported, *timelines)
    for resource in held:
        resource.release()


def _frames(
    rig: Rig, rendered: xsem.CommandList, shared: Shared, ends: list[Any], frames: int, *, on_host: bool,
) -> float:
    """Run one repetition: the exporter signals a frame, the device copies it and signals, the host waits for that."""
    drawn = rig.values(2 * frames)
    began = perf_counter()
    for value in range(drawn, drawn + 2 * frames, 2):
        rendered.append_signal(shared.there, value)
        if on_host:
            shared.there.host_wait(value)
        else:
            rig.commands.append_wait(shared.here, value)
        rig.commands.append_copy(ends[1], ends[0])
        rig.commands.append_signal(shared.here, value + 1)
        shared.there.host_wait(value + 1)
    seconds = perf_counter() - began
    rig.settle()
    return seconds / frames * 1e6


def _copies(
    rig: Rig, lists: list[xsem.CommandList], timelines: list[Shared], ends: list[Any], copies: int, *, pending: bool,
) -> float:
    """Run one repetition: copies on the stream of the rig, while each other list waits for a value or is empty."""
    value = rig.values(1)
    for commands, shared in zip(lists, timelines, strict=True):
        if pending:
            commands.append_wait(shared.here, value)
    began = perf_counter()
    for _ in range(copies):
        rig.commands.append_copy(ends[1], ends[0])
    rig.commands.synchronize()
    seconds = perf_counter() - began
    for commands, shared in zip(lists, timelines, strict=True):
        shared.there.host_signal(value)
        commands.synchronize()
    return seconds / copies * 1e6
