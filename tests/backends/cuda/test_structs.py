"""Test the bytes of the driver's structs for every handle type, in the layout of the headers. Needs no driver."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

import xsem
from xsem.data.image_formats import FORMATS
from xsem.errors import BadArgumentError, UnsupportedError
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OsHandleKind,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
)
from xsem_cuda.images import known_formats, mipmap_descriptor
from xsem_cuda.memory import buffer_descriptor, memory_descriptor
from xsem_cuda.semaphores import Batches, SemaphoreToken, semaphore_descriptor

cuda: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

HANDLE, KMT = 0x1234_5678_9ABC, 0x8765_4321   # a KMT handle has 32 bits
NUMBER = 5
CUDA_SEMAPHORES = [each for each in SemaphoreHandleType if "cuda" in each.native]
KNOWN_MEMORIES = {int(each) for each in cuda.CUexternalMemoryHandleType}
MEMORIES = [each for each in MemoryHandleType if "cuda" in each.native]
CUDA_MEMORIES = [each for each in MEMORIES if each.native["cuda"][1] in KNOWN_MEMORIES]


def content(native: Any, size: int) -> bytes:
    return ctypes.string_at(native.getPtr(), size)


def fields(data: bytes, layout: str, at: int = 0) -> tuple[Any, ...]:
    return struct.unpack_from(layout, data, at)


def number_for(os_handle_kind: OsHandleKind) -> int:
    return {OsHandleKind.FD: NUMBER, OsHandleKind.KMT: KMT}.get(os_handle_kind, HANDLE)


def expected_handle(os_handle_kind: OsHandleKind) -> bytes:
    return struct.pack("<i4x8x" if os_handle_kind is OsHandleKind.FD else "<Q8x", number_for(os_handle_kind))


@pytest.mark.parametrize("handle_type", CUDA_SEMAPHORES)
def test_semaphore_descriptor_of_each_type(handle_type: SemaphoreHandleType) -> None:
    desc = SemaphoreDesc(type=handle_type, handle=number_for(handle_type.os_handle_kind))
    native, _keep = semaphore_descriptor(cuda, desc, None)
    data = content(native, 96)
    assert fields(data, "<i") == (handle_type.native["cuda"][1],)
    assert data[8:24] == expected_handle(handle_type.os_handle_kind)
    assert data[24:] == bytes(72)  # flags and reserved


@pytest.mark.parametrize("handle_type", CUDA_MEMORIES)
def test_memory_descriptor_of_each_type(handle_type: MemoryHandleType) -> None:
    desc = MemoryDesc(type=handle_type, handle=number_for(handle_type.os_handle_kind), allocation_size=0x1_0000_2000)
    native, _keep = memory_descriptor(cuda, desc, None)
    data = content(native, 104)
    assert fields(data, "<i") == (handle_type.native["cuda"][1],)
    assert data[8:24] == expected_handle(handle_type.os_handle_kind)
    assert fields(data, "<QI", 24) == (0x1_0000_2000, 1 if handle_type.dedicated else 0)
    assert data[36:] == bytes(68)


def test_all_nineteen_types_are_covered() -> None:
    assert len(CUDA_SEMAPHORES) == 10
    assert len(MEMORIES) == 9
    # Bindings 12.x do not know DMABUF_FD; the backend does not declare it there.
    assert set(MEMORIES) - set(CUDA_MEMORIES) <= {MemoryHandleType.DMABUF_FD}


def test_dedicated_flag_is_set_when_asked_for() -> None:
    desc = MemoryDesc(type=MemoryHandleType.OPAQUE_FD, handle=NUMBER, allocation_size=1, dedicated=True)
    native, _keep = memory_descriptor(cuda, desc, None)
    assert fields(content(native, 104), "<I", 32) == (1,)


NAME = "Local\\främes \N{MOVIE CAMERA}"


@pytest.mark.parametrize("handle_type", [each for each in CUDA_SEMAPHORES if each.os_handle_kind is OsHandleKind.NT])
def test_semaphore_name_is_utf16_with_a_terminator(handle_type: SemaphoreHandleType) -> None:
    native, keep = semaphore_descriptor(cuda, SemaphoreDesc(type=handle_type, name=NAME), None)
    check_name(content(native, 96), keep)


@pytest.mark.parametrize("handle_type", [each for each in CUDA_MEMORIES if each.os_handle_kind is OsHandleKind.NT])
def test_memory_name_is_utf16_with_a_terminator(handle_type: MemoryHandleType) -> None:
    native, keep = memory_descriptor(cuda, MemoryDesc(type=handle_type, name=NAME, allocation_size=1), None)
    check_name(content(native, 104), keep)


def check_name(data: bytes, keep: object) -> None:
    handle, address = fields(data, "<QQ", 8)
    wanted = (NAME + "\0").encode("utf-16-le")
    assert handle == 0
    assert keep == wanted
    assert ctypes.string_at(address, len(wanted)) == wanted


def token(kind: SemaphoreKind) -> SemaphoreToken:
    return SemaphoreToken(cuda.CUexternalSemaphore(HANDLE), kind)


# Offsets in both parameter structs: fence.value 0, nvSciSync.fence 8, keyedMutex.key 16 (.timeoutMs 24), flags 72.
@pytest.mark.parametrize(
    ("kind", "param", "value", "fence", "key", "flags"),
    [
        (SemaphoreKind.BINARY, xsem.SignalParams(), 0, 0, 0, 0),
        (SemaphoreKind.TIMELINE, xsem.SignalParams(value=2**64 - 1), 2**64 - 1, 0, 0, 0),
        (SemaphoreKind.TIMELINE, xsem.SignalParams(value=0), 0, 0, 0, 0),
        (SemaphoreKind.KEYED_MUTEX, xsem.SignalParams(key=2**63), 0, 0, 2**63, 0),
        (SemaphoreKind.NVSCISYNC, xsem.SignalParams(nvscisync_fence=HANDLE), 0, HANDLE, 0, 0),
        (SemaphoreKind.NVSCISYNC, xsem.SignalParams(nvscisync_fence=HANDLE, skip_nvscibuf_memsync=True),
         0, HANDLE, 0, 1),
    ],
)
def test_signal_parameters(
    kind: SemaphoreKind, param: xsem.SignalParams, value: int, fence: int, key: int, flags: int
) -> None:
    natives, structs = Batches(cuda, signal=True).fill([token(kind)], [param])
    assert [int(native) for native in natives] == [HANDLE]
    data = content(structs[0], 144)
    assert fields(data, "<QQQ") == (value, fence, key)
    assert fields(data, "<I", 72) == (flags,)
    assert not any(data[24:72])
    assert not any(data[76:])


@pytest.mark.parametrize(
    ("kind", "param", "value", "fence", "key", "timeout", "flags"),
    [
        (SemaphoreKind.BINARY, xsem.WaitParams(), 0, 0, 0, 0, 0),
        (SemaphoreKind.TIMELINE, xsem.WaitParams(value=2**63 + 1), 2**63 + 1, 0, 0, 0, 0),
        (SemaphoreKind.KEYED_MUTEX, xsem.WaitParams(key=0), 0, 0, 0, 0xFFFFFFFF, 0),
        (SemaphoreKind.KEYED_MUTEX, xsem.WaitParams(key=3, timeout_ms=0), 0, 0, 3, 0, 0),
        (SemaphoreKind.KEYED_MUTEX, xsem.WaitParams(key=3, timeout_ms=xsem.INFINITE), 0, 0, 3, 0xFFFFFFFF, 0),
        (SemaphoreKind.NVSCISYNC, xsem.WaitParams(nvscisync_fence=HANDLE, skip_nvscibuf_memsync=True),
         0, HANDLE, 0, 0, 2),
    ],
)
def test_wait_parameters(
    kind: SemaphoreKind, param: xsem.WaitParams, value: int, fence: int, key: int, timeout: int, flags: int
) -> None:
    _natives, structs = Batches(cuda, signal=False).fill([token(kind)], [param])
    data = content(structs[0], 144)
    assert fields(data, "<QQQI") == (value, fence, key, timeout)
    assert fields(data, "<I", 72) == (flags,)


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


def test_mixed_batch_gives_each_its_own_fields() -> None:
    semaphores = [token(SemaphoreKind.TIMELINE), token(SemaphoreKind.KEYED_MUTEX), token(SemaphoreKind.BINARY)]
    params = [xsem.WaitParams(value=7), xsem.WaitParams(key=8), xsem.WaitParams()]
    _natives, structs = Batches(cuda, signal=False).fill(semaphores, params)
    found = [fields(content(each, 144), "<QQQI") for each in structs]
    assert found == [(7, 0, 0, 0), (0, 0, 8, 0xFFFFFFFF), (0, 0, 0, 0)]


def test_buffer_descriptor() -> None:
    data = content(buffer_descriptor(cuda, 2**40, 2**33 + 1), 88)
    assert fields(data, "<QQ") == (2**40, 2**33 + 1)
    assert not any(data[16:])


# offset 0; Width, Height, Depth 8, 16, 24; Format 32; NumChannels 36; Flags 40; numLevels 48
@pytest.mark.parametrize(
    ("desc", "expected"),
    [
        (MipmapDesc(extent=(64, 32, 0), format="uint8", channels=4, levels=3, offset=4096),
         (4096, 64, 32, 0, 0x01, 4, 0, 3)),
        (MipmapDesc(extent=(8, 8, 4), format="float16", channels=2, surface_load_store=True),
         (0, 8, 8, 4, 0x10, 2, 0x02, 1)),
        (MipmapDesc(extent=(8, 8, 0), format="float32", channels=1, layers=5, color_attachment=True),
         (0, 8, 8, 5, 0x20, 1, 0x21, 1)),
        (MipmapDesc(extent=(8, 8, 0), format="int32", channels=1, layers=6, cubemap=True),
         (0, 8, 8, 6, 0x0A, 1, 0x04, 1)),
        (MipmapDesc(extent=(8, 8, 0), format="uint16", channels=1, layers=12, cubemap=True),
         (0, 8, 8, 12, 0x02, 1, 0x05, 1)),
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
