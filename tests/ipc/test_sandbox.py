"""xsem under a seccomp filter, as a container has one: docs/how-to/containers.md says which calls it needs."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64",
                                reason="the numbers of the system calls are those of Linux on x86-64")
# The calls that the page calls unnecessary, each with its number.
UNUSED = {"shmget": 29, "ptrace": 101, "process_vm_readv": 310, "kcmp": 312, "userfaultfd": 323, "pidfd_open": 434,
          "pidfd_getfd": 438}
MEMFD_CREATE = 319

PROGRAM = """
import ctypes, json, struct, sys

refused = json.loads(sys.argv[1])
# Load the number of the call; each refused one jumps to the last instruction, EPERM.
code = [(0x20, 0, 0, 0), *((0x15, len(refused) - place, 0, number) for place, number in enumerate(refused)),
        (0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050001)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))

class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]

libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0   # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(Program(len(code), ctypes.addressof(filter)))) == 0   # PR_SET_SECCOMP

import xsem
try:
    with (xsem.open_device("host") as device,
          xsem.FrameRing.create(device, shape=(4,), dtype="uint8", memory_type="HOST_MEMORY_FD") as ring,
          xsem.ipc.claim(xsem.ipc.offer(ring)) as message, xsem.FrameRing.open(device, message) as reader):
        with ring.write() as frame:
            frame.numpy()[:] = 7
        with reader.read() as frame:
            print(frame.numpy().tolist())
except xsem.BackendUnavailableError as error:
    print(error)
"""


def printed(*refused: int) -> str:
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(refused)], capture_output=True, text=True,
                          timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ring_and_ticket_work_without_the_calls_that_the_page_calls_unnecessary() -> None:
    assert printed(*UNUSED.values()) == "[7, 7, 7, 7]\n"


def test_error_names_a_necessary_call_that_is_refused() -> None:
    assert "memfd_create" in printed(MEMFD_CREATE)
