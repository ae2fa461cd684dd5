"""Test copies of arrays on the stand-in for libcuda: exact in rows and slices, and strict about regions and pitches."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cuda_calls import ask, driver, primary_context
from support.cuda_sim import on_stand_in, stand_in_environment

WIDTH, HEIGHT, LAYERS, ELEMENT = 8, 6, 3, 4
PITCH, SLICE = 48, 8 * 48
SIZE = LAYERS * SLICE
INVALID_VALUE = 1
LAYERED = 1


class Rig:
    """Two arrays with layers and two levels, page-locked memory, and a stream."""

    def __init__(self) -> None:
        self.stream = ask("cuStreamCreate", 1)
        self.address = int(ask("cuMemHostAlloc", SIZE, 0))
        self.mipmaps = [self.made(ELEMENT), self.made(2 * ELEMENT)]
        self.arrays = [ask("cuMipmappedArrayGetLevel", each, 0) for each in self.mipmaps]

    def made(self, element: int) -> Any:
        desc = driver().CUDA_ARRAY3D_DESCRIPTOR()
        desc.Width, desc.Height, desc.Depth, desc.Flags = WIDTH, HEIGHT, LAYERS, LAYERED
        desc.Format, desc.NumChannels = driver().CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 4
        if element == 8:
            desc.Format = driver().CUarray_format.CU_AD_FORMAT_UNSIGNED_INT16
        return ask("cuMipmappedArrayCreate", desc, 2)

    def copy(self, *, read: bool, array: int = 0, level: int = 0, **fields: int) -> int:
        """Copy between the memory and an array; `fields` replace those of a correct copy. Return the code."""
        copy, types = driver().CUDA_MEMCPY3D(), driver().CUmemorytype
        linear, other = ("dst", "src") if read else ("src", "dst")
        given = {f"{linear}MemoryType": types.CU_MEMORYTYPE_UNIFIED, f"{linear}Device": self.address,
                 f"{linear}Pitch": PITCH, f"{linear}Height": SLICE // PITCH,
                 f"{other}MemoryType": types.CU_MEMORYTYPE_ARRAY,
                 f"{other}Array": ask("cuMipmappedArrayGetLevel", self.mipmaps[array], level),
                 "WidthInBytes": WIDTH * ELEMENT, "Height": HEIGHT, "Depth": LAYERS}
        renamed = {{"pitch": f"{linear}Pitch", "rows": f"{linear}Height", "x": f"{other}XInBytes", "y": f"{other}Y",
                    "z": f"{other}Z"}.get(name, name): value for name, value in fields.items()}
        for name, value in (given | renamed).items():
            setattr(copy, name, value)
        code = int(driver().cuMemcpy3DAsync(copy, self.stream)[0])
        ask("cuStreamSynchronize", self.stream)
        return code

    def content(self) -> bytes:
        return ctypes.string_at(self.address, SIZE)

    def fill(self, data: bytes) -> None:
        ctypes.memmove(self.address, data, SIZE)

    def close(self) -> None:
        for each in self.mipmaps:
            ask("cuMipmappedArrayDestroy", each)
        ask("cuMemFreeHost", self.address)
        ask("cuStreamDestroy", self.stream)


@contextmanager
def rig() -> Iterator[Rig]:
    with primary_context():
        made = Rig()
        try:
            yield made
        finally:
            made.close()


@on_stand_in
def test_region_keeps_its_rows_and_slices() -> None:
    with rig() as at:
        data = bytes(each % 251 for each in range(SIZE))
        at.fill(data)
        assert at.copy(read=False) == 0
        at.fill(b"\x5a" * SIZE)
        assert at.copy(read=True, x=2 * ELEMENT, y=1, z=1, WidthInBytes=3 * ELEMENT, Height=2, Depth=2) == 0
        expected = bytearray(b"\x5a" * SIZE)
        for z in range(2):
            for y in range(2):
                to, at_ = z * SLICE + y * PITCH, (z + 1) * SLICE + (y + 1) * PITCH + 2 * ELEMENT
                expected[to:to + 3 * ELEMENT] = data[at_:at_ + 3 * ELEMENT]
        assert at.content() == expected


@on_stand_in
@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("fields", [
    {"x": ELEMENT}, {"y": 1}, {"z": 1}, {"WidthInBytes": 36}, {"Height": HEIGHT + 1}, {"Depth": LAYERS + 1},
    {"pitch": WIDTH * ELEMENT - ELEMENT}, {"rows": HEIGHT - 1}, {"pitch": PITCH + 2 * ELEMENT}, {"rows": HEIGHT + 4},
    {"x": 2, "WidthInBytes": ELEMENT}, {"WidthInBytes": 6}, {"level": 1},
], ids=str)
def test_wrong_region_or_pitch_is_an_invalid_value(read: bool, fields: dict[str, int]) -> None:
    with rig() as at:
        at.fill(b"\x5a" * SIZE)
        assert at.copy(read=read, **fields) == INVALID_VALUE
        assert at.content() == b"\x5a" * SIZE


def between(at: Rig, dst: int, src: int, **fields: int) -> int:
    copy, types = driver().CUDA_MEMCPY3D(), driver().CUmemorytype
    copy.srcMemoryType = copy.dstMemoryType = types.CU_MEMORYTYPE_ARRAY
    copy.srcArray, copy.dstArray = at.arrays[src], at.arrays[dst]
    copy.WidthInBytes, copy.Height, copy.Depth = WIDTH // 2 * ELEMENT, HEIGHT, LAYERS
    for name, value in fields.items():
        setattr(copy, name, value)
    return int(driver().cuMemcpy3DAsync(copy, at.stream)[0])


@on_stand_in
def test_arrays_with_other_elements_are_an_invalid_value() -> None:
    with rig() as at:
        assert between(at, 0, 1) == INVALID_VALUE
        assert between(at, 0, 0, dstXInBytes=WIDTH // 2 * ELEMENT) == 0


def test_regions_of_an_array_that_overlap_are_loud() -> None:
    code = ("import sys; sys.path[:0] = sys.argv[1:]\n"
            "import test_arrays as tests\n"
            "with tests.rig() as at:\n"
            "    print('ready', flush=True)\n"
            "    tests.between(at, 0, 0, dstXInBytes=4)\n")
    ran = subprocess.run([sys.executable, "-c", code, *sys.path, __file__.rpartition("/")[0]],
                         env=stand_in_environment(), capture_output=True, text=True, timeout=50, check=False)
    assert ran.stdout == "ready\n", ran.stderr
    assert ran.returncode == -signal.SIGABRT
    assert "the two regions of this array overlap" in ran.stderr
