"""`ipc.offer` and `ipc.claim`: who can claim a ticket, how often, how long, and which files stay open."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.at_once import threads
from support.fixtures import reason_of
from support.open_files import closed_number, numbers
from support.waiting import until

import xsem
from xsem import ipc
from xsem.errors import DriverError
from xsem.ipc import offers, ticket_sockets, tickets
from xsem.spi import same_open_file
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

OFFER = """
import os, sys
from xsem import ipc
from xsem.types import MemoryDesc
fd = os.memfd_create("offered")
print(ipc.offer(MemoryDesc.dmabuf_fd(fd, allocation_size=4096)), flush=True)
"""
CLAIM = """
import os, sys
import xsem
try:
    with xsem.ipc.claim(sys.argv[1]) as message:
        os.write(message.memories[0].handle.fileno(), b"claimed")
        print(message.payload.decode())
except xsem.XsemError as error:
    print(error.reason)
"""


def idle() -> bool:
    return offers.server().idle


@pytest.fixture(autouse=True)
def no_leak(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(offers, "_SLICE_S", 0.01)
    until(idle)
    before = numbers()
    yield
    offers.server()._offers.clear()
    gc.collect()   # the traceback of a refused offer holds the offer
    until(lambda: idle() and numbers() == before)


@pytest.fixture
def desc(fd: int) -> MemoryDesc:
    return MemoryDesc.dmabuf_fd(fd, allocation_size=4096)


def claim_in_a_process(ticket: str) -> str:
    done = subprocess.run([sys.executable, "-c", CLAIM, ticket], capture_output=True, text=True, check=True, timeout=55)
    return done.stdout.strip()


# ---- what a ticket gives
def test_another_process_claims_the_message(desc: MemoryDesc, fd: int) -> None:
    ticket = ipc.offer(desc, payload=b"640x480", claims=2)
    assert claim_in_a_process(ticket) == "640x480"
    assert os.pread(fd, 7, 0) == b"claimed"
    with ipc.claim(ticket) as message:
        handle = message.memories[0].handle
        assert isinstance(handle, OwnedHandle)
        assert same_open_file(handle.fileno(), fd)
        assert not os.get_inheritable(handle.fileno())
        assert message.memories[0].allocation_size == 4096
    assert claim_in_a_process(ticket) == "ticket_spent"


def test_ticket_is_a_picklable_text_that_hides_itself(desc: MemoryDesc) -> None:
    ticket = ipc.offer(desc, claims=3)
    again = pickle.loads(pickle.dumps(ticket))
    assert type(again) is ipc.Ticket
    assert again == ticket == str(ticket)
    assert str(ticket) not in repr(ticket)
    assert len(ticket) == 122
    assert ticket.isascii()
    for text in (again, str(ticket), ticket.encode()):
        ipc.claim(text).close()


def test_offer_outlives_the_descriptors_of_the_caller() -> None:
    number = os.memfd_create("offered")
    ticket = ipc.offer(SemaphoreDesc.opaque_fd(number, device_uuid=None), SemaphoreDesc.sync_fd(-1))
    os.close(number)
    with ipc.claim(ticket) as message:
        assert [each.type.value for each in message.semaphores] == ["opaque_fd", "sync_fd"]


def test_largest_message_is_claimed(fd: int) -> None:
    ticket = ipc.offer(*[SemaphoreDesc.opaque_fd(fd, device_uuid=None)] * 128, payload=b"x" * 65536)
    with ipc.claim(ticket) as message:
        assert len(message.semaphores) == 128
        assert message.payload == b"x" * 65536


def test_claims_at_the_same_time_are_counted_exactly(desc: MemoryDesc) -> None:
    ticket = ipc.offer(desc, claims=20)

    def attempt(_: int) -> str:
        try:
            ipc.claim(ticket).close()
        except xsem.BadArgumentError as error:
            return error.reason
        return "claimed"

    with ThreadPoolExecutor(16) as pool:
        assert Counter(pool.map(attempt, range(50))) == {"claimed": 20, "ticket_spent": 30}
    until(idle)


def test_offers_at_the_same_time_are_all_served(desc: MemoryDesc) -> None:
    def exchange(number: int) -> bool:
        with ipc.claim(ipc.offer(desc, payload=str(number).encode())) as message:
            return message.payload == str(number).encode()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(exchange, range(200)))


def test_thread_and_sockets_end_with_the_last_offer(desc: MemoryDesc) -> None:
    ticket = ipc.offer(desc)
    assert threads("offers")
    ipc.claim(ticket).close()
    until(lambda: not threads("offers"))
    assert idle()
    ipc.claim(ipc.offer(desc)).close()   # a new thread


class Walked(dict[int, Any]):
    """The offers of a process. Each look at all of them is noted."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()

    def values(self) -> Any:
        self.walks += 1
        return super().values()

    def __iter__(self) -> Iterator[int]:
        self.walks += 1
        return super().__iter__()


def test_claims_do_not_look_at_the_other_offers(desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as watched:
        walked = Walked()
        watched.setattr(offers.server(), "_offers", walked)
        tickets = [ipc.offer(desc) for _ in range(200)]
        for ticket in tickets:
            ipc.claim(ticket).close()
        until(idle)
        assert walked.walks == 0


def test_offers_end_in_the_order_of_their_lifetimes(desc: MemoryDesc) -> None:
    kept = ipc.offer(desc)
    for lifetime_s in (0.3, 0.001, 0.2, 0.002, 0.1):
        ipc.offer(desc, lifetime_s=lifetime_s)
    until(lambda: len(offers.server()._offers) == 1)
    ipc.claim(kept).close()


def test_ends_of_offers_that_no_longer_exist_are_forgotten() -> None:
    deadlines, existing = offers._Deadlines(), {7, 5000}
    for number in range(10_000):
        deadlines.add(10_000 - number, number)
        assert deadlines.passed(0, existing) == []
        assert len(deadlines._heap) < 300
    assert deadlines.nearest() == 1
    assert existing <= {*deadlines.passed(10_001, existing)}
    assert deadlines.nearest() is None


# ---- refusals
def test_expired_ticket_is_refused_with_and_without_a_server(desc: MemoryDesc) -> None:
    ticket = ipc.offer(desc, lifetime_s=0.001)
    until(lambda: ticket.fields()[0].expired and idle())
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_expired"
    ipc.offer(desc)
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_expired"


def test_spent_ticket_is_refused_with_and_without_a_server(desc: MemoryDesc) -> None:
    ticket = ipc.offer(desc)
    ipc.claim(ticket).close()
    until(idle)
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_spent"
    ipc.offer(desc)
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_spent"


def test_every_changed_character_is_refused(desc: MemoryDesc) -> None:
    ticket = ipc.offer(desc)
    reasons = set()
    for at in range(len(ticket)):
        changed = ticket[:at] + ("B" if ticket[at] != "B" else "C") + ticket[at + 1 :]
        reasons.add(reason_of(lambda: ipc.claim(changed)))  # noqa: B023
    # A changed address is that of a process that does not listen: this one, which no longer has the offer, or another.
    assert reasons == {"bad_ticket", "other_host", "other_container", "ticket_forged", "ticket_spent", "sender_ended",
                       "ticket_expired"} & reasons
    assert {"bad_ticket", "other_host", "other_container", "ticket_forged"} <= reasons
    ipc.claim(ticket).close()   # no attempt counted


def test_longer_lifetime_written_by_the_claimer_is_forged(desc: MemoryDesc) -> None:
    fields, _ = ipc.offer(desc).fields()
    later = tickets.Fields(fields.boot, fields.network, fields.pid, fields.started, fields.address, fields.number,
                           fields.deadline_ns + 10**12)
    assert reason_of(lambda: ipc.claim(later.ticket(b"a guessed key"))) == "ticket_forged"


@pytest.mark.parametrize("text", ["", "xsem-ticket-1-", "xsem-ticket-1-" + "é" * 108, "xsem-ticket-1-" + "*" * 108,
                                  "x" * 122, b"\xff" * 122, 5, None])
def test_text_that_is_not_a_ticket_is_refused(text: Any) -> None:
    assert reason_of(lambda: ipc.claim(text)) == "bad_ticket"


def test_ticket_of_another_machine_is_refused(desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = ipc.offer(desc)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tickets, "system_id", lambda: "00000000-0000-4000-8000-000000000000")
        with pytest.raises(xsem.BadArgumentError, match="do not cross machines") as failure:
            ipc.claim(ticket)
    assert failure.value.reason == "other_host"


def test_claim_by_another_user_is_refused_on_both_sides(desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = ipc.offer(desc)
    with monkeypatch.context() as stranger:   # the claiming side sees a server of another user
        stranger.setattr(ticket_sockets, "peer_user", lambda _: os.geteuid() + 1)
        assert reason_of(lambda: ipc.claim(ticket)) == "other_user"
    with monkeypatch.context() as stranger:   # the offering side sees a claim of another user
        stranger.setattr(ticket_sockets.Session, "_admits", lambda _session, _connection: False)
        assert reason_of(lambda: ipc.claim(ticket)) == "other_user"
    ipc.claim(ticket).close()


def test_sandbox_that_hides_the_user_refuses_the_claim_on_both_sides(
    desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(_: socket.socket) -> int:
        raise PermissionError(errno.EPERM, "seccomp")

    ticket = ipc.offer(desc)
    with monkeypatch.context() as sandbox:
        sandbox.setattr(ticket_sockets, "peer_user", denied)
        with pytest.raises(DriverError, match="sandbox") as caught:
            ipc.claim(ticket)
        assert (caught.value.reason, caught.value.code_name) == ("system_call_failed", "EPERM")
    with monkeypatch.context() as sandbox:
        sandbox.setattr(ticket_sockets.Session, "_admits", lambda _, connection: bool(denied(connection)))
        assert reason_of(lambda: ipc.claim(ticket)) == "other_user"
        assert "its user is unknown" in caplog.text
    ipc.claim(ticket).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_process_of_another_user_is_refused_by_the_kernels_word(desc: MemoryDesc) -> None:
    ticket = ipc.offer(desc)
    program = "import os; os.setuid(65534)\n"
    for change in ("import xsem.ipc.ticket_sockets as e; e.peer_user = lambda _: os.geteuid()\n", ""):
        # The first process skips its own check, so the offering process must refuse it.
        done = subprocess.run([sys.executable, "-c", "import xsem\n" + change + program + CLAIM, ticket],
                              capture_output=True, text=True, check=True, timeout=55)
        assert done.stdout == "other_user\n"
    ipc.claim(ticket).close()


UNMAPPED = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):   # CLONE_NEWUSER
    sys.exit("no user namespaces: " + os.strerror(ctypes.get_errno()))
"""


def test_users_without_a_mapping_are_not_one_user(desc: MemoryDesc) -> None:
    # The kernel shows each of them as the same number, also to itself.
    ticket = ipc.offer(desc)
    with subprocess.Popen([sys.executable, "-c", UNMAPPED + OFFER + "sys.stdin.read()"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        unmapped = process.stdout.readline().strip()
        if not unmapped:
            pytest.skip(process.stderr.read())
        # The first process skips its own check, so the offering process must refuse it.
        no_check = "import xsem.ipc.ticket_sockets as e; e._is_own_user = lambda _: True\n"
        for text, change in ((unmapped, no_check + UNMAPPED), (unmapped, no_check), (unmapped, UNMAPPED),
                             (unmapped, ""), (ticket, UNMAPPED)):
            done = subprocess.run([sys.executable, "-c", "import xsem\n" + change + CLAIM, text],
                                  capture_output=True, text=True, check=True, timeout=55)
            assert done.stdout == "other_user\n"
        process.communicate()
    ipc.claim(ticket).close()


@pytest.mark.parametrize(("user", "mapping", "admitted"), [
    (1000, None, True), (1000, "1000 1000 1", True), (65534, "0 0 4294967295", True),
    (65534, None, False), (65534, "", False), (65534, "0 100000 65536", False), (65534, "65534 1000 1", False),
    (7, "0 0 4294967295", True), (7, "0 100000 65536", False),
])
def test_number_of_users_without_a_mapping_counts_only_where_all_are_mapped(
    monkeypatch: pytest.MonkeyPatch, user: int, mapping: str | None, admitted: bool
) -> None:
    def read(path: str) -> bytes:
        if path == "/proc/self/uid_map" and mapping is not None:
            return mapping.encode()
        if path == "/proc/sys/kernel/overflowuid" and user == 7:
            return b"7\n"
        raise FileNotFoundError(path)

    monkeypatch.setattr(ticket_sockets, "read_small", read)
    monkeypatch.setattr(ticket_sockets, "peer_user", lambda _: user)
    near, far = socket.socketpair()
    with near, far, monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: user)
        assert ticket_sockets._is_own_user(near) is admitted
        patch.setattr(os, "geteuid", lambda: user + 1)
        assert ticket_sockets._is_own_user(near) is False


def test_claim_whose_user_the_kernel_does_not_tell_is_dropped(
    desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_threads = {False}   # first the thread that serves, then the claiming one, too

    def tell(_sock: socket.socket) -> int:
        if (threading.current_thread() is threading.main_thread()) in silent_threads:
            raise PermissionError(1, "seccomp")
        return os.geteuid()

    ticket = ipc.offer(desc)
    with monkeypatch.context() as silent:
        silent.setattr(ticket_sockets, "peer_user", tell)
        assert reason_of(lambda: ipc.claim(ticket)) == "other_user"
        silent_threads.add(True)
        assert reason_of(lambda: ipc.claim(ticket)) == "system_call_failed"
    ipc.claim(ticket).close()


def test_connection_that_the_system_refuses_is_an_error_of_the_tree(
    desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = ipc.offer(desc)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(ticket_sockets, "_name", lambda _: b"/dev/null/nothing")
        assert reason_of(lambda: ipc.claim(ticket)) == "system_call_failed"
    ipc.claim(ticket).close()


def test_ticket_of_an_ended_process_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", OFFER], capture_output=True, text=True, check=True, timeout=55)
    assert reason_of(lambda: ipc.claim(done.stdout.strip())) == "sender_ended"


def test_stopped_process_is_a_timeout_and_a_killed_one_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", OFFER + "sys.stdin.read()"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ticket = process.stdout.readline().strip()
        process.send_signal(signal.SIGSTOP)
        until(lambda: "T (" in Path(f"/proc/{process.pid}/status").read_text())
        assert reason_of(lambda: ipc.claim(ticket, timeout_s=0.05)) == "timeout"
        with ThreadPoolExecutor(1) as claims:
            waiting = claims.submit(reason_of, lambda: ipc.claim(ticket))
            process.kill()
            assert waiting.result(50) == "sender_ended"


@pytest.mark.parametrize(("arguments", "reason"), [
    ({"claims": 0}, "bad_claims"), ({"claims": True}, "bad_claims"), ({"claims": 1.5}, "bad_claims"),
    ({"lifetime_s": 0}, "bad_timeout"), ({"lifetime_s": None}, "bad_timeout"),
    ({"lifetime_s": float("nan")}, "bad_timeout"), ({"lifetime_s": float("inf")}, "bad_timeout"),
    ({"payload": "text"}, "bad_payload"),
])
def test_bad_arguments_of_an_offer_are_refused(desc: MemoryDesc, arguments: dict[str, Any], reason: str) -> None:
    assert reason_of(lambda: ipc.offer(desc, **arguments)) == reason
    assert idle()


def test_closed_and_foreign_handles_are_refused_before_an_offer() -> None:
    assert reason_of(lambda: ipc.offer(SemaphoreDesc.sync_fd(closed_number()))) == "closed_fd"
    assert reason_of(lambda: ipc.offer(SemaphoreDesc.d3d12_fence(5))) == "unsupported"
    assert idle()


def test_refused_thread_leaves_no_offer(desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as busy:
        busy.setattr(offers.server()._background, "wake", lambda: False)
        assert reason_of(lambda: ipc.offer(desc)) == "no_thread"
    assert idle()


def test_refused_socket_leaves_no_offer(desc: MemoryDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_session: object, _name: bytes) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as full:
        full.setattr(ticket_sockets.Session, "_listen", refuse)
        assert reason_of(lambda: ipc.offer(desc)) == "fd_limit"
    until(idle)


def test_session_is_closed_only_after_its_last_socket() -> None:
    session = ticket_sockets.Session()
    seen: list[bool] = []

    class Watched(socket.socket):
        def close(self) -> None:
            super().close()
            seen.append(session.closed)

    session.sockets += [Watched(socket.AF_UNIX), Watched(socket.AF_UNIX)]
    session.close()
    assert seen == [False, False]
    assert session.closed


# ---- other processes of the family
def test_forked_child_holds_nothing_of_the_offers(desc: MemoryDesc, fd: int) -> None:
    before = numbers()
    ticket = ipc.offer(desc, claims=2)
    opened = numbers() - before
    child = os.fork()
    if child == 0:
        try:
            lost = opened - numbers()
            own_ticket = ipc.offer(desc)
            ipc.claim(own_ticket).close()
            ipc.claim(ticket).close()   # the parent serves it
            os._exit(0 if len(lost) == 2 else 1)   # the socket that listens, and the duplicate
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ipc.claim(ticket).close()


def test_forked_child_does_not_keep_the_address_of_a_killed_parent() -> None:
    program = OFFER + """
child = os.fork()
if child == 0:
    os.close(1)
    sys.stdin.read()   # until the test ends
    os._exit(0)
print("forked", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", program], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ticket = process.stdout.readline().strip()
        assert process.stdout.readline() == "forked\n"
        process.kill()
        process.wait(50)
        assert reason_of(lambda: ipc.claim(ticket)) == "sender_ended"


def test_process_with_an_open_offer_exits_at_once() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-X", "dev", "-c", OFFER + "os.close(fd)"],
                          capture_output=True, text=True, check=False, timeout=55)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 50
