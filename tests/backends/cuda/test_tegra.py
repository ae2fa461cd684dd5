"""Test NvSciSync, NvSciBuf and dma-bufs from xsem to the driver. On the stand-in, which simulates a Tegra Thor.

The stand-in's NvSciSyncFence consists of two 64-bit words: the address of the object and the number of the signal. Its
NvSciSyncAttrList consists of the permission and the UUID of the GPU.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S, soon

import xsem
from xsem.types import MemoryHandleType, MipmapDesc, SemaphoreHandleType, SemaphoreKind, SignalParams, WaitParams
from xsem_cuda.loader import bindings

S, M = SemaphoreHandleType, MemoryHandleType
OBJECT, OTHER, BUFFER = 0x7000_0000_1000, 0x7000_0000_2000, 0x7000_0000_3000   # addresses that no code reads


@contextmanager
def tegra_device() -> Iterator[xsem.Device]:
    with xsem.open_device("cuda:0") as device:
        yield device
    # The objects of the next test have the same addresses, and the stand-in counts the signals of known objects.
    soon(lambda: not device.releasing())


def fence() -> Any:
    return np.zeros(2, "uint64")


def address(array: Any) -> int:
    return int(array.ctypes.data)


@on_stand_in(SIMCUDA_PLATFORM="tegra")
def test_thor_declares_fds_nvsci_and_dmabufs() -> None:
    with tegra_device() as device:
        assert device.capabilities.semaphore_import == {
            S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD, S.HOST_TIMELINE_FD, S.NVSCISYNC}
        declared = {M.OPAQUE_FD, M.HOST_MEMORY_FD, M.NVSCIBUF}
        if hasattr(bindings().CUexternalMemoryHandleType, "CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD"):
            declared.add(M.DMABUF_FD)
        assert device.capabilities.memory_import == declared


# ---- NvSciSync
@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize(("uses", "flags"), [({"signal": True}, 1), ({"wait": True}, 2),
                                             ({"signal": True, "wait": True}, 3)])
def test_attributes_are_written_for_the_use_that_was_asked_for(uses: dict[str, bool], flags: int) -> None:
    attributes = np.zeros(3, "uint64")
    with tegra_device() as device:
        device.nvscisync_attributes(address(attributes), **uses)
        assert attributes[0] == flags
        assert uuid.UUID(bytes=attributes[1:].tobytes()) == device.info.uuid
        # This attribute list has its permission already.
        with pytest.raises(xsem.DriverError) as caught:
            device.nvscisync_attributes(address(attributes), **uses)
        assert caught.value.reason == "invalid_value"
        assert "already" in caught.value.likely_causes[0]
        assert caught.value.handle_type is S.NVSCISYNC


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize(
    ("attributes", "uses", "error", "reason"),
    [(0, {"signal": True}, xsem.BadHandleError, "null_handle"),
     (-1, {"signal": True}, xsem.BadHandleError, "handle_out_of_range"),
     (2**64, {"signal": True}, xsem.BadHandleError, "handle_out_of_range"),
     (True, {"signal": True}, xsem.BadArgumentError, "not_an_int"),
     ("4096", {"signal": True}, xsem.BadArgumentError, "not_an_int"),
     (4096, {}, xsem.BadArgumentError, "signal_or_wait"),
     (4096, {"signal": False, "wait": False}, xsem.BadArgumentError, "signal_or_wait"),
     (4096, {"signal": 1}, xsem.BadArgumentError, "signal_or_wait"),
     (4096, {"signal": True, "wait": "no"}, xsem.BadArgumentError, "signal_or_wait")],
)
def test_attributes_of_nothing_are_refused_before_the_driver(
    attributes: Any, uses: dict[str, Any], error: type[xsem.XsemError], reason: str
) -> None:
    with tegra_device() as device, pytest.raises(error) as caught:
        device.nvscisync_attributes(attributes, **uses)
    assert caught.value.reason == reason
    assert caught.value.call is None


@on_stand_in(SIMCUDA_PLATFORM="tegra")
def test_signal_writes_the_callers_fence_and_a_wait_reads_one() -> None:
    with tegra_device() as device:
        here = device.import_semaphore(xsem.SemaphoreDesc.nvscisync(OBJECT))
        there = device.import_semaphore(xsem.SemaphoreDesc.nvscisync(OBJECT))   # the same object once more
        assert here.kind is SemaphoreKind.NVSCISYNC
        first, second = fence(), fence()
        signals, waits = device.create_command_list(), device.create_command_list()
        gate = device.create_event()
        signals.append_signal(here, SignalParams(nvscisync_fence=address(first)))
        signals.append_signal(here, SignalParams(nvscisync_fence=address(second)), signal_event=gate)
        # The call writes the fence; it does not wait until the signal is reached.
        assert first.tolist() == [OBJECT, 1]
        assert second.tolist() == [OBJECT, 2]
        waits.append_wait(there, WaitParams(nvscisync_fence=address(second)))
        waits.synchronize(timeout_s=BOUND_S)
        gate.wait(timeout_s=BOUND_S)
        # A deterministic fence: the application knows in advance that the third signal has the number 3.
        third = np.array([OBJECT, 3], "uint64")
        waits.append_wait(there, WaitParams(nvscisync_fence=address(third)))
        assert not waits.query()
        signals.append_signal(here, SignalParams(nvscisync_fence=address(first)))
        waits.synchronize(timeout_s=BOUND_S)
        assert first.tolist() == [OBJECT, 3]


@on_stand_in(SIMCUDA_PLATFORM="tegra")
def test_batch_gives_each_object_its_own_fence_beside_a_timeline() -> None:
    with tegra_device() as device, xsem.open_device("host") as host:
        timeline = host.create_semaphore(S.TIMELINE_SEMAPHORE_FD)
        with timeline.export(for_device=device) as desc:
            shared = device.import_semaphore(desc)
        objects = [device.import_semaphore(xsem.SemaphoreDesc.nvscisync(each)) for each in (OBJECT, OTHER)]
        fences = [fence(), fence()]
        commands = device.create_command_list()
        commands.append_signal(
            [objects[0], shared, objects[1]],
            [SignalParams(nvscisync_fence=address(fences[0])), SignalParams(value=7),
             SignalParams(nvscisync_fence=address(fences[1]), skip_nvscibuf_memsync=True)])
        assert [each.tolist() for each in fences] == [[OBJECT, 1], [OTHER, 1]]
        timeline.host_wait(7, timeout_s=BOUND_S)
        commands.append_wait(objects, [WaitParams(nvscisync_fence=address(each)) for each in fences])
        commands.synchronize(timeout_s=BOUND_S)


@on_stand_in(SIMCUDA_PLATFORM="tegra")
def test_fence_of_another_object_is_an_invalid_value() -> None:
    with tegra_device() as device:
        here, other = (device.import_semaphore(xsem.SemaphoreDesc.nvscisync(each)) for each in (OBJECT, OTHER))
        commands, written = device.create_command_list(), fence()
        commands.append_signal(here, SignalParams(nvscisync_fence=address(written)))
        with pytest.raises(xsem.DriverError) as caught:
            commands.append_wait(other, WaitParams(nvscisync_fence=address(written)))
        assert (caught.value.reason, caught.value.from_earlier_work) == ("invalid_value", False)
        assert "fence" in caught.value.likely_causes[0]
        commands.synchronize(timeout_s=BOUND_S)


@on_stand_in(SIMCUDA_PLATFORM="tegra")
def test_signal_without_a_fence_is_refused() -> None:
    with tegra_device() as device:
        semaphore = device.import_semaphore(xsem.SemaphoreDesc.nvscisync(OBJECT))
        with pytest.raises(xsem.BadArgumentError) as refused:
            device.create_command_list().append_signal(semaphore)
        assert refused.value.reason == "fence_required"
        with pytest.raises(xsem.BadArgumentError) as null:
            SignalParams(nvscisync_fence=0)
        assert null.value.reason == "null_fence"


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize("operation", ["signal", "wait"])
@pytest.mark.parametrize("batch", [False, True])
def test_nvscisync_in_a_recording_is_refused_before_the_driver(operation: str, batch: bool) -> None:
    with tegra_device() as device, xsem.open_device("host") as host:
        semaphore = device.import_semaphore(xsem.SemaphoreDesc.nvscisync(OBJECT))
        with host.create_timeline().export(for_device=device) as desc:
            timeline = device.import_semaphore(desc)
        commands, written = device.create_command_list(), fence()
        param = (SignalParams if operation == "signal" else WaitParams)(nvscisync_fence=address(written))
        plain = (SignalParams if operation == "signal" else WaitParams)(value=1)
        append: Any = commands.append_signal if operation == "signal" else commands.append_wait
        with pytest.raises(xsem.UnsupportedError) as caught, commands.record():
            append([timeline, semaphore] if batch else semaphore, [plain, param] if batch else param)
        assert (caught.value.reason, caught.value.call) == ("not_recordable", None)
        assert written.tolist() == [0, 0]
        commands.append_signal(semaphore, SignalParams(nvscisync_fence=address(written)))   # the list is still usable
        commands.synchronize(timeout_s=BOUND_S)
        assert written.tolist() == [OBJECT, 1]


# ---- memory
@on_stand_in(SIMCUDA_PLATFORM="tegra")
def test_nvscibuf_is_mapped_as_buffer_and_one_level_image() -> None:
    with tegra_device() as device:
        memory = device.import_memory(xsem.MemoryDesc.nvscibuf(BUFFER, allocation_size=1 << 16))
        buffer = memory.map_buffer(0, 4096)
        buffer.copy_from_host(np.full(4096, 9, "uint8"))
        assert (buffer.copy_to_host() == 9).all()
        with pytest.raises(xsem.BadArgumentError) as caught:
            memory.map_mipmapped_array(MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, levels=2, offset=8192))
        assert caught.value.reason == "bad_levels"
        image = memory.map_mipmapped_array(MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, offset=8192))
        data = np.arange(512, dtype="uint32").astype("uint8").reshape(8, 16, 4)
        image.level(0).write(data)
        assert (image.level(0).read() == data).all()


@on_stand_in(SIMCUDA_PLATFORM="tegra")
def test_dmabuf_is_mapped_as_a_buffer_and_never_as_an_image() -> None:
    with tegra_device() as device, xsem.open_device("host") as host:
        there = host.create_memory(M.OPAQUE_FD, 1 << 16)
        with there.export(for_device=device) as exported:
            assert isinstance(exported.handle, xsem.OwnedHandle)
            desc = xsem.MemoryDesc.dmabuf_fd(exported.handle.fileno(), allocation_size=1 << 16)
            if M.DMABUF_FD not in device.capabilities.memory_import:   # bindings 12 do not know this type
                with pytest.raises(xsem.UnsupportedError):
                    device.import_memory(desc)
                return
            memory = device.import_memory(desc)
            os.fstat(exported.handle.fileno())
        there.map_buffer().numpy()[:] = 5
        assert (memory.map_buffer(0, 4096).copy_to_host() == 5).all()
        with pytest.raises(xsem.BadArgumentError) as caught:
            memory.map_mipmapped_array(MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4, offset=8192))
        assert caught.value.reason == "mipmap_of_dmabuf"
        assert caught.value.call is None


@on_stand_in
def test_attributes_are_unsupported_where_nvscisync_is() -> None:
    with tegra_device() as device:
        with pytest.raises(xsem.UnsupportedError) as caught:
            device.nvscisync_attributes(4096, signal=True)
        assert (caught.value.reason, caught.value.capability) == ("unsupported", "semaphore.import.nvscisync")


@on_stand_in(SIMCUDA_PLATFORM="tegra", SIMCUDA_MISSING="cuDeviceGetNvSciSyncAttributes")
def test_attributes_are_unsupported_when_driver_lacks_function() -> None:
    with tegra_device() as device, pytest.raises(xsem.UnsupportedError) as caught:
        device.nvscisync_attributes(address(np.zeros(3, "uint64")), wait=True)
    assert (caught.value.reason, caught.value.call) == ("driver_too_old", "cuDeviceGetNvSciSyncAttributes")
