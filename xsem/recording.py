"""Recorded work: appended once, replayed with new timeline values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from xsem.books import Book
from xsem.errors import BadArgumentError, BusyError, WrongDeviceError
from xsem.params import UINT64_MAX, check_int
from xsem.resource import Resource
from xsem.semaphore import Semaphore
from xsem.session import Session
from xsem.spi import Token
from xsem.types import Kind

if TYPE_CHECKING:
    from xsem.device import Device

__all__ = ["Recording"]


class Recording(Resource):
    """What was appended inside ``with commands.record() as recording:``; made by `CommandList.record`.

    Leaving the block ends the recording and keeps it; `release` gives it up. Objects used in it stay alive with it.
    """

    def __init__(self, device: Device, session: Session, book: Book) -> None:
        self.device = device
        self._session = session
        self._book = book
        self._recorded: list[Token] = []
        self._record = session.new_record("recording", self._free, parent=book.record)

    def __enter__(self) -> Self:
        self._check()
        book = self._book
        with book.lock:
            if book.recording or self._recorded:
                raise BusyError("a recording can be made once, and one at a time on a list", reason="recording")
            book.driver.begin_recording()
            book.recording = True
        return self

    def __exit__(self, *exc: object) -> None:
        book = self._book
        with book.lock:
            book.recording = False
            recorded = book.driver.end_recording()
        self._recorded.append(recorded)
        if exc[0] is not None:
            self.release()

    def replay(self, values: Mapping[Semaphore, int | tuple[int, int]] | None = None) -> None:
        """Append the recorded work once more.

        Parameters
        ----------
        values : mapping of Semaphore to int or (int, int)
            New values of timelines in it: one for wait and signal alike, or (wait, signal).

        Raises
        ------
        BusyError
            ``recording``: it has not ended, or nothing was recorded.
        BadArgumentError
            ``not_a_timeline``, ``value_out_of_range``.
        """
        self._check()
        if not self._recorded:
            raise BusyError("the recording has not been made yet: append inside its `with` block", reason="recording")
        triples: list[tuple[Token, int, int]] = []
        records = [self._record]
        for semaphore, value in (values or {}).items():
            if semaphore._session is not self._session:
                raise WrongDeviceError("the semaphore belongs to another device", expected=self._session.info.id,
                                       actual=semaphore._session.info.id, reason="wrong_device")
            if semaphore.kind is not Kind.TIMELINE:
                raise BadArgumentError("only timelines take values in a replay", reason="not_a_timeline")
            wait, signal = value if isinstance(value, tuple) else (value, value)
            check_int("wait value", wait, 0, UINT64_MAX, reason="value_out_of_range")
            check_int("signal value", signal, 0, UINT64_MAX, reason="value_out_of_range")
            triples.append((semaphore._state.token, wait, signal))
            records.append(semaphore._record)

        def issue(_want: bool) -> None:
            self._book.driver.replay(self._recorded[0], triples)

        self._book.append("work", issue, records=records)

    def _free(self) -> None:
        if self._recorded:
            self._book.driver.release_recording(self._recorded[0])

    def _token(self) -> Token:
        return self._recorded[0] if self._recorded else None
