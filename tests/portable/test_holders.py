"""The places of a timeline's page: who holds it, who has ended, and what a peer can do to them."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.forked import in_child
from support.host_peers import mapped
from support.open_files import few_more_files, numbers
from support.waiting import until

from xsem.data.peers import Peer
from xsem.errors import BadHandleError, BusyError, XsemError
from xsem.types import OwnedHandle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Windows has no places")
if sys.platform == "linux":
    from xsem.portable import Timeline, new_timeline, open_any_timeline, open_timeline
    from xsem.portable.holders import Holder

PLACES, RECORDS, RECORD = 128, 512, struct.Struct("=IIQ")
SETLK, FLOCK = 37, struct.Struct("=hh4xqqi4x")
HOLD = """
import sys
from xsem.portable import new_timeline, open_timeline
from xsem.types import OwnedHandle
page = open_timeline(OwnedHandle(int(sys.argv[1])))
print("holds", flush=True)
for line in sys.stdin:
    page.close()
    print("left", flush=True)
"""


@contextmanager
def other(page: Timeline, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the page."""
    fd = os.dup(page.fd)
    process = subprocess.Popen(
        [*before, sys.executable, "-c", HOLD, str(fd)], pass_fds=[fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, text=True)
    os.close(fd)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def holder(page: Timeline) -> Holder:
    assert isinstance(page.holder, Holder)
    return page.holder


def again(page: Timeline, mode: int = os.O_RDWR) -> OwnedHandle:
    return OwnedHandle(os.open(f"/proc/self/fd/{page.fd}", mode | os.O_CLOEXEC))


def lock(handle: OwnedHandle, number: int) -> None:
    fcntl.fcntl(handle.fileno(), SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 4096 + number, 1, 0))


def locked(handle: OwnedHandle, number: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        lock(handle, number)
        return True
    return False


@pytest.fixture
def page() -> Iterator[Timeline]:
    made = new_timeline(0)
    yield made
    made.close()


def record(page: Timeline, number: int) -> tuple[int, ...]:
    return RECORD.unpack(os.pread(page.fd, RECORD.size, RECORDS + number * RECORD.size))


# ---- one process
def test_record_names_the_owner_of_the_place(page: Timeline) -> None:
    me = Peer.of(os.getpid())
    assert record(page, 0) == (me.pid, 1, me.started)
    assert record(page, 1) == (0, 0, 0)


def test_imports_of_a_process_share_a_place_and_none_counts_as_another_process(page: Timeline) -> None:
    before = numbers()
    with again(page) as handle:
        second = open_timeline(handle)
    assert len(numbers() - before) == 1   # the file; the place is shared
    assert holder(page).joined() == 0
    assert holder(page).ended() is None   # another import, which can signal
    second.close()
    assert numbers() == before
    assert holder(page).ended() == ()


def test_place_that_this_process_left_and_took_again_is_no_other_process(page: Timeline) -> None:
    with again(page) as handle:
        page.close()
        taken = open_timeline(handle)
    assert record(taken, 0)[1] == 2
    assert holder(taken).joined() == 0
    taken.close()
    assert holder(taken).joined() is None
    assert holder(taken).ended() is None


def test_read_only_import_takes_no_place_and_sees_the_others(page: Timeline) -> None:
    with again(page, os.O_RDONLY) as handle:
        reader = open_any_timeline(handle)
    assert reader.read_only
    assert record(page, 1) == (0, 0, 0)
    assert holder(page).ended() == ()      # the reader signals nothing
    assert holder(reader).ended() is None   # the other import signals
    page.close()
    assert holder(reader).ended() == ()
    reader.close()


def test_dropped_page_leaves_its_place() -> None:
    before = numbers()
    made = new_timeline(0)
    assert len(numbers() - before) == 2
    del made
    gc.collect()
    assert numbers() == before


def test_threads_that_open_and_close_one_page_leave_no_file(page: Timeline) -> None:
    before, failed = numbers(), []

    def work() -> None:
        try:
            for _ in range(200):
                with again(page) as handle:
                    open_timeline(handle).close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert numbers() == before
    assert holder(page).joined() == 0


def test_without_a_free_file_nothing_is_taken(page: Timeline) -> None:
    with again(page) as handle:
        page.close()
        before = numbers()
        with few_more_files(0), pytest.raises(BusyError) as failure:
            open_timeline(handle)
        assert failure.value.reason == "fd_limit"
        assert numbers() == before
        assert mapped() == []   # while the failure keeps its traceback


def test_without_proc_a_timeline_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(2, "no", path)

    before = numbers()
    monkeypatch.setattr(os, "readlink", missing)
    with pytest.raises(BadHandleError) as failure:
        new_timeline(0)
    assert failure.value.reason == "no_proc"
    assert numbers() == before


# ---- other processes
def test_killed_process_is_named_and_one_that_left_is_not(page: Timeline) -> None:
    with other(page) as process:
        assert holder(page).joined() == 1
        assert holder(page).ended() is None
        peer = Peer.of(process.pid)
        process.kill()
        until(lambda: holder(page).ended() is not None)
        assert holder(page).ended() == (peer,)
    with other(page) as process:   # it takes the same place
        assert holder(page).joined() == 2
        print("leave", file=process.stdin, flush=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "left\n"
        assert holder(page).ended() == ()   # it lives


def test_forked_child_keeps_no_place(page: Timeline) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)   # until the parent closes its end
        os._exit(0)
    with again(page) as handle:
        page.close()
        until(lambda: locked(handle, 0))   # not while the child has a copy of the place
    os.close(write)
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0


def test_forked_child_takes_a_place_of_its_own(page: Timeline) -> None:
    fd = os.dup(page.fd)

    def act() -> object:
        page.close()   # the parent's; it must not touch the child's place or a reused number
        opened = open_timeline(OwnedHandle(fd))
        found = (record(opened, 1)[0] == os.getpid(), holder(opened).joined(), holder(opened).ended())
        opened.close()
        return found

    assert in_child(act) == (True, 1, None)
    assert holder(page).joined() == 1
    assert holder(page).ended() == ()
    os.close(fd)


@pytest.mark.parametrize("namespaces", [["--user", "--map-root-user"], ["--user", "--map-root-user", "--net"],
                                        ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]],
                         ids=["user", "net", "pid"])
def test_holder_in_another_namespace_is_seen_and_its_death_too(page: Timeline, namespaces: list[str]) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare (util-linux) is missing")
    if subprocess.run([unshare, *namespaces, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"this machine permits no unshare {' '.join(namespaces)}")
    with other(page, unshare, *namespaces) as process:
        assert holder(page).joined() == 1
        assert holder(page).ended() is None
        process.kill()
        until(lambda: holder(page).ended() is not None)


# ---- what a peer can do
def test_one_more_holder_than_places_is_too_many(page: Timeline) -> None:
    with again(page) as handle:
        page.close()
        hostile = [again_of(handle) for _ in range(PLACES)]
        for number, each in enumerate(hostile):
            lock(each, number)
        before = numbers()
        with pytest.raises(BusyError) as failure:
            open_timeline(handle)
        assert failure.value.reason == "too_many_holders"
        assert numbers() == before
        hostile[40].close()
        taken = open_timeline(handle)
        assert record(taken, 40)[0] == os.getpid()
        assert holder(taken).ended() is None   # the locks of a living process keep the wait
        for each in hostile:
            each.close()
        assert holder(taken).ended() == ()
        taken.close()


def again_of(handle: OwnedHandle) -> OwnedHandle:
    return OwnedHandle(os.open(f"/proc/self/fd/{handle.fileno()}", os.O_RDWR | os.O_CLOEXEC))


@pytest.mark.parametrize("garbage", [b"\xff", b"\x00", b"\x80\x01"])
def test_garbage_records_name_no_process(page: Timeline, garbage: bytes) -> None:
    data = (garbage * 4096)[:PLACES * RECORD.size]
    os.pwrite(page.fd, data, RECORDS)
    ended = holder(page).ended()
    assert ended is not None
    assert all(peer.pid > 0 for peer in ended)
    assert holder(page).joined() is not None
    with again(page) as handle:
        second = open_timeline(handle)
    second.close()


def test_page_that_a_peer_fills_harms_only_its_values(page: Timeline) -> None:
    page.abandon()
    assert page.abandoned
    os.pwrite(page.fd, b"\xff" * 4080, 16)
    assert not page.abandoned   # only 1 counts
    assert page.value == 2**64 - 1
    assert page.wait(2**64 - 1, 0)
    page.signal(3)
    assert page.value == 3


# ---- abandonment
@pytest.mark.parametrize("value", [0, 7, 2**63, 2**64 - 5])
def test_abandoned_page_meets_each_wait_and_keeps_its_value(value: int) -> None:
    page = new_timeline(value)
    assert not page.lost(value + 1)
    page.abandon()
    assert page.wait(value + 1, 0)
    assert page.value == value
    assert page.lost(value + 1)
    assert not page.lost(value)
    raised = struct.unpack("=Q", os.pread(page.fd, 8, 16))[0]
    assert raised == min(value + 2**62, 2**64 - 1)
    page.abandon()   # no effect
    page.signal(value + 2)
    assert struct.unpack("=Q", os.pread(page.fd, 8, 16))[0] == raised
    assert page.value == value
    page.close()
    assert not page.abandoned
    assert not page.lost(2**64 - 1)


def test_read_only_page_refuses_signals_before_it_writes(page: Timeline) -> None:
    with again(page, os.O_RDONLY) as handle:
        reader = open_any_timeline(handle)
    acts: list[Callable[[], None]] = [lambda: reader.signal(1), reader.abandon]
    for act in acts:
        with pytest.raises(XsemError) as failure:
            act()
        assert failure.value.reason == "read_only"
    assert page.value == 0
    page.signal(2)
    assert reader.wait(2, 0)
    reader.close()
