"""The renderer: exports memory and semaphores, draws, and checks each frame that the compute process returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import xsem
from xsem import ipc
from xsem.cli.demo.picture import draw, filter_in_place
from xsem.cli.demo.plan import Line, Plan, hear, importer_of, opened, say
from xsem.facade.discovery import exporter_for

__all__ = ["Tally", "render"]


@dataclass
class Tally:
    """Result of the frames."""

    library: str   # the array library of the filter
    frames: int = 0
    stale: int = 0
    errors: int = 0
    # Number, pixels as drawn, pixels as found, caption.
    samples: list[tuple[int, Any, Any, str]] = field(default_factory=list)
    renderer: tuple[str, str] = ("", "")   # the id and the name of the device
    compute: tuple[str, str] = ("", "")
    types: tuple[str, str] = ("", "")   # the handle types of the semaphores and of the memory


class _Canvas:
    """The renderer's access to the shared picture: direct, or through page-locked buffers."""

    def __init__(self, device: xsem.Device, commands: xsem.CommandList, memory: xsem.Memory, plan: Plan) -> None:
        self._commands = commands
        self._shared = memory.map_buffer(shape=plan.shape)
        self._direct = self._shared.__dlpack_device__()[0] == 1
        if not self._direct:
            self._up = device.host_buffer(self._shared.size)
            self._down = device.host_buffer(self._shared.size)
        self._plan = plan

    def put(self, picture: Any) -> None:
        """Write the picture to the shared memory, before all work that is appended later."""
        if self._direct:
            self._shared.numpy()[...] = picture
        else:
            self._up.numpy()[...] = picture.reshape(-1)
            self._commands.append_copy(self._shared, self._up)

    def get(self) -> Any:
        """Return the contents of the shared memory after all work that was appended before. This method blocks."""
        if not self._direct:
            self._commands.append_copy(self._down, self._shared)
        self._commands.synchronize(timeout_s=self._plan.timeout_s)
        return self._shared.numpy().copy() if self._direct else self._down.numpy().reshape(self._plan.shape).copy()


def render(sock: Line, plan: Plan, progress: Callable[[Tally], object]) -> Tally:
    """Draw all frames, and check each of them after the filter. `progress` is called after each frame."""
    compute = hear(sock, plan.timeout_s)
    # The device of a bare name is the importer's. A numbered one may be another GPU.
    exporter = plan.exporter if ":" in plan.exporter else exporter_for(plan.exporter, plan.device, compute["uuid"])
    with opened(exporter) as device:
        common = xsem.negotiate(device, importer_of(compute), plan.kind)
        drawn = device.create_semaphore(common.semaphore, label="drawn")
        filtered = device.create_semaphore(common.semaphore, label="filtered") if plan.binary else drawn
        memory = device.create_memory(common.memory, plan.height * plan.width * 4)
        commands = device.create_command_list()
        canvas = _Canvas(device, commands, memory, plan)
        semaphores = [drawn, filtered] if plan.binary else [drawn]
        descs = [semaphore.export(for_device=compute["uuid"]) for semaphore in semaphores]
        with memory.export(for_device=compute["uuid"]) as memory_desc:
            ipc.send(sock, *descs, memory_desc)
        for desc in descs:
            desc.close()
        ready = hear(sock, plan.timeout_s)
        tally = Tally(library=ready["ready"], types=(common.semaphore.name, common.memory.name),
                      renderer=(device.info.id, device.info.name), compute=(compute["id"], compute["name"]))
        # If a device must not append a wait before its signal is submitted, the other process announces each signal.
        signal_first = common.semaphore not in device.capabilities.wait_before_signal
        say(sock, tell_drawn=ready["signal_first"], signal_first=signal_first)

        kept = {round(index * (plan.frames - 1) / 5) for index in range(6)}
        for frame in range(plan.frames):
            picture = draw(frame, plan.shape)
            if plan.without_wait:
                say(sock, go=frame)
                hear(sock, plan.timeout_s)  # the compute process has read: the result does not depend on timing
            canvas.put(picture)
            commands.append_signal(drawn, plan.drawn(frame), release=[memory])
            if ready["signal_first"]:
                say(sock, drawn=frame)
            if signal_first:
                hear(sock, plan.timeout_s)
            commands.append_wait(filtered, plan.filtered(frame), acquire=[memory])
            found = canvas.get()
            what = _count(tally, picture, found)
            if frame in kept:
                tally.samples.append((frame, picture, found, what))
            progress(tally)
        return tally


def _count(tally: Tally, picture: Any, found: Any) -> str:
    """Count a frame and return its caption."""
    expected = picture.copy()
    filter_in_place(expected)
    tally.frames += 1
    if (found == expected).all():
        return "filtered"
    if (found == picture).all():
        # The filter ran on the previous contents, and the renderer drew over its result.
        tally.stale += 1
        return "stale: not filtered"
    tally.errors += 1
    return "wrong"
