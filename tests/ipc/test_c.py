"""The C header: it compiles everywhere, and Python receives the messages that it sends."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.paths import ROOT

import xsem
from xsem import ipc
from xsem.data.drm import MAX_PLANES
from xsem.ipc import wire
from xsem.spi import same_open_file
from xsem.types import DrmLayout, DrmPlane, MemoryHandleType, OwnedHandle, SemaphoreHandleType

EXAMPLES = ROOT / "examples" / "c"
HEADER = EXAMPLES / "xsem_send.h"
DEVICE, DRIVER = uuid.UUID(bytes=bytes(range(16))), uuid.UUID(bytes=bytes(range(16, 32)))

PROGRAM = r"""
#include "xsem_send.h"
#include <stdlib.h>
int main(int argc, char **argv) {
    int sock = atoi(argv[1]), a = atoi(argv[2]), b = atoi(argv[3]), index;
    unsigned char uuid[32];
    static unsigned char payload[XSEM_MAX_PAYLOAD];
    xsem_message message;
    if (argc != 4) return 10;
    for (index = 0; index < 32; index++) uuid[index] = (unsigned char)index;
    for (index = 0; index < XSEM_MAX_PAYLOAD; index++) payload[index] = (unsigned char)(index * 7);
    xsem_message_init(&message);
    if (xsem_add_semaphore(&message, XSEM_TIMELINE_SEMAPHORE_FD, -1, 0, 0) == 0 || errno != EBADF) return 11;
    if (xsem_add_memory(&message, XSEM_MEMORY_OPAQUE_FD, b, 0, 0, 0, 0) == 0 || errno != EINVAL) return 12;
    if (xsem_add_memory(&message, XSEM_DMABUF_FD, b, 1, 1, 0, 0) == 0 || errno != EINVAL) return 13;
    if (xsem_add_semaphore(&message, XSEM_TIMELINE_SEMAPHORE_FD, a, uuid, uuid + 16)) return 14;
    if (xsem_add_memory(&message, XSEM_MEMORY_OPAQUE_FD, b, 0x1122334455667788u, 1, uuid, 0)) return 15;
    if (xsem_add_semaphore(&message, XSEM_SYNC_FD, -1, 0, 0)) return 16;
    if (xsem_add_semaphore(&message, XSEM_SEMAPHORE_OPAQUE_FD, b, 0, 0)) return 17;
    if (xsem_add_memory(&message, XSEM_DMABUF_FD, a, 4096, 0, 0, 0)) return 18;
    if (xsem_send(sock, &message, payload, sizeof payload + 1) == 0 || errno != EMSGSIZE) return 19;
    if (xsem_send(sock, &message, payload, sizeof payload)) return 20;
    xsem_message_init(&message);
    if (xsem_add_semaphore(&message, XSEM_HOST_TIMELINE_FD, -1, 0, 0) == 0 || errno != EBADF) return 25;
    if (xsem_add_semaphore(&message, XSEM_HOST_TIMELINE_FD, a, 0, 0)) return 26;
    if (xsem_add_memory(&message, XSEM_HOST_MEMORY_FD, b, 4096, 0, 0, 0)) return 27;
    if (xsem_send(sock, &message, 0, 0)) return 21;
    xsem_message_init(&message);
    for (index = 0; index < XSEM_MAX_DESCRIPTORS; index++)
        if (xsem_add_semaphore(&message, XSEM_SEMAPHORE_OPAQUE_FD, a, 0, 0)) return 22;
    if (xsem_add_semaphore(&message, XSEM_SEMAPHORE_OPAQUE_FD, a, 0, 0) == 0 || errno != E2BIG) return 23;
    return xsem_send(sock, &message, 0, 0) ? 24 : 0;
}
"""

LAYOUTS = r"""
#include "xsem_send.h"
#include <stdlib.h>
static int refused(xsem_message *message, const xsem_drm_layout *layout, int error) {
    int before = message->descriptors;
    errno = 0;
    return xsem_add_drm_layout(message, layout) == -1 && errno == error && message->descriptors == before;
}
int main(int argc, char **argv) {
    int sock = atoi(argv[1]), a = atoi(argv[2]), b = atoi(argv[3]), index;
    xsem_message message;
    xsem_drm_layout layout, pair[2], *bad = pair;
    if (argc != 4) return 10;
    memset(&layout, 0, sizeof layout);
    layout.modifier = 0xffffffffffffffffu;
    layout.fourcc = 0x3231564e;
    layout.plane_count = 2;
    layout.planes[0].pitch = 2048;
    layout.planes[1].offset = 4095;
    layout.planes[1].pitch = 0xffffffffu;
    layout.planes[2].offset = 77; /* behind the last plane */
    xsem_message_init(&message);
    if (!refused(&message, &layout, EINVAL)) return 11;
    if (xsem_add_semaphore(&message, XSEM_TIMELINE_SEMAPHORE_FD, a, 0, 0)) return 12;
    if (!refused(&message, &layout, EINVAL)) return 13;
    if (xsem_add_memory(&message, XSEM_MEMORY_OPAQUE_FD, b, 4096, 0, 0, 0)) return 14;
    if (!refused(&message, &layout, EINVAL)) return 15;
    if (xsem_add_memory(&message, XSEM_DMABUF_FD, a, 4096, 0, 0, 0)) return 16;
    *bad = layout;
    bad->plane_count = 0;
    if (!refused(&message, bad, EINVAL)) return 17;
    bad->planes[2].pitch = bad->planes[3].pitch = 1;
    pair[1].modifier = pair[1].fourcc = 1; /* a reader of a fifth plane would find these */
    bad->plane_count = XSEM_MAX_DRM_PLANES + 1;
    if (!refused(&message, bad, EINVAL)) return 18;
    *bad = layout;
    bad->modifier = 0x00ffffffffffffffu;
    if (!refused(&message, bad, EINVAL)) return 19;
    *bad = layout;
    bad->planes[1].pitch = 0;
    if (!refused(&message, bad, EINVAL)) return 20;
    *bad = layout;
    bad->planes[1].offset = 4096;
    if (!refused(&message, bad, EINVAL)) return 21;
    if (xsem_add_drm_layout(&message, &layout)) return 22;
    if (!refused(&message, &layout, EINVAL)) return 23;
    for (index = 0; index < XSEM_MAX_DRM_PLANES; index++) {
        layout.planes[index].offset = (uint64_t)index << 32;
        layout.planes[index].pitch = (uint32_t)index + 1;
    }
    layout.plane_count = XSEM_MAX_DRM_PLANES;
    layout.modifier = layout.fourcc = 0;
    if (xsem_add_memory(&message, XSEM_DMABUF_FD, b, (uint64_t)1 << 40, 0, 0, 0)) return 24;
    if (xsem_add_drm_layout(&message, &layout)) return 25;
    if (xsem_add_memory(&message, XSEM_DMABUF_FD, b, 5, 0, 0, 0)) return 26;
    if (xsem_send(sock, &message, 0, 0)) return 27;
    xsem_message_init(&message);
    for (index = 0; index < XSEM_MAX_DESCRIPTORS; index++)
        if (xsem_add_memory(&message, XSEM_DMABUF_FD, a, (uint64_t)1 << 40, 0, 0, 0)) return 28;
    return refused(&message, &layout, E2BIG) ? 0 : 29;
}
"""

FULL = r"""
#include "xsem_send.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    static unsigned char payload[XSEM_MAX_PAYLOAD];
    int sock = atoi(argv[1]), index;
    size_t bytes = (size_t)atoi(argv[2]);
    xsem_message message;
    if (argc != 3) return 10;
    xsem_message_init(&message);
    while (xsem_send(sock, &message, payload, bytes) == 0) {}
    for (index = 0; index < 2; index++) {
        printf("%s ", errno == EAGAIN ? "EAGAIN" : errno == EPIPE ? "EPIPE" : "?");
        if (xsem_send(sock, &message, payload, bytes) == 0) return 11;
    }
    return 0;
}
"""


def build(folder: Path, compiler: str, name: str, *options: str, program: str = PROGRAM) -> Path:
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"needs a compiler ({compiler})")
    source = folder / name
    source.write_text(program)
    subprocess.run([found, *options, "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(EXAMPLES), "-o",
                    str(folder / "sender"), str(source)], check=True)
    return folder / "sender"


def built(folder: Path, language: str, program: str = PROGRAM) -> Path:
    if language == "c":
        return build(folder, "gcc", "sender.c", "-std=c99", "-D_POSIX_C_SOURCE=200809L", program=program)
    return build(folder, "g++", "sender.cpp", "-std=c++17", program=program)


@contextmanager
def sender(program: Path, type: int) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes], list[int]]]:
    """Start a program that sends two files over a socket. Yield the other socket, the process and the files."""
    fds = [os.memfd_create("a"), os.memfd_create("b")]
    ours, theirs = socket.socketpair(socket.AF_UNIX, type)
    passed = [theirs.fileno(), *fds]
    with ours, subprocess.Popen([program, *map(str, passed)], pass_fds=passed) as peer:
        theirs.close()
        yield ours, peer, fds
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("type", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET], ids=["stream", "seqpacket"])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_python_receives_the_message_of_a_c_sender(tmp_path: Path, language: str, type: int) -> None:
    with sender(built(tmp_path, language), type) as (ours, peer, fds):
        with ipc.receive(ours) as message:
            timeline, sync, binary = message.semaphores
            memory, dmabuf = message.memories
            assert timeline.type is SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
            assert (timeline.device_uuid, timeline.driver_uuid) == (DEVICE, DRIVER)
            assert sync.type is SemaphoreHandleType.SYNC_FD
            assert sync.handle == -1
            assert binary.type is SemaphoreHandleType.OPAQUE_FD
            assert (binary.device_uuid, binary.driver_uuid) == (None, None)
            assert memory.type is MemoryHandleType.OPAQUE_FD
            assert (memory.allocation_size, memory.dedicated) == (0x1122334455667788, True)
            assert (memory.device_uuid, memory.driver_uuid) == (DEVICE, None)
            assert dmabuf.type is MemoryHandleType.DMABUF_FD
            assert (dmabuf.allocation_size, dmabuf.dedicated) == (4096, False)
            for desc, fd in ((timeline, fds[0]), (memory, fds[1]), (binary, fds[1]), (dmabuf, fds[0])):
                assert isinstance(desc.handle, OwnedHandle)
                assert same_open_file(desc.handle.fileno(), fd)
            assert message.payload == bytes(index * 7 & 0xFF for index in range(65536))
        with ipc.receive(ours) as message:
            assert message.payload == b""
            assert [each.type for each in message.semaphores] == [SemaphoreHandleType.HOST_TIMELINE_FD]
            assert [each.type for each in message.memories] == [MemoryHandleType.HOST_MEMORY_FD]
        with ipc.receive(ours) as message:
            assert len(message.semaphores) == 128
        assert peer.wait(20) == 0


@pytest.mark.parametrize("type", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET], ids=["stream", "seqpacket"])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_python_receives_the_layouts_of_a_c_sender(tmp_path: Path, language: str, type: int) -> None:
    with sender(built(tmp_path, language, LAYOUTS), type) as (ours, peer, _):
        with ipc.receive(ours) as message:
            assert len(message.semaphores) == 1
            assert [each.drm_layout for each in message.memories] == [
                None,
                DrmLayout(modifier=2**64 - 1, fourcc="NV12", planes=(
                    DrmPlane(offset=0, pitch=2048), DrmPlane(offset=4095, pitch=2**32 - 1))),
                DrmLayout(modifier=0, planes=tuple(DrmPlane(offset=at << 32, pitch=at + 1) for at in range(4))), None]
        assert peer.wait(20) == 0


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(("type", "size", "errors"), [
    (socket.SOCK_STREAM, 65536, "EAGAIN EPIPE "), (socket.SOCK_SEQPACKET, 1000, "EAGAIN EAGAIN "),
], ids=["stream", "seqpacket"])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_timeout_of_the_socket_ends_a_send_and_a_cut_message_the_stream(
    tmp_path: Path, language: str, type: int, size: int, errors: str, blocking: bool
) -> None:
    program = built(tmp_path, language, FULL)
    ours, theirs = socket.socketpair(socket.AF_UNIX, type)
    with ours, theirs:
        theirs.setblocking(blocking)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 20_000))
        done = subprocess.run([program, str(theirs.fileno()), str(size)], pass_fds=[theirs.fileno()],
                              capture_output=True, text=True, check=True, timeout=50)
        assert done.stdout == errors
        reasons: list[str] = []   # while the other end is still open
        while not reasons:
            try:
                ipc.receive(ours, timeout_s=0)
            except xsem.XsemError as error:
                reasons.append(error.reason)
    assert reasons == ["truncated_message" if type == socket.SOCK_STREAM else "timeout"]


def test_example_program_sends_to_a_listener(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a compiler (gcc)")
    program = tmp_path / "send_frame"
    subprocess.run([compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", str(program),
                    str(EXAMPLES / "send_frame.c")], check=True)
    fds = [os.memfd_create("a"), os.memfd_create("b")]
    path = str(tmp_path / "viewer.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(1)
        with subprocess.Popen([program, path, *map(str, fds), "8192", "64", "32"], pass_fds=fds) as peer:
            connection, _ = listener.accept()
            with connection, ipc.receive(connection) as message:
                assert struct.unpack("<II", message.payload) == (64, 32)
                assert message.memories[0].allocation_size == 8192
            assert peer.wait(20) == 0
    for fd in fds:
        os.close(fd)


def test_numbers_in_the_header_match_python() -> None:
    numbers = {name: int(value) for name, value in re.findall(r"#define (XSEM_\w+) (\d+)", HEADER.read_text())}
    assert numbers["XSEM_SEMAPHORE_OPAQUE_FD"] == wire.SEMAPHORE_NUMBERS[SemaphoreHandleType.OPAQUE_FD]
    assert numbers["XSEM_TIMELINE_SEMAPHORE_FD"] == wire.SEMAPHORE_NUMBERS[SemaphoreHandleType.TIMELINE_SEMAPHORE_FD]
    assert numbers["XSEM_SYNC_FD"] == wire.SEMAPHORE_NUMBERS[SemaphoreHandleType.SYNC_FD]
    assert numbers["XSEM_MEMORY_OPAQUE_FD"] == wire.MEMORY_NUMBERS[MemoryHandleType.OPAQUE_FD]
    assert numbers["XSEM_DMABUF_FD"] == wire.MEMORY_NUMBERS[MemoryHandleType.DMABUF_FD]
    assert numbers["XSEM_HOST_TIMELINE_FD"] == wire.SEMAPHORE_NUMBERS[SemaphoreHandleType.HOST_TIMELINE_FD]
    assert numbers["XSEM_HOST_MEMORY_FD"] == wire.MEMORY_NUMBERS[MemoryHandleType.HOST_MEMORY_FD]
    assert numbers["XSEM_MAX_DESCRIPTORS"] == wire.MAX_DESCRIPTORS
    assert numbers["XSEM_MAX_PAYLOAD"] == wire.MAX_PAYLOAD_BYTES
    assert numbers["XSEM_HEADER_BYTES"] == wire.HEADER_BYTES
    assert numbers["XSEM_MAX_DRM_PLANES"] == MAX_PLANES
