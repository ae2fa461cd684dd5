"""The C receiver: it gets the messages that Python sends, refuses what Python refuses, and leaves no file open."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.paths import ROOT
from support.wire_messages import BAD, raw

from xsem import ipc
from xsem.ipc import wire
from xsem.types import DrmLayout, DrmPlane, MemoryChunk, MemoryDesc, SemaphoreDesc

EXAMPLES = ROOT / "examples" / "c"
DEVICE, DRIVER = uuid.UUID(bytes=bytes(range(16))), uuid.UUID(bytes=bytes(range(16, 32)))

PROGRAM = r"""
#include "xsem_receive.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    static unsigned char payload[XSEM_MAX_PAYLOAD];
    xsem_received message;
    int sock = atoi(argv[1]), index, error, failures = 0, before = open_files();
    size_t room = argc > 2 ? (size_t)atoi(argv[2]) : sizeof payload;
receive:
    while (xsem_receive(sock, &message, payload, room) == 0) {
        printf("%d %d %d\n", message.count, (int)message.payload_bytes, message.payload_bytes ? payload[0] : -1);
        for (index = 0; index < message.count; index++) {
            xsem_object *each = &message.objects[index];
            struct stat file;
            long long inode = -1;
            if (each->fd >= 0) {
                if (fstat(each->fd, &file) || !(fcntl(each->fd, F_GETFD) & FD_CLOEXEC)) return 10;
                inode = (long long)file.st_ino;
            }
            printf("%d %d %lld %d %llu %d %d %d", each->kind, each->type, inode, each->dedicated,
                   (unsigned long long)each->allocation_size, each->has_device_uuid ? each->device_uuid[1] : -1,
                   each->has_driver_uuid ? each->driver_uuid[1] : -1, each->fd >= 0);
            if (each->has_drm_layout) {
                xsem_drm_layout *layout = &each->drm_layout;
                int plane;
                printf(" %lx %llx", (unsigned long)layout->fourcc, (unsigned long long)layout->modifier);
                for (plane = 0; plane < layout->plane_count; plane++)
                    printf(" %llu+%lu", (unsigned long long)layout->planes[plane].offset,
                           (unsigned long)layout->planes[plane].pitch);
            }
            printf("\n");
        }
        xsem_received_close(&message);
    }
    error = errno;
    printf("%s %d\n", error == EPROTO ? "EPROTO" : error == ENODATA ? "ENODATA" : error == EMSGSIZE ? "EMSGSIZE" :
           error == EAGAIN ? "EAGAIN" : "?", open_files() - before);
    fflush(stdout);
    if (error != ENODATA && (error == EAGAIN || ++failures < 5)) goto receive;
    return 0;
}
"""


@pytest.fixture(scope="module", params=["c", "c++"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, name, options = (("gcc", "receiver.c", ["-std=c99", "-D_POSIX_C_SOURCE=200809L"])
                               if request.param == "c" else ("g++", "receiver.cpp", ["-std=c++17"]))
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"needs a compiler ({compiler})")
    folder = tmp_path_factory.mktemp("receiver")
    (folder / name).write_text(PROGRAM)
    subprocess.run([found, *options, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsanitize=undefined,bounds-strict",
                    "-fno-sanitize-recover", "-I", str(EXAMPLES), "-o", str(folder / "receiver"), str(folder / name)],
                   check=True)
    return folder / "receiver"


class Receiving:
    """A C process that receives from `sock` until the end of the stream. `queue` are messages that wait for it."""

    def __init__(
        self, program: Path, type: int, *arguments: str, queue: Sequence[tuple[bytes, Sequence[int]]] = (),
        options: Mapping[int, int | bytes] | None = None, blocking: bool = True,
    ) -> None:
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, type)
        with theirs:
            theirs.setblocking(blocking)
            for option, value in (options or {}).items():
                theirs.setsockopt(socket.SOL_SOCKET, option, value)
            for data, fds in queue:
                raw(self.sock, data, [*fds])
            self._process = subprocess.Popen([program, str(theirs.fileno()), *arguments], stdout=subprocess.PIPE,
                                             text=True, pass_fds=[theirs.fileno()])
        self._deadline = threading.Timer(50, self._process.kill)
        self._deadline.start()

    def line(self) -> str:
        """Return the next line of the process."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip()

    def lines(self) -> list[str]:
        """Close the socket, and return the other lines of the process."""
        self.sock.close()
        with self._process as process:
            assert process.stdout is not None
            out = process.stdout.read()
        self._deadline.cancel()
        assert process.returncode == 0
        return out.splitlines()


TYPES = pytest.mark.parametrize("type", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET], ids=["stream", "seqpacket"])


@TYPES
def test_c_receives_what_python_sends(program: Path, fds: list[int], type: int) -> None:
    receiving = Receiving(program, type)
    ipc.send(receiving.sock, SemaphoreDesc.timeline_fd(fds[0], device_uuid=DEVICE, driver_uuid=DRIVER),
             SemaphoreDesc.sync_fd(-1), SemaphoreDesc.opaque_fd(fds[1], device_uuid=None),
             MemoryDesc.opaque_fd(fds[2], allocation_size=2**40 + 5, device_uuid=DEVICE, dedicated=True),
             MemoryDesc.dmabuf_fd(fds[3], allocation_size=4096), payload=b"\x07" * 65536)
    ipc.send(receiving.sock)
    ipc.send(receiving.sock, SemaphoreDesc.host_timeline_fd(fds[3]),
             MemoryDesc.host_memory_fd(fds[0], allocation_size=2**40))
    ipc.send(receiving.sock, *[SemaphoreDesc.opaque_fd(fds[0], device_uuid=None)] * 64, payload=b"\x08")
    inodes = [os.fstat(fd).st_ino for fd in fds]
    assert receiving.lines() == [
        "5 65536 7", f"1 9 {inodes[0]} 0 0 1 17 1", "1 11 -1 0 0 -1 -1 0", f"1 1 {inodes[1]} 0 0 -1 -1 1",
        f"2 1 {inodes[2]} 1 {2**40 + 5} 1 -1 1", f"2 9 {inodes[3]} 0 4096 -1 -1 1",
        "0 0 -1",
        "2 0 -1", f"1 128 {inodes[3]} 0 0 -1 -1 1", f"2 128 {inodes[0]} 0 {2**40} -1 -1 1",
        "64 1 8", *[f"1 1 {inodes[0]} 0 0 -1 -1 1"] * 64,
        "ENODATA 0"]


@TYPES
def test_c_receives_layouts_of_dma_bufs(program: Path, fds: list[int], type: int) -> None:
    def dmabuf(fd: int, modifier: int, fourcc: str | None, *planes: tuple[int, int]) -> MemoryDesc:
        return MemoryDesc.dmabuf_fd(fd, allocation_size=2**40, drm_layout=DrmLayout(
            modifier=modifier, fourcc=fourcc, planes=tuple(DrmPlane(offset=at, pitch=pitch) for at, pitch in planes)))

    receiving = Receiving(program, type)
    ipc.send(receiving.sock, dmabuf(fds[0], 2**64 - 1, "NV12", (0, 2048), (2**40 - 1, 2**32 - 1)),
             SemaphoreDesc.opaque_fd(fds[1], device_uuid=None), MemoryDesc.dmabuf_fd(fds[2], allocation_size=4096),
             dmabuf(fds[3], 0, None, (5, 6), (7, 8), (9, 10), (11, 12)), payload=b"\x09")
    ipc.send(receiving.sock, *[dmabuf(fds[0], 0, None, (0, 1))] * 32)
    inodes = [os.fstat(fd).st_ino for fd in fds]
    assert receiving.lines() == [
        "4 1 9", f"2 9 {inodes[0]} 0 {2**40} -1 -1 1 3231564e {2**64 - 1:x} 0+2048 {2**40 - 1}+{2**32 - 1}",
        f"1 1 {inodes[1]} 0 0 -1 -1 1", f"2 9 {inodes[2]} 0 4096 -1 -1 1",
        f"2 9 {inodes[3]} 0 {2**40} -1 -1 1 0 0 5+6 7+8 9+10 11+12",
        "32 0 -1", *[f"2 9 {inodes[0]} 0 {2**40} -1 -1 1 0 0 0+1"] * 32, "ENODATA 0"]


@TYPES
@pytest.mark.parametrize(("count", "error"), [(3, "EPROTO"), (128, "EPROTO"), (129, "EMSGSIZE"), (253, "EMSGSIZE")])
def test_c_refuses_memory_of_several_allocations(
    program: Path, fds: list[int], type: int, count: int, error: str
) -> None:
    chunks = [MemoryChunk(size=4096, handle=fds[0])] * count
    receiving = Receiving(program, type)
    ipc.send(receiving.sock, MemoryDesc(type="opaque_fd", allocation_size=4096 * count, chunks=chunks))
    assert receiving.lines() == [f"{error} 0", "ENODATA 0"]   # the failure ends a stream; a packet was the last one


@TYPES
@pytest.mark.parametrize("case", BAD)
def test_c_refuses_what_python_refuses(program: Path, fds: list[int], type: int, case: str) -> None:
    data, count, _ = BAD[case]
    receiving = Receiving(program, type)
    raw(receiving.sock, data, fds[:count])
    assert receiving.lines() == ["EPROTO 0", "ENODATA 0"]


def test_message_in_parts_is_understood_and_a_cut_one_refused(program: Path, fds: list[int]) -> None:
    message = ipc.Message(semaphores=(SemaphoreDesc.opaque_fd(fds[0], device_uuid=None),), memories=(), payload=b"abc")
    data, packed = ipc.pack(message)
    receiving = Receiving(program, socket.SOCK_STREAM)
    raw(receiving.sock, data[:1], packed)
    for index in range(1, len(data)):
        receiving.sock.send(data[index : index + 1])
    raw(receiving.sock, data[:-1], packed)
    assert receiving.lines()[-2:] == ["EPROTO 0", "ENODATA 0"]


@TYPES
def test_payload_beyond_the_buffer_is_refused(program: Path, fds: list[int], type: int) -> None:
    receiving = Receiving(program, type, "4")
    ipc.send(receiving.sock, SemaphoreDesc.opaque_fd(fds[0], device_uuid=None), payload=b"12345")
    assert receiving.lines() == ["EMSGSIZE 0", "ENODATA 0"]


# ---- streams out of step
INNER = wire.encode([], [], b"smuggled")
OUTER = wire.encode([], [], INNER * 3)


@pytest.mark.parametrize(("data", "arguments", "error"), [
    (OUTER[:4] + b"\x09" + OUTER[5:], (), "EPROTO"),
    (INNER[:14] + b"\x01" + INNER[15:], (), "EPROTO"),
    (OUTER, ("4",), "EMSGSIZE"),
], ids=["version", "descriptors", "room"])
def test_stream_out_of_step_has_ended_whatever_is_queued(
    program: Path, fds: list[int], data: bytes, arguments: tuple[str, ...], error: str
) -> None:
    behind = wire.encode([SemaphoreDesc.sync_fd(fds[0])], [True], b"behind")
    receiving = Receiving(program, socket.SOCK_STREAM, *arguments, queue=[(data, []), (behind, fds[:1])])
    assert (receiving.line(), receiving.line()) == (f"{error} 0", "ENODATA 0")
    with pytest.raises(BrokenPipeError):
        receiving.sock.send(b"x")
    assert receiving.lines() == []


def test_descriptors_lost_before_the_first_byte_end_the_stream(program: Path, fds: list[int]) -> None:
    too_many = (INNER, [fds[0]] * 129)
    receiving = Receiving(program, socket.SOCK_STREAM, queue=[too_many, (INNER, [])])
    assert receiving.lines() == ["EMSGSIZE 0", "ENODATA 0"]


@TYPES
def test_refused_packet_leaves_the_next_one(program: Path, fds: list[int], type: int) -> None:
    longest = wire.encode([SemaphoreDesc.sync_fd(-1)] * 128, [False] * 128, b"\x07" * 65536)
    queue = [(longest + b"cut off", fds[:1]), (b"", fds[:1]), (INNER, [])]
    if type == socket.SOCK_SEQPACKET:
        expected = ["EPROTO 0", "EPROTO 0", f"0 8 {ord('s')}", "ENODATA 0"]
    else:
        expected = ["EPROTO 0", "ENODATA 0"]   # the same bytes, with an unannounced file descriptor
    assert Receiving(program, type, queue=queue).lines() == expected


# ---- options of the socket
@TYPES
def test_pidfds_are_closed(program: Path, fds: list[int], type: int) -> None:
    so_passpidfd = 76
    message = (wire.encode([SemaphoreDesc.sync_fd(fds[0])], [True], b""), fds[:1])
    try:
        receiving = Receiving(program, type, queue=[message] * 3, options={so_passpidfd: 1})
    except OSError:
        pytest.skip("SO_PASSPIDFD came with Linux 6.5")
    inode = os.fstat(fds[0]).st_ino
    assert receiving.lines() == ["1 0 -1", f"1 11 {inode} 0 0 -1 -1 1"] * 3 + ["ENODATA 0"]


@TYPES
@pytest.mark.parametrize("blocking", [True, False])
def test_timeout_of_the_socket_ends_the_wait(program: Path, type: int, blocking: bool) -> None:
    receiving = Receiving(program, type, options={socket.SO_RCVTIMEO: struct.pack("ll", 0, 20_000)}, blocking=blocking)
    assert receiving.line() == "EAGAIN 0"   # between messages: the stream goes on
    receiving.sock.send(INNER)
    while (line := receiving.line()) == "EAGAIN 0":
        pass
    assert line == f"0 8 {ord('s')}"
    receiving.lines()


def test_time_is_for_the_whole_message(program: Path) -> None:
    receiving = Receiving(program, socket.SOCK_STREAM, queue=[(wire.encode([], [], bytes(65536))[:40], [])],
                          options={socket.SO_RCVTIMEO: struct.pack("ll", 0, 100_000)})
    with pytest.raises(BrokenPipeError):
        while True:   # a byte long before the end of the time
            receiving.sock.send(b"x")
            time.sleep(0.01)
    assert receiving.lines() == ["EAGAIN 0", "ENODATA 0"]
