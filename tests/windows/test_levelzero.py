"""Level Zero on the stand-in ze_loader.dll: it is found by its name, and imports real NT objects."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support import windows_objects as nt
from support.fixtures import refused
from support.paths import ROOT

import xsem
from xsem.errors import BadHandleError, BusyError, UnsupportedError
from xsem.types import MemoryDesc, SemaphoreDesc
from xsem_levelzero.backend import LevelZeroBackend

FOLDER = ROOT / "build" / "windows" / "drivers"
SIZE = 1 << 16


@pytest.fixture(scope="session")
def loader() -> Iterator[None]:
    """The folder of the loader is one that Windows searches. The driver has started, with a thread for each queue."""
    if sys.platform != "win32":
        raise NotImplementedError
    if not (FOLDER / "ze_loader.dll").exists():
        pytest.skip("the stand-in ze_loader.dll is missing: run tests/drivers/windows-dll levelzero")
    with os.add_dll_directory(str(FOLDER)):
        with xsem.open_device("levelzero:0") as device, nt.closing(nt.section(SIZE)) as section:
            desc = MemoryDesc.opaque_win32(section, allocation_size=SIZE, device_uuid=None)
            buffer = device.import_memory(desc).map_buffer()
            for commands in [device.create_command_list() for _ in range(8)]:
                commands.append_fill(buffer, b"\0")
                commands.synchronize(timeout_s=nt.BOUND_S)
            buffer.copy_to_host()
        yield


@pytest.fixture
def device(loader: None) -> Iterator[xsem.Device]:
    with xsem.open_device("levelzero:0") as opened:
        yield opened


@pytest.fixture
def host() -> Iterator[xsem.Device]:
    with xsem.open_device("host") as opened:
        yield opened


@pytest.mark.usefixtures("loader")
def test_loader_is_found_by_its_name_on_windows() -> None:
    (check,) = [each for each in LevelZeroBackend().checks() if each.name == "loader"]
    assert check.ok
    assert "ze_loader.dll" in check.detail


NAMES = [None, f"Local\\xsem-test-ß-{os.getpid()}"]


def test_event_is_signalled_and_reset_by_the_device(device: xsem.Device) -> None:
    with nt.closing(nt.event()) as event, nt.closing(nt.timeline()) as timeline:
        device.import_semaphore(SemaphoreDesc.timeline_win32(timeline, device_uuid=None))   # tells the end of signals
        semaphore = device.import_semaphore(SemaphoreDesc.opaque_win32(event, device_uuid=None))
        commands = device.create_command_list()
        commands.append_signal(semaphore)
        commands.synchronize(timeout_s=nt.BOUND_S)
        assert nt.is_signalled(event)
        commands.append_wait(semaphore)
        nt.stays_pending(commands)
        device.import_semaphore(SemaphoreDesc.opaque_win32(event, device_uuid=None)).release()
        nt.set_event(event)
        commands.synchronize(timeout_s=nt.BOUND_S)
        assert not nt.is_signalled(event)


@pytest.mark.parametrize("make", [SemaphoreDesc.timeline_win32, SemaphoreDesc.d3d12_fence, SemaphoreDesc.d3d11_fence])
@pytest.mark.parametrize("name", NAMES, ids=["handle", "name"])
def test_timeline_orders_the_device_and_the_host(
    device: xsem.Device, host: xsem.Device, make: Any, name: str | None
) -> None:
    with nt.closing(nt.timeline(name)) as handle:
        by = {"name": name} if name else {"handle": handle}
        desc = make(device_uuid=None, **by) if make == SemaphoreDesc.timeline_win32 else make(**by)
        theirs, ours = device.import_semaphore(desc), host.import_semaphore(
            SemaphoreDesc.timeline_win32(handle, device_uuid=None))
        commands = device.create_command_list()
        commands.append_wait(theirs, 2**40)
        nt.stays_pending(commands)
        refused(lambda: commands.append_signal(theirs, 2**40 + 1), "signal_behind_wait", BusyError)
        ours.host_signal(2**40)
        commands.synchronize(timeout_s=nt.BOUND_S)
        commands.append_signal(theirs, 2**40 + 1)
        commands.synchronize(timeout_s=nt.BOUND_S)
        assert ours.value() == 2**40 + 1


def test_names_that_intels_driver_does_not_read_are_refused(device: xsem.Device) -> None:
    name = str(NAMES[1])
    refused(lambda: device.import_semaphore(SemaphoreDesc.opaque_win32(name=name, device_uuid=None)), "name_not_taken",
            UnsupportedError)
    refused(lambda: device.import_memory(MemoryDesc.opaque_win32(name=name, allocation_size=SIZE, device_uuid=None)),
            "name_not_taken", UnsupportedError)


def test_memory_is_shared(device: xsem.Device, host: xsem.Device) -> None:
    with nt.closing(nt.section(SIZE)) as handle:
        memory = device.import_memory(MemoryDesc.opaque_win32(handle, allocation_size=SIZE, device_uuid=None))
        view = host.import_memory(MemoryDesc.opaque_win32(handle, allocation_size=SIZE, device_uuid=None)
                                  ).map_buffer().numpy()
        commands = device.create_command_list()
        commands.append_fill(memory.map_buffer(4096, 4096), b"\x07")
        commands.synchronize(timeout_s=nt.BOUND_S)
        assert (view[4096:8192] == 7).all()
        assert not view[:4096].any()
        view[:] = 9
        assert (memory.map_buffer(overlap=True).copy_to_host() == 9).all()


REFUSED: dict[str, tuple[Any, Any]] = {
    "section as binary": (nt.section, functools.partial(SemaphoreDesc.opaque_win32, device_uuid=None)),
    "event as timeline": (nt.event, functools.partial(SemaphoreDesc.timeline_win32, device_uuid=None)),
    "timeline as memory": (nt.timeline, functools.partial(MemoryDesc.opaque_win32, allocation_size=4096,
                                                          device_uuid=None)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_object_of_another_sort_is_refused_by_the_driver(device: xsem.Device, case: str) -> None:
    make, describe = REFUSED[case]
    with nt.closing(make()) as handle:
        desc = describe(handle)
        act = device.import_memory if isinstance(desc, MemoryDesc) else device.import_semaphore
        error = refused(functools.partial(act, desc), "refused_by_driver", BadHandleError)
        assert "DRM" not in " ".join(error.likely_causes)
