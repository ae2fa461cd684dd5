"""Filtering of the picture on a device: by an array library on its list, or through the host's memory."""

from __future__ import annotations

import contextlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from xsem import Buffer, CommandList, Device

__all__ = ["Arrays", "arrays_for"]

_CPU: Final = 1
_CUDA: Final = 2


class Arrays(ABC):
    """A picture that work on a command list changes."""

    name: str               # of the library that computes
    commands: CommandList   # the list of the work, in order

    @abstractmethod
    def warm_up(self, change: Callable[[Any], object]) -> None:
        """Change a copy, so that all kernels are loaded. Loading a kernel behind an unmet wait blocks the thread."""

    @abstractmethod
    def append(self, change: Callable[[Any], object]) -> None:
        """Change the picture after all work that was appended before."""


def arrays_for(device: Device, buffer: Buffer, timeout_s: float) -> Arrays:
    """Return the first usable array library that reaches the device's memory, otherwise NumPy with copies."""
    kind, ordinal = buffer.__dlpack_device__()
    if kind == _CPU:
        # NumPy before 2.1 makes the array of from_dlpack read-only.
        return _Direct("numpy", device.create_command_list(), buffer.numpy(), nullcontext)
    if kind == _CUDA:
        for library in ("cupy", "torch"):
            module = _usable(library)
            if module is not None:
                return (_cupy if library == "cupy" else _torch)(device, module, ordinal, buffer)
    return _Staged(device, buffer, timeout_s)


def _usable(library: str) -> Any:
    """Import a library; None if it is missing, does not load, or cannot use CUDA."""
    try:
        module = importlib.import_module(library)
        return module if module.cuda.is_available() else None
    except Exception:   # CuPy raises an error of its own where the driver or the device fails
        return None


class _Direct(Arrays):
    """An array over the shared memory, without a copy. `working` directs the library's work to the list."""

    def __init__(
        self, name: str, commands: CommandList, picture: Any, working: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self.name = name
        self.commands = commands
        self._picture = picture
        self._working = working

    def warm_up(self, change: Callable[[Any], object]) -> None:
        with self._working():
            change(self._picture + 0)

    def append(self, change: Callable[[Any], object]) -> None:
        def work() -> None:
            with self._working():
                change(self._picture)

        self.commands.append_work(work)


class _Staged(Arrays):
    """A picture in device memory without a library: copied to page-locked memory, changed there, copied back."""

    def __init__(self, device: Device, buffer: Buffer, timeout_s: float) -> None:
        self.name = "numpy, with copies"
        self.commands = device.create_command_list()
        self._shared = buffer
        self._host = device.host_buffer(buffer.size)
        self._picture = self._host.numpy().reshape(buffer.shape)
        self._timeout_s = timeout_s

    def warm_up(self, change: Callable[[Any], object]) -> None:
        change(self._picture.copy())

    def append(self, change: Callable[[Any], object]) -> None:
        self.commands.append_copy(self._host, self._shared)
        self.commands.synchronize(timeout_s=self._timeout_s)
        change(self._picture)
        self.commands.append_copy(self._shared, self._host)


def _cupy(device: Device, cupy: Any, ordinal: int, buffer: Buffer) -> Arrays:
    with cupy.cuda.Device(ordinal):
        stream = cupy.cuda.Stream(non_blocking=True)
        picture = cupy.from_dlpack(buffer)

    @contextlib.contextmanager
    def working() -> Iterator[None]:
        # A stream does not select its device. If another device is current, CuPy allocates there, and the allocation
        # blocks behind the pending wait: seen with two H200 (driver 580.159.04).
        with cupy.cuda.Device(ordinal), stream:
            yield

    return _Direct("cupy", device.command_list(stream), picture, working)


def _torch(device: Device, torch: Any, ordinal: int, buffer: Buffer) -> Arrays:
    stream = torch.cuda.Stream(device=ordinal)
    return _Direct("torch", device.command_list(stream), torch.from_dlpack(buffer), lambda: torch.cuda.stream(stream))
