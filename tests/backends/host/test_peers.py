"""Test the host's objects between processes: taking turns, and peers that are killed, overwrite data or are hostile."""

from __future__ import annotations

import ctypes
import os
import random
import struct
import threading
import time

import pytest
from support.fake_backend import until
from support.host_peers import (
    BINARY,
    LONG_NS,
    MEMORY,
    SLICE_NS,
    TIMELINE,
    content,
    fill,
    peer,
    sleeps_in,
)

from xsem.portable import Timeline
from xsem.portable.timeline import TIMELINE_BYTES
from xsem.types import WaitParams
from xsem_host.device import HostDevice

VALUE_AT = 16


def timeline_of(driver: HostDevice, value: int = 0) -> Timeline:
    made = driver.create_semaphore(TIMELINE, value)
    assert isinstance(made, Timeline)
    return made


# ---- killed peers
HAMMER = """
import threading
from xsem.types import OwnedHandle
from xsem_host.semaphores import open_binary
from xsem.portable import open_timeline
timeline, binary = open_timeline(OwnedHandle(fds[0])), open_binary(OwnedHandle(fds[1]))
value = int(arguments[0])
def wait():
    while True:
        timeline.wait(2**64 - 1, 1000000)
        binary.wait(None, 1000000)
threading.Thread(target=wait, daemon=True).start()
print("ready", flush=True)
while True:
    value += 1
    timeline.signal(value)
    binary.signal()
"""


def test_peers_killed_at_any_moment_leave_objects_usable(driver: HostDevice) -> None:
    timeline, binary = timeline_of(driver), driver.create_semaphore(BINARY, 0)
    moments = random.Random(7)
    for turn in range(1, 11):
        start = turn * 10**9
        with peer(HAMMER, timeline, binary, arguments=(start,)) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert driver.host_wait(timeline, start + moments.randrange(1, 300), LONG_NS)
            assert driver.host_wait(binary, None, LONG_NS)
            process.kill()
            process.wait()
        after = driver.semaphore_value(timeline) + 1
        assert start < after < start + 10**9
        assert not driver.host_wait(timeline, after, SLICE_NS)
        driver.host_signal(timeline, after)
        assert driver.host_wait(timeline, after, 0)
        driver.host_wait(binary, None, 0)  # takes the last signal of the peer, if any
        assert not driver.host_wait(binary, None, SLICE_NS)
        driver.host_signal(binary, None)
        assert driver.host_wait(binary, None, 0)
    driver.release_semaphore(timeline)
    driver.release_semaphore(binary)


def test_value_of_a_peer_killed_between_store_and_wake_is_seen(driver: HostDevice) -> None:
    timeline = timeline_of(driver)
    met: list[bool] = []
    thread = threading.Thread(target=lambda: met.append(driver.host_wait(timeline, 5, 3600 * 10**9)))
    thread.start()
    until(lambda: sleeps_in("futex", thread))
    os.pwrite(timeline.fd, struct.pack("=Q", 5), VALUE_AT)  # the peer got as far as this store
    thread.join()
    assert met == [True]
    driver.release_semaphore(timeline)


# ---- peers that overwrite the page
SCRIBBLE = """
import mmap, os
page = mmap.mmap(fds[0], 4096)
if arguments[0] == "everything":
    print("ready", flush=True)
    while True:
        page[:] = os.urandom(4096)
from xsem.portable import linux
import ctypes
word = ctypes.c_uint32.from_buffer(page, 24)
address = ctypes.addressof(word)
libc = ctypes.CDLL(None)
print("ready", flush=True)
while True:
    if arguments[0] == "sequence":
        word.value += 1
    libc.syscall(linux._FUTEX, ctypes.c_void_p(address), 1, 2**31 - 1, None, None, 0)
"""


@pytest.mark.variants
@pytest.mark.parametrize("what", ["sequence", "wake-ups"])
def test_wait_does_not_spin_while_a_peer_disturbs_it(driver: HostDevice, what: str) -> None:
    timeline = timeline_of(driver)
    with peer(SCRIBBLE, timeline, arguments=(what,)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began, used = time.monotonic(), time.thread_time()
        assert not driver.host_wait(timeline, 1, 700_000_000)
        assert time.thread_time() - used < 0.2 * (time.monotonic() - began)
        driver.host_signal(timeline, 1)
        assert driver.host_wait(timeline, 1, LONG_NS)
    driver.release_semaphore(timeline)


def test_peer_that_overwrites_the_page_harms_only_its_values(driver: HostDevice) -> None:
    timeline = timeline_of(driver)
    commands = driver.create_queue()
    with peer(SCRIBBLE, timeline, arguments=("everything",)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for value in range(50):
            driver.host_signal(timeline, value)
            driver.host_wait(timeline, 2**64 - 1, SLICE_NS)
            assert 0 <= driver.semaphore_value(timeline) < 2**64
        fence = commands.append_wait([timeline], [WaitParams(value=2**63)], (), (), True)
        assert fence is not None
        assert fence.wait(LONG_NS)  # half of the peer's values are large enough
    commands.close()
    # The peer overwrote the magic number: no process can join, and the processes that joined before continue.
    driver.host_signal(timeline, 7)
    assert driver.host_wait(timeline, 7, 0)
    assert driver.semaphore_value(timeline) == 7
    driver.release_semaphore(timeline)


def test_peer_that_punches_holes_leaves_zeros(driver: HostDevice) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size_and_punch = 3
    timeline = timeline_of(driver, 9)
    memory, size = driver.create_memory(MEMORY, 8192, False)
    buffer, address = driver.map_buffer(memory, 0, size)
    fill(address, b"x" * size)
    for fd, length in ((timeline.fd, TIMELINE_BYTES), (memory.fd, size)):
        assert libc.fallocate(fd, keep_size_and_punch, ctypes.c_long(0), ctypes.c_long(length)) == 0
    assert content(address, size) == bytes(size)
    assert driver.semaphore_value(timeline) == 0
    driver.host_signal(timeline, 3)
    assert driver.host_wait(timeline, 3, 0)
    driver.unmap_buffer(buffer)
    driver.release_semaphore(timeline)
    driver.release_memory(memory)


# ---- end of the interpreter
SETS_UP = """
import threading
from support.fake_backend import until
from support.host_peers import *
device = HostDevice()
commands = device.create_queue()
"""
ENDS = {
    "a worker waits for a timeline": """
timeline = device.create_semaphore(TIMELINE, 0)
commands.append_wait([timeline], [WaitParams(value=1)], (), (), False)
until(lambda: commands._queue.empty())
""",
    "a worker waits for a binary": """
binary = device.create_semaphore(BINARY, 0)
commands.append_wait([binary], [WaitParams()], (), (), False)
until(lambda: commands._queue.empty())
""",
    "a worker waits for an event": """
commands.append_barrier([device.borrow_event(threading.Event())], False)
until(lambda: commands._queue.empty())
""",
    "a worker copies": """
memory, size = device.create_memory(MEMORY, 64 << 20, False)
buffer, address = device.map_buffer(memory, 0, size)
staging, _ = device.host_buffer(size)
first = commands.append_copy(staging, 0, buffer, 0, size, (), True)
for _ in range(200):
    commands.append_copy(staging, 0, buffer, 0, size, (), False)
assert first.wait(LONG_NS)
""",
}


@pytest.mark.variants
@pytest.mark.parametrize("what", ENDS)
def test_interpreter_ends_well_while(what: str) -> None:
    with peer(SETS_UP + ENDS[what], killed=False):
        pass


def test_forked_child_can_open_a_device_of_its_own() -> None:
    script = SETS_UP + """
import os, warnings
timeline = device.create_semaphore(TIMELINE, 0)
wait_for(commands, timeline, 1)
warnings.simplefilter("ignore")  # Python 3.12 and newer warn of forks with threads
child = os.fork()
if child == 0:
    own = HostDevice()
    again = import_again(own, TIMELINE, timeline)
    theirs = own.create_queue()
    ok = wait_for(theirs, again, 0).wait(LONG_NS) and signal_of(theirs, again, 1).wait(LONG_NS)
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert barrier(commands).wait(LONG_NS)
"""
    with peer(script, killed=False):
        pass
