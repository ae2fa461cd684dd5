"""Refused and failed imports leak no handle and close none of the caller's."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from support.bad_input import importing
from support.descriptors import OF_DRIVER, named
from support.fake_backend import ALL, INFO, FakeDriver
from support.fixtures import refused
from support.open_files import close, holding, is_open, new_number, untouched
from support.system_types import BINARY
from support.waiting import until

from xsem.errors import BadHandleError, ReleasedError, XsemError
from xsem.facade.device import Device
from xsem.spi import Imported, ImportFailure, same_open_file
from xsem.types import MemoryDesc, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

S = SemaphoreHandleType
ONE = uuid.UUID("a1b2c3d4-0000-4000-8000-0123456789ab")


# ---- refusals of the driver
class Scripted(FakeDriver):
    """Each import calls `act` with its duplicate."""

    def __init__(self, act: Callable[[OwnedHandle], object]) -> None:
        super().__init__(ALL)
        self.act = act

    def _import(self, what: str, desc: SemaphoreDesc | MemoryDesc, handle: OwnedHandle | None) -> Imported:
        assert handle is not None
        self.act(handle)
        return super()._import(what, desc, handle)


class RefusedError(BadHandleError):
    """An error as a driver raises it."""

    def __init__(self) -> None:
        super().__init__("refused", reason="driver_refused", call="fakeImport", code=999, code_name="FAKE_UNKNOWN")


def _close(handle: OwnedHandle) -> None:
    close(handle.fileno())


def _nothing(handle: OwnedHandle) -> None:
    pass


def _detach_and_close(handle: OwnedHandle) -> None:
    close(handle.detach())


FATES: dict[str, tuple[str, Callable[[OwnedHandle], object]]] = {
    "taken: closed by the driver": ("taken", _close),
    "taken: detached and closed": ("taken", _detach_and_close),
    "left": ("left", _nothing),
    "unknown: still open": ("unknown", _nothing),
    "unknown: closed": ("unknown", _close),
}


@pytest.mark.parametrize("member", OF_DRIVER, ids=named)
@pytest.mark.parametrize("fate", FATES)
def test_refusal_of_the_driver_leaks_no_handle(fate: str, member: SemaphoreHandleType | MemoryHandleType) -> None:
    said: Any
    said, act = FATES[fate]

    def importer(handle: OwnedHandle) -> None:
        number = handle.fileno()
        assert same_open_file(number, given)
        assert number != given
        act(handle)
        raise ImportFailure(RefusedError(), handle=said)

    driver = Scripted(importer)
    device = Device(INFO, driver)
    given = holding(b"x")
    with device, untouched(given):
        error = refused(importing(device, member, given), "driver_refused", RefusedError)
        assert error.handle_type is member
        assert error.backend == "fake"
        assert (error.call, error.code, error.code_name) == ("fakeImport", 999, "FAKE_UNKNOWN")
        assert device.pending() == ()
    close(given)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows gives a handle no chosen number")
def test_failed_import_does_not_close_a_reused_number() -> None:
    other = holding(b"another's")

    def importer(handle: OwnedHandle) -> None:
        os.dup2(other, handle.fileno(), inheritable=False)
        reused.append(handle.fileno())
        raise ImportFailure(RefusedError(), handle="unknown")

    reused: list[int] = []
    device = Device(INFO, Scripted(importer))
    given = new_number()
    with device:
        refused(importing(device, S.OPAQUE_FD, given), "driver_refused", RefusedError)
    assert os.pread(reused[0], 99, 0) == b"another's"
    for number in (*reused, given, other):
        os.close(number)


def test_import_is_released_when_device_is_released_meanwhile() -> None:
    # The device was released during the driver's import, so the driver gets the new object back.
    given = new_number()
    scripted = Scripted(lambda handle: late.release())
    late = Device(INFO, scripted)
    with untouched(given):
        refused(importing(late, BINARY, given), "released", ReleasedError)
    until(lambda: ("close",) in scripted.log)
    assert len(scripted.released("import_semaphore")) == 1
    assert scripted.released("release_semaphore") == scripted.released("import_semaphore")
    close(given)


# ---- the storm
class Storm:
    """Opens, reads and closes its own files as fast as possible; each file has unique content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost: list[str] = []
        self.count = 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="storm")

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        self.thread.join()

    def _run(self) -> None:
        held: list[tuple[int, bytes]] = []
        try:
            while not self.stop.is_set():
                self.count += 1
                data = f"file {self.count}".encode()
                number = os.open(self.folder / str(self.count % 16), os.O_RDWR | os.O_CREAT | os.O_EXCL)
                os.unlink(self.folder / str(self.count % 16))
                os.pwrite(number, data, 0)
                held.append((number, data))
                if len(held) == 8:
                    self._check(*held.pop(self.count % 8))
        except OSError as error:
            self.lost.append(f"while opening: {error}")
        for each in held:
            self._check(*each)

    def _check(self, number: int, data: bytes) -> None:
        try:
            if (found := os.pread(number, 99, 0)) != data:
                self.lost.append(f"{number} held {found!r}, not {data!r}")
            os.close(number)
        except OSError as error:
            self.lost.append(f"{number}: {error}")


@pytest.mark.skipif(sys.platform == "win32", reason="needs os.pread")
@pytest.mark.timeout(60)
def test_failed_imports_in_four_threads_leak_no_handle(tmp_path: Path) -> None:
    turn = threading.local()
    wrong: list[str] = []
    given = holding(b"the caller's")

    def importer(handle: OwnedHandle) -> None:
        # The number must name the same file while this import owns it, also during the imports of other threads.
        number = handle.fileno()
        for _ in range(3):
            os.sched_yield()
            if os.pread(number, 99, 0) != b"the caller's":
                wrong.append(f"{number} is another's")
        turn.count = getattr(turn, "count", 0) + 1
        state: Any
        state, act = list(FATES.values())[turn.count % len(FATES)]
        act(handle)
        os.sched_yield()
        raise ImportFailure(RefusedError(), handle=state)

    device = Device(INFO, Scripted(importer))
    pipe = os.pipe()
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def imports(thread: int) -> None:
        gone = 2**20 + thread
        sem = SemaphoreDesc.opaque_fd(given, device_uuid=None)
        acts: list[Callable[[], object]] = [
            lambda: device.import_semaphore(sem),
            lambda: device.import_semaphore(SemaphoreDesc.opaque_fd(pipe[0], device_uuid=None)),
            lambda: device.import_memory(MemoryDesc.dmabuf_fd(given, allocation_size=4)),
            lambda: device.import_memory(MemoryDesc.dmabuf_fd(gone, allocation_size=4)),
            lambda: device.import_semaphore(sem),
            lambda: device.import_semaphore(SemaphoreDesc.opaque_fd(given, device_uuid=ONE)),
            lambda: device.import_memory(MemoryDesc.opaque_fd(given, allocation_size=4, device_uuid=None)),
            lambda: device.import_memory(MemoryDesc.opaque_fd(given, allocation_size=4096, device_uuid=None)),
        ]
        for number in range(250):
            try:
                acts[number % len(acts)]()
            except XsemError as error:
                with lock:
                    seen[error.reason] = seen.get(error.reason, 0) + 1

    def run(thread: int) -> None:
        try:
            imports(thread)
        except BaseException as error:
            wrong.append(repr(error))

    with device, ExitStack() as stack:
        stack.callback(os.close, given)
        for number in pipe:
            stack.callback(os.close, number)
        with untouched(given, *pipe), Storm(tmp_path) as storm:
            threads = [threading.Thread(target=run, args=(thread,)) for thread in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not storm.lost
        assert not wrong
        assert storm.count > 100
        assert sum(seen.values()) == 1000
        assert seen.pop("driver_refused") == 500
        assert set(seen) == {"fd_is_pipe", "closed_fd", "wrong_device", "allocation_size_beyond_file"}
        assert is_open(given)
