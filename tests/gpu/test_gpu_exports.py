"""Test memory that CUDA exports on a real GPU, with Vulkan, OpenCL and another process as importers."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from support.gpu import needs_gpu

import xsem
from xsem.types import Feature, MemoryDesc, MemoryHandleType, SemaphoreHandleType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

OPAQUE, DMABUF = MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BOUND_S = 30.0
SIZE = 3 << 20
PLACE = 4096 + 52


@pytest.fixture
def cuda() -> Iterator[xsem.Device]:
    needs_gpu()
    with xsem.open_device("cuda:0") as device:
        if OPAQUE not in device.capabilities.memory_export:
            pytest.skip("the CUDA device exports no memory")
        yield device


def write(memory: xsem.Memory, value: int) -> None:
    with memory.map_buffer(PLACE, 64, overlap=True) as buffer:
        buffer.copy_from_host(np.arange(value, value + 64, dtype=np.uint8), timeout_s=BOUND_S)


def shows(memory: xsem.Memory, value: int) -> bool:
    with memory.map_buffer(PLACE, 64, overlap=True) as buffer:
        return bool((buffer.copy_to_host(timeout_s=BOUND_S) == np.arange(value, value + 64, dtype=np.uint8)).all())


@pytest.mark.parametrize("importer", ["vulkan", "opencl", "cuda"])
def test_importer_and_cuda_see_each_others_bytes(cuda: xsem.Device, importer: str) -> None:
    try:
        other = xsem.open_device(importer, uuid=cuda.info.uuid)
    except (xsem.BackendUnavailableError, xsem.DeviceNotFoundError) as error:
        pytest.skip(f"needs the {importer} device of the GPU: {error}")
    with other:
        created = cuda.create_memory(OPAQUE, SIZE)
        assert created.allocation_size == 4 << 20
        with created.export(for_device=other) as desc:
            imported = other.import_memory(desc)
        write(created, 1)
        assert through_a_list(other, imported, read=True) == list(range(1, 65))
        through_a_list(other, imported, read=False)
        with created.map_buffer(PLACE, 64, overlap=True) as buffer:
            assert (buffer.copy_to_host(timeout_s=BOUND_S) == 99).all()
        created.release()
        assert through_a_list(other, imported, read=True) == [99] * 64


def through_a_list(device: xsem.Device, memory: xsem.Memory, *, read: bool) -> list[int]:
    """Copy 64 bytes on a list of the device, with the handovers that Vulkan needs."""
    commands = device.create_command_list()
    timeline = None
    if TIMELINE in device.capabilities.semaphore_export:
        timeline = device.create_semaphore(TIMELINE)
        timeline.host_signal(1)
        commands.append_wait(timeline, 1, acquire=[memory])
    with device.host_buffer(64) as host, memory.map_buffer(PLACE, 64, overlap=True) as buffer:
        if read:
            commands.append_copy(host, buffer)
        else:
            host.numpy()[:] = 99
            commands.append_copy(buffer, host)
        if timeline is not None:
            commands.append_signal(timeline, 2, release=[memory])
        commands.synchronize(timeout_s=BOUND_S)
        values: list[int] = host.numpy().tolist()
    commands.release()
    return values


def _in_another_process(desc: MemoryDesc, answers: multiprocessing.Queue[bool]) -> None:
    with desc, xsem.open_device("cuda:0") as device, device.import_memory(desc) as imported:
        answers.put(shows(imported, 1))
        write(imported, 2)
        answers.put(True)


def test_second_process_and_cuda_see_each_others_bytes(cuda: xsem.Device) -> None:
    spawn = multiprocessing.get_context("spawn")
    created = cuda.create_memory(OPAQUE, SIZE)
    write(created, 1)
    answers: multiprocessing.Queue[bool] = spawn.Queue()
    with created.export() as desc:
        child = spawn.Process(target=_in_another_process, args=(desc, answers))
        child.start()
    assert answers.get(timeout=60)
    assert answers.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert shows(created, 2)


def test_exports_outlive_the_memory(cuda: xsem.Device) -> None:
    created = cuda.create_memory(OPAQUE, SIZE)
    write(created, 5)
    first, second = created.export(), created.export()
    created.release()
    for desc in (first, second):
        with desc, cuda.import_memory(desc) as imported:
            assert shows(imported, 5)


def test_companion_signals_cuda(cuda: xsem.Device) -> None:
    try:
        companion = cuda.companion_exporter()
    except (xsem.BackendUnavailableError, xsem.DeviceNotFoundError) as error:
        pytest.skip(f"needs the Vulkan device of the GPU: {error}")
    with companion:
        assert companion.info.uuid == cuda.info.uuid
        there = companion.create_semaphore(TIMELINE)
        with there.export(for_device=cuda) as desc:
            here = cuda.import_semaphore(desc)
        commands = cuda.create_command_list()
        commands.append_wait(here, 1)
        commands.append_signal(here, 2)
        there.host_signal(1)
        there.host_wait(2, timeout_s=BOUND_S)


def test_dma_buf_of_created_memory_has_its_size(cuda: xsem.Device) -> None:
    if DMABUF not in cuda.capabilities.memory_export:
        pytest.skip("the device makes no dma-buf")
    created = cuda.create_memory(DMABUF, SIZE)
    with created.export() as desc:
        assert os.lseek(desc.handle.fileno(), 0, os.SEEK_END) == created.allocation_size   # type: ignore[union-attr]


# ---- arrays of libraries: the setting of torch's allocator needs a process of its own
PRELUDE = """
import gc, os, xsem
from xsem.types import MemoryHandleType
cuda = xsem.open_device("cuda:0")
DMABUF = MemoryHandleType.DMABUF_FD

def refusal(act, *args, **options):
    try:
        act(*args, **options)
    except xsem.XsemError as error:
        return error
    raise SystemExit("nothing was refused")
"""


def library_process(library: str, text: str, **environment: str) -> str:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    ran = subprocess.run([sys.executable, "-c", f"import {library}\n{PRELUDE}{text}"], capture_output=True, text=True,
                         timeout=110, check=False, env={**os.environ, **environment})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def torch_process(text: str, setting: str) -> str:
    return library_process("torch", text, PYTORCH_CUDA_ALLOC_CONF=setting)


def test_tensor_of_an_expandable_segment_is_shared_without_a_copy(cuda: xsem.Device) -> None:
    assert Feature.MEMORY_SHARING in cuda.capabilities.features
    assert torch_process("""
first = torch.zeros(100, device="cuda")
tensor = torch.arange(24, dtype=torch.float32, device="cuda").reshape(4, 6)
torch.cuda.synchronize()
shared = cuda.share(tensor)
assert shared.buffer().address == tensor.data_ptr()
assert (shared.shape, shared.strides, shared.dtype) == ((4, 6), (24, 4), "float32")
assert shared.offset % 512 == 0 and shared.offset > 0
with shared.export() as desc:
    imported = cuda.import_memory(desc)
there = torch.from_dlpack(imported.map_buffer(shared.offset, shape=(4, 6), dtype="float32"))
assert there.data_ptr() != tensor.data_ptr() and torch.equal(there, tensor)
there[1] = 7
torch.cuda.synchronize()
assert tensor[1].tolist() == [7.0] * 6
tensor.add_(1)
torch.cuda.synchronize()
assert torch.equal(there, tensor)
columns = cuda.share(tensor[:, 2:4])
assert (columns.offset - shared.offset, columns.strides) == (8, (24, 4))
half = cuda.share(torch.ones(8, dtype=torch.bfloat16, device="cuda"))
assert half.dtype == "bfloat16"
print("shared")
""", "expandable_segments:True") == "shared\n"


def test_tensor_over_several_allocations_is_shared_with_another_process(cuda: xsem.Device) -> None:
    assert Feature.MEMORY_CHUNKS in cuda.capabilities.features
    assert torch_process("""
import socket, subprocess, sys
CHILD = '''
import socket, sys, torch, xsem
sock = socket.socket(fileno=int(sys.argv[1]))
with xsem.ipc.receive(sock) as message, xsem.open_device("cuda:0") as cuda:
    offset, size = map(int, message.payload.split())
    memory = cuda.import_memory(message.memories[0])
    there = torch.from_dlpack(memory.map_buffer(offset, size))
    assert bool((there == 5).all())
    there.copy_(torch.arange(size, device="cuda") % 251)
    torch.cuda.synchronize()
    del there
    sock.send(b"x")
'''
tensor = torch.full((64 << 20,), 5, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
shared = cuda.share(tensor)
assert shared.buffer().address == tensor.data_ptr()
here, there = socket.socketpair()
here.settimeout(90)
child = subprocess.Popen([sys.executable, "-c", CHILD, str(there.fileno())], pass_fds=[there.fileno()])
there.close()
with shared.export() as desc:
    assert len(desc.chunks) > 1 and desc.handle is None, desc
    xsem.ipc.send(here, desc, payload=f"{shared.offset} {shared.size}".encode())
assert here.recv(1) == b"x"
assert child.wait(60) == 0
assert torch.equal(tensor, (torch.arange(64 << 20, device="cuda") % 251).to(torch.uint8))
print("shared")
""", "expandable_segments:True") == "shared\n"


def test_tensor_over_several_allocations_is_refused_by_vulkan(cuda: xsem.Device) -> None:
    assert torch_process("""
shared = cuda.share(torch.zeros(50 << 20, dtype=torch.uint8, device="cuda"))
try:
    vulkan = cuda.companion_exporter()
except xsem.XsemError:
    raise SystemExit(print("refused"))
with shared.export() as desc:
    error = refusal(vulkan.import_memory, desc)
assert error.reason == "several_allocations", error
print("refused")
""", "expandable_segments:True") == "refused\n"


@pytest.mark.parametrize("setting", ["backend:native", "backend:cudaMallocAsync"])
def test_tensor_of_another_allocator_is_refused_with_the_setting(cuda: xsem.Device, setting: str) -> None:
    assert torch_process("""
tensor = torch.zeros(100, device="cuda")
error = refusal(cuda.share, tensor)
assert error.reason == "not_shareable", error
assert "expandable_segments:True" in str(error)
assert refusal(cuda.share, torch.zeros(3)).reason == "host_array"
assert refusal(cuda.share, torch.zeros(3, device="cuda", requires_grad=True)).reason == "array_refused"
print("refused")
""", setting) == "refused\n"


def test_tensor_of_cu_mem_alloc_is_shared_as_a_dma_buf(cuda: xsem.Device) -> None:
    if DMABUF not in cuda.capabilities.memory_export:
        pytest.skip("the device makes no dma-buf")
    assert torch_process("""
tensor = torch.zeros(5000, dtype=torch.uint8, device="cuda")
shared = cuda.share(tensor, type=DMABUF)
assert (shared.offset, shared.allocation_size) == (0, 8192)
with shared.export() as desc:
    assert os.lseek(desc.handle.fileno(), 0, os.SEEK_END) == 8192
print("shared")
""", "backend:native") == "shared\n"


def test_tensor_of_an_expandable_segment_is_shared_as_a_dma_buf(cuda: xsem.Device) -> None:
    if DMABUF not in cuda.capabilities.memory_export:
        pytest.skip("the device makes no dma-buf")
    assert torch_process("""
first = torch.zeros(5000, dtype=torch.uint8, device="cuda")
for tensor in (first, torch.zeros(5000, dtype=torch.uint8, device="cuda")):
    page = tensor.data_ptr() // 4096 * 4096
    shared = cuda.share(tensor, type=DMABUF)
    assert shared.offset == tensor.data_ptr() - page
    assert shared.allocation_size == -(-(shared.offset + 5000) // 4096) * 4096
    assert shared.buffer().address == tensor.data_ptr()
    with shared.export() as desc:
        assert desc.type is DMABUF
        assert os.lseek(desc.handle.fileno(), 0, os.SEEK_END) == shared.allocation_size
print("shared")
""", "expandable_segments:True") == "shared\n"


def test_array_of_cupys_pool_is_shared_as_a_dma_buf(cuda: xsem.Device) -> None:
    if DMABUF not in cuda.capabilities.memory_export:
        pytest.skip("the device makes no dma-buf")
    assert library_process("cupy", """
array = cupy.arange(1 << 20, dtype="float32").reshape(1024, 1024)
error = refusal(cuda.share, array)
assert error.reason == "not_shareable", error
assert "DMABUF_FD" in str(error)
shared = cuda.share(array[:, 2:4], type=DMABUF)
assert (shared.shape, shared.strides, shared.dtype) == ((1024, 2), (4096, 4), "float32")
assert shared.buffer().address == array.data.ptr + 8
with shared.export() as desc:
    assert os.lseek(desc.handle.fileno(), 0, os.SEEK_END) == shared.allocation_size
print("shared")
""") == "shared\n"


def test_cupy_array_in_exportable_memory_is_shared_without_a_copy(cuda: xsem.Device) -> None:
    assert library_process("cupy", """
created = cuda.create_memory("OPAQUE_FD", 1 << 20)
array = cupy.from_dlpack(created.map_buffer(4096, 96, shape=(4, 6), dtype="float32"))
array[...] = cupy.arange(24, dtype="float32").reshape(4, 6)
cupy.cuda.runtime.deviceSynchronize()
shared = cuda.share(array)
assert shared.buffer().address == array.data.ptr
assert (shared.offset, shared.shape, shared.strides, shared.dtype) == (4096, (4, 6), (24, 4), "float32")
with shared.export() as desc:
    imported = cuda.import_memory(desc)
there = cupy.from_dlpack(imported.map_buffer(shared.offset, shape=(4, 6), dtype="float32"))
assert there.data.ptr != array.data.ptr and bool((there == array).all())
there[1] = 7
cupy.cuda.runtime.deviceSynchronize()
assert array[1].tolist() == [7.0] * 6
array += 1
cupy.cuda.runtime.deviceSynchronize()
assert bool((there == array).all())
print("shared")
""") == "shared\n"


def test_jax_array_is_shared_as_a_dma_buf(cuda: xsem.Device) -> None:
    if DMABUF not in cuda.capabilities.memory_export:
        pytest.skip("the device makes no dma-buf")
    assert library_process("jax", """
import numpy
array = jax.device_put(jax.numpy.arange(6000.0, dtype="float32").reshape(3, 2000), jax.devices("gpu")[0])
array.block_until_ready()
shared = cuda.share(array, type=DMABUF, read_only=True)   # XLA calls each array read-only
assert (shared.shape, shared.dtype) == ((3, 2000), "float32")
assert shared.buffer().address == array.unsafe_buffer_pointer()
assert (shared.buffer().copy_to_host() == numpy.asarray(array)).all()
with shared.export() as desc:
    assert desc.type is DMABUF
    assert os.lseek(desc.handle.fileno(), 0, os.SEEK_END) == shared.allocation_size
print("shared")
""", XLA_PYTHON_CLIENT_PREALLOCATE="false") == "shared\n"


def test_jax_array_is_described(cuda: xsem.Device) -> None:
    """JAX allocates with cuMemAlloc: the refusal names the allocation, not the array."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    ran = subprocess.run([sys.executable, "-c", """
import jax, xsem
cuda = xsem.open_device("cuda:0")
array = jax.device_put(jax.numpy.arange(12.0).reshape(3, 4), jax.devices("gpu")[0])
try:
    shared = cuda.share(array, read_only=True)
    assert shared.shape == (3, 4)
except xsem.UnsupportedError as error:
    assert error.reason == "not_shareable", error
print("described")
"""], capture_output=True, text=True, timeout=110, check=False,
                         env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    assert ran.stdout == "described\n", ran.stderr
