"""Vulkan allocates memory that CUDA and OpenCL import. Both only import."""
import cupy
import pyopencl as cl

import xsem


def main(queue: cl.CommandQueue, uuid: bytes) -> None:
    with xsem.open_device("vulkan", uuid=uuid) as vk, xsem.open_device("cuda", uuid=uuid) as cu, \
            xsem.open_device("opencl", native=queue.context) as ocl:      # the context of the kernels
        binary = xsem.SemaphoreHandleType.OPAQUE_FD                       # KHR OpenCL has no timeline
        to_cl, to_cu = vk.create_semaphore(binary), vk.create_semaphore(binary)
        shared = vk.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 1 << 20)

        cu_out, cu_in = cu.import_semaphore(to_cl.export()), cu.import_semaphore(to_cu.export())
        cl_in, cl_out = ocl.import_semaphore(to_cl.export()), ocl.import_semaphore(to_cu.export())
        a = cupy.asarray(cu.import_memory(shared.export()).map_buffer(dtype="uint32"))
        cl_mem = ocl.import_memory(shared.export())
        b = cl_mem.map_buffer().native_handle                # OpenCL needs the name of memory in a handover

        cu_list, cl_list = cu.command_list(cupy.cuda.get_current_stream()), ocl.command_list(queue)
        for i in range(1000):
            a.fill(i)
            cu_list.append_signal(cu_out)
            cl_list.append_wait(cl_in, acquire=[cl_mem])
            # … enqueue the OpenCL kernel on `b` …
            cl_list.append_signal(cl_out, release=[cl_mem])
            cu_list.append_wait(cu_in)
            assert int(a[0]) == i + 1
        print(b)
