"""``xsem pending``: what running programs wait for, and who waits for whom."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

import xsem
from xsem.runtime.pending_server import address_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the processes are asked by sockets of Linux")

# Each waits for what the other one would signal behind its own wait.
SECOND = """
import socket, sys, xsem
device = xsem.open_device("host")
with xsem.ipc.receive(socket.socket(fileno=int(sys.argv[1]))) as message:
    frames, done = [device.import_semaphore(each) for each in message.semaphores]
commands = device.create_command_list()
commands.append_wait(frames, 7)
commands.append_signal(done, 4)
print("waits", flush=True)
commands.synchronize(timeout_s=100)
"""
BLOCKED = """
import ctypes, sys, xsem
device = xsem.open_device("host")
frames, commands = device.create_semaphore("HOST_TIMELINE_FD", label="frames"), device.create_command_list()
commands.append_wait(frames, 1)
print("waits", flush=True)
ctypes.PyDLL(None).sleep(100) if sys.argv[1] == "interpreter" else ctypes.CDLL(None).sleep(100)
"""


@contextmanager
def running(program: str, *arguments: str, keep: tuple[int, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, pass_fds=keep) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "waits\n"
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


def pending(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xsem", "pending", *map(str, arguments)], check=False,
                          capture_output=True, text=True, timeout=60)


@contextmanager
def deadlocked() -> Iterator[tuple[int, int]]:
    """This process and a second one wait for each other."""
    with ExitStack() as opened, xsem.open_device("host") as device:
        near, far = socket.socketpair()
        frames, done = (device.create_semaphore("HOST_TIMELINE_FD", label=each) for each in ("frames", "done"))
        commands = device.create_command_list()
        with near, far:
            second = opened.enter_context(running_with(SECOND, far, lambda: send(near, frames, done)))
            commands.append_wait(done, 4)
            commands.append_signal(frames, 7)
            yield os.getpid(), second.pid
        done.host_signal(4)
        commands.synchronize()


def send(sock: socket.socket, *semaphores: xsem.Semaphore) -> None:
    with ExitStack() as descs:
        xsem.ipc.send(sock, *[descs.enter_context(each.export()) for each in semaphores])


@contextmanager
def running_with(program: str, far: socket.socket, first: Any) -> Iterator[subprocess.Popen[str]]:
    first()
    with running(program, str(far.fileno()), keep=(far.fileno(),)) as child:
        yield child


def test_two_processes_that_wait_for_each_other_are_named() -> None:
    with deadlocked() as (first, second):
        done = pending(first, second, "--json")
        assert done.returncode == 1, done.stderr
        told = json.loads(done.stdout)
        assert [[wait["pid"] for wait in cycle] for cycle in told["cycles"]] in ([[first, second]], [[second, first]])
        assert {wait["semaphore"]["value"] for wait in told["cycles"][0]} == {4, 7}
        assert {wait["semaphore"]["present"] for wait in told["cycles"][0]} == {0}
        text = pending("--all")
        assert text.returncode == 1
        assert text.stdout.startswith("deadlock: ")
        assert f"({second}), host:0/list-1, waits for host_timeline_fd to be 7" in text.stdout
        main = next(each for each in told["processes"] if each["pid"] == second)
        assert any(each["stack"] and "<string>" in each["stack"][0] for each in main["threads"])


def test_program_that_is_blocked_in_a_library_is_told_from_outside() -> None:
    with running(BLOCKED, "library") as child:
        done = pending(child.pid)
        assert done.returncode == 0
        assert "host:0/list-1 waits for host_timeline_fd 'frames' to be 1 since" in done.stdout
        assert "; it is 0" in done.stdout


def test_wait_of_the_host_is_told_with_its_thread() -> None:
    program = BLOCKED.replace("ctypes.PyDLL", "frames.host_wait(5, timeout_s=100); ctypes.PyDLL")
    with running(program, "library") as child:
        until(lambda: "the host (MainThread) waits for host_timeline_fd 'frames' to be 5" in pending(child.pid).stdout)


@pytest.mark.parametrize(("stopped", "reason"), [
    (True, "does not answer: it is stopped, or its interpreter is blocked"),
    (False, "does not answer: it is stopped, or its interpreter is blocked"),
], ids=["stopped", "interpreter"])
def test_process_that_cannot_answer_is_one_sentence(stopped: bool, reason: str) -> None:
    with running(BLOCKED, "library" if stopped else "interpreter") as child:
        if stopped:
            child.send_signal(signal.SIGSTOP)
        done = pending(child.pid)
    assert (done.returncode, done.stdout) == (3, f"process {child.pid} {reason}\n")


def test_processes_that_cannot_be_asked_are_one_sentence_each() -> None:
    with subprocess.Popen([sys.executable, "-c", "print('waits', flush=True); input()"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as without:
        assert without.stdout is not None
        without.stdout.readline()
        done = pending(2**22 + 1, without.pid)
        without.communicate("\n")
    assert done.returncode == 3
    assert done.stdout == (f"process {2**22 + 1} does not run\nprocess {without.pid} has opened no device of xsem\n")
    assert pending().returncode == 2
    assert pending("--all", "1").returncode == 2


def test_forked_child_leaves_the_address_to_its_parent() -> None:
    with xsem.open_device("host"):
        address = address_of(os.getpid(), os.stat("/proc/self/ns/pid").st_ino)
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"1")
            os.read(go[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        inode = next(line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()
                     if line.endswith(address.replace("\0", "@")))
        files = [os.readlink(f"/proc/{child}/fd/{each}") for each in os.listdir(f"/proc/{child}/fd")]
        os.write(go[1], b"1")
        os.waitpid(child, 0)
        for each in (*ready, *go):
            os.close(each)
    assert f"socket:[{inode}]" not in files
