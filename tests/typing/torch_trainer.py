"""PyTorch trainer with frames from a C++ Vulkan renderer without xsem; fds over its own socket protocol."""
import socket
import struct

import torch

import xsem

HEADER = struct.Struct("<16sQIIII")           # uuid, allocation size, buffer offset, width, height, row pitch


def main() -> None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect("/run/renderer.sock")
    raw, (mem_fd, sem_fd) = xsem.ipc.receive_fds(sock, HEADER.size, 2)                  # not xsem's protocol
    uuid, alloc, offset, width, height, pitch = HEADER.unpack(raw)

    device = xsem.open_device("cuda", uuid=uuid)                        # the UUID matches cuda, vulkan AND opencl
    sem = device.import_semaphore(xsem.SemaphoreDesc.timeline_fd(sem_fd, device_uuid=uuid), label="frames")
    mem = device.import_memory(xsem.MemoryDesc.opaque_fd(mem_fd, allocation_size=alloc, device_uuid=uuid))
    rgba = mem.map_buffer(offset, pitch * height, shape=(height, width, 4), dtype="uint8", strides=(pitch, 4, 1))
    frame = torch.from_dlpack(rgba)                                     # once, before the loop: orders nothing
    device.watch(after_s=10.0)                                          # a stall is in loss.item(), not in an xsem call

    model = torch.nn.Conv2d(4, 3, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(10_000):
        # each step: the *current* stream; usually the legacy default stream, for which torch reports (0, 0)
        commands = device.command_list(torch.cuda.current_stream())
        commands.append_wait(sem, 2 * step + 1)                         # frame rendered
        x = frame.permute(2, 0, 1)[None].float() / 255.0                # reads the shared memory: on this stream
        commands.append_signal(sem, 2 * step + 2)                       # renderer may overwrite
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())                                    # <- hangs here if the renderer died
    device.release()                                                   # releases the device; deferred, never blocks
