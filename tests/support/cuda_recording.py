"""The host device and the CUDA device for tests of recordings, and driver calls of the test itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import xsem
from support.cuda_calls import driver
from support.importer import Pair
from xsem.types import SemaphoreHandleType

__all__ = ["SIZE", "TIMELINE", "Rig", "ask", "driver", "rig"]

TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
SIZE = 4096


def ask(function: Callable[..., Any], *args: Any) -> Any:
    """Make a driver call for the test itself."""
    code, *results = function(*args)
    assert int(code) == 0, (function.__name__, code)
    return results[0] if results else None


class Rig(Pair):
    """The pair of devices, with a command list of the CUDA device."""

    def __init__(self, host: xsem.Device, cuda: xsem.Device) -> None:
        super().__init__(host, cuda, TIMELINE)
        self.commands = cuda.create_command_list()

    def buffer(self) -> tuple[Any, xsem.Buffer]:
        """Return the exporter's view of a memory, and the mapping of the same memory."""
        there, imported = self.memory(SIZE)
        return there.map_buffer().numpy(), imported.map_buffer()

    @property
    def stream(self) -> Any:
        return driver().CUstream(self.commands.native_handle)


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield Rig(host, cuda)
