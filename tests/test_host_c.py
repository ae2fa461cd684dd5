"""C code that uses tests/host_objects.h and the host device understand each other."""

from __future__ import annotations

import mmap
import shutil
import subprocess
from pathlib import Path

import pytest

from xsem.types import SemaphoreHandleType
from xsem_host.device import HostDevice
from xsem_host.objects import new_memory

HERE = Path(__file__).parent
PROGRAM = r"""
#include "host_objects.h"
#include <stdlib.h>
/* argv: fds of timeline, binary, binary back, memory. Answers each value v with v + 1 until 0 rounds are left. */
int main(int argc, char **argv) {
    if (argc != 6) return 10;
    int tl = atoi(argv[1]), to_us = atoi(argv[2]), to_them = atoi(argv[3]);
    int memory = atoi(argv[4]), rounds = atoi(argv[5]);
    if (xsem_host_recognise(tl) != XSEM_HOST_TIMELINE) return 11;
    if (xsem_host_recognise(to_us) != XSEM_HOST_BINARY || xsem_host_recognise(to_them) != XSEM_HOST_BINARY) return 12;
    if (xsem_host_recognise(memory) != XSEM_HOST_MEMORY) return 13;
    if (xsem_host_recognise(0) != XSEM_HOST_UNKNOWN) return 14;
    xsem_host_timeline *page = xsem_host_timeline_map(tl);
    unsigned char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (!page || bytes == MAP_FAILED) return 15;
    if (xsem_host_timeline_wait(page, 1000000, 1000000) != 0) return 16;
    if (xsem_host_binary_wait(to_us, 1000000) != 0) return 17;
    for (int round = 0; round < rounds; round++) {
        if (xsem_host_timeline_wait(page, 2u * round + 1, 20000000000) != 1) return 18;
        bytes[0] ^= 0xff;
        xsem_host_timeline_signal(page, 2u * round + 2);
        if (xsem_host_binary_wait(to_us, 20000000000) != 1) return 19;
        bytes[0] ^= 0xff;
        xsem_host_binary_signal(to_them);
    }
    int made = xsem_host_timeline_create(77);
    if (made < 0 || xsem_host_recognise(made) != XSEM_HOST_TIMELINE) return 20;
    xsem_host_timeline *own = xsem_host_timeline_map(made);
    if (!own || xsem_host_timeline_value(own) != 77) return 21;
    xsem_host_timeline_unmap(own);
    int mem = xsem_host_memory_create(8192);
    if (mem < 0 || xsem_host_recognise(mem) != XSEM_HOST_MEMORY || ftruncate(mem, 0) == 0) return 22;
    int binary = xsem_host_binary_create();
    if (binary < 0 || xsem_host_recognise(binary) != XSEM_HOST_BINARY) return 23;
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler (gcc)")
    folder = tmp_path_factory.mktemp("host_c")
    source = folder / "peer.c"
    source.write_text(PROGRAM)
    subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", str(HERE), "-o", str(folder / "peer"),
                    str(source)], check=True)
    return folder / "peer"


def test_c_and_python_take_turns_on_timeline_binary_and_memory(program: Path) -> None:
    device = HostDevice()
    timeline = device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, 0)
    to_them = device.create_semaphore(SemaphoreHandleType.OPAQUE_FD, 0)
    to_us = device.create_semaphore(SemaphoreHandleType.OPAQUE_FD, 0)
    memory = new_memory(mmap.PAGESIZE)
    fds = [timeline.fd, to_them.fd, to_us.fd, memory.fd]
    rounds = 200
    with subprocess.Popen([program, *map(str, fds), str(rounds)], pass_fds=fds, stdin=subprocess.DEVNULL) as peer:
        byte = memoryview(memory._map)
        for number in range(rounds):
            byte[0] = number & 0xFF
            device.host_signal(timeline, 2 * number + 1)
            assert device.host_wait(timeline, 2 * number + 2, 20_000_000_000)
            assert byte[0] == (number & 0xFF) ^ 0xFF
            device.host_signal(to_them, None)
            assert device.host_wait(to_us, None, 20_000_000_000)
            assert byte[0] == number & 0xFF
        assert peer.wait(20) == 0
        byte.release()
    for each in (timeline, to_them, to_us):
        device.release_semaphore(each)
    device.release_memory(memory)
    device.close()
