"""Test old drivers under today's cuda-python: their abilities work, and errors name the rest. On the stand-in.

cuda-python decides which drivers it starts with. 12.9.10 and 13.5.0 need cuGetProcAddress_v2, which is new in
CUDA 12.0. 13.3.1 starts with a driver of 10.1. The tests accept both, and both were tried.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.cuda_sim import on_stand_in

import xsem
from xsem.types import MemoryHandleType as M
from xsem.types import MipmapDesc, SemaphoreKind
from xsem.types import SemaphoreHandleType as S

BOUND_S = 20.0


def everything_works(kinds: list[S]) -> None:
    """Import, use and release semaphores of these types, a memory and an image."""
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        assert cuda.capabilities.semaphore_import == set(kinds)
        commands = cuda.create_command_list()
        for kind in kinds:
            there = host.create_semaphore(kind)
            with there.export(for_device=cuda) as desc:
                here = cuda.import_semaphore(desc)
            first, second = (1, 2) if kind.kind is SemaphoreKind.TIMELINE else (None, None)
            commands.append_wait(here, first)
            assert not commands.query()
            there.host_signal(first)
            commands.synchronize(timeout_s=BOUND_S)   # otherwise the wait of the host could take the signal
            commands.append_signal(here, second)
            there.host_wait(second, timeout_s=BOUND_S)
        with host.create_memory(M.OPAQUE_FD, 1 << 16).export(for_device=cuda) as desc:
            memory = cuda.import_memory(desc)
        buffer = memory.map_buffer(0, 4096)
        commands.append_fill(buffer, b"\x07")
        commands.synchronize(timeout_s=BOUND_S)
        assert (buffer.copy_to_host() == 7).all()
        image = memory.map_mipmapped_array(MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, offset=8192))
        image.level(0).write(np.full((8, 16, 4), 9, "uint8"))
        assert (image.level(0).read() == 9).all()


def starts() -> bool:
    """Return whether the driver starts under these bindings; if not, check the cause and the remedy in the error."""
    error: xsem.BackendUnavailableError | None = None
    try:
        xsem.devices("cuda")
    except xsem.BackendUnavailableError as caught:
        error = caught
    if error is None:
        return True
    assert (error.reason, error.call, error.backend) == ("driver_too_old", "cuInit", "cuda")
    assert "update the driver, or pip install cuda-bindings==13.3.1 (drivers from CUDA 10.1 on)" in error.message
    with pytest.raises(xsem.BackendUnavailableError):
        xsem.open_device("cuda:0")
    return False


def works_or_says_that_the_driver_is_too_old(kinds: list[S]) -> None:
    if starts():
        everything_works(kinds)


@on_stand_in(SIMCUDA_VERSION="10010")
def test_driver_of_10_1_works_without_timelines_or_is_too_old() -> None:
    works_or_says_that_the_driver_is_too_old([S.OPAQUE_FD])


@on_stand_in(SIMCUDA_VERSION="10010")
def test_later_types_are_not_declared_by_a_driver_of_10_1() -> None:
    if not starts():
        return
    with xsem.open_device("cuda:0") as cuda:
        for desc in (xsem.SemaphoreDesc.timeline_fd(0, device_uuid=None), xsem.SemaphoreDesc.nvscisync(4096)):
            with pytest.raises(xsem.UnsupportedError) as caught:
                cuda.import_semaphore(desc)
            assert caught.value.call is None


@on_stand_in(SIMCUDA_VERSION="10010", SIMCUDA_PLATFORM="windows")
def test_driver_of_10_1_on_windows_has_types_up_to_4_and_5() -> None:
    from xsem_cuda.backend import CudaBackend

    if not starts():
        return
    device = CudaBackend("win32").open(0)
    assert {each.native["cuda"][1] for each in device.capabilities.semaphore_import} == {2, 3, 4}
    assert {each.native["cuda"][1] for each in device.capabilities.memory_import} == {2, 3, 4, 5}
    device.close()


@on_stand_in(SIMCUDA_VERSION="11020")
def test_driver_of_11_2_works_or_says_that_it_is_too_old() -> None:
    works_or_says_that_the_driver_is_too_old([S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD])


@on_stand_in(SIMCUDA_VERSION="12000")
def test_driver_of_12_0_works_under_any_bindings() -> None:
    everything_works([S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD, S.HOST_TIMELINE_FD])


@on_stand_in(SIMCUDA_VERSION="12040")
@pytest.mark.parametrize(("name", "flags", "capability"), [
    ("unorm_10_10_10_2", (), "image_formats.unorm_10_10_10_2"), ("uint8", ("video",), "image_flags.video")])
def test_later_format_or_flag_is_not_declared_by_a_driver_of_12_4(
    name: str, flags: tuple[str, ...], capability: str
) -> None:
    with (xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda,
          host.create_memory(M.OPAQUE_FD, 1 << 16).export(for_device=cuda) as exported):
        memory = cuda.import_memory(exported)
        with pytest.raises(xsem.UnsupportedError) as caught:
            memory.map_mipmapped_array(MipmapDesc(extent=(16, 8, 0), format=name, channels=4,
                                                  **dict.fromkeys(flags, True)))
        assert (caught.value.capability, caught.value.call) == (capability, None)
        assert "the driver is of CUDA 12.4, and this came with CUDA 12." in str(caught.value)


@on_stand_in(SIMCUDA_VERSION="12090", SIMCUDA_PLATFORM="tegra")
def test_dmabuf_is_not_imported_by_a_driver_from_before_it() -> None:
    with (xsem.open_device("cuda:0") as cuda, xsem.open_device("host") as host,
          host.create_memory(M.OPAQUE_FD, 4096).export() as exported):
        assert isinstance(exported.handle, xsem.OwnedHandle)
        desc = xsem.MemoryDesc.dmabuf_fd(exported.handle.fileno(), allocation_size=4096)
        with pytest.raises(xsem.UnsupportedError) as caught:
            cuda.import_memory(desc)
        assert caught.value.reason == "unsupported"
        assert "the driver is of CUDA 12.9, and this came with CUDA 13.0" in str(caught.value)


@on_stand_in(SIMCUDA_VERSION="12000", SIMCUDA_MISSING="cuThreadExchangeStreamCaptureMode")
def test_function_that_a_driver_lacks_is_named_when_it_is_needed() -> None:
    with pytest.raises(xsem.UnsupportedError) as caught, xsem.open_device("cuda:0") as cuda:
        cuda.create_command_list()
    assert (caught.value.reason, caught.value.capability) == ("driver_too_old", "cuThreadExchangeStreamCaptureMode")
