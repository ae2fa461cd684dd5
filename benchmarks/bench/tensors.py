"""Time to hand mapped memory to a library of arrays by DLPack, beside an array of the library itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np

from bench.rig import MEMORY, Rig
from bench.timing import Series, interleaved

__all__ = ["NUMPY", "TORCH", "measure"]

NUMPY: Final = "an array of NumPy"
TORCH: Final = "a tensor of torch"
_XSEM: Final = "d: xsem, a mapped buffer"
_SHAPE: Final = (1080, 1920, 4)


def measure(rig: Rig) -> Iterator[Series]:
    """Measure nanoseconds of a capsule, and of a tensor of torch if torch can use the device."""
    calls, repetitions = (10, 3) if rig.quick else (2000, 21)
    height, width, channels = _SHAPE
    exported = rig.exporter.create_memory(MEMORY, height * width * channels)
    with exported.export(for_device=rig.device) as desc:
        imported = rig.device.import_memory(desc)
    buffer = imported.map_buffer(0, height * width * channels, shape=_SHAPE)
    array = np.zeros(_SHAPE, "uint8")
    asked: dict[str, Callable[[], float]] = {
        NUMPY: partial(_each, array.__dlpack__, calls), _XSEM: partial(_each, buffer.__dlpack__, calls)}
    yield Series("tensor", "a DLPack capsule", 1, "ns", interleaved(asked, repetitions), repetitions)
    torch = _torch()
    if torch is not None:
        own = torch.zeros(_SHAPE, dtype=torch.uint8, device="cuda")
        asked = {TORCH: partial(_each, partial(torch.from_dlpack, own), calls),
                 _XSEM: partial(_each, partial(torch.from_dlpack, buffer), calls)}
        yield Series("tensor", "torch.from_dlpack", 1, "ns", interleaved(asked, repetitions), repetitions)
    for resource in (buffer, imported, exported):
        resource.release()


def _torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _each(call: Callable[[], object], calls: int) -> float:
    began = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - began) / calls * 1e9
