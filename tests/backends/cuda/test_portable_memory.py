"""Test memory of the host on CUDA: registered, mapped, copied, exported. On the stand-in for libcuda."""

from __future__ import annotations

import numpy as np
import pytest
from support.cuda_sim import on_stand_in
from support.waiting import until

import xsem
from xsem.types import MemoryHandleType

HOST_MEMORY = MemoryHandleType.HOST_MEMORY_FD
BOUND_S = 20.0
SIZE = 3 * 4096


def imported(memory: xsem.Memory, device: xsem.Device) -> xsem.Memory:
    with memory.export(for_device=device) as desc:
        return device.import_memory(desc)


@on_stand_in(SIMCUDA_GUARD="1")
@pytest.mark.parametrize("owner", ["cuda:0", "host"])
@pytest.mark.parametrize("offset", [0, 100, 4096])
def test_copies_and_fills_use_the_bytes_that_the_host_sees(owner: str, offset: int) -> None:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        made = (cuda if owner == "cuda:0" else host).create_memory(HOST_MEMORY, SIZE)
        here = made if owner == "cuda:0" else imported(made, cuda)
        there = imported(made, host) if owner == "cuda:0" else made
        seen = there.map_buffer().numpy()
        buffer, rest = here.map_buffer(offset, 64), here.map_buffer(offset + 64, 64)
        seen[offset:offset + 64] = np.arange(64)
        assert buffer.copy_to_host(timeout_s=BOUND_S).tolist() == list(range(64))
        buffer.copy_from_host(np.arange(64, 0, -1, dtype=np.uint8), timeout_s=BOUND_S)
        assert seen[offset:offset + 64].tolist() == list(range(64, 0, -1))
        commands = cuda.create_command_list()
        commands.append_copy(rest, buffer)
        commands.append_fill(buffer, b"\1\2\3\4")
        commands.synchronize(timeout_s=BOUND_S)
        assert seen[offset:offset + 128].tolist() == [1, 2, 3, 4] * 16 + list(range(64, 0, -1))
        assert not seen[:offset].any()
        assert not seen[offset + 128:].any()


@on_stand_in(SIMCUDA_GUARD="1")
def test_copy_goes_to_memory_of_the_device_and_back() -> None:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        made = cuda.create_memory(HOST_MEMORY, SIZE)
        seen = imported(made, host).map_buffer().numpy()
        near, far = made.map_buffer(size=256), cuda.create_memory(MemoryHandleType.OPAQUE_FD, 256).map_buffer(size=256)
        seen[:256] = np.arange(256)
        commands = cuda.create_command_list()
        commands.append_copy(far, near)
        commands.append_fill(near, b"\0")
        commands.append_copy(near, far)
        commands.synchronize(timeout_s=BOUND_S)
        assert seen[:256].tolist() == list(range(256))


@on_stand_in
def test_buffers_are_arrays_of_the_device_at_the_place_of_their_offset() -> None:
    with xsem.open_device("cuda:0") as cuda:
        memory = cuda.create_memory(HOST_MEMORY, SIZE)
        assert memory.allocation_size == SIZE
        with memory.map_buffer(4096, shape=(4, 8), dtype="float32") as buffer:
            interface = buffer.__cuda_array_interface__
            assert interface["data"] == (memory.native_handle + 4096, False)
            assert interface["shape"] == (4, 8)
            assert buffer.__dlpack_device__() == (2, 0)


@on_stand_in(SIMCUDA_DEVICES="2")
def test_two_devices_use_one_memory() -> None:
    with xsem.open_device("cuda:0") as first, xsem.open_device("cuda:1") as second:
        here = first.create_memory(HOST_MEMORY, SIZE)
        there = imported(here, second)
        here.map_buffer(size=16).copy_from_host(np.arange(16, dtype=np.uint8), timeout_s=BOUND_S)
        assert there.map_buffer(size=16).copy_to_host(timeout_s=BOUND_S).tolist() == list(range(16))


@on_stand_in
def test_release_waits_for_the_work_of_the_memory_and_unmaps_it() -> None:
    def mapped() -> int:
        with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
            return sum("/memfd:xsem-memory" in line for line in maps)

    with xsem.open_device("cuda:0") as cuda:
        memory, gate = cuda.create_memory(HOST_MEMORY, SIZE), cuda.create_timeline()
        before = mapped()
        buffer = memory.map_buffer()
        commands = cuda.create_command_list()
        commands.append_wait(gate, 1)
        commands.append_fill(buffer, b"\1")
        memory.release()
        buffer.release()
        assert cuda.releasing()
        assert mapped() == before
        gate.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)
        until(lambda: not cuda.releasing())
        assert mapped() == before - 1


@on_stand_in
def test_memory_of_the_host_takes_no_images() -> None:
    with xsem.open_device("cuda:0") as cuda, pytest.raises(xsem.UnsupportedError) as caught:
        cuda.create_memory(HOST_MEMORY, SIZE).map_mipmapped_array(
            xsem.MipmapDesc(extent=(8, 8, 0), format="uint8", channels=4))
    assert caught.value.reason == "created_memory"
