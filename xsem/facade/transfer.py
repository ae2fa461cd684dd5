"""Blocking copies between device memory and the host, on a list of xsem's own that nobody else uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Literal

from xsem.runtime.device_state import Session
from xsem.runtime.diagnostics import book_pending, timeout_error
from xsem.runtime.lifetime import Record
from xsem.runtime.queue import Book
from xsem.runtime.timeouts import wait_in_slices
from xsem.spi import CommandListDriver, Token

__all__ = ["copy_from_device", "copy_level", "copy_to_device"]


def copy_from_device(session: Session, source: Record, address: int, size: int, timeout_s: float | None) -> bytearray:
    """`size` bytes at a device address; blocks the host.

    Raises
    ------
    WaitTimeoutError
        The copy is still pending and will still be made, into memory that is then given back.
    """
    data = bytearray(size)
    _copy(session, source, data, timeout_s, "read", lambda driver, staging, want: driver.append_copy(
        staging, address, size, (), want))
    return data


def copy_to_device(
    session: Session, target: Record, address: int, data: bytearray | memoryview, timeout_s: float | None
) -> None:
    """Write bytes to a device address; blocks the host until they are there."""
    _copy(session, target, data, timeout_s, "write", lambda driver, staging, want: driver.append_copy(
        address, staging, len(data), (), want))


def copy_level(
    session: Session, array: Record, level: Token, data: memoryview, timeout_s: float | None,
    direction: Literal["read", "write"],
) -> None:
    """Copy an image level to the host, or from it, as rows without padding; blocks the host."""
    _copy(session, array, data, timeout_s, direction, lambda driver, staging, want: driver.append_level_copy(
        level, staging, direction == "read", (), want))


def _copy(
    session: Session, record: Record, data: bytearray | memoryview, timeout_s: float | None,
    direction: Literal["read", "write"], append: Callable[[CommandListDriver, int, bool], Token | None],
) -> None:
    book, size = _transfer_book(session), len(data)
    with session.calling(), session.making(
            "staging buffer", lambda driver, made: driver.release_host_buffer(made[0])) as making:
        _, staging = making.call(session.driver.host_buffer, size)
        # Through a record: if the wait runs out, the copy may still write here; it is given back when that is done.
        staged = making.record()
    try:
        if direction == "write":
            ctypes.memmove(staging, bytes(data), size)
        with session.calling():
            point = book.append("copy", lambda want: append(book.driver, staging, want), records=(record, staged),
                                want_point=True)
            done = wait_in_slices(point.wait, timeout_s)
        if not done:
            raise timeout_error(session, "the copy", timeout_s, book_pending(session, book, point.seq))
        book.reached(point.seq)
        if direction == "read":
            data[:] = ctypes.string_at(staging, size)
    finally:
        staged.release()


def _transfer_book(session: Session) -> Book:
    with session.transfer_lock:
        book = session.transfer_book
        if book is None or book.failure is not None:
            with session.calling():
                driver = session.driver.create_command_list()
            book = session.transfer_book = Book(session, driver, f"{session.info.id}/transfer", borrowed=False)
            session.add_book(book)
        return book
