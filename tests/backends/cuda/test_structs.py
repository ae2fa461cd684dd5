"""Test structs that are used again, and the descriptors of images that `test_bytes.py` lacks. Needs no driver."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

import xsem
from xsem.data.image_formats import FORMATS
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.types import MipmapDesc, SemaphoreKind
from xsem_cuda.images import known_formats, mipmap_descriptor
from xsem_cuda.semaphores import Batches, SemaphoreToken

cuda: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")



def content(native: Any, size: int) -> bytes:
    return ctypes.string_at(native.getPtr(), size)


def fields(data: bytes, layout: str, at: int = 0) -> tuple[Any, ...]:
    return struct.unpack_from(layout, data, at)


def token(kind: SemaphoreKind) -> SemaphoreToken:
    return SemaphoreToken(cuda.CUexternalSemaphore(0x77), kind)


def test_batch_keeps_each_value_with_its_semaphore() -> None:
    batches = Batches(cuda, signal=True)
    for count in (1, 8, 3, 64, 8):
        semaphores = [token(SemaphoreKind.TIMELINE) for _ in range(count)]
        _natives, structs = batches.fill(semaphores, [xsem.SignalParams(value=100 * count + i) for i in range(count)])
        assert [fields(content(each, 144), "<Q")[0] for each in structs] == [100 * count + i for i in range(count)]


def test_reused_struct_loses_the_last_value() -> None:
    batches = Batches(cuda, signal=True)
    batches.fill([token(SemaphoreKind.TIMELINE)], [xsem.SignalParams(value=77)])
    _natives, structs = batches.fill([token(SemaphoreKind.BINARY)], [xsem.SignalParams()])
    assert content(structs[0], 144) == bytes(144)


# offset 0; Width, Height, Depth 8, 16, 24; Format 32; NumChannels 36; Flags 40; numLevels 48
@pytest.mark.parametrize(
    ("desc", "expected"),
    [
        (MipmapDesc(extent=(8, 8, 0), format="unorm8", channels=2, layers=6, cubemap=True, layered_cubemap=True),
         (0, 8, 8, 6, 0xC1, 2, 0x05, 1)),
        (MipmapDesc(extent=(8, 8, 0), format="bc6h_sf16", channels=3, texture_gather=True),
         (0, 8, 8, 0, 0x9C, 3, 0x08, 1)),
        (MipmapDesc(extent=(8, 8, 0), format="unorm_10_10_10_2", channels=4, video=True),
         (0, 8, 8, 0, 0x50, 4, 0x100, 1)),
    ],
)
def test_mipmapped_array_descriptor(desc: MipmapDesc, expected: tuple[int, ...]) -> None:
    data = content(mipmap_descriptor(cuda, desc), 120)
    assert fields(data, "<QQQQIII4xI") == expected


@pytest.mark.parametrize("offset", [1, 4, 64, 256, 511, 4096 + 256])
def test_mipmapped_array_refuses_an_unaligned_offset(offset: int) -> None:
    with pytest.raises(BadArgumentError) as caught:
        mipmap_descriptor(cuda, MipmapDesc(extent=(8, 8, 0), format="uint8", channels=4, offset=offset))
    assert caught.value.reason == "bad_offset"
    for taken in (0, 512, 1536, 69632):
        mipmap_descriptor(cuda, MipmapDesc(extent=(8, 8, 0), format="uint8", channels=4, offset=taken))


@pytest.mark.parametrize(("name", "first"), [("unorm8", 0xC0), ("unorm16", 0xC3), ("snorm8", 0xC6), ("snorm16", 0xC9)])
def test_formats_of_fractions_have_an_enumerator_for_each_number_of_channels(name: str, first: int) -> None:
    for place, channels in enumerate((1, 2, 4)):
        desc = MipmapDesc(extent=(8, 8, 0), format=name, channels=channels)
        assert fields(content(mipmap_descriptor(cuda, desc), 120), "<II", 32) == (first + place, channels)


def test_every_format_of_an_image_has_its_enumerator() -> None:
    numbers = {"uint8": 0x01, "uint16": 0x02, "uint32": 0x03, "int8": 0x08, "int16": 0x09, "int32": 0x0A,
               "float16": 0x10, "float32": 0x20, "unorm_10_10_10_2": 0x50, "bc1_unorm": 0x91, "bc1_unorm_srgb": 0x92,
               "bc2_unorm": 0x93, "bc2_unorm_srgb": 0x94, "bc3_unorm": 0x95, "bc3_unorm_srgb": 0x96, "bc4_unorm": 0x97,
               "bc4_snorm": 0x98, "bc5_unorm": 0x99, "bc5_snorm": 0x9A, "bc6h_uf16": 0x9B, "bc6h_sf16": 0x9C,
               "bc7_unorm": 0x9D, "bc7_unorm_srgb": 0x9E}
    assert {*numbers, "unorm8", "unorm16", "snorm8", "snorm16"} == known_formats(cuda, 13000)
    for name, number in numbers.items():
        desc = MipmapDesc(extent=(8, 8, 0), format=name, channels=FORMATS[name].channels[-1])
        assert fields(content(mipmap_descriptor(cuda, desc), 120), "<I", 32) == (number,)


def test_gather_from_layers_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="texture_gather"):
        mipmap_descriptor(cuda, MipmapDesc(extent=(8, 8, 0), format="uint8", channels=4, layers=2, texture_gather=True))
