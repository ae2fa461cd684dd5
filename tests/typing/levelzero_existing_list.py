"""SYCL / Level Zero: the application owns driver, context, device, immediate list; USM and events are per context."""
import xsem
import xsem_levelzero


def run(ze_driver: int, ze_context: int, ze_device: int, ze_list: int, ze_event: int, sem_fd: int, mem_fd: int) -> int:
    device = xsem.open_device("levelzero", native=xsem_levelzero.Native(ze_driver, ze_context, ze_device))
    sem = device.import_semaphore(xsem.SemaphoreDesc.opaque_fd(sem_fd, device_uuid=None))   # explicitly "not known"
    mem = device.import_memory(xsem.MemoryDesc.dmabuf_fd(mem_fd, allocation_size=1 << 20))
    pointer = mem.map_buffer().address                     # USM pointer, valid in the application's context
    commands = device.command_list(ze_list, in_order=False)  # SYCL's default queue is out of order: use barriers
    ready = device.event(ze_event)                         # the application's event, already appended
    commands.append_wait(sem, wait_events=[ready])
    # … the application's zeCommandListAppendLaunchKernel(ze_list, …, pointer) in C++ …
    commands.append_signal(sem)
    return pointer
