"""`ipc.offer` and `ipc.claim` on Windows: who can claim a ticket, how often, how long, and which handles stay open."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import windows_objects as nt
from support.at_once import threads
from support.fixtures import reason_of
from support.waiting import until

from xsem import ipc
from xsem.data.file_descriptors import same_open_file
from xsem.errors import BadArgumentError
from xsem.ipc import offers, tickets
from xsem.ipc.windows import calls, peers, ticket_pipes, transit
from xsem.ipc.windows.instances import Instances
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

OFFER = """
import sys
from support import windows_objects as nt
from xsem import ipc
from xsem.types import SemaphoreDesc
print(ipc.offer(SemaphoreDesc.opaque_win32(nt.event(), device_uuid=None)), flush=True)
"""
CLAIM = """
import ctypes, sys
from support import windows_objects as nt
import xsem
sys.stdin.readline()
try:
    with xsem.ipc.claim(sys.argv[1]) as message:
        nt.kernel32().SetEvent(ctypes.c_void_p(message.semaphores[0].handle.fileno()))
        print(message.payload.decode())
except xsem.XsemError as error:
    print(error.reason)
"""
# Sends the ticket and does not read the answer.
ASK = """
import sys
from xsem import ipc
from xsem.ipc.windows import ticket_pipes
fields, _ = ipc.Ticket(sys.argv[1]).fields()
pipe = ipc.connect(ticket_pipes._name(fields.address))
print("connected", flush=True)
sys.stdin.readline()
ipc.send(pipe, payload=sys.argv[1].encode())
print("asked", flush=True)
sys.stdin.readline()
"""


def idle() -> bool:
    transit.settle_all()
    return offers.server().idle and not transit._left


@pytest.fixture(autouse=True)
def no_leak(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(offers, "_SLICE_S", 0.01)
    until(idle)
    yield
    offers.server()._offers.clear()
    gc.collect()   # the traceback of a refused offer holds the offer
    until(idle)


@pytest.fixture
def event() -> Iterator[int]:
    with nt.closing(nt.event(manual=True)) as number:
        yield number


@pytest.fixture
def desc(event: int) -> SemaphoreDesc:
    return SemaphoreDesc.opaque_win32(event, device_uuid=None)


def program(text: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", text, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)


def claims_in_processes(ticket: str, count: int = 1) -> list[str]:
    """Return what each process prints that claims the ticket. All begin at the same time."""
    children = [program(CLAIM, ticket) for _ in range(count)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    return [child.communicate(timeout=nt.BOUND_S)[0].strip() for child in children]


# ---- what a ticket gives
def test_another_process_claims_the_message(desc: SemaphoreDesc, event: int) -> None:
    ticket = ipc.offer(desc, payload=b"640x480", claims=2)
    assert not nt.is_signalled(event)
    assert claims_in_processes(ticket) == ["640x480"]
    assert nt.is_signalled(event)   # the other process has a handle of the same object
    with ipc.claim(ticket) as message:
        handle = message.semaphores[0].handle
        assert isinstance(handle, OwnedHandle)
        assert same_open_file(handle.fileno(), event)
        assert handle.fileno() != event
    assert claims_in_processes(ticket) == ["ticket_spent"]


def test_two_processes_at_once_get_one_claim(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc, payload=b"claimed")
    assert sorted(claims_in_processes(ticket, 2)) == ["claimed", "ticket_spent"]


def test_ticket_is_a_picklable_text_that_hides_itself(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc, claims=3)
    again = pickle.loads(pickle.dumps(ticket))
    assert type(again) is ipc.Ticket
    assert str(ticket) not in repr(ticket)
    assert len(ticket) == 122
    for text in (again, str(ticket), ticket.encode()):
        ipc.claim(text).close()


def test_offer_outlives_the_descriptors_of_the_caller() -> None:
    event = nt.event()
    ticket = ipc.offer(SemaphoreDesc.opaque_win32(event, device_uuid=None), SemaphoreDesc.d3d12_fence(name="n"),
                       MemoryDesc.opaque_win32_kmt(0x4000_0040, allocation_size=4096, device_uuid=None))
    witness = nt.with_access(event, nt.SYNCHRONIZE)
    assert nt.close(event)
    with nt.closing(witness), ipc.claim(ticket) as message:
        handle = message.semaphores[0].handle
        assert isinstance(handle, OwnedHandle)
        assert same_open_file(handle.fileno(), witness)
        assert [each.type.value for each in message.semaphores] == ["opaque_win32", "d3d12_fence"]
        assert message.semaphores[1].name == "n"
        assert message.memories[0].handle == 0x4000_0040


def test_largest_message_is_claimed(event: int) -> None:
    descs = [SemaphoreDesc.opaque_win32(event, device_uuid=None)] * 63
    ticket = ipc.offer(*descs, SemaphoreDesc.d3d12_fence(name="ä" * 512), payload=b"x" * 65536)
    with ipc.claim(ticket) as message:
        assert len(message.semaphores) == 64
        assert message.payload == b"x" * 65536


def test_claims_at_the_same_time_are_counted_exactly(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc, claims=20)

    def attempt(_: int) -> str:
        try:
            ipc.claim(ticket).close()
        except BadArgumentError as error:
            return error.reason
        return "claimed"

    with ThreadPoolExecutor(16) as pool:
        assert Counter(pool.map(attempt, range(50))) == {"claimed": 20, "ticket_spent": 30}


def test_offers_at_the_same_time_are_all_served(desc: SemaphoreDesc) -> None:
    def exchange(number: int) -> bool:
        with ipc.claim(ipc.offer(desc, payload=str(number).encode())) as message:
            return message.payload == str(number).encode()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(exchange, range(200)))


def test_thread_and_pipes_end_with_the_last_offer(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc)
    name = ticket_pipes._name(ticket.fields()[0].address)
    ipc.connect(name).close()
    assert not ended()
    ipc.claim(ticket).close()
    until(ended)
    assert reason_of(lambda: ipc.connect(name)) == "no_listener"
    ipc.claim(ipc.offer(desc)).close()   # a new thread


# ---- refusals
def test_expired_ticket_is_refused_with_and_without_a_server(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc, lifetime_s=0.001)
    until(lambda: ticket.fields()[0].expired and idle())
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_expired"
    ipc.offer(desc)
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_expired"


def test_spent_ticket_is_refused_with_and_without_a_server(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc)
    ipc.claim(ticket).close()
    until(idle)
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_spent"
    ipc.offer(desc)
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_spent"


def test_every_changed_character_is_refused(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc)
    reasons = set()
    for at in range(len(ticket)):
        changed = ticket[:at] + ("B" if ticket[at] != "B" else "C") + ticket[at + 1 :]
        reasons.add(reason_of(lambda: ipc.claim(changed)))  # noqa: B023
    assert reasons <= {"bad_ticket", "other_host", "other_container", "ticket_forged", "ticket_spent", "sender_ended",
                       "ticket_expired"}
    assert {"bad_ticket", "other_host", "other_container", "ticket_forged", "sender_ended"} <= reasons
    ipc.claim(ticket).close()   # no attempt counted


def test_ticket_with_another_secret_is_forged(desc: SemaphoreDesc) -> None:
    fields, _ = ipc.offer(desc).fields()
    later = tickets.Fields(fields.boot, fields.network, fields.pid, fields.started, fields.address, fields.number,
                           fields.deadline_ns + 10**12)
    for each in (fields, later):
        assert reason_of(lambda: ipc.claim(each.ticket(b"a guessed key"))) == "ticket_forged"  # noqa: B023


def test_ticket_of_another_machine_is_refused(desc: SemaphoreDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = ipc.offer(desc)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tickets, "system_id", lambda: "another-machine")
        assert reason_of(lambda: ipc.claim(ticket)) == "other_host"


def test_process_of_another_user_is_refused_on_both_sides(
    desc: SemaphoreDesc, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = ipc.offer(desc)
    own, seen = peers.process_of_user, []

    def stranger(at_most: int) -> Callable[[int], OwnedHandle]:
        def look(pid: int) -> OwnedHandle:
            seen.append(threading.current_thread().name)
            if (threading.current_thread().name == "xsem-offers") == bool(at_most):
                raise peers.other_user()
            return own(pid)
        return look

    with monkeypatch.context() as patch:   # the claiming side sees a server of another user
        patch.setattr("xsem.ipc.windows.connections.process_of_user", stranger(0))
        assert reason_of(lambda: ipc.claim(ticket)) == "other_user"
    with monkeypatch.context() as patch:   # the offering side sees a claim of another user, and closes the pipe
        patch.setattr("xsem.ipc.windows.connections.process_of_user", stranger(1))
        assert reason_of(lambda: ipc.claim(ticket)) == "ticket_spent"
        assert "xsem-offers" in seen
    ipc.claim(ticket).close()   # no attempt counted


def test_pipe_of_another_process_is_not_asked(desc: SemaphoreDesc) -> None:
    """A process that takes the name of the pipe does not get the text of the ticket."""
    fields, _ = ipc.offer(desc).fields()
    offers.server()._offers.clear()
    until(idle)
    ended = tickets.Fields(fields.boot, fields.network, fields.pid, fields.started + 1, fields.address, fields.number,
                           fields.deadline_ns)
    with ipc.listen(ticket_pipes._name(fields.address)) as listener:
        assert reason_of(lambda: ipc.claim(ended.ticket(b"key"))) == "sender_ended"
        with listener.accept(timeout_s=nt.BOUND_S) as pipe:
            assert reason_of(lambda: ipc.receive(pipe)) == "peer_closed"


def test_ticket_of_an_ended_process_is_refused() -> None:
    with program(OFFER) as child:
        ticket = child.communicate(timeout=nt.BOUND_S)[0].strip()
    assert child.returncode == 0   # with an open offer
    assert reason_of(lambda: ipc.claim(ticket)) == "sender_ended"


def test_ticket_of_a_killed_process_is_refused() -> None:
    with program(OFFER + "sys.stdin.read()") as child:
        assert child.stdout is not None
        ticket = child.stdout.readline().strip()
        child.kill()
    assert reason_of(lambda: ipc.claim(ticket)) == "sender_ended"


@pytest.mark.parametrize(("arguments", "reason"), [
    ({"claims": 0}, "bad_claims"), ({"lifetime_s": 0}, "bad_timeout"), ({"payload": "text"}, "bad_payload"),
])
def test_bad_arguments_of_an_offer_are_refused(desc: SemaphoreDesc, arguments: dict[str, Any], reason: str) -> None:
    assert reason_of(lambda: ipc.offer(desc, **arguments)) == reason
    assert idle()


def test_bad_handles_are_refused_before_an_offer() -> None:
    assert reason_of(lambda: ipc.offer(SemaphoreDesc.d3d12_fence(0x7770))) == "closed_fd"
    assert reason_of(lambda: ipc.offer(SemaphoreDesc.sync_fd(-1))) == "unsupported"
    assert idle()


def test_refused_thread_or_pipe_leaves_no_offer(desc: SemaphoreDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as busy:
        busy.setattr(offers.server()._background, "wake", lambda: False)
        assert reason_of(lambda: ipc.offer(desc)) == "no_thread"
    assert idle()

    def refuse(*_arguments: object, **_options: object) -> None:
        raise calls.PipeError("CreateNamedPipeW", 4)   # ERROR_TOO_MANY_OPEN_FILES

    with monkeypatch.context() as full:
        full.setattr("xsem.ipc.windows.instances.create_pipe", refuse)
        assert reason_of(lambda: ipc.offer(desc)) == "fd_limit"
    until(idle)


# ---- claiming processes that do not do their part
def test_killed_claimants_change_nothing(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc)
    with program(ASK, ticket) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        ipc.claim(ipc.offer(desc)).close()   # others are served
        child.kill()
    ipc.claim(ticket).close()


def test_killed_receiver_of_an_answer_leaves_no_handle(desc: SemaphoreDesc) -> None:
    """Its claim counts: it has the message, and the offering process cannot see what it did with it."""
    ticket = ipc.offer(desc)
    with program(ASK, ticket) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "asked\n"
        until(lambda: not offers.server()._offers)
        child.kill()
    until(idle)
    assert reason_of(lambda: ipc.claim(ticket)) == "ticket_spent"


def asked(ticket: ipc.Ticket) -> ipc.Pipe:
    """Claim a ticket up to its verdict, and return the pipe with the message."""
    pipe = ipc.connect(ticket_pipes._name(ticket.fields()[0].address))
    ipc.send(pipe, payload=ticket.encode())
    assert ipc.receive(pipe).payload == b"\0"
    until(lambda: not offers.server()._offers)
    return pipe


def ended() -> bool:
    """Return whether the thread of the offers has ended. Does nothing for the handles of closed pipes."""
    return not threads("offers")


def test_thread_lives_until_the_message_is_received(desc: SemaphoreDesc) -> None:
    with asked(ipc.offer(desc)) as pipe:
        assert not ended()
        ipc.receive(pipe).close()
    until(ended)
    assert not transit._left   # no handle waits for a later call


def test_receiver_that_does_not_take_its_message_leaves_no_handle(desc: SemaphoreDesc) -> None:
    asked(ipc.offer(desc)).close()
    until(ended)
    assert not transit._left   # although the receiver lives


def test_client_that_connects_before_the_wait_for_it_is_served(
    desc: SemaphoreDesc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ConnectNamedPipe then ends at once, and sets no event."""
    monkeypatch.setattr(offers, "_SLICE_S", 600)
    early: list[OwnedHandle] = []
    arrival = Instances.arrival

    def late(instances: Instances) -> calls.OverlappedCall:
        if not early:
            early.append(calls.connect_pipe(instances._name))
        return arrival(instances)

    monkeypatch.setattr(Instances, "arrival", late)
    ipc.claim(ipc.offer(desc), timeout_s=nt.BOUND_S).close()
    early[0].close()


def test_silent_connections_do_not_hold_up_others(desc: SemaphoreDesc) -> None:
    ticket = ipc.offer(desc, claims=2)
    name = ticket_pipes._name(ticket.fields()[0].address)
    silent = [ipc.connect(name) for _ in range(70)]
    ipc.claim(ticket).close()
    session: Any = offers.server()._session
    assert len(session._connections) <= ticket_pipes._MAX_CONNECTIONS
    for each in silent:
        each.close()


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_bytes_of_a_claimant_harm_an_offer(data: st.DataObject, desc: SemaphoreDesc) -> None:
    """Arbitrary bytes, messages with arbitrary payloads and descriptors, and changed tickets."""
    ticket = ipc.offer(desc)
    with ipc.connect(ticket_pipes._name(ticket.fields()[0].address)) as pipe:
        kind = data.draw(st.sampled_from(["bytes", "payload", "ticket", "descriptors", "nothing"]))
        if kind == "bytes":
            nt.write_to_pipe(pipe, data.draw(st.binary(min_size=1, max_size=300)))
        elif kind == "payload":
            ipc.send(pipe, payload=data.draw(st.binary(max_size=300)))
        elif kind == "ticket":
            text = bytearray(ticket.encode())
            at = data.draw(st.integers(0, len(text) - 1))
            text[at] ^= data.draw(st.integers(1, 255))
            ipc.send(pipe, payload=bytes(text))
        elif kind == "descriptors":
            ipc.send(pipe, desc, payload=b"x" * data.draw(st.sampled_from([0, 122, 60_000])))
        if kind != "nothing" and data.draw(st.booleans()):
            try:
                ipc.receive(pipe).close()
            except BadArgumentError as error:
                assert error.reason == "peer_closed"   # noqa: PT017
    ipc.claim(ticket).close()


# ---- handles
def test_handle_count_is_flat_over_many_offers(desc: SemaphoreDesc) -> None:
    def some(count: int) -> int:
        for turn in range(count):
            ticket = ipc.offer(desc, desc, claims=2, lifetime_s=60 if turn % 4 else 0.05)
            if turn % 2:
                ipc.claim(ticket).close()
                with pytest.raises(BadArgumentError):
                    ipc.claim(ticket[:-1] + ("A" if ticket[-1] != "A" else "B"))
            if turn % 3 == 0:
                offers.server()._offers.clear()
                continue
            with pytest.raises(BadArgumentError):
                while True:
                    ipc.claim(ticket).close()
        offers.server()._offers.clear()
        until(idle)
        until(ended)
        return nt.handle_count()

    some(20)
    before = some(20)
    assert some(400) <= before
