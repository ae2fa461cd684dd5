"""A stand-in for torch and for CuPy, under either name: an array over device memory, inverted on the legacy stream.

It needs the stand-in for libcuda, whose device memory is memory of this process. ARRAY_LIBRARY_WRONG plants a fault:
"nothing" does nothing, "one pixel" spoils one pixel.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import Any

import numpy as np

driver: Any = importlib.import_module("cuda.bindings.driver")
_LEGACY = 1
_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: list[Any] = []   # functions that a stream may still call


def _enqueue(work: Any) -> None:
    function = _WORK(lambda _: work())
    _kept.append(function)
    address = ctypes.cast(function, ctypes.c_void_p).value
    (code,) = driver.cuLaunchHostFunc(driver.CUstream(_LEGACY), driver.CUhostFn(address), 0)
    assert int(code) == 0, code


class _Array:
    def __init__(self, pixels: Any, keeps: Any) -> None:
        self.pixels = pixels
        self.keeps = keeps

    def __getitem__(self, index: Any) -> _Array:
        return _Array(self.pixels[index], self.keeps)

    def copy(self) -> _Array:
        return _Array(self.pixels.copy(), None)

    clone = copy

    def bitwise_not_(self) -> _Array:
        def work() -> None:
            wrong = os.environ["ARRAY_LIBRARY_WRONG"]
            if wrong != "nothing":
                np.bitwise_not(self.pixels, out=self.pixels)
            if wrong == "one pixel":
                self.pixels[3, 4, 1] ^= 1

        _enqueue(work)
        return self


def from_dlpack(buffer: Any) -> _Array:
    # Such libraries work in the device's primary context, and leave it current.
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1])
    capsule = buffer.__dlpack__(stream=_LEGACY)   # as an array library does; NumPy refuses GPU memory
    assert buffer.__dlpack_device__() == (2, 0)
    raw = (ctypes.c_uint8 * buffer.size).from_address(buffer.address)
    return _Array(np.ctypeslib.as_array(raw).reshape(buffer.shape), (buffer, capsule))


def bitwise_not(array: _Array, /, *, out: _Array) -> _Array:
    assert array is out
    return array.bitwise_not_()


class _Stream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0   # the legacy default stream, as torch and CuPy say it


class cuda:  # noqa: N801 - the name of torch's and CuPy's module
    Stream = _Stream

    @staticmethod
    def current_stream() -> _Stream:
        return _Stream()

    get_current_stream = current_stream
