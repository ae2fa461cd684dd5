"""Two processes, host device, numpy."""
import multiprocessing

import numpy as np

import xsem

SHAPE = (480, 640)


def child(sem_desc: xsem.SemaphoreDesc, mem_desc: xsem.MemoryDesc) -> None:
    with xsem.open_device("host") as device:
        sem, mem = device.import_semaphore(sem_desc), device.import_memory(mem_desc)
        image = mem.map_buffer(shape=SHAPE, dtype="float32").numpy()
        commands = device.create_command_list()
        for frame in range(10):
            commands.append_wait(sem, 2 * frame + 1)
            commands.append_work(lambda: np.negative(image, out=image))
            commands.append_signal(sem, 2 * frame + 2)
        commands.synchronize()


def main() -> None:
    with xsem.open_device("host") as device:
        sem = device.create_semaphore(xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
        mem = device.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 4 * 480 * 640)
        image = mem.map_buffer(shape=SHAPE, dtype="float32").numpy()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=child, args=(sem.export(), mem.export()))   # pickled through DupFd
        process.start()
        for frame in range(10):
            image[:] = frame
            sem.host_signal(2 * frame + 1)
            sem.host_wait(2 * frame + 2, timeout_s=5.0)
            assert (image == -frame).all()
        process.join(10)
