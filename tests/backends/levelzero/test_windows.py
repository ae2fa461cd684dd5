"""Test the bytes of each struct for the Windows handle types, on the simulated driver, which simulates Windows."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.levelzero_facade import BOUND_S, soon
from support.levelzero_sim import on_level_zero

from xsem.errors import UnsupportedError
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
    SignalParams,
    WaitParams,
)

S, M = SemaphoreHandleType, MemoryHandleType
WINDOWS = {"SIMZE_PLATFORM": "windows"}
SEMAPHORES = {
    S.OPAQUE_WIN32: 0x2, S.OPAQUE_WIN32_KMT: 0x4, S.D3D12_FENCE: 0x8, S.D3D11_FENCE: 0x10,
    S.D3D11_KEYED_MUTEX: 0x20, S.D3D11_KEYED_MUTEX_KMT: 0x40, S.TIMELINE_SEMAPHORE_WIN32: 0x100,
}
MEMORIES = {
    M.OPAQUE_WIN32: 0x4, M.OPAQUE_WIN32_KMT: 0x8, M.D3D11_RESOURCE: 0x10, M.D3D11_RESOURCE_KMT: 0x20,
    M.D3D12_HEAP: 0x40, M.D3D12_RESOURCE: 0x80,
}
KMT = 0x4000_0040


@contextmanager
def windows_device() -> Iterator[Any]:
    from xsem_levelzero.backend import LevelZeroBackend

    device = LevelZeroBackend("win32").open(0)
    yield device
    device.close()


@on_level_zero(**WINDOWS)
def test_windows_types_are_declared_with_the_extension() -> None:
    from xsem_levelzero.backend import LevelZeroBackend

    backend = LevelZeroBackend("win32")
    [info] = backend.devices()
    assert info.luid == b"simluid\0"
    with windows_device() as device:
        assert device.capabilities.semaphore_import == frozenset(SEMAPHORES)
        assert device.capabilities.memory_import == frozenset(MEMORIES)
        assert device.capabilities.wait_before_signal == frozenset()   # not measured yet
        assert not device.capabilities.resets_on_wait
    assert backend.details(0)["seen_with"] == ""


@on_level_zero(**WINDOWS, SIMZE_API="1.11")
def test_semaphore_types_are_not_declared_without_the_extension() -> None:
    with windows_device() as device:
        assert device.capabilities.semaphore_import == frozenset()


@pytest.mark.parametrize("kind", SEMAPHORES)
@on_level_zero(**WINDOWS)
def test_semaphore_is_imported_signalled_waited_for_and_released(kind: SemaphoreHandleType) -> None:
    with OwnedHandle(os.eventfd(0)) as handle, windows_device() as device:   # an fd that stands for an NT handle
        kmt = kind.os_handle_kind.value == "kmt"
        desc = SemaphoreDesc(type=kind, handle=KMT if kmt else handle)
        imported = device.import_semaphore(desc, None if kmt else handle)
        semaphore = imported.token
        assert imported.handle == "left"   # a Windows handle stays with its owner
        commands = device.create_queue()
        mutex, timeline = kind.kind is SemaphoreKind.KEYED_MUTEX, kind.kind is SemaphoreKind.TIMELINE
        value, key = 5 if timeline else None, 5 if mutex else None
        commands.append_signal([semaphore], [SignalParams(value=value, key=key)], (), (), False)
        fence = commands.append_wait([semaphore], [WaitParams(value=value, key=key)], (), (), True)
        assert device.wait_fence(fence, int(BOUND_S * 1e9))
        device.release_fence(fence)
        if mutex:
            with pytest.raises(UnsupportedError, match="no timeout"):
                commands.append_wait([semaphore], [WaitParams(key=key, timeout_ms=5)], (), (), False)
        commands.close()
        device.release_semaphore(semaphore)


@on_level_zero(**WINDOWS)
def test_names_reach_the_driver() -> None:
    with windows_device() as device:
        tokens = [device.import_semaphore(SemaphoreDesc(type=S.D3D12_FENCE, name="Local\\fence-é"), None).token
                  for _ in range(2)]
        commands = device.create_queue()
        # Both tokens are the object of that name: a signal of one is visible through the other.
        commands.append_signal([tokens[0]], [SignalParams(value=3)], (), (), False)
        fence = commands.append_wait([tokens[1]], [WaitParams(value=3)], (), (), True)
        soon(lambda: device.query_fence(fence))
        device.release_fence(fence)
        commands.close()
        for token in tokens:
            device.release_semaphore(token)


def words(struct_: Any) -> bytes:
    return bytes(struct_)


@pytest.mark.parametrize(("kind", "flag"), SEMAPHORES.items())
def test_semaphore_struct_has_the_flag_and_the_handle(kind: SemaphoreHandleType, flag: int) -> None:
    from xsem_levelzero.semaphores import semaphore_struct

    made = semaphore_struct(SemaphoreDesc(type=kind, handle=KMT), KMT)
    assert words(made)[:4] + words(made)[16:20] == struct.pack("<II", 0x20022, flag)
    linked: Any = made.following
    assert words(linked) == struct.pack("<IIQQQ", 0x20023, 0, 0, KMT, 0)


@pytest.mark.parametrize(("kind", "flag"), [(S.OPAQUE_FD, 0x1), (S.TIMELINE_SEMAPHORE_FD, 0x80)])
def test_semaphore_struct_has_the_flag_and_the_fd(kind: SemaphoreHandleType, flag: int) -> None:
    from xsem_levelzero.semaphores import semaphore_struct

    made = semaphore_struct(SemaphoreDesc(type=kind, handle=7), 7)
    assert made.flags == flag
    assert words(made.following)[:20] == struct.pack("<IIQi", 0x20024, 0, 0, 7)


def test_names_are_utf_8_for_semaphores_and_utf_16_for_memory() -> None:
    import ctypes

    from xsem_levelzero.memory import memory_struct
    from xsem_levelzero.semaphores import semaphore_struct

    linked: Any = semaphore_struct(SemaphoreDesc(type=S.D3D12_FENCE, name="fé"), None).following
    assert (linked.handle, ctypes.string_at(linked.name)) == (None, "fé".encode())
    memory: Any = memory_struct(MemoryDesc(type=M.D3D12_HEAP, name="fé", allocation_size=1), None)
    assert (memory.handle, memory.flags) == (None, 0x40)
    assert ctypes.string_at(memory.name, 6) == "fé\0".encode("utf-16-le")


@pytest.mark.parametrize(("kind", "flag"), MEMORIES.items())
def test_memory_struct_has_the_flag_and_the_handle(kind: MemoryHandleType, flag: int) -> None:
    from xsem_levelzero.memory import memory_struct

    made = memory_struct(MemoryDesc(type=kind, handle=KMT, allocation_size=1), KMT)
    assert words(made) == struct.pack("<IIQIIQQ", 0x22, 0, 0, flag, 0, KMT, 0)


@pytest.mark.parametrize(("kind", "flag"), [(M.OPAQUE_FD, 1), (M.DMABUF_FD, 2)])
def test_memory_struct_has_the_flag_and_the_fd(kind: MemoryHandleType, flag: int) -> None:
    from xsem_levelzero.memory import memory_struct

    made = memory_struct(MemoryDesc(type=kind, handle=7, allocation_size=1), 7)
    assert words(made) == struct.pack("<IIQIi", 0x19, 0, 0, flag, 7)
