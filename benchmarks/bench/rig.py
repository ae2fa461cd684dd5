"""The measured device, its exporter, and cuda-python beside xsem on one stream."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import xsem
from bench.c_loop import CLoop
from xsem.types import MemoryHandleType, SemaphoreHandleType

__all__ = ["MEMORY", "TIMELINE", "Rig", "Shared", "check", "open_rig", "raise_fd_limit"]

TIMELINE: Final = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
MEMORY: Final = MemoryHandleType.OPAQUE_FD
_LOOK_S: Final = 0.0001


def check(answer: tuple[Any, ...]) -> Any:
    """Return the result of a call of cuda.bindings, or raise an exception with the code."""
    code, *found = answer
    if code != 0:
        raise RuntimeError(f"the driver returned {code!r}")
    return found[0] if len(found) == 1 else tuple(found)


class Shared:
    """A timeline: the exporter's object, the import of xsem, and a handle of cuda.bindings for the import."""

    def __init__(self, rig: Rig) -> None:
        self.there = rig.exporter.create_semaphore(TIMELINE)
        with self.there.export(for_device=rig.device) as desc:
            self.here = rig.device.import_semaphore(desc)
        self.native = rig.driver.CUexternalSemaphore(self.here.native_handle)

    def release(self) -> None:
        """Release the import and the exporter's object."""
        self.here.release()
        self.there.release()


@dataclass
class Rig:
    """The devices and the stream of `commands`. Measured work runs on this stream, except frames with their own."""

    device: xsem.Device
    exporter: xsem.Device
    commands: xsem.CommandList
    driver: Any
    stream: Any
    c_loop: CLoop | None
    quick: bool
    load: str | None = None   # a file with the work of bench.renderer
    value: int = 0

    def values(self, calls: int) -> int:
        """Reserve new values, and return the first. The value of a timeline thus never decreases."""
        first = self.value + 1
        self.value += calls
        return first

    def settle(self) -> None:
        """Wait for all work on the stream, also for the work of cuda.bindings, unknown to xsem."""
        check(self.driver.cuStreamSynchronize(self.stream))
        self.commands.synchronize()

    def drain(self) -> None:
        """Wait until the driver has freed all released objects."""
        # xsem does not know the waits of cuda.bindings. A release behind an unmet wait of this kind would block the
        # next append of this thread for ever, as docs/cuda.md describes.
        self.settle()
        while self.device.releasing():
            time.sleep(_LOOK_S)

    def shared(self, count: int) -> list[Shared]:
        """Create `count` timelines."""
        return [Shared(self) for _ in range(count)]


@contextmanager
def open_rig(
    device: str, exporter: str, *, c_loop: CLoop | None, quick: bool, load: str | None = None,
) -> Iterator[Rig]:
    """Open both devices. Make the device's context current, as in torch, CuPy and the CUDA runtime."""
    with xsem.open_device(device) as opened:
        uuid = opened.info.uuid
        bound = ":" not in exporter and any(info.uuid is not None for info in xsem.devices(exporter))
        with (xsem.open_device(exporter, uuid=uuid) if bound else xsem.open_device(exporter)) as source:
            driver = importlib.import_module("cuda.bindings.driver")
            check(driver.cuCtxSetCurrent(driver.CUcontext(opened.native_handle)))
            commands = opened.create_command_list()
            yield Rig(opened, source, commands, driver, driver.CUstream(commands.native_handle), c_loop, quick,
                      load)


def raise_fd_limit() -> None:
    """Raise the limit on open files to the maximum: ten thousand objects may need as many files."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
