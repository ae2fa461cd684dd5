"""`ipc.offer(at=…)`: a ticket through a directory that two containers mount."""

from __future__ import annotations

import gc
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.open_files import numbers
from support.waiting import until

import xsem
from xsem import ipc
from xsem.ipc import offers, ticket_files
from xsem.types import MemoryDesc

OFFER = """
import os, sys
from xsem import ipc
from xsem.types import MemoryDesc
fd = os.memfd_create("offered")
print(ipc.offer(MemoryDesc.dmabuf_fd(fd, allocation_size=4096), at=sys.argv[1], claims=2), flush=True)
sys.stdin.read()
"""
CLAIM = """
import os, sys
import xsem
try:
    with xsem.ipc.claim(sys.argv[1], at=sys.argv[2]) as message:
        os.write(message.memories[0].handle.fileno(), b"claimed")
        for each in message.semaphores:
            with xsem.open_device("host") as device:
                timeline = device.import_semaphore(each)
                timeline.host_wait(1, timeout_s=10)
                timeline.host_signal(2)
        print(message.payload.decode())
except xsem.XsemError as error:
    print(error.reason)
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory, which is empty at the end."""
    monkeypatch.setattr(offers, "_SLICE_S", 0.01)
    before = numbers()
    folder = tmp_path_factory.mktemp("at")
    yield folder
    while offers._Process.in_directories:
        offers._Process.in_directories.popitem()[1]._offers.clear()
    until(lambda: not os.listdir(folder) and numbers() == before)
    until(lambda: not any(each.name == "xsem-offers" for each in threading.enumerate()))


@pytest.fixture
def desc() -> Iterator[MemoryDesc]:
    number = os.memfd_create("offered")
    yield MemoryDesc.dmabuf_fd(number, allocation_size=4096)
    os.close(number)


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(xsem.XsemError) as failure:
        call()
    return failure.value.reason


def claimed(ticket: str, at: Path, *within: str) -> str:
    done = subprocess.run([*within, sys.executable, "-c", CLAIM, ticket, str(at)], capture_output=True, text=True,
                          check=True, timeout=55)
    return done.stdout.strip()


def namespaces(*flags: str) -> list[str]:
    """Return a command that runs another in new namespaces, or skip."""
    command = ["unshare", *flags, "--"]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False, timeout=50)
    except OSError as error:
        pytest.skip(f"no namespaces here: {error}")
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")
    return command


# ---- what a directory gives
@pytest.mark.parametrize("flags", [(), ("--net",), ("--net", "--pid", "--fork", "--ipc", "--uts")], ids=" ".join)
def test_process_of_other_namespaces_claims_the_message(desc: MemoryDesc, folder: Path, flags: tuple[str, ...]) -> None:
    within = namespaces(*flags) if flags else []
    with xsem.open_device("host") as device:
        timeline = device.create_semaphore("HOST_TIMELINE_FD")
        with timeline.export() as exported:
            ticket = ipc.offer(desc, exported, payload=b"640x480", claims=2, at=folder)
        timeline.host_signal(1)
        assert claimed(ticket, folder, *within) == "640x480"
        assert timeline.value() == 2
    assert os.pread(desc.handle, 7, 0) == b"claimed"  # type: ignore[arg-type]
    with ipc.claim(ticket.encode(), at=str(folder)) as message:
        assert message.memories[0].allocation_size == 4096
    until(lambda: not os.listdir(folder))   # the file ends with the last claim
    assert claimed(ticket, folder, *within) == "ticket_spent"


def test_abstract_socket_is_not_reached_from_another_network_namespace(desc: MemoryDesc, folder: Path) -> None:
    within = namespaces("--net")
    ticket = ipc.offer(desc)
    assert claimed(ticket, folder, *within) == "other_container"
    ipc.claim(ticket, at=folder).close()   # `at` has no effect on this ticket


def test_container_may_have_the_directory_at_another_path(desc: MemoryDesc, folder: Path) -> None:
    ticket = ipc.offer(desc, at=folder)
    assert (len(ticket), str(folder) in ticket) == (122, False)
    with tempfile.TemporaryDirectory() as other:
        here = Path(other, "here")
        here.symlink_to(folder)
        ipc.claim(ticket, at=here).close()


def test_socket_is_open_to_this_user_only(desc: MemoryDesc, folder: Path) -> None:
    before = os.umask(0)
    try:
        ticket = ipc.offer(desc, at=folder)
    finally:
        os.umask(before)
    [file] = folder.iterdir()
    mode = file.lstat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    ipc.claim(ticket, at=folder).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_user_is_refused(desc: MemoryDesc) -> None:
    program = "import os, xsem; os.setuid(65534)\n" + CLAIM
    with tempfile.TemporaryDirectory() as everyones:   # unlike the folders of pytest
        os.chmod(everyones, 0o755)
        ticket = ipc.offer(desc, at=everyones)
        done = subprocess.run([sys.executable, "-c", program, ticket, everyones], capture_output=True, text=True,
                              check=True, timeout=55)
        assert done.stdout == "other_user\n"
        ipc.claim(ticket, at=everyones).close()


def test_directory_has_a_thread_of_its_own(desc: MemoryDesc, folder: Path) -> None:
    tickets = [ipc.offer(desc), *[ipc.offer(desc, at=folder) for _ in range(3)]]
    assert len(os.listdir(folder)) == 1
    assert sum(each.name == "xsem-offers" for each in threading.enumerate()) == 2
    for ticket in tickets:
        ipc.claim(ticket, at=folder).close()


# ---- the end of a process
def test_killed_process_has_ended_and_the_next_offer_removes_its_file(desc: MemoryDesc, folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OFFER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout is not None
        ticket = process.stdout.readline().strip()
        [left] = os.listdir(folder)
        process.kill()
        process.wait(50)
    assert os.listdir(folder) == [left]
    assert reason_of(lambda: ipc.claim(ticket, at=folder)) == "sender_ended"
    other, living = folder / "app.sock", folder / left[:-1]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ended:   # of another program
        ended.bind(str(other))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as another:   # of a process that lives
        another.bind(str(living))
        another.listen(1)
        own = ipc.offer(desc, at=folder)
        assert left not in os.listdir(folder)
        assert living.is_socket()
        assert other.exists()
        ipc.claim(own, at=folder).close()
    living.unlink()
    other.unlink()


def test_process_that_exits_with_an_offer_has_ended(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OFFER, folder], input="", capture_output=True, text=True, check=True,
                          timeout=55)
    assert reason_of(lambda: ipc.claim(done.stdout.strip(), at=folder)) == "sender_ended"
    [left] = folder.iterdir()
    left.unlink()


def test_forked_child_leaves_the_file_to_its_parent(desc: MemoryDesc, folder: Path) -> None:
    ticket = ipc.offer(desc, at=folder)
    child = os.fork()
    if child == 0:
        os._exit(len(offers._Process.in_directories))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ipc.claim(ticket, at=folder).close()


# ---- refusals
def test_changed_kind_of_a_ticket_is_refused(desc: MemoryDesc, folder: Path) -> None:
    ticket = ipc.offer(desc, at=folder)
    assert reason_of(lambda: ipc.claim(ticket.replace("ticket-2-", "ticket-1-", 1), at=folder)) == "ticket_spent"
    assert reason_of(lambda: ipc.claim(ticket)) == "bad_directory"   # the claim must say where
    ipc.claim(ticket, at=folder).close()


def test_expired_offer_removes_its_file(desc: MemoryDesc, folder: Path) -> None:
    ticket = ipc.offer(desc, at=folder, lifetime_s=0.001)
    until(lambda: ticket.fields()[0].expired and not os.listdir(folder))
    assert reason_of(lambda: ipc.claim(ticket, at=folder)) == "ticket_expired"


@pytest.mark.parametrize("at", ["/nonesuch", __file__, "", b"/tmp", 5, "/tmp\0"], ids=repr)
def test_place_that_is_no_directory_is_refused(desc: MemoryDesc, at: Any) -> None:
    assert reason_of(lambda: ipc.offer(desc, at=at)) == "bad_directory"
    ticket = ipc.offer(desc)
    assert reason_of(lambda: ipc.claim(ticket, at=at)) == "bad_directory"
    ipc.claim(ticket).close()


def test_path_of_the_socket_has_a_limit(desc: MemoryDesc, folder: Path) -> None:
    longest = 107 - len(os.path.basename(ticket_files.path_of("/", bytes(8)))) - 1
    good = str(folder) + "/" + "x" * (longest - len(str(folder)) - 1)
    for path, reason in ((good + "x", "path_too_long"), (good, "")):
        os.mkdir(path)
        if reason:
            assert reason_of(lambda: ipc.offer(desc, at=path)) == reason   # noqa: B023
        else:
            ipc.claim(ipc.offer(desc, at=path), at=path).close()
            until(lambda: not os.listdir(path))   # noqa: B023
        os.rmdir(path)


def test_directory_that_takes_no_socket_is_named(desc: MemoryDesc) -> None:
    assert reason_of(lambda: ipc.offer(desc, at="/proc")) == "system_call_failed"


def test_server_of_a_directory_ends_with_its_last_offer(desc: MemoryDesc, folder: Path) -> None:
    ticket = ipc.offer(desc, at=folder)
    assert str(folder) in offers._Process.in_directories
    ipc.claim(ticket, at=folder).close()
    # It refers to itself. The server of an earlier test can be frozen garbage (conftest.py).
    until(lambda: gc.collect() >= 0 and str(folder) not in offers._Process.in_directories)
