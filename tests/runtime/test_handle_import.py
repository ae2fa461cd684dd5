"""The close of the duplicate that a driver is given: once, never another file, never the caller's file."""

from __future__ import annotations

import collections
import gc
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from support.open_files import closed_number, holding, is_open, numbers, untouched

from xsem.data import file_descriptors
from xsem.data.file_descriptors import kernel_can_compare
from xsem.data.handles import own
from xsem.errors import BadHandleError, BusyError, DriverError, ReleasedError, XsemError
from xsem.runtime import handle_import
from xsem.spi import DriverFd, HandleState, Imported, ImportFailure, duplicate_fd, same_open_file
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that can be asked about open files")

NO_KCMP = None


@pytest.fixture
def fd() -> Any:
    number = os.eventfd(0)
    yield number
    os.close(number)


def sem(handle: Any) -> SemaphoreDesc:
    return SemaphoreDesc.opaque_fd(handle, device_uuid=None)


def import_with_duplicate(desc: Any, importer: Callable[..., Any], *, state: HandleState = "left") -> Any:
    """Import with a driver that returns the result of `importer` as the token. Return the token."""
    return handle_import.import_with_duplicate(desc, lambda *given: Imported(importer(*given), handle=state)).token


class RefusedError(Exception):
    """The error of the driver."""


def fails(state: HandleState, act: Callable[[OwnedHandle], object] = lambda handle: None) -> Any:
    def importer(desc: object, handle: OwnedHandle | None) -> object:
        assert handle is not None
        act(handle)
        raise ImportFailure(RefusedError("no"), handle=state)

    return importer


def close_number(handle: OwnedHandle) -> None:
    """Close the number without the object, as a driver in C does."""
    os.close(handle.fileno())


def close_and_reuse(handle: OwnedHandle, by: int) -> None:
    """Close the number, and reuse it for another file, as another thread could."""
    os.dup2(by, handle.fileno(), inheritable=False)


# ---- comparison by the kernel
def same_offset(a: int, b: int) -> bool:
    """Tell whether two fds share their position, so are one open file. Works without kcmp."""
    before = os.lseek(a, 0, os.SEEK_CUR)
    try:
        os.lseek(a, 12345, os.SEEK_SET)
        return os.lseek(b, 0, os.SEEK_CUR) == 12345
    finally:
        os.lseek(a, before, os.SEEK_SET)


@pytest.fixture(params=["F_DUPFD_QUERY", "kcmp"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "kcmp":
        # EINVAL, as a kernel before 6.10 returns for 1027.
        monkeypatch.setattr(file_descriptors, "_F_DUPFD_QUERY", 1999)
    return str(request.param)


def test_duplicates_are_one_open_file_and_a_second_open_is_not(way: str) -> None:
    first, second = holding(b"x"), holding(b"x")
    path = f"/proc/self/fd/{first}"
    again, dup = os.open(path, os.O_RDONLY), os.dup(first)
    pairs = {"itself": (first, first), "dup": (first, dup), "open again": (first, again), "other": (first, second)}
    try:
        for name, (a, b) in pairs.items():
            assert same_open_file(a, b) is same_offset(a, b), name
            assert same_open_file(b, a) is same_offset(a, b), name
        assert [same_offset(a, b) for a, b in pairs.values()] == [True, True, False, False]
    finally:
        for number in (first, second, again, dup):
            os.close(number)


def test_anonymous_inodes_are_distinguished(way: str) -> None:
    # fstat gives the same device and inode for all of them.
    a, b = os.eventfd(0), os.eventfd(0)
    dup = os.dup(a)
    assert os.fstat(a).st_ino == os.fstat(b).st_ino
    assert same_open_file(a, b) is False
    assert same_open_file(a, dup) is True
    for number in (a, b, dup):
        os.close(number)


def test_closed_number_is_not_the_same_open_file(way: str, fd: int) -> None:
    gone = closed_number()
    assert same_open_file(fd, gone) is False
    assert same_open_file(gone, fd) is False
    assert same_open_file(gone, gone) is False


def test_comparison_is_unknown_without_kernel_support(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_descriptors, "_F_DUPFD_QUERY", 1999)
    monkeypatch.setattr(file_descriptors, "_KCMP", NO_KCMP)
    assert same_open_file(fd, fd) is None
    assert kernel_can_compare() is False
    monkeypatch.setattr(file_descriptors, "_KCMP", 100_000)  # an unknown system call: ENOSYS, as without CONFIG_KCMP
    assert same_open_file(fd, fd) is None


def test_this_kernel_can_compare() -> None:
    before = numbers()
    assert kernel_can_compare() is True
    assert numbers() == before


# ---- success
def test_the_driver_gets_a_duplicate_of_its_own(fd: int) -> None:
    seen: list[int] = []

    def importer(desc: SemaphoreDesc, handle: OwnedHandle | None) -> str:
        assert handle is not None
        assert desc.handle == fd
        assert handle.fileno() != fd
        assert same_open_file(handle.fileno(), fd)
        assert not os.get_inheritable(handle.fileno())
        seen.append(handle.fileno())
        return "token"

    with untouched(fd):
        assert import_with_duplicate(sem(fd), importer) == "token"
    assert not is_open(seen[0])


def test_number_that_the_driver_took_stays_open(fd: int) -> None:
    def importer(desc: SemaphoreDesc, handle: OwnedHandle | None) -> int:
        assert handle is not None
        return handle.fileno()

    before = numbers()
    taken = import_with_duplicate(sem(fd), importer, state="taken")
    assert numbers() == before | {taken}
    assert same_open_file(taken, fd)
    os.close(taken)


@pytest.mark.parametrize("state", ["taken", "unknown"])
def test_number_that_the_driver_closed_is_not_closed_again(state: HandleState, fd: int) -> None:
    other = holding(b"another's")
    reused: list[int] = []

    def importer(desc: SemaphoreDesc, handle: OwnedHandle | None) -> None:
        assert handle is not None
        close_and_reuse(handle, other)
        reused.append(handle.fileno())

    import_with_duplicate(sem(fd), importer, state=state)
    assert os.pread(reused[0], 99, 0) == b"another's"
    os.close(reused[0])
    os.close(other)


@pytest.mark.parametrize("state", ["left", "unknown"])
def test_number_that_the_driver_left_is_closed(state: HandleState, fd: int) -> None:
    with untouched(fd):
        import_with_duplicate(sem(fd), lambda desc, handle: None, state=state)


@pytest.mark.parametrize("form", ["int", "file", "OwnedHandle"])
def test_every_form_of_handle_is_borrowed(form: str, fd: int) -> None:
    with os.fdopen(os.eventfd(0), "rb", buffering=0) as file, OwnedHandle(os.eventfd(0)) as owned:
        handles: dict[str, Any] = {"int": fd, "file": file, "OwnedHandle": owned}
        handle = handles[form]
        number = handle if isinstance(handle, int) else handle.fileno()
        with untouched(number):
            import_with_duplicate(sem(handle), lambda desc, given: None)
            with pytest.raises(RefusedError):
                import_with_duplicate(sem(handle), fails("unknown"))


@pytest.mark.parametrize(
    "desc",
    [
        SemaphoreDesc.sync_fd(-1),
        SemaphoreDesc.nvscisync(0x1000),
        SemaphoreDesc.opaque_win32_kmt(0x40, device_uuid=None),
        SemaphoreDesc.d3d12_fence(name="Local\\frames"),
        SemaphoreDesc.d3d12_fence(0x40),
        MemoryDesc.nvscibuf(0x1000, allocation_size=1),
        MemoryDesc.d3d11_resource_kmt(0x40, allocation_size=1),
    ],
    ids=lambda desc: f"{desc.type.value}-{desc.name or desc.handle}",
)
def test_import_without_fd_makes_no_duplicate(desc: Any) -> None:
    calls: list[object] = []
    with untouched():
        import_with_duplicate(desc, lambda got, handle: calls.append((got, handle)))
        with pytest.raises(RefusedError):
            import_with_duplicate(desc, lambda got, handle: _raise(ImportFailure(RefusedError("no"), handle="unknown")))
    assert calls == [(desc, None)]


def _raise(error: BaseException) -> None:
    raise error


# ---- failure
def test_duplicate_is_closed_when_state_is_left(fd: int) -> None:
    with untouched(fd), pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("left"))


def test_duplicate_is_the_drivers_when_state_is_taken(fd: int) -> None:
    kept: list[int] = []
    before = numbers()
    with pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("taken", lambda handle: kept.append(handle.fileno())))
    assert numbers() == before | set(kept)
    os.close(kept[0])
    with untouched(fd), pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("taken", close_number))


@pytest.mark.parametrize("state", ["taken", "unknown"])
def test_number_reused_by_another_file_is_not_closed(state: HandleState, fd: int) -> None:
    other = holding(b"another's")
    taken: list[int] = []

    def reused(handle: OwnedHandle) -> None:
        close_and_reuse(handle, other)
        taken.append(handle.fileno())

    with pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails(state, reused))
    assert os.pread(taken[0], 99, 0) == b"another's"
    os.close(taken[0])
    os.close(other)


def test_duplicate_is_closed_when_state_is_unknown_and_file_same(fd: int, way: str) -> None:
    with untouched(fd), pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("unknown"))


def test_nothing_is_closed_when_state_is_unknown_and_fd_closed(fd: int, way: str) -> None:
    with untouched(fd), pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("unknown", close_number))


def test_number_is_leaked_when_state_cannot_be_determined(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_descriptors, "same_open_file", lambda a, b: None)
    kept: list[int] = []
    before = numbers()
    with pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("unknown", lambda handle: kept.append(handle.fileno())))
    assert numbers() == before | set(kept)
    os.close(kept[0])


@pytest.mark.parametrize("state", ["taken", "left", "unknown"])
def test_duplicate_is_the_drivers_when_detached_before_failure(state: HandleState, fd: int) -> None:
    kept: list[int] = []
    with pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails(state, lambda handle: kept.append(handle.detach())))
    assert same_open_file(kept[0], fd)
    os.close(kept[0])


@pytest.mark.parametrize(
    "error", [DriverError("no", reason="slug"), RuntimeError("defect"), KeyboardInterrupt()], ids=repr
)
@pytest.mark.parametrize("act", [None, close_number, OwnedHandle.close], ids=["left", "closed in C", "closed"])
def test_any_other_exception_means_unknown(
    error: BaseException, act: Callable[[OwnedHandle], object] | None, fd: int
) -> None:
    def importer(desc: object, handle: OwnedHandle | None) -> None:
        assert handle is not None
        if act is not None:
            act(handle)
        raise error

    with untouched(fd), pytest.raises(type(error)) as caught:
        import_with_duplicate(sem(fd), importer)
    assert caught.value is error


def test_the_user_sees_the_drivers_error_and_its_cause(fd: int) -> None:
    cause = OSError("from the vendor's library")
    error = BadHandleError("refused", reason="slug")
    error.__cause__ = cause
    with pytest.raises(BadHandleError) as caught:
        import_with_duplicate(sem(fd), lambda desc, handle: _raise(ImportFailure(error, handle="left")))
    assert caught.value is error
    assert caught.value.__cause__ is cause
    assert caught.value.__suppress_context__


def test_failed_import_does_not_close_the_number_of_another(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two threads import the same fd. The first driver closes its duplicate without a report. The second import gets the
    # number for its duplicate. The kernel sees the same open file, but the first import must not close it.
    second: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def waiting(desc: object, handle: OwnedHandle | None) -> int:
        assert handle is not None
        second.append(handle.fileno())
        inside.set()
        assert go_on.wait(10)
        assert is_open(handle.fileno())
        return handle.fileno()

    taken: list[int] = []
    thread = threading.Thread(
        target=lambda: taken.append(import_with_duplicate(sem(fd), waiting, state="taken")))

    def closed_and_taken(handle: OwnedHandle) -> None:
        os.close(handle.fileno())
        monkeypatch.setattr(file_descriptors._Numbers, "turn", handle.fileno())   # after a cycle through all numbers
        thread.start()
        assert inside.wait(10)
        assert second == [handle.fileno()], "the second import did not reuse the number"

    with pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("unknown", closed_and_taken))
    go_on.set()
    thread.join()
    assert taken == second
    assert same_open_file(taken[0], fd)
    os.close(taken[0])


def test_duplicate_of_the_application_is_not_the_drivers(fd: int) -> None:
    mine: list[int] = []

    def closed_and_duplicated(handle: OwnedHandle) -> None:
        os.close(handle.fileno())
        # Meanwhile the application duplicates its fd: the same open file, but a number of the application.
        mine.append(os.dup(fd))

    with pytest.raises(RefusedError):
        import_with_duplicate(sem(fd), fails("unknown", closed_and_duplicated))
    assert same_open_file(mine[0], fd)
    os.close(mine[0])


# ---- handles that cannot be duplicated
@pytest.mark.parametrize("number", [None, 2**20, 2**31 - 1, 2**31, 2**64, 2**70])
def test_a_number_that_is_not_open_is_refused(number: int | None) -> None:
    desc = sem(closed_number() if number is None else number)
    with untouched(), pytest.raises(BadHandleError) as caught:
        import_with_duplicate(desc, lambda desc, handle: pytest.fail("the driver was called"))
    assert caught.value.reason == "closed_fd"


class Odd:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def fileno(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (-1, BadHandleError, "closed_fd"),  # a closed socket
        (ValueError("I/O operation on closed file"), BadHandleError, "closed_fd"),
        (OSError("no fileno"), BadHandleError, "closed_fd"),
        (ReleasedError("closed", reason="handle_closed"), ReleasedError, "handle_closed"),
        (True, XsemError, "not_a_handle"),
        (1.0, XsemError, "not_a_handle"),
        (None, XsemError, "not_a_handle"),
    ],
    ids=repr,
)
def test_fileno_that_returns_no_fd_is_refused(answer: Any, error: type[XsemError], reason: str) -> None:
    with untouched(), pytest.raises(error) as caught:
        import_with_duplicate(sem(Odd(answer)), lambda desc, handle: pytest.fail("the driver was called"))
    assert caught.value.reason == reason


def test_closed_objects_are_refused(fd: int) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.close()
    file = os.fdopen(os.eventfd(0), "rb", buffering=0)
    file.close()
    owned = OwnedHandle(os.eventfd(0))
    owned.close()
    cases: list[tuple[object, type[XsemError], str]] = [
        (ours, BadHandleError, "closed_fd"),
        (file, BadHandleError, "closed_fd"),
        (owned, ReleasedError, "handle_closed"),
    ]
    for handle, error, reason in cases:
        with untouched(fd), pytest.raises(error) as caught:
            import_with_duplicate(sem(handle), lambda desc, handle: pytest.fail("the driver was called"))
        assert caught.value.reason == reason


def test_full_fd_table_is_reported_without_leaks(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    desc = sem(fd)
    highest = max(numbers())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    filler: list[int] = []
    reached: list[str] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, limits[1]))
    try:
        while True:
            try:
                filler.append(os.dup(fd))
            except OSError:
                break
        with pytest.raises(BusyError) as caught:
            import_with_duplicate(desc, lambda desc, handle: reached.append("driver"))
        assert caught.value.reason == "fd_limit"
        assert not reached
        os.close(filler.pop())   # room for one duplicate is enough
        import_with_duplicate(desc, lambda desc, handle: reached.append("driver"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in filler:
            os.close(number)
    assert reached == ["driver"]


def test_import_makes_one_duplicate_and_few_system_calls(fd: int) -> None:
    desc, called = sem(fd), collections.Counter[str]()
    issued = sum(file_descriptors._Numbers.issued.values())
    given: list[int] = []

    def profile(_frame: object, event: str, function: Any) -> None:
        if event == "c_call" and function.__module__ in ("posix", "fcntl"):
            called[function.__name__] += 1

    def importer(_desc: Any, handle: OwnedHandle | None) -> int:
        assert handle is not None
        given.append(handle.detach())
        return 1

    sys.setprofile(profile)
    try:
        import_with_duplicate(desc, importer)
    finally:
        sys.setprofile(None)
        os.close(*given)
    assert called == {"fcntl": 2, "fstat": 1}   # the duplicate, the flags and the kind of the file
    assert sum(file_descriptors._Numbers.issued.values()) == issued + 1


# ---- duplicates for backends
def test_duplicate_raises_when_the_fd_limit_is_reached() -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(BusyError) as caught:
            duplicate_fd(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.reason == "fd_limit"


def test_number_reused_by_another_file_is_not_the_same_file(fd: int) -> None:
    number = duplicate_fd(fd).detach()
    assert same_open_file(fd, number)
    os.close(number)
    assert not same_open_file(fd, number)
    other = os.eventfd(0)   # the same kind of file, so fstat does not distinguish them
    os.dup2(other, number)
    assert not same_open_file(fd, number)
    os.close(number)
    os.close(other)


def test_next_duplicate_avoids_a_number_closed_by_a_driver() -> None:
    fd = os.memfd_create("memory")
    seen = set()
    for _ in range(50):
        with duplicate_fd(fd) as given:
            seen.add(given.fileno())   # the `with` closes it, as a driver would
    assert len(seen) == 50
    assert min(seen) >= 512
    os.close(fd)


def test_number_reused_by_another_duplicate_is_not_closed(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duplicate_fd(fd) as given, duplicate_fd(fd) as kept:
        at_driver = DriverFd(given, kept)
        assert at_driver.left_open() is True
        os.close(at_driver.number)   # by the driver
        monkeypatch.setattr(file_descriptors._Numbers, "turn", at_driver.number)
        with duplicate_fd(fd) as another:
            assert another.fileno() == at_driver.number
            assert same_open_file(kept.fileno(), at_driver.number) is True   # the comparison does not distinguish them
            assert at_driver.left_open() is False
            at_driver.settle()
            assert given.closed
            at_driver.settle()   # once
            assert is_open(another.fileno())


def test_reused_low_number_is_not_closed(fd: int) -> None:
    # RLIMIT_NOFILE leaves no high numbers, so all duplicates share the same low numbers.
    resource = pytest.importorskip("resource", reason="POSIX has it")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        with duplicate_fd(fd) as given, duplicate_fd(fd) as kept:
            at_driver = DriverFd(given, kept)
            os.close(at_driver.number)
            with duplicate_fd(fd, for_driver=False) as another:
                assert another.fileno() == at_driver.number
                at_driver.settle()
                assert is_open(another.fileno())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(30)
def test_duplicate_under_way_on_another_thread_is_waited_for(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other thread has its number from the kernel, but has not recorded it yet."""
    inside, go_on = threading.Event(), threading.Event()
    made: list[OwnedHandle] = []

    class Lock:
        """The real lock. A thread that must wait for it lets the holder continue."""

        def __init__(self) -> None:
            self.lock = threading.RLock()

        def __enter__(self) -> None:
            if not self.lock.acquire(blocking=False):
                go_on.set()
                self.lock.acquire()

        def __exit__(self, *exc: object) -> None:
            self.lock.release()

    with duplicate_fd(fd) as given, duplicate_fd(fd) as kept:
        at_driver = DriverFd(given, kept)
        os.close(at_driver.number)   # by the driver
        monkeypatch.setattr(file_descriptors._Numbers, "turn", at_driver.number)
        monkeypatch.setattr(file_descriptors._Numbers, "lock", Lock())

        def held(*call: Any) -> OwnedHandle:
            handle = own(*call)
            inside.set()
            assert go_on.wait(10)
            return handle

        monkeypatch.setattr(file_descriptors, "own", held)
        thread = threading.Thread(target=lambda: made.append(duplicate_fd(fd)))
        thread.start()
        try:
            assert inside.wait(10)
            left = at_driver.left_open()
        finally:
            go_on.set()
            thread.join()
        assert made[0].fileno() == at_driver.number
        assert left is False
        given.detach()
        made[0].close()


def test_numbers_start_low_when_high_ones_are_not_available() -> None:
    resource = pytest.importorskip("resource", reason="POSIX has it")
    fd = os.memfd_create("memory")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for limit, high in ((520, True), (500, False)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            numbers = []
            for _ in range(20):
                with duplicate_fd(fd) as given:
                    numbers.append(given.fileno())
            assert all((number >= 512) is high for number in numbers)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(fd)


def test_refused_import_leaves_no_reference_cycle(fd: int) -> None:
    def refuse(*_: object) -> int:
        raise ImportFailure(RefusedError("no"), handle="left")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(RefusedError) as caught:
            import_with_duplicate(sem(fd), refuse)
        gone = weakref.ref(caught.value)
        del caught
        assert gone() is None
    finally:
        gc.enable()


def test_interrupt_behind_the_driver_leaves_the_number_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has taken and closed the number, and another file has it now."""
    taken: list[int] = []

    def importer(_desc: Any, handle: OwnedHandle) -> str:
        taken.append(handle.fileno())
        os.close(taken[0])
        os.dup2(exported.fileno(), taken[0])
        return "token"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(handle_import, "_settle", interrupt)
    with own(os.memfd_create, "exported") as exported:
        os.ftruncate(exported.fileno(), 8)
        with pytest.raises(KeyboardInterrupt):
            import_with_duplicate(sem(exported.fileno()), importer, state="taken")
        gc.collect()
        assert is_open(taken[0])
        os.close(taken[0])
