"""Which array library filters on which device, and the list that its work goes to."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from xsem import Buffer, CommandList, Device
from xsem.errors import UnsupportedError

__all__ = ["Arrays", "arrays_for"]

_CPU: Final = 1
_CUDA: Final = 2


@dataclass(frozen=True)
class Arrays:
    """An array library on a device.

    Attributes
    ----------
    name : str
        ``"numpy"``, ``"cupy"`` or ``"torch"``.
    commands : CommandList
        Where work of the library goes in order.
    from_buffer : callable
        An array over a buffer, without a copy.
    working : callable
        A context in which the library's work goes to `commands`.
    """

    name: str
    commands: CommandList
    from_buffer: Callable[[Buffer], Any]
    working: Callable[[], AbstractContextManager[Any]]


def arrays_for(device: Device, buffer: Buffer) -> Arrays:
    """The first library at hand that reaches the device's memory.

    Raises
    ------
    UnsupportedError
        There is none.
    """
    kind, ordinal = buffer.__dlpack_device__()
    if kind == _CPU:
        import numpy as np

        return Arrays("numpy", device.create_command_list(), np.from_dlpack, nullcontext)
    if kind == _CUDA:
        for library in ("cupy", "torch"):
            try:
                module = importlib.import_module(library)
            except ImportError:
                continue
            return (_cupy if library == "cupy" else _torch)(device, module, ordinal)
        raise UnsupportedError(f"{device.info.id} needs CuPy or torch for the demo: install one of them",
                               capability="demo.arrays")
    raise UnsupportedError(f"the demo knows no array library for memory of {device.info.id}", capability="demo.arrays")


def _cupy(device: Device, cupy: Any, ordinal: int) -> Arrays:
    with cupy.cuda.Device(ordinal):
        stream = cupy.cuda.Stream(non_blocking=True)
    return Arrays("cupy", device.command_list(stream), cupy.from_dlpack, lambda: stream)


def _torch(device: Device, torch: Any, ordinal: int) -> Arrays:
    stream = torch.cuda.Stream(device=ordinal)
    return Arrays("torch", device.command_list(stream), torch.from_dlpack, lambda: torch.cuda.stream(stream))
