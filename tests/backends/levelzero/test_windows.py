"""Test the bytes of each struct for the Windows handle types, on the simulated driver, which simulates Windows."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.levelzero_facade import BOUND_S, failing, library, soon
from support.levelzero_sim import on_level_zero

import xsem
from xsem.errors import BadHandleError, BusyError, UnsupportedError
from xsem.spi import ImportFailure
from xsem.types import (
    Feature,
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)
from xsem_levelzero.intel.unmet_waits import unmet_waits_of

S, M = SemaphoreHandleType, MemoryHandleType
WINDOWS = {"SIMZE_PLATFORM": "windows"}
SEMAPHORES = {
    S.OPAQUE_WIN32: 0x2, S.OPAQUE_WIN32_KMT: 0x4, S.D3D12_FENCE: 0x8, S.D3D11_FENCE: 0x10,
    S.D3D11_KEYED_MUTEX: 0x20, S.D3D11_KEYED_MUTEX_KMT: 0x40, S.TIMELINE_SEMAPHORE_WIN32: 0x100,
}
DECLARED = [S.OPAQUE_WIN32, S.D3D12_FENCE, S.D3D11_FENCE, S.TIMELINE_SEMAPHORE_WIN32]   # the rest Intel refuses
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
        assert device.capabilities.semaphore_import == set(DECLARED)
        assert device.capabilities.memory_import == frozenset(MEMORIES)
        assert device.capabilities.wait_before_signal == frozenset()   # not measured yet
        assert not device.capabilities.resets_on_wait
        assert not device.capabilities.append_never_blocks   # of Intel's driver
    assert backend.details(0)["seen_with"] == ""


@on_level_zero(**WINDOWS, SIMZE_API="1.11")
def test_semaphore_types_are_not_declared_without_the_extension() -> None:
    with windows_device() as device:
        assert device.capabilities.semaphore_import == frozenset()


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


# ---- Intel's driver
INTEL = {**WINDOWS, "SIMZE_MODE": "intel"}
FIFO = {**INTEL, "SIMZE_CONTROLLER": "fifo", "SIMZE_LAG_US": "2000"}
LIFO = {**FIFO, "SIMZE_CONTROLLER": "lifo"}
TIMELINES = [S.TIMELINE_SEMAPHORE_WIN32, S.D3D12_FENCE, S.D3D11_FENCE]


class Shared:
    """A device as on Windows, and a timeline or a binary semaphore that it shares with the host."""

    def __init__(self, device: Any, host: xsem.Device) -> None:
        self.device = device
        self.host = host
        self.tokens: list[Any] = []
        self.lists: list[Any] = []

    def semaphore(self, kind: SemaphoreHandleType = S.TIMELINE_SEMAPHORE_WIN32) -> tuple[xsem.Semaphore, Any]:
        there = self.host.create_semaphore(S.OPAQUE_FD if kind is S.OPAQUE_WIN32 else S.TIMELINE_SEMAPHORE_FD)
        with there.export() as desc:
            handle: Any = desc.handle   # its number stands for an NT handle
            imported = self.device.import_semaphore(SemaphoreDesc(type=kind, handle=handle.fileno()), handle)
        assert imported.handle == "left"
        self.tokens.append(imported.token)
        return there, imported.token

    def queue(self) -> Any:
        self.lists.append(self.device.create_queue())
        return self.lists[-1]

    def wait(self, commands: Any, *waits: tuple[Any, int | None]) -> Any:
        params = [WaitParams(value=value) for _, value in waits]
        return commands.append_wait([each for each, _ in waits], params, (), (), True)

    def signal(self, commands: Any, semaphore: Any, value: int | None) -> Any:
        return commands.append_signal([semaphore], [SignalParams(value=value)], (), (), True)

    def ends(self, fence: Any) -> None:
        assert self.device.wait_fence(fence, int(BOUND_S * 1e9))
        self.device.release_fence(fence)


@contextmanager
def shared() -> Iterator[Shared]:
    with xsem.open_device("host") as host, windows_device() as device:
        at = Shared(device, host)
        yield at
        for commands in at.lists:
            commands.close()
        for token in at.tokens:
            device.release_semaphore(token)


def let_through() -> int:
    count: int = library().simze_counter(b"let_through")
    return count


def refused_behind_a_wait(append: Callable[[], object], reason: str) -> None:
    with pytest.raises(BusyError) as caught:
        append()
    assert caught.value.reason == reason


@pytest.mark.parametrize("kind", DECLARED)
@on_level_zero(**WINDOWS)
def test_semaphore_is_imported_signalled_waited_for_and_released(kind: SemaphoreHandleType) -> None:
    with shared() as at:
        at.semaphore()   # a timeline, which tells the end of signals
        _, here = at.semaphore(kind)
        commands, value = at.queue(), None if kind is S.OPAQUE_WIN32 else 5
        at.ends(at.signal(commands, here, value))
        at.ends(at.wait(commands, (here, value)))


@pytest.mark.parametrize("kind", TIMELINES)
@on_level_zero(**INTEL)
def test_every_wait_on_windows_is_met_only_by_its_own_value(kind: SemaphoreHandleType) -> None:
    with shared() as at:
        there, here = at.semaphore(kind)
        commands = at.queue()
        for value in (1, 3, 5):
            fence = at.wait(commands, (here, value))
            assert not at.device.query_fence(fence)
            there.host_signal(value)
            at.ends(fence)
            at.ends(at.signal(commands, here, value + 1))   # a signal lets every later wait on its import pass, too
        assert there.value() == 6
        assert let_through() == 0


@on_level_zero(**INTEL)
def test_every_wait_on_a_named_semaphore_is_met_only_by_its_own_value() -> None:
    with windows_device() as device:
        token, other = (device.import_semaphore(SemaphoreDesc(type=S.D3D12_FENCE, name="Local\\f"), None).token
                        for _ in range(2))
        commands, signals = device.create_queue(), device.create_queue()
        for value in (1, 2, 3):
            fence = commands.append_wait([token], [WaitParams(value=value)], (), (), True)
            assert not device.query_fence(fence)
            # Without the controller, no signal is behind an unmet wait.
            unmet_waits_of(device._core.driver).forget(device._events)
            signals.append_signal([other], [SignalParams(value=value)], (), (), False)
            assert device.wait_fence(fence, int(BOUND_S * 1e9))
            device.release_fence(fence)
        for each in (commands, signals):
            each.close()
        for each in (token, other):
            device.release_semaphore(each)
        assert let_through() == 0


@pytest.mark.parametrize("kind", [*TIMELINES, S.OPAQUE_WIN32])
@on_level_zero(**FIFO)
def test_append_behind_an_unmet_wait_is_refused_on_windows(kind: SemaphoreHandleType) -> None:
    """The driver's thread holds its lock while it waits: an append would block until the wait is met."""
    value = None if kind is S.OPAQUE_WIN32 else 1
    with shared() as at:
        at.semaphore()   # a timeline, which tells the end of signals
        (there, here), (_, other) = at.semaphore(kind), at.semaphore(kind)
        commands, second = at.queue(), at.queue()
        refused_behind_a_wait(lambda: at.wait(commands, (here, value), (other, value)), "wait_behind_wait")
        fence = at.wait(commands, (here, value))
        refused_behind_a_wait(lambda: at.signal(second, other, value), "signal_behind_wait")
        refused_behind_a_wait(lambda: at.wait(second, (other, value)), "wait_behind_wait")
        there.host_signal(value)
        at.ends(fence)
        at.ends(at.signal(second, other, value))


def signals_are_made() -> None:
    with shared() as at:
        commands = at.queue()
        for value in range(1, 11):
            there, here = at.semaphore()
            at.ends(at.signal(commands, here, value))
            assert there.value() == value
            at.tokens.remove(here)
            at.device.release_semaphore(here)   # an early release ends the process


@on_level_zero(**FIFO)
def test_signals_are_made_before_their_event_is_told_on_windows() -> None:
    signals_are_made()


@on_level_zero(**LIFO)
def test_signals_are_made_before_their_event_is_told_on_windows_before_26_22() -> None:
    signals_are_made()


@on_level_zero(**FIFO)
def test_fence_of_a_signal_before_an_unmet_wait_does_not_block() -> None:
    """xsem's own wait for the driver's thread would block, too."""
    with shared() as at:
        there, here = at.semaphore()
        gate_there, gate = at.semaphore()
        signalled = at.signal(at.queue(), here, 1)
        waits = at.wait(at.queue(), (gate, 1))
        for _ in range(100):
            at.device.query_fence(signalled)
        gate_there.host_signal(1)
        at.ends(waits)
        at.ends(signalled)
        assert there.value() == 1


@on_level_zero(**{**FIFO, "SIMZE_LAG_US": "50000"})
def test_binary_semaphore_in_use_is_not_released_on_windows() -> None:
    """Without a timeline, nothing tells that the signal is made. An early release ends the process."""
    with shared() as at:
        there, here = at.semaphore(S.OPAQUE_WIN32)
        at.ends(at.signal(at.queue(), here, None))
        at.tokens.remove(here)
        at.device.release_semaphore(here)
        there.host_wait(timeout_s=BOUND_S)
        at.semaphore()   # a timeline tells it


@on_level_zero(**INTEL)
def test_every_wait_on_windows_sets_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 26.05 to 26.31, a wait without one does not keep the order of the list."""
    with shared() as at:
        there, here = at.semaphore()
        there.host_signal(1)
        events, append = [], at.device._core.extension.append

        def recorded(name: str, commands: int, handles: Any, params: Any, event: int, waits: Any) -> None:
            events.append(event)
            append(name, commands, handles, params, event, waits)

        monkeypatch.setattr(at.device._core.extension, "append", recorded)
        commands = at.queue()
        commands.append_wait([here], [WaitParams(value=1)], (), (), False)
        at.ends(commands.append_barrier((), True))
        assert events
        assert all(events)


@on_level_zero(**INTEL, SIMZE_D3D11_FENCE="0")
def test_fence_of_d3d11_is_imported_as_one_of_d3d12_before_26_14() -> None:
    with shared() as at:
        there, here = at.semaphore(S.D3D11_FENCE)
        commands = at.queue()
        for value in (1, 2):
            fence = at.wait(commands, (here, value))
            there.host_signal(value)
            at.ends(fence)


@on_level_zero(**INTEL)
def test_name_that_intels_driver_does_not_read_is_refused() -> None:
    """The driver would end the process at the semaphore."""
    with windows_device() as device:
        semaphore = SemaphoreDesc(type=S.OPAQUE_WIN32, name="Local\\s")
        memory = MemoryDesc(type=M.OPAQUE_WIN32, name="Local\\m", allocation_size=4096)
        for act, desc in ((device.import_semaphore, semaphore), (device.import_memory, memory)):
            with pytest.raises(ImportFailure) as caught:
                act(desc, None)
            error = caught.value.error
            assert isinstance(error, UnsupportedError)
            assert error.reason == "name_not_taken"
            assert "handle" in error.message


@on_level_zero(**INTEL, SIMZE_IMAGES="1")
def test_images_are_not_declared_on_windows() -> None:
    with windows_device() as device:
        assert not {Feature.IMAGE, Feature.IMAGE_COPY} & device.capabilities.features
        assert device.capabilities.memory_import == {M.OPAQUE_WIN32, M.D3D12_HEAP, M.D3D12_RESOURCE}


@on_level_zero(**INTEL)
def test_message_of_a_refused_handle_is_about_windows() -> None:
    with (windows_device() as device, OwnedHandle(os.eventfd(0)) as handle, pytest.raises(ImportFailure) as caught,
          failing("zeDeviceImportExternalSemaphoreExt:0x78000003")):
        device.import_semaphore(SemaphoreDesc(type=S.D3D12_FENCE, handle=handle.fileno()), handle)
    error = caught.value.error
    assert isinstance(error, BadHandleError)
    assert not any("DRM" in each or "Mesa" in each for each in error.likely_causes)
