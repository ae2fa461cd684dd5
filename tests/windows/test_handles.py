"""NT handles: one owner, which closes them once; duplicates; identity; and refusals of other numbers and objects."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support import windows_objects as nt
from support.fixtures import device, refused

import xsem
from xsem.errors import BadHandleError, ReleasedError
from xsem.runtime.handle_import import import_with_duplicate
from xsem.spi import DriverFd, HandleState, Imported, ImportFailure, duplicate_fd, same_open_file
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc

__all__ = ["device"]

CLOSED = 0x7770


# ---- owners
@pytest.mark.parametrize("closing", ["close", "with", "collection"])
def test_owner_closes_its_handle_once(closing: str, caplog: pytest.LogCaptureFixture) -> None:
    number = nt.event()
    owner = OwnedHandle(number)
    if closing == "close":
        owner.close()
        owner.close()
    elif closing == "with":
        with owner:
            pass
    else:
        del owner
    assert not nt.is_open(number)
    assert not caplog.records


def test_handle_that_others_closed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    number = nt.event()
    owner = OwnedHandle(number)
    assert nt.close(number)
    with caplog.at_level(logging.WARNING, "xsem"):
        owner.close()
    assert [f"handle {number} could not be closed" in each.getMessage() for each in caplog.records] == [True]


@pytest.mark.parametrize(("number", "reason"), [
    (0, "null_handle"), (-1, "null_handle"), (2**64 - 1, "null_handle"), (-2, "pseudo_handle"), (-6, "pseudo_handle"),
    (2**64 - 3, "pseudo_handle"), (CLOSED, "closed_fd"), (2**64 + 8, "closed_fd"), (-(2**63) - 1, "closed_fd"),
])
def test_number_without_an_object_is_refused(number: int, reason: str) -> None:
    refused(lambda: OwnedHandle(number), reason, BadHandleError)


def test_number_beyond_64_bits_is_not_truncated() -> None:
    with nt.closing(nt.event()) as number:
        refused(lambda: OwnedHandle(2**64 + number), "closed_fd", BadHandleError)
        refused(lambda: duplicate_fd(2**64 + number), "closed_fd", BadHandleError)


# ---- duplicates and identity
def test_duplicate_is_another_handle_of_the_same_object() -> None:
    with nt.closing(nt.event()) as number, nt.closing(nt.event()) as other, duplicate_fd(number) as duplicate:
        assert duplicate.fileno() != number
        assert same_open_file(number, duplicate.fileno()) is True
        assert same_open_file(number, other) is False
        nt.kernel32().SetEvent(ctypes.c_void_p(number))
        assert nt.is_signalled(duplicate.fileno())


def test_duplicate_is_not_inherited() -> None:
    with nt.closing(nt.event()) as number, duplicate_fd(number) as duplicate:
        assert os.get_handle_inheritable(duplicate.fileno()) is False  # type: ignore[attr-defined,unused-ignore]


def test_closed_number_is_not_the_same_object() -> None:
    with nt.closing(nt.event()) as number:
        assert same_open_file(number, CLOSED) is False
        refused(lambda: duplicate_fd(CLOSED), "closed_fd", BadHandleError)


def test_duplicate_of_a_reused_number_is_noticed() -> None:
    with nt.closing(nt.event()) as number:
        given = duplicate_fd(number)
        at_driver = DriverFd(given, number)
        assert at_driver.left_open() is True
        assert nt.close(given.fileno())   # the driver closes it
        others: list[OwnedHandle] = []
        while not others or others[-1].fileno() != given.fileno():
            others.append(duplicate_fd(number))   # another import of the same object gets the number
            assert len(others) < 10_000
        assert at_driver.left_open() is False
        at_driver.settle()
        assert nt.is_open(others[-1].fileno())
        for each in others:
            each.close()


# ---- the facade's duplicates
@contextmanager
def descriptors(owned: bool) -> Iterator[tuple[SemaphoreDesc, int]]:
    number = nt.event()
    handle: OwnedHandle | int = OwnedHandle(number) if owned else number
    yield SemaphoreDesc.d3d12_fence(handle), number
    assert nt.is_open(number)
    assert nt.close(number)
    if isinstance(handle, OwnedHandle):
        handle.detach()


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("state", "driver_closes", "open_after"), [
    ("left", False, False), ("taken", False, True), ("unknown", False, False), ("unknown", True, False),
])
def test_duplicate_is_closed_if_the_driver_left_it(
    state: HandleState, driver_closes: bool, open_after: bool, fails: bool, owned: bool
) -> None:
    given: list[int] = []

    def importer(_: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        assert handle is not None
        given.append(handle.fileno())
        if driver_closes:
            assert nt.close(handle.fileno())
        if fails:
            raise ImportFailure(ValueError("no"), handle=state)
        return Imported("token", handle=state)

    with descriptors(owned) as (desc, number):
        try:
            import_with_duplicate(desc, importer)
        except ValueError:
            assert fails
        assert given != [number]
        assert nt.is_open(given[0]) is open_after
        if open_after:
            nt.close(given[0])


def test_kmt_handle_is_passed_through() -> None:
    seen: list[object] = []

    def importer(desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        seen.append((desc.handle, handle))
        return Imported("token", handle="left")

    for number in (0x4000_0040, -0x3FFF_FFC0):
        import_with_duplicate(SemaphoreDesc.opaque_win32_kmt(number, device_uuid=None), importer)
    assert seen == [(0x4000_0040, None), (-0x3FFF_FFC0, None)]


def never(*_: Any) -> Imported:
    raise AssertionError("the driver was called")


def file_handle() -> int:
    import msvcrt

    with open(sys.executable, "rb") as file:
        return nt.with_access(msvcrt.get_osfhandle(file.fileno()), 0x80000000)  # type: ignore[attr-defined,unused-ignore]


WRONG: dict[str, tuple[Callable[[], int], bool]] = {   # True: wrong for memory only
    "Event": (nt.event, True), "Semaphore": (nt.counting_semaphore, True), "Mutant": (nt.mutex, False),
    "Process": (nt.process, False), "File": (file_handle, False),
}


@pytest.mark.parametrize("sort", WRONG)
def test_object_that_cannot_be_exported_is_refused(sort: str) -> None:
    make, memory_only = WRONG[sort]
    with nt.closing(make()) as number:
        memory = MemoryDesc.opaque_win32(number, allocation_size=4096, device_uuid=None)
        error = refused(lambda: import_with_duplicate(memory, never), "wrong_object", BadHandleError)
        assert f"type {sort}" in str(error)
        if not memory_only:
            fence = SemaphoreDesc.d3d12_fence(number)
            refused(lambda: import_with_duplicate(fence, never), "wrong_object", BadHandleError)


def test_closed_handle_is_refused_before_the_driver() -> None:
    refused(lambda: import_with_duplicate(SemaphoreDesc.d3d12_fence(CLOSED), never), "closed_fd", BadHandleError)
    with nt.closing(nt.event()) as number:
        owner = OwnedHandle(nt.with_access(number, nt.SYNCHRONIZE))
        desc = SemaphoreDesc.d3d12_fence(owner)
        owner.close()
        refused(lambda: import_with_duplicate(desc, never), "handle_closed", ReleasedError)


def test_handle_count_is_flat_over_many_imports(device: xsem.Device) -> None:
    """Half of the imports are refused."""
    with nt.closing(nt.event()) as good, nt.closing(nt.event(manual=True)) as bad:
        accepted, refusing = (SemaphoreDesc.opaque_win32(each, device_uuid=None) for each in (good, bad))

        def some(count: int) -> int:
            for _ in range(count):
                device.import_semaphore(accepted).release()
                with pytest.raises(BadHandleError):
                    device.import_semaphore(refusing)
            return nt.handle_count()

        before = some(10)
        assert some(5000) <= before
