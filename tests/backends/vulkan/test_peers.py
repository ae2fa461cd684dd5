"""Test imports by another process of objects of the Vulkan backend: each process must wait for the other.

The tests measure no time. A copy that waits for a semaphore must be pending, and the same copy without the wait must
read the old data, before the other process does anything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.paths import TESTS
from support.vulkan_sim import BINARY, MEMORY, environment, use_swiftshader

import xsem

SIZE = 1 << 16

CHILD = """
import sys
from xsem_vulkan.memory import Place
from support.vulkan_sim import bytes_at, peer

semaphore, back, memory, size = (int(each) for each in sys.argv[1:])
with peer() as device:
    wait, signal = device.import_semaphore(semaphore), device.import_semaphore(back)
    buffer = device.import_memory(memory, size)
    for line in sys.stdin:
        todo, value = line.split()
        if todo == "look":
            found = device.read(buffer, size)
            assert device.reached(20)
        elif todo == "wait":
            found = device.read(buffer, size, wait=wait)
            print(device.reached(0.02), flush=True)
            continue
        elif todo == "reached":
            print(device.reached(float(value)), flush=True)
            continue
        elif todo == "write":
            device.submit(device.commands.fill(Place(buffer, 0), bytes([int(value)]), size)[0], signal=signal)
            assert device.reached(20)
            print("written", flush=True)
            continue
        print(*sorted(set(bytes_at(found, size))), flush=True)
"""


class Child:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.killed = False

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait(40)

    def ask(self, todo: str, value: object = 0) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{todo} {value}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def child(*descs: xsem.SemaphoreDesc | xsem.MemoryDesc) -> Iterator[Child]:
    files = [desc.handle.fileno() for desc in descs if isinstance(desc.handle, xsem.OwnedHandle)]
    size = next(desc.allocation_size for desc in descs if isinstance(desc, xsem.MemoryDesc))
    path = str(TESTS)
    with subprocess.Popen([sys.executable, "-W", "error", "-c", CHILD, *map(str, files), str(size)],
                          env=environment(PYTHONPATH=path), pass_fds=files, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        made = Child(process)
        try:
            yield made
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(40) in ((-9,) if made.killed else (0,))
        finally:
            process.kill()


class Pair:
    """Both semaphores and the memory, in this process and in the other."""

    def __init__(self, device: xsem.Device, there: Child, to: xsem.Semaphore, back: xsem.Semaphore,
                 memory: xsem.Memory) -> None:
        self.there, self.to, self.back, self.memory = there, to, back, memory
        self.commands = device.create_command_list()
        self.buffer = memory.map_buffer()
        self.host = device.host_buffer(self.buffer.size)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    use_swiftshader(monkeypatch)
    with xsem.open_device("vulkan:0") as device:
        to, back = device.create_semaphore(BINARY), device.create_semaphore(BINARY)
        memory = device.create_memory(MEMORY, SIZE)
        with to.export() as first, back.export() as second, memory.export() as third, \
                child(first, second, third) as there:
            yield Pair(device, there, to, back, memory)


def test_peer_is_held_back_until_the_list_signals(pair: Pair) -> None:
    pair.commands.append_fill(pair.buffer, b"\1")
    pair.commands.synchronize(timeout_s=20)
    assert pair.there.ask("look") == "1"
    for value in (2, 3):
        assert pair.there.ask("wait") == "False"
        assert pair.there.ask("reached") == "False"
        pair.commands.append_fill(pair.buffer, bytes([value]))
        pair.commands.append_signal(pair.to, release=[pair.memory])
        assert pair.there.ask("reached", 20) == "True"
        assert pair.there.ask("look") == str(value)


def test_list_is_held_back_until_the_peer_signals(pair: Pair) -> None:
    pair.commands.append_fill(pair.buffer, b"\1")
    pair.commands.append_copy(pair.host, pair.buffer)
    pair.commands.synchronize(timeout_s=20)
    assert (pair.host.numpy() == 1).all()
    for value in (7, 8):
        pair.commands.append_wait(pair.back, acquire=[pair.memory])
        pair.commands.append_copy(pair.host, pair.buffer)
        assert not pair.commands.query()
        assert pair.there.ask("write", value) == "written"
        pair.commands.synchronize(timeout_s=20)
        assert (pair.host.numpy() == value).all()


def test_signal_lives_on_when_the_exporter_has_released_it(pair: Pair) -> None:
    pair.commands.append_fill(pair.buffer, b"\5")
    pair.commands.append_signal(pair.to, release=[pair.memory])
    pair.commands.synchronize(timeout_s=20)
    for each in (pair.buffer, pair.memory, pair.to):
        each.release()
    pair.there.ask("wait")
    assert pair.there.ask("reached", 20) == "True"
    assert pair.there.ask("look") == "5"


def test_peer_killed_in_its_wait_does_no_harm(pair: Pair) -> None:
    assert pair.there.ask("wait") == "False"
    pair.there.kill()
    pair.commands.append_signal(pair.to, release=[pair.memory])
    pair.commands.append_wait(pair.to, acquire=[pair.memory])
    pair.commands.append_fill(pair.buffer, b"\4")
    pair.commands.append_copy(pair.host, pair.buffer)
    pair.commands.synchronize(timeout_s=20)
    assert (pair.host.numpy() == 4).all()
