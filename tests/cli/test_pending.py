"""``xsem pending``: what running programs wait for, and who waits for whom."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

import xsem
from xsem.cli import pending as command
from xsem.runtime import pending_server
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
def running(
    program: str, *arguments: str, keep: tuple[int, ...] = (), within: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*within, sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, pass_fds=keep) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "waits\n"
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


def pending(*arguments: object, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*within, sys.executable, "-m", "xsem", "pending", *map(str, arguments)], check=False,
                          capture_output=True, text=True, timeout=60)


def needs(*within: str) -> tuple[str, ...]:
    """Return the beginning of a command that starts a program with other rights, or skip."""
    try:
        subprocess.run([*within, sys.executable, "-c", "import xsem"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{' '.join(within)} needs rights that this process does not have: {error}")
    return within


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
        circle, = told["cycles"]
        assert not circle["possible"]
        assert {wait["pid"] for wait in circle["waits"]} == {first, second}
        assert {wait["semaphore"]["value"] for wait in circle["waits"]} == {4, 7}
        assert {wait["semaphore"]["present"] for wait in circle["waits"]} == {0}
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


def test_line_that_appended_is_told_of_a_traced_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSEM_TRACE", str(tmp_path))
    with running(BLOCKED, "library") as child:
        assert "    appended by <string>:5 in <module>" in pending(child.pid).stdout.splitlines()


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


def test_process_of_another_pid_namespace_is_asked() -> None:
    # With --kill-child, the child ends with the process of `unshare`, which `running` kills.
    within = needs("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")
    with running(BLOCKED, "library", within=within) as parent:
        inner, = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        done = pending(inner)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python ({inner}): waits: 1" in done.stdout


def test_process_of_another_network_namespace_is_refused() -> None:
    with running(BLOCKED, "library", within=needs("unshare", "--map-root-user", "--net")) as child:
        done = pending(child.pid)
    assert done.returncode == 3
    assert done.stdout == (f"process {child.pid} is in another network namespace: ask it from there, for example with "
                           f"nsenter --net --target {child.pid}\n")


def test_process_of_another_user_is_refused() -> None:
    within = needs("setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all")
    with running(BLOCKED, "library") as child:
        done = pending(child.pid, within=within)
    assert (done.returncode, done.stdout) == (3, f"process {child.pid} belongs to another user\n")


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


# ---- who waits for whom, from answers
def semaphore(name: str, value: int, *pids: int) -> dict[str, Any]:
    return {"id": f"label:{name}", "name": name, "value": value, "present": 0,
            "processes": [{"pid": pid, "ended": False} for pid in pids]}


def a_list(name: str, wait: dict[str, Any], *signals: dict[str, Any], seq: int = 1) -> dict[str, Any]:
    operations = [{"seq": seq, "operation": "wait", "age_s": 1.0, "semaphores": [wait], "signals": []}]
    operations += [{"seq": seq + number, "operation": "signal", "age_s": 1.0, "semaphores": [each], "signals": []}
                   for number, each in enumerate(signals, 1)]
    return {"list": name, "pending": len(operations), "operations": operations}


def an_answer(pid: int, *lists: dict[str, Any], host: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"version": 1, "pid": pid, "name": "program", "driver_answers": True, "lists": list(lists), "threads": [],
            "host_waits": [{"thread": 1, "age_s": 1.0, "semaphores": [each]} for each in host]}


def told(monkeypatch: pytest.MonkeyPatch, *rounds: list[dict[str, Any]]) -> int:
    """Run the command on these answers; the last ones are those of all later questions."""
    left = [{each["pid"]: each for each in answers} for answers in rounds]
    asked: dict[int, int] = {}

    def ask(pid: int) -> dict[str, Any]:
        asked[pid] = asked.get(pid, -1) + 1
        return left[min(asked[pid], len(left) - 1)][pid]

    monkeypatch.setattr(command, "ask", ask)
    monkeypatch.setattr(command, "_AGAIN_S", 0.0)
    return command.run(list(left[0]), everything=False, as_json=False)


def test_processes_that_go_on_between_two_questions_are_no_deadlock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [an_answer(1, a_list("l", semaphore("a", 1), semaphore("b", 1))),
             an_answer(2, a_list("l", semaphore("b", 1), semaphore("a", 1)))]
    later = [an_answer(1, a_list("l", semaphore("a", 3), semaphore("b", 3), seq=5)), first[1]]
    assert told(monkeypatch, first, later) == 0
    assert "deadlock" not in capsys.readouterr().out
    assert told(monkeypatch, first) == 1
    assert capsys.readouterr().out.startswith("deadlock: ")


def test_signal_before_the_wait_of_its_list_is_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    second = a_list("l", semaphore("b", 1))
    second["operations"].insert(0, {"seq": 0, "operation": "signal", "age_s": 1.0, "semaphores": [semaphore("a", 1)],
                                    "signals": []})
    assert told(monkeypatch, [an_answer(1, a_list("l", semaphore("a", 1), semaphore("b", 1))),
                              an_answer(2, second)]) == 0


def test_circle_through_a_signal_that_is_not_appended_is_possible_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [an_answer(1, host=(semaphore("a", 1, 2),)), an_answer(2, host=(semaphore("b", 1, 1),))]
    assert told(monkeypatch, answers) == 1
    assert capsys.readouterr().out.startswith("possible deadlock: ")


def test_many_processes_that_all_wait_for_each_other_are_one_circle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = range(1, 31)
    assert told(monkeypatch, [an_answer(pid, host=(semaphore(f"s{pid}", 1, *pids),)) for pid in pids]) == 1
    assert capsys.readouterr().out.count("deadlock: ") == 1


# ---- other programs at the addresses
def test_names_of_other_programs_are_passed_over() -> None:
    namespace = os.stat("/proc/self/ns/pid").st_ino
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(f"\0xsem-pending-{namespace}-x\xff".encode("latin-1"))
        other.listen()
        done = pending("--all")
    assert (done.returncode in (0, 1), done.stderr) == (True, "")   # other tests run, too


SILENT = """
import os, socket, sys
from xsem.runtime.pending_server import address_of
listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listening.bind(address_of(os.getpid(), os.stat("/proc/self/ns/pid").st_ino))
listening.listen()
print("waits", flush=True)
while True:
    with listening.accept()[0] as asking:
        asking.sendall(sys.argv[1].encode())
"""


@pytest.mark.parametrize(("text", "reason"), [
    ('{"version": 1, "lists": [', "has not answered in full: perhaps it ends"),
    ('{"version": 2}', "has another version of xsem, and answers in another form"),
    ("", "belongs to another user, or ends"),
])
def test_answer_that_is_none_is_one_sentence(text: str, reason: str) -> None:
    with running(SILENT, text) as child:
        done = pending(child.pid)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"process {child.pid} {reason}\n", "")


def test_address_that_another_process_has_taken_is_one_sentence() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as child, \
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(address_of(child.pid, os.stat("/proc/self/ns/pid").st_ino))
        other.listen()
        done = pending(child.pid)
        child.communicate("\n")
    assert done.stdout == f"process {child.pid} cannot be asked: process {os.getpid()} has its address\n"


# ---- the thread that answers
def test_blocked_driver_has_one_thread_however_often_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(pending_server, "_poll", go.wait)
    with xsem.open_device("host"):
        assert not command.ask(os.getpid())["driver_answers"]
        assert not command.ask(os.getpid())["driver_answers"]
        names = [each.name for each in threading.enumerate()]
        go.set()
    assert names.count("xsem-pending-poll") == 1


def test_defect_in_an_answer_is_logged_once_and_the_next_question_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(pending_server._Server, "failed", False)
    with xsem.open_device("host"):
        with monkeypatch.context() as patch:
            patch.setattr(pending_server, "_answer", fails)
            for _ in range(2):
                with pytest.raises(command._RefusedError):
                    command.ask(os.getpid())
        assert command.ask(os.getpid())["driver_answers"]
    assert [each.getMessage() for each in caplog.records] == ["a question of `xsem pending` has no answer"]
