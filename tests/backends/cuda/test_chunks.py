"""Test arrays over several allocations: shared by chunks, imported as one range. On the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from support.cuda_segments import GRANULE, Array, ask, driver, segment
from support.cuda_sim import on_stand_in
from support.importer import BOUND_S

import xsem
from xsem.types import Feature, MemoryChunk, MemoryDesc, MipmapDesc


@contextmanager
def opened() -> Iterator[xsem.Device]:
    """Open a device whose context is also current for the library of the arrays."""
    with xsem.open_device("cuda:0") as found:
        ask("cuCtxPushCurrent", driver().CUcontext(found.native_handle))
        try:
            yield found
        finally:
            ask("cuCtxPopCurrent")


def held() -> int:
    """Return the number of handles, reservations and mappings of the stand-in."""
    return int(ctypes.CDLL("libcuda.so.1").simcuda_vmm_held())


@contextmanager
def failing(before: bytes | None = None, after: bytes | None = None) -> Iterator[None]:
    library = ctypes.CDLL("libcuda.so.1")
    library.simcuda_fail(before, after)
    try:
        yield
    finally:
        library.simcuda_fail(None, None)


def until_freed(device: xsem.Device) -> None:
    deadline = time.monotonic() + BOUND_S
    while device.releasing():
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.002)


def fds() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def fill(address: int, value: int, size: int) -> None:
    ask("cuMemsetD8", address, value, size)
    ask("cuCtxSynchronize")


def peek(address: int, size: int) -> bytes:
    found = np.empty(size, np.uint8)
    ask("cuMemcpyDtoH", found.ctypes.data, address, size)
    return found.tobytes()


# ---- shared, then imported as one range
@on_stand_in(SIMCUDA_GUARD="1")
def test_array_over_all_chunks_is_one_range_on_both_sides() -> None:
    with opened() as device, segment(2, 2, 1, 2) as memory:
        nothing = held()
        count = memory.size - GRANULE
        tensor = Array(memory.base + 4096, (count,), "|u1")
        with device.share(tensor) as shared:
            assert (shared.offset, shared.size, shared.allocation_size) == (4096, count, memory.size)
            assert shared.buffer().address == memory.base + 4096   # nothing was copied
            with shared.export() as desc:
                assert [chunk.size for chunk in desc.chunks] == [each * GRANULE for each in (2, 2, 1, 2)]
                assert (desc.handle, desc.allocation_size, desc.device_uuid) == (None, memory.size, device.info.uuid)
                imported = device.import_memory(desc)
            assert all(chunk.handle.closed for chunk in desc.chunks)   # type: ignore[union-attr]
        until_freed(device)   # the import needs neither the shared memory nor the handles
        fill(memory.base + 4096, 7, count)
        with imported.map_buffer(shared.offset, count) as view:
            assert (view.copy_to_host(timeout_s=BOUND_S) == 7).all()
            written = np.arange(count, dtype=np.uint32).astype(np.uint8)
            view.copy_from_host(written, timeout_s=BOUND_S)
        assert peek(memory.base + 4096, count) == written.tobytes()
        for edge in (2, 4, 5):   # a mapping over the end of each chunk
            with imported.map_buffer(edge * GRANULE - 6, shape=(3,), dtype="float32") as view:
                view.copy_from_host(np.array([1, 2, 3], np.float32), timeout_s=BOUND_S)
            assert peek(memory.base + edge * GRANULE - 6, 12) == np.array([1, 2, 3], np.float32).tobytes()
        imported.release()
        until_freed(device)
        assert held() == nothing


@on_stand_in
def test_range_begins_with_the_first_chunk_of_the_array() -> None:
    with opened() as device, segment(1, 2, 1, 1) as memory:
        shared = device.share(Array(memory.base + 3 * GRANULE - 8, (4,)))
        assert (shared.offset, shared.allocation_size) == (2 * GRANULE - 8, 3 * GRANULE)
        with shared.export() as desc:
            assert [chunk.size for chunk in desc.chunks] == [2 * GRANULE, GRANULE]
        inside = device.share(Array(memory.base + GRANULE, (2 * GRANULE // 4,)))
        with inside.export() as desc:
            assert (desc.chunks, desc.allocation_size) == ((), 2 * GRANULE)
        shared.release()
        inside.release()
        until_freed(device)


@on_stand_in
def test_chunks_of_two_arrays_are_shared_and_released_one_by_one() -> None:
    with opened() as device, segment(1, 1, 1) as memory:
        nothing = held()
        one = device.share(Array(memory.base, (2 * GRANULE,), "|u1"))
        other = device.share(Array(memory.base + GRANULE, (2 * GRANULE,), "|u1"))
        with one.export() as first, other.export() as second:
            here, there = device.import_memory(first), device.import_memory(second)
            again = device.import_memory(first)
        one.release()
        here.release()
        until_freed(device)
        fill(memory.base + GRANULE, 3, GRANULE)
        for imported, offset in ((there, 0), (again, GRANULE)):   # the chunk that both arrays have
            with imported.map_buffer(offset, 4) as view:
                assert view.copy_to_host(timeout_s=BOUND_S).tolist() == [3] * 4
        for each in (other, there, again):
            each.release()
        until_freed(device)
        assert held() == nothing


CONSUMER = """
import json, socket, sys
import xsem
from xsem import ipc

with socket.socket(fileno=int(sys.argv[1])) as sock:
    with (ipc.claim(ipc.Ticket(sys.argv[2])) if len(sys.argv) > 2 else ipc.receive(sock)) as message:
        offset, size, rest = message.payload.decode().split(" ", 2)
        shape, dtype = rest.rsplit(" ", 1)
        uuid = message.memories[0].device_uuid
        device = xsem.open_device("cuda", uuid=uuid)
        memory = device.import_memory(message.memories[0])
    array = memory.map_buffer(int(offset), int(size), shape=json.loads(shape), dtype=dtype)
    print(int(array.copy_to_host().astype("int64").sum()), flush=True)
    array.copy_from_host(array.copy_to_host() * 2)
    sock.send(b"written")
    sock.recv(1)                     # the producer has ended or goes on
    array.copy_from_host(array.copy_to_host() + 1)
    print(int(array.copy_to_host().astype("int64").sum()), flush=True)
    memory.release()
"""


@on_stand_in
@pytest.mark.parametrize(("way", "granules"), [("ticket", 10), ("socket", 1)])
def test_another_process_writes_the_tensor_of_this_one(way: str, granules: int) -> None:
    """The lines of docs/how-to/torch-to-process.md; as a ticket, with 64 MiB over four allocations of 20 MiB."""
    size = granules * GRANULE
    count = 16 << 20 if granules == 10 else size - 1024
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with here, opened() as device, segment(*[granules] * 4) as memory:
        here.settimeout(BOUND_S)
        ask("cuMemsetD32", memory.base + 512, 3, count)
        ask("cuCtxSynchronize")
        shared = device.share(Array(memory.base + 512, (4, count // 4), "<i4"))
        layout = f"{shared.offset} {shared.size} {list(shared.shape)} {shared.dtype}".encode()
        ticket = []
        with shared.export() as desc:
            if way == "ticket":
                ticket = [xsem.ipc.offer(desc, payload=layout)]
            else:
                xsem.ipc.send(here, desc, payload=layout)
        child = subprocess.Popen([sys.executable, "-c", CONSUMER, str(there.fileno()), *ticket], text=True,
                                 pass_fds=[there.fileno()], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        there.close()
        try:
            assert here.recv(7) == b"written", child.communicate(timeout=BOUND_S)
            for at in (0, size - 512 - 4, size - 512, 4 * count - 4):
                assert peek(memory.base + 512 + at, 4) == (6).to_bytes(4, "little")
            here.send(b"x")
            out, errors = child.communicate(timeout=BOUND_S)
        finally:
            child.kill()
            child.wait()
        assert (out.split(), errors) == ([str(3 * count), str(7 * count)], "")
        assert peek(memory.base + 512, 8) == (7).to_bytes(4, "little") * 2
        shared.release()
        until_freed(device)


# ---- refused
def joined(device: xsem.Device, *granules: int) -> MemoryDesc:
    """Return a descriptor of new allocations."""
    exported = [device.create_memory("opaque_fd", each * GRANULE).export() for each in granules]
    chunks = [MemoryChunk(size=each.allocation_size, handle=each.handle) for each in exported]   # type: ignore[arg-type]
    return MemoryDesc(type="opaque_fd", allocation_size=sum(granules) * GRANULE, chunks=chunks)


def refused(error: type[xsem.XsemError], device: xsem.Device, desc: MemoryDesc) -> xsem.XsemError:
    until_freed(device)
    before, nothing = fds(), held()
    with pytest.raises(error) as caught:
        device.import_memory(desc)
    assert (fds(), held()) == (before, nothing)
    return caught.value


@on_stand_in
def test_memory_of_one_chunk_is_imported_as_before() -> None:
    with opened() as device, segment() as memory:
        shared = device.share(memory.base, size=64)
        with shared.export() as desc, failing(b"cuMemImportFromShareableHandle:999,cuMemMap:999"):
            assert desc.chunks == ()
            device.import_memory(desc).release()
        shared.release()
        until_freed(device)


@on_stand_in
@pytest.mark.parametrize(("sizes", "reason", "call"), [
    ((3 * GRANULE, GRANULE), "allocation_size_beyond_file", None),
    ((GRANULE, 2 * GRANULE), "bad_size", "cuMemMap"),
    ((GRANULE - 4096, 2 * GRANULE + 4096), "bad_size", "cuMemMap"),   # whole granules together
    ((GRANULE, 3 * GRANULE - 1), "bad_size", "cuMemAddressReserve"),
    ((1, 1), "bad_size", "cuMemAddressReserve"),
])
def test_sizes_that_are_not_those_of_the_allocations_are_refused(
    sizes: tuple[int, int], reason: str, call: str | None
) -> None:
    with opened() as device:
        right = joined(device, 1, 3)
        chunks = [dataclasses.replace(chunk, size=size) for chunk, size in zip(right.chunks, sizes, strict=True)]
        wrong = dataclasses.replace(right, chunks=chunks, allocation_size=sum(sizes))   # type: ignore[arg-type]
        error = refused(xsem.XsemError, device, wrong)
        assert (error.reason, error.call) == (reason, call)
        right.close()


@on_stand_in
def test_handle_that_is_no_memory_is_refused() -> None:
    with opened() as device:
        right = joined(device, 1, 1)
        other, (pipe, end) = os.memfd_create("other"), os.pipe()
        os.truncate(other, GRANULE)
        for fd, reason in ((other, "refused_by_driver"), (pipe, "fd_is_pipe")):
            chunks = (right.chunks[0], MemoryChunk(size=GRANULE, handle=fd))
            error = refused(xsem.BadHandleError, device, dataclasses.replace(right, chunks=chunks))
            assert error.reason == reason
        for fd in (other, pipe, end):
            os.close(fd)
        right.close()


@on_stand_in
def test_closed_chunk_and_another_device_are_refused_before_the_driver() -> None:
    with opened() as device, failing(b"cuMemImportFromShareableHandle:999"):
        right = joined(device, 1, 1)
        wrong = dataclasses.replace(right, device_uuid=bytes(16))   # type: ignore[arg-type]
        assert refused(xsem.WrongDeviceError, device, wrong).reason == "wrong_device"
        right.chunks[1].close()
        assert refused(xsem.ReleasedError, device, right).reason == "handle_closed"
        right.close()


STEPS = ["cuMemImportFromShareableHandle:999:1", "cuMemImportFromShareableHandle:999:3", "cuMemAddressReserve:2",
         "cuMemMap:999:1", "cuMemMap:999:3", "cuMemSetAccess:999", "cuMemSetAccess:1"]


@on_stand_in
@pytest.mark.parametrize("step", STEPS)
def test_failed_import_leaves_nothing(step: str) -> None:
    with opened() as device:
        right = joined(device, 1, 2, 1)
        until_freed(device)
        before, nothing = fds(), held()
        with failing(step.encode()), pytest.raises(xsem.XsemError) as caught:
            device.import_memory(right)
        assert caught.value.call == step.split(":", maxsplit=1)[0]
        assert caught.value.reason != "bad_size"
        assert (fds(), held()) == (before, nothing)
        with device.import_memory(right) as imported:
            assert imported.allocation_size == 4 * GRANULE
        until_freed(device)
        right.close()


@on_stand_in
@pytest.mark.parametrize("step", ["cuMemRetainAllocationHandle:999:3", "cuMemGetAllocationPropertiesFromHandle:999:2"])
def test_failed_share_leaves_nothing(step: str) -> None:
    with opened() as device, segment(1, 1, 1) as memory:
        nothing = held()
        with failing(step.encode()), pytest.raises(xsem.XsemError):
            device.share(memory.base, size=memory.size)
        assert held() == nothing
        device.share(memory.base, size=memory.size).release()
        until_freed(device)
        assert held() == nothing


@on_stand_in
def test_failed_export_of_a_chunk_closes_the_others() -> None:
    with opened() as device, segment(1, 1, 1) as memory:
        shared = device.share(memory.base, size=memory.size)
        before = fds()
        with failing(b"cuMemExportToShareableHandle:304:3"), pytest.raises(xsem.XsemError) as caught:
            shared.export()
        assert caught.value.reason == "operating_system"
        assert fds() == before   # also while the traceback of the error lives
        shared.export().close()
        shared.release()
        until_freed(device)


@on_stand_in
def test_failed_release_still_releases_the_rest() -> None:
    with opened() as device:
        right = joined(device, 1, 1, 1)
        until_freed(device)
        nothing = held()
        imported = device.import_memory(right)
        with failing(after=b"cuMemUnmap:999:2"):
            imported.release()
            until_freed(device)
        assert held() == nothing
        right.close()


@on_stand_in
def test_image_on_chunks_is_refused() -> None:
    with opened() as device, joined(device, 1, 1) as right, device.import_memory(right) as imported:
        with pytest.raises(xsem.UnsupportedError, match="imported memory of one allocation") as caught:
            imported.map_mipmapped_array(MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4))
        assert caught.value.reason == "created_memory"
        with pytest.raises(xsem.UnsupportedError):
            imported.export()


@on_stand_in(SIMCUDA_ATTRIBUTES="103:0")
def test_device_without_posix_handles_declares_no_chunks() -> None:
    with xsem.open_device("cuda:0") as device:
        assert Feature.MEMORY_CHUNKS not in device.capabilities.features
        desc = MemoryDesc(type="opaque_fd", allocation_size=2, chunks=[MemoryChunk(size=1, handle=0)] * 2)
        with pytest.raises(xsem.UnsupportedError) as caught:
            device.import_memory(desc)
        assert caught.value.reason == "several_allocations"
