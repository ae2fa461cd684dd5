"""CuPy, D3D12 committed resource and fence, Windows; handles from ID3D12Device::CreateSharedHandle."""
import cupy

import xsem


def attach(heap_handle: int, fence_handle: int, luid: bytes, size: int) -> None:
    with xsem.open_device("cuda", luid=luid) as device:
        fence = device.import_semaphore(xsem.SemaphoreDesc.d3d12_fence(fence_handle))
        # CUDA does not take ownership of NT handles. By default the caller closes them; OwnedHandle(h) closes h itself.
        mem = device.import_memory(
            xsem.MemoryDesc.d3d12_resource(xsem.OwnedHandle(heap_handle), allocation_size=size))  # dedicated is implied
        a = cupy.asarray(mem.map_buffer(shape=(size // 4,), dtype="float32"))     # __cuda_array_interface__
        stream = cupy.cuda.get_current_stream()                                   # Stream.null: (0, 0)
        commands = device.command_list(stream)
        commands.append_wait(fence, 1)
        a *= 2
        commands.append_signal(fence, 2)
        commands.synchronize()                # 30 s, then WaitTimeoutError that names fence >= 1
