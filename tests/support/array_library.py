"""A stand-in for torch and for CuPy, under either name: arrays over device memory, with work on a current stream.

It needs the stand-in for libcuda, whose device memory is memory of this process. As torch does, `zeros` reads
PYTORCH_CUDA_ALLOC_CONF: with expandable segments, it allocates exportable memory. The current stream is the legacy
stream, or one that xsem selects (`CommandList.as_current`). ARRAY_LIBRARY_WRONG plants a fault in the inversion:
"nothing" does nothing, "one pixel" spoils one pixel.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
from typing import Any

import numpy as np

driver: Any = importlib.import_module("cuda.bindings.driver")
uint8 = "uint8"
_LEGACY = 1
_GRANULE = 2 << 20
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: list[Any] = []   # functions that a stream may still call


def _enqueue(work: Any) -> None:
    function = _WORK(lambda _: work())
    _kept.append(function)
    address = ctypes.cast(function, ctypes.c_void_p).value
    _ask("cuLaunchHostFunc", _current(), driver.CUhostFn(address), 0)


def _synchronize() -> None:
    _ask("cuStreamSynchronize", _current())


def _current() -> Any:
    return driver.CUstream(cuda.current.handle or _LEGACY)


def _ask(function: str, *arguments: Any) -> Any:
    code, *rest = getattr(driver, function)(*arguments)
    assert int(code) == 0, (function, code)
    return rest[0] if rest else None


class _Array:
    def __init__(self, pixels: Any, keeps: Any) -> None:
        self.pixels = pixels
        self.keeps = keeps

    def __getitem__(self, index: Any) -> _Array:
        return _Array(self.pixels[index], self.keeps)

    def __setitem__(self, index: Any, source: _Array) -> None:
        self[index].copy_(source)

    def to(self, device: str) -> _Array:
        return self.copy()

    def copy(self) -> _Array:
        return _Array(self.pixels.copy(), None)

    clone = copy

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.pixels.ctypes.data, False), "shape": self.pixels.shape, "typestr": "|u1",
                "strides": None, "version": 3}

    def copy_(self, source: _Array) -> _Array:
        """Copy on the stream, and wait: torch waits for a copy from memory that is not page-locked."""
        _enqueue(lambda: np.copyto(self.pixels, source.pixels))
        _synchronize()
        return self

    def cpu(self) -> _Array:
        _synchronize()
        return self.copy()

    def numpy(self) -> Any:
        return self.pixels

    def get(self) -> Any:
        return self.cpu().pixels

    def bitwise_not_(self) -> _Array:
        def work() -> None:
            wrong = os.environ.get("ARRAY_LIBRARY_WRONG", "")
            if wrong != "nothing":
                np.bitwise_not(self.pixels, out=self.pixels)
            if wrong == "one pixel":
                self.pixels[3, 4, 1] ^= 1

        _enqueue(work)
        return self


def _use_primary_context() -> None:
    """Make the primary context current, and leave it current, as such libraries do."""
    _ask("cuCtxSetCurrent", _ask("cuDevicePrimaryCtxRetain", _ask("cuDeviceGet", 0)))


def _view(address: int, shape: tuple[int, ...]) -> Any:
    raw = (ctypes.c_uint8 * math.prod(shape)).from_address(address)
    return np.ctypeslib.as_array(raw).reshape(shape)


def from_dlpack(buffer: Any) -> _Array:
    _use_primary_context()
    capsule = buffer.__dlpack__(stream=_LEGACY)   # as an array library does; NumPy refuses GPU memory
    assert buffer.__dlpack_device__() == (2, 0)
    return as_tensor(buffer, device="cuda", keeps=capsule)


def as_tensor(array: Any, *, device: str, keeps: Any = None) -> _Array:
    assert device == "cuda"
    interface = array.__cuda_array_interface__
    return _Array(_view(interface["data"][0], interface["shape"]), (array, keeps))


def from_numpy(array: Any) -> _Array:
    return _Array(array, None)


def zeros_like(array: _Array) -> _Array:
    return _Array(np.zeros_like(array.pixels), None)


def zeros(shape: tuple[int, ...], *, dtype: str, device: str) -> _Array:
    assert (dtype, device) == (uint8, "cuda:0")
    _use_primary_context()
    size = math.prod(shape)
    if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        address = _segment(-(-size // _GRANULE) * _GRANULE) + 4096   # the tensor is not the first of its segment
    else:
        address = int(_ask("cuMemAlloc", size))
    pixels = _view(address, shape)
    pixels[...] = 0
    return _Array(pixels, None)


def _segment(size: int) -> int:
    """Allocate one exportable allocation as torch's expandable segments do. It stays until the process ends."""
    wanted, access = driver.CUmemAllocationProp(), driver.CUmemAccessDesc()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    access.location, access.flags = wanted.location, driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    base = int(_ask("cuMemAddressReserve", size, 0, 0, 0))
    handle = _ask("cuMemCreate", size, wanted, 0)
    _ask("cuMemMap", base, size, 0, handle, 0)
    _ask("cuMemRelease", handle)
    _ask("cuMemSetAccess", base, size, [access], 1)
    return base


def bitwise_not(array: _Array, /, *, out: _Array) -> _Array:
    if array is not out:
        out.copy_(array)
    return out.bitwise_not_()


class _Stream:
    """A stream that something else owns. Handle 0 is the legacy stream, as torch and CuPy say it."""

    def __init__(self, handle: int = 0, *, device: int = 0) -> None:
        assert device == 0
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class version:  # noqa: N801 - the name of torch's module
    cuda = "13.0"


class cuda:  # noqa: N801 - the name of torch's and CuPy's module
    Stream = ExternalStream = _Stream
    current = _Stream()

    @staticmethod
    def default_stream(device: int) -> _Stream:
        return _Stream(device=device)

    @classmethod
    def current_stream(cls, device: int = 0) -> _Stream:
        return cls.current

    @classmethod
    def set_stream(cls, stream: _Stream) -> None:
        cls.current = stream

    get_current_stream = current_stream
